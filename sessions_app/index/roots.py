"""The directories that contain sessions: the configured roots, those that the user added on the settings page, and
Redline's own, the managed root."""

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from django.conf import settings

from sessions_app.agents.registry import agent_of, discover_sessions
from sessions_app.disk.discovery import Discovery, discover
from sessions_app.disk.files import SESSION_SUFFIX, real_path, reported
from sessions_app.disk.rendered import DOCUMENT_SUFFIX
from sessions_app.models import Root

MANAGED: Final = "sessions"
"""The name of the managed root in the data directory."""


def managed_path() -> Path:
    """The path of the managed root, whether it exists or not."""
    return real_path(settings.REDLINE_DATA_DIR / MANAGED)


def managed_root() -> Path:
    """The directory of imported sessions, created as private if it is missing.

    Raises SystemFailure.
    """
    path = managed_path()
    with reported(path, "No session can be stored there."):
        path.mkdir(mode=0o700, exist_ok=True)
    return path


def discover_in(root: Path, agent: str) -> Discovery:
    """The sessions below a root, of the agent with this key or of any; documents only where they were imported.

    Raises BadInput `no_such_root`.
    """
    if root == managed_path():
        return discover(root, (SESSION_SUFFIX, DOCUMENT_SUFFIX))
    return discover_sessions(root, agent)


def record_unread(root: Path, unread: str) -> None:
    """Record a sentence about an agent's content in a root that Redline cannot read yet; empty if there is none."""
    outdated = Root.objects.filter(path=str(root)).exclude(unread=unread)
    if outdated.exists():
        outdated.update(unread=unread)


def configured_roots() -> list[Root]:
    """The configured and added roots and, if it exists, the managed one, as rows; other rows are marked as not
    configured."""
    kept = []
    rows = known_roots()
    for path, (agent, reader) in _wanted(Root.objects.filter(added=True).order_by("pk")).items():
        wanted = {"agent": agent, "reader": reader, "configured": True}
        root = rows.pop(path, None)
        if root is None or any(getattr(root, name) != value for name, value in wanted.items()):
            root, _ = Root.objects.update_or_create(path=path, defaults=wanted)
        kept.append(root)
    unwanted = [root.pk for root in rows.values() if root.configured]
    if unwanted:
        Root.objects.filter(pk__in=unwanted).update(configured=False)
    return kept


def shown_roots() -> list[Root]:
    """The configured roots, by one query and without writing: a root without a row is an unsaved object."""
    rows = {root.path: root for root in Root.objects.order_by("pk")}
    roots = []
    for path, (agent, reader) in _wanted(rows.values()).items():
        root = rows.get(path) or Root(path=path)
        root.agent, root.reader = agent, reader
        roots.append(root)
    return roots


def _wanted(rows: Iterable[Root]) -> dict[str, tuple[str, str]]:
    """The agent and the configured reader of each root, by its real path: of the configuration, of those rows that the
    user added, in their order, and of the managed root."""
    wanted: dict[str, tuple[str, str]] = {
        str(real_path(setting.path)): (setting.agent, setting.reader) for setting in settings.REDLINE.roots
    }
    for row in rows:
        if row.added:
            wanted.setdefault(row.path, (row.agent, ""))
    managed = managed_path()
    if managed.is_dir():
        wanted.setdefault(str(managed), ("", ""))
    return wanted


def is_in_configuration(root: Root) -> bool:
    """Whether the root is named in the configuration, so that only the configuration can change it."""
    return root.path in {str(real_path(setting.path)) for setting in settings.REDLINE.roots}


def known_roots() -> dict[str, Root]:
    """All roots by path, including those that are no longer configured."""
    return {root.path: root for root in Root.objects.all()}


def root_for(directory: Path, known: dict[str, Root] | None = None) -> tuple[Root, Path]:
    """The root that contains a directory (a real path), and its path below it; if there is none, the directory itself.

    `known` are the `known_roots`, for callers with many directories; new roots are added to them.
    """
    known = known_roots() if known is None else known
    if directory.is_file():
        # The sessions of a database are below its path.
        root, place = root_for(directory.parent, known)
        return root, place / directory.name
    found = _containing(directory, known)
    if found is None:
        # The first command may come before any indexing: the configured roots have no rows yet.
        known |= {root.path: root for root in configured_roots()}
        found = _containing(directory, known)
    if found is not None:
        return found, directory.relative_to(found.path)
    root = known[str(directory)] = Root.objects.create(path=str(directory), agent=agent_of(directory))
    return root, Path()


def _containing(directory: Path, known: dict[str, Root]) -> Root | None:
    """The innermost of the known roots that contains a directory."""
    places = (known.get(str(candidate)) for candidate in (directory, *directory.parents))
    return next((root for root in places if root is not None), None)
