"""A hook that keeps entries with a label.

Enabled with `REDLINE_HOOKS=compaction_app.examples.pin_labelled`, or in `redline.toml`:

    hooks = ["compaction_app.examples.pin_labelled"]

An agent writes a label as a separate entry, on any branch. If an entry has several labels, the latest counts, and an
empty one removes the label.
"""

from typing import Any

from django.dispatch import receiver

from compaction_app.hooks import Pin, Target, session_before_compact
from sessions_app.sessionlog.tree import labels
from sessions_app.storage.session_loader import LoadedSession


@receiver(session_before_compact)
def keep_what_is_labelled(*, loaded: LoadedSession, **others: Any) -> Pin:
    """Pin every labelled entry."""
    del others
    return Pin([Target(entry_id) for entry_id in labels(loaded.tree)], "it has a label")
