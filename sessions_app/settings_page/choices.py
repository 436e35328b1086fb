"""What the user chooses on the settings page: roots beside those of the configuration, and context windows."""

from __future__ import annotations

from django.db import transaction

from sessions_app.index.context_window_lookup import ContextWindowLookup, refresh_windows
from sessions_app.index.roots import configured_roots
from sessions_app.models import ChosenWindow, Root


@transaction.atomic
def add_root(path: str, agent: str) -> None:
    """Search a directory, a real path, for sessions from now on. The next scan, within a minute, finds them."""
    Root.objects.update_or_create(path=path, defaults={"agent": agent, "added": True})
    configured_roots()


def name_root(root: Root, name: str) -> None:
    """Give a root a name; an empty one takes it away."""
    Root.objects.filter(pk=root.pk).update(name=" ".join(name.split()))


@transaction.atomic
def remove_root(root: Root) -> None:
    """Search a directory no longer, and show its sessions no longer. What is known of them is kept."""
    Root.objects.filter(pk=root.pk).update(added=False, name="")
    configured_roots()


@transaction.atomic
def choose_window(model: str, tokens: int | None) -> None:
    """Set the context window of a model in tokens; None takes the choice back. Sessions follow at once."""
    if tokens is None:
        ChosenWindow.objects.filter(model=model).delete()
    else:
        ChosenWindow.objects.update_or_create(model=model, defaults={"tokens": tokens})
    refresh_windows(ContextWindowLookup())
