"""EDGE: the sessions below a data directory of OpenCode."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from sessions_app.sessionlog.errors import BadInput, RedlineError
from sessions_app.storage.discovery import Discovery, RefusedPath
from sessions_app.storage.files import reported
from sessions_app.storage.nofollow import scan_directory

from .database import ID, is_database, list_database
from .documents import SUFFIX, changed_ns

STORE: Final = Path("storage", "session")


def discover(root: Path) -> Discovery:
    """The sessions of every database in a directory, which is a real path, and of the older store beside them.

    A database is read with one query. Raises BadInput if `root` is not a directory.
    """
    with reported(root, "It was not searched."):
        if not root.is_dir():
            raise BadInput("no_such_root", f"{root} is not a directory. It was not searched. Check the root.")
    paths: list[Path] = []
    changed: dict[Path, int] = {}
    refused: list[RefusedPath] = []
    unlisted: list[RefusedPath] = []
    unread = taken_over = 0
    for name in _names(root, unlisted):
        if not is_database(root / name):
            continue
        try:
            found = list_database(root / name)
        except RedlineError as fault:
            unlisted.append(RefusedPath(root / name, fault.message))
            continue
        unread, taken_over = unread + found.unread, taken_over + found.taken_over
        for one in found.sessions:
            if isinstance(one.id, str) and ID.match(one.id):
                path = root / name / one.id
                paths.append(path)
                changed[path] = one.changed_ns
            else:
                refused.append(RefusedPath(root / name, f"has a session whose id is not usable: {one.id!r}"))
    for project in _names(root / STORE, unlisted):
        directory = root / STORE / project
        names = [name for name in _names(directory, unlisted) if name.endswith(SUFFIX)]
        for path in (directory / name for name in names if ID.match(name.removesuffix(SUFFIX))):
            paths.append(path)
            with suppress(RedlineError):  # reading it reports it
                changed[path] = changed_ns(path, root / STORE.parent)
    return Discovery(
        tuple(sorted(paths)),
        tuple(sorted(refused + unlisted)),
        tuple(sorted(unlisted)),
        changed,
        _unread(unread, taken_over),
    )


def _unread(count: int, taken_over: int) -> str:
    """What is said of sessions of OpenCode 2, some of which are listed as OpenCode 1 left them."""
    if not count:
        return ""
    said = f"{count:,} session{'s' if count > 1 else ''} of OpenCode 2 {'are' if count > 1 else 'is'} not read yet"
    if not taken_over:
        return f"{said}."
    shown = "is shown as OpenCode 1 left it" if taken_over == 1 else "are shown as OpenCode 1 left them"
    return f"{said}; {taken_over:,} {shown}."


def _names(directory: Path, unlisted: list[RefusedPath]) -> Iterator[str]:
    """The names in a directory; none if there is no such directory. Links are left out."""
    try:
        with scan_directory(directory) as entries:
            yield from [entry.name for entry in entries if not entry.is_symlink()]
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as fault:
        unlisted.append(RefusedPath(directory, f"cannot be listed: {fault.strerror}"))
