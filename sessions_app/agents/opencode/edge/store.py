"""EDGE: the sessions of OpenCode: rows of its database, documents of its older store, and exports."""
# WAS sessions_app/agents/opencode/edge/listing: """EDGE: the sessions below a data directory of OpenCode."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

from sessions_app.agents.base import OpenElsewhere, Store
from sessions_app.agents.opencode.pure.export import HEAD, export_of, export_rows, info_of, lines_of_export
from sessions_app.disk.discovery import Discovery, RefusedPath
from sessions_app.disk.files import FileState, SessionReader, file_state, reported, scan_directory
from sessions_app.disk.loopback import loopback_address
from sessions_app.disk.open_files import describe, writers_of
from sessions_app.disk.rendered import RenderedReader, opened_document
from sessions_app.sessionlog.errors import BadInput, RedlineError
from sessions_app.sessionlog.jsjson import split_lines

from .database import (
    ID,
    SESSION_TABLES,
    database_of,
    is_database,
    list_database,
    opened_session,
    session_owner,
    session_state,
    session_within,
)
from .documents import SUFFIX, changed_ns, opened_documents, storage_of
from .server import OpenCodeServer, is_same_row
from .takeover import MARKS, SENTENCES

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


DATA_VARIABLE: Final = "XDG_DATA_HOME"
DIRECTORY: Final = "opencode"
_NO_DOCUMENTS: Final = (
    "OpenCode keeps sessions in a database since 1.2, and newer versions do not read the documents of older ones, so "
    "nothing is written to them. Download the session: OpenCode 1 imports that file, and the copy can be compacted."
)


class OpenCodeStore(Store):
    """The sessions are rows or documents, read as lines; any other file is an export."""

    keeps_database = True
    has_server = True
    session_tables = SESSION_TABLES

    def roots(self, environment: Mapping[str, str]) -> Sequence[str]:
        configured = environment.get(DATA_VARIABLE, "")
        base = configured if Path(configured).is_absolute() else "~/.local/share"
        return (f"{base}/{DIRECTORY}",)

    def owns(self, path: Path) -> bool:
        is_session = database_of(path) is not None or storage_of(path) is not None
        return is_session or path.parts[-2:] == ("share", DIRECTORY)

    def recognises(self, head: bytes) -> bool:
        return HEAD.match(head) is not None

    def discover(self, root: Path) -> Discovery:
        return discover(root)

    def open(self, path: Path) -> SessionReader:
        storage = storage_of(path)
        if database_of(path) is not None:
            return RenderedReader(path, partial(opened_session, path))
        if storage is not None:
            return RenderedReader(path, partial(opened_documents, path, storage))
        return RenderedReader(path, partial(opened_document, path, lines_of_export, "an export of OpenCode 1"))

    def state(self, path: Path) -> FileState | None:
        if database_of(path) is not None:
            return session_state(path)
        if file_state(path) is None:
            return None
        with self.open(path) as reader:
            return reader.state()

    def read_only(self, path: Path) -> str:
        if database_of(path) is not None:
            return SENTENCES[session_owner(path)]
        return _NO_DOCUMENTS if storage_of(path) is not None else ""

    def taken_over(self, path: Path) -> str:
        return MARKS[session_owner(path)] if database_of(path) is not None else ""

    def export(self, path: Path) -> Iterator[bytes] | None:
        """The client's own form, unless the session's file has it already."""
        if database_of(path) is None and storage_of(path) is None:
            return None
        return self._export(path)

    def _export(self, path: Path) -> Iterator[bytes]:
        with self.open(path) as reader:
            updated = reader.state().mtime_ns // 1_000_000
            info = info_of((line.raw for line in split_lines(reader.chunks(0))), updated)
            yield from export_of(info, export_rows(line.raw for line in split_lines(reader.chunks(0))))

    def database(self, path: Path) -> Path | None:
        return database_of(path)

    def open_within(self, path: Path, connection: sqlite3.Connection) -> SessionReader:
        return RenderedReader(path, partial(session_within, path, connection))

    def open_elsewhere(self, path: Path) -> OpenElsewhere | None:
        """The client takes no lock: whoever has the database open may write to every session in it."""
        database = database_of(path)
        found = file_state(database) if database is not None else None
        writers = writers_of(found) if found is not None else ()
        return OpenElsewhere(f"is in a database that is open in {describe(writers)}") if writers else None

    def server(self, path: Path, address: str) -> OpenCodeServer | None:
        if database_of(path) is None or not address:
            return None
        server = OpenCodeServer(loopback_address(address), path)
        return server if server.is_alone() else None

    def is_same_row(self, one: Mapping[str, Any] | None, other: Mapping[str, Any] | None) -> bool:
        return is_same_row(one, other)
