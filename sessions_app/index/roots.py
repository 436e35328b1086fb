"""Where sessions are looked for: the configured roots, and the one that Redline itself keeps."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from django.conf import settings

from sessions_app.agents.registry import agent_of
from sessions_app.models import Root
from sessions_app.storage.files import real_path, reported

MANAGED: Final = "sessions"
"""The name of the managed root in the data directory."""


def managed_place() -> Path:
    """Where the managed root is, or would be."""
    return real_path(settings.REDLINE_DATA_DIR / MANAGED)


def managed_root() -> Path:
    """The directory of the sessions that Redline itself keeps, made private where it is missing.

    Raises SystemFailure.
    """
    path = managed_place()
    with reported(path, "No session can be kept there."):
        path.mkdir(mode=0o700, exist_ok=True)
    return path


def configured_roots() -> list[Root]:
    """The configured roots and, where it is there, the managed one, as rows; other rows lose their mark."""
    kept = []
    for path, (agent, reader) in _wanted().items():
        root, _ = Root.objects.update_or_create(
            path=path, defaults={"agent": agent, "reader": reader, "configured": True}
        )
        kept.append(root)
    Root.objects.filter(configured=True).exclude(pk__in=[root.pk for root in kept]).update(configured=False)
    return kept


def shown_roots() -> list[Root]:
    """The configured roots without writing anything: one that has no row yet is unsaved."""
    rows = {root.path: root for root in Root.objects.all()}
    roots = []
    for path, (agent, reader) in _wanted().items():
        root = rows.get(path) or Root(path=path)
        root.agent, root.reader = agent, reader
        roots.append(root)
    return roots


def _wanted() -> dict[str, tuple[str, str]]:
    """By the real path of a root, its agent and reader as they are configured."""
    wanted: dict[str, tuple[str, str]] = {
        str(real_path(setting.path)): (setting.agent, setting.reader) for setting in settings.REDLINE.roots
    }
    managed = managed_place()
    if managed.is_dir():
        wanted.setdefault(str(managed), ("", ""))
    return wanted


def known_roots() -> dict[str, Root]:
    """All roots by path, also those that are no longer configured."""
    return {root.path: root for root in Root.objects.all()}


def root_for(directory: Path, known: dict[str, Root] | None = None) -> tuple[Root, Path]:
    """The root that a directory at a real path lies in, and its path below it; the directory itself if none does.

    `known` are the `known_roots`, of someone who looks for many; what is made is added to them.
    """
    known = known_roots() if known is None else known
    for candidate in (directory, *directory.parents):
        root = known.get(str(candidate))
        if root is not None:
            return root, directory.relative_to(candidate)
    root = known[str(directory)] = Root.objects.create(path=str(directory), agent=agent_of(directory))
    return root, Path()
