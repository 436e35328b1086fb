"""EDGE: the sessions of OpenCode: rows of its database, documents of its older store, and exports, opened as lines.

    DIRECTORY/opencode.db/ses_1               the rows of a session; also in opencode-CHANNEL.db
    storage/session/PROJECT/ses_1.json        before 1.2: the session
    storage/message/ses_1/msg_1.json          its messages
    storage/part/msg_1/prt_1.json             their parts

The database is opened read-only, with what its write-ahead log has. One transaction gives everything that is read of a
session, whatever the client writes meanwhile. The sizes of rows give the offsets of lines; their data is read on
demand, by the number that SQLite gives each row: an id may be anything in a damaged database, or be there twice.

The ids of documents order by time. Links are not followed, and names that are not ids are not used.

OpenCode 2 imports the sessions of OpenCode 1 once, and leaves their rows as they are: from then on, each version
changes its own rows only. A database that OpenCode 2 made has no rows of OpenCode 1. Its sessions are not read yet:

    session_v2         its sessions: those that it imported, under their old ids, and its own
    session_message    their messages; OpenCode 1.18 has an empty table of this name, which previews of OpenCode 2 used
    kv                 migration.v1-v2: {"phase": "sessions", "cursor": …} during the import, {"phase": "completed"}
"""

import os
import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from enum import IntEnum
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from sessions_app.agents.base import OpenElsewhere, Store, named_directory
from sessions_app.agents.opencode.pure import lines
from sessions_app.agents.pure import fields
from sessions_app.disk import files
from sessions_app.disk.agent_database import opened_database, read_row, state_of
from sessions_app.disk.discovery import Discovery, RefusedPath
from sessions_app.disk.loopback import loopback_address
from sessions_app.disk.open_files import describe, writers_of
from sessions_app.disk.rendered import RenderedLine, RenderedReader, opened_document
from sessions_app.sessionlog.errors import BadInput, RedlineError
from sessions_app.sessionlog.jsjson import json_bytes, split_lines

from .server import OpenCodeServer, is_same_row

_TABLES: Final = "SELECT name FROM sqlite_master WHERE type = 'table'"
_OWN: Final = "session_v2"
_STATE: Final = "SELECT CAST(value AS BLOB) FROM kv WHERE key = 'migration.v1-v2'"


class Owner(IntEnum):
    """The version of OpenCode that continues a session."""

    FIRST = 0
    """OpenCode 1; OpenCode 2 was never started with this database."""
    SECOND = 1
    """OpenCode 2, which has its own rows of it."""
    LEFT = 2
    """OpenCode 1 only: OpenCode 2 uses the database, but no longer imports the session."""
    WAITING = 3
    """OpenCode 2 has not imported the session yet, but will."""


REMARKS: Final = {
    Owner.FIRST: ("", ""),
    Owner.SECOND: (
        "taken over by OpenCode 2",
        "OpenCode 2 has taken this session over, and this version of Redline does not read the sessions of OpenCode 2. "
        "What is shown is how OpenCode 1 left it; the model may see something else now. Nothing is written to it: "
        "OpenCode 2 would not see that.",
    ),
    Owner.LEFT: (
        "not in OpenCode 2",
        "OpenCode 2 has taken over this database and imports nothing more, so it does not have this session. Nothing "
        "is written to it: only OpenCode 1 would see that.",
    ),
    Owner.WAITING: (
        "to be taken over by OpenCode 2",
        "OpenCode 2 has begun to take over this database, and is to import this session. Nothing is written to it "
        "meanwhile.",
    ),
}
"""The remark in a list of sessions; and the meaning for a session, and for whoever wants to change it."""


class Takeover:
    """The tables and rows of OpenCode 2 in a database, as a transaction sees them."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self.tables = frozenset(name for (name,) in connection.execute(_TABLES))

    @property
    def has_older(self) -> bool:
        """Whether there may be rows of OpenCode 1. True also for a database of neither version: the query then refuses
        it.
        """
        return lines.SESSION in self.tables or self._ids is None

    def session_ids(self) -> set[object]:
        """The ids of the sessions of OpenCode 2, which may be anything in a damaged database."""
        if self._ids is None:
            return set()
        table, column = self._ids
        return {row_id for (row_id,) in self.connection.execute(f"SELECT DISTINCT {column} FROM {table}")}  # noqa: S608  # constants

    def owner(self, session_id: str) -> Owner:
        """The version that continues a session of OpenCode 1."""
        if self._ids is None:
            return Owner.FIRST
        table, column = self._ids
        found = self.connection.execute(f"SELECT 1 FROM {table} WHERE {column} = ? LIMIT 1", (session_id,))  # noqa: S608  # constants
        return Owner.SECOND if found.fetchone() is not None else self.owner_of_others()

    def owner_of_others(self) -> Owner:
        """The version that continues the sessions of OpenCode 1 that are not among those of OpenCode 2."""
        if _OWN not in self.tables:
            return Owner.FIRST
        state = self.connection.execute(_STATE).fetchone() if "kv" in self.tables else None
        recorded = fields.object_in(bytes(state[0] or b"")) if state is not None else None
        return Owner.LEFT if (recorded or {}).get("phase") == "completed" else Owner.WAITING

    @property
    def _ids(self) -> tuple[str, str] | None:
        """The table and the column with the ids of its sessions; None if it has none."""
        places = ((_OWN, "id"), ("session_message", "session_id"))
        return next((place for place in places if place[0] in self.tables), None)


DATABASE_NAME: Final = re.compile(r"opencode(?:-[A-Za-z0-9._-]+)?\.db\Z")
ID: Final = re.compile(r"[A-Za-z0-9_-]{1,128}\Z")
NOTHING_READ: Final = "It was not read."
_BYTES: Final = "octet_length({})" if sqlite3.sqlite_version_info >= (3, 43) else "length(CAST({} AS BLOB))"
_MESSAGES: Final = (
    f"SELECT rowid, id, {_BYTES.format('data')}, time_updated FROM message"  # noqa: S608  # a constant
    " WHERE session_id = ? ORDER BY time_created, id"
)
_PARTS: Final = (
    f"SELECT message.rowid, part.rowid, part.id, {_BYTES.format('part.data')}, part.time_updated, part.message_id"  # noqa: S608  # a constant
    " FROM message JOIN part ON part.message_id = message.id WHERE message.session_id = ? ORDER BY part.id"
)
_LOST_PARTS: Final = (
    f"SELECT rowid, id, {_BYTES.format('data')}, time_updated, message_id FROM part"  # noqa: S608  # a constant
    " WHERE session_id = ? AND NOT EXISTS (SELECT 1 FROM message WHERE id = part.message_id) ORDER BY id"
)
_DATA: Final = {
    lines.MESSAGE: "SELECT CAST(data AS BLOB) FROM message WHERE rowid = ?",
    lines.PART: "SELECT CAST(data AS BLOB) FROM part WHERE rowid = ?",
}
SESSION_TABLES: Final[Mapping[str, str]] = {lines.SESSION: "id", lines.MESSAGE: "session_id", lines.PART: "session_id"}
_LISTING: Final = (
    "SELECT id, max(updated), count(*), coalesce(sum(updated % 999983), 0) FROM"
    " (SELECT id, CAST(time_updated AS INTEGER) AS updated, 1 AS is_session FROM session"
    " UNION ALL SELECT session_id, CAST(time_updated AS INTEGER), 0 FROM message"
    " UNION ALL SELECT session_id, CAST(time_updated AS INTEGER), 0 FROM part)"
    " {} GROUP BY id HAVING max(is_session)"
)
_NS: Final = 1_000_000
"""The nanoseconds of a millisecond, in which OpenCode counts."""
_OWNER_STEP: Final = 7_919
"""Nanoseconds added to the time of change per `Owner`, so that a new owner counts as a change."""


class ListedSession(NamedTuple):
    """A session of a database. The id can be any value.

    `changed_ns` is when one of its rows was last changed, in nanoseconds. What is below a millisecond stands for the
    number of its rows, all their times and the version that continues it, so that another value shows a row that was
    removed or changed. A row whose data is replaced without a new time is not noticed before the session is read; the
    client always sets the time.
    """

    id: object
    changed_ns: int
    is_empty: bool
    """Whether it has no messages and no parts."""


def is_database(path: Path) -> bool:
    return DATABASE_NAME.match(path.name) is not None


def database_of(path: Path) -> Path | None:
    """The database of a session's path; None if the path is not one of a database's session."""
    return path.parent if is_database(path.parent) and ID.match(path.name) else None


class DatabaseSource:
    """The lines of one session, in one transaction of a connection."""

    def __init__(self, connection: sqlite3.Connection, path: Path, state: files.FileState) -> None:
        self._connection = connection
        self.identity = (state.device, state.inode)
        self._rows = rows_of(connection, path)
        owner = Takeover(connection).owner(path.name)
        self.changed_ns = next(_listed(connection, lambda _: owner, "WHERE id = ?", path.name)).changed_ns
        self.lines: Sequence[RenderedLine] = [
            RenderedLine(lines.size_of(row), lines.identity_of(row)) for row in self._rows
        ]

    def render(self, place: int) -> bytes:
        row = self._rows[place]
        if row.data is not None:
            return lines.render(row, row.data)
        found = self._connection.execute(_DATA[row.type], (row.number,)).fetchone()
        # Nothing if a damaged index named a row that does not exist: the reader then refuses the line.
        return lines.render(row, bytes(found[0] or b"") if found is not None else b"")


def rows_of(connection: sqlite3.Connection, path: Path) -> list[lines.Row]:
    """The rows of the session with this path, in order.

    Raises BadInput `no_such_file` if there is no such session, and `newer_form` if only OpenCode 2 has rows of it.
    """
    takeover = Takeover(connection)
    session = read_row(connection, lines.SESSION, path.name) if takeover.has_older else None
    spoken = _rows_of_messages(connection, path.name) if session is not None else []
    if not spoken and takeover.owner(path.name) is Owner.SECOND:
        raise BadInput(
            "newer_form",
            f"{path} is a session of OpenCode 2, which this version of Redline does not read yet. {NOTHING_READ} "
            "Continue with it in OpenCode.",
        )
    if session is None:
        raise BadInput("no_such_file", f"{path.parent} has no session {path.name}. {NOTHING_READ}")
    rows, recorded = [lines.session_row(session, _time(session.get("time_updated"))), *spoken], session.get("revert")
    revert = recorded.encode("utf-8", "surrogateescape") if isinstance(recorded, str) else b""
    return [*rows, *lines.revert_rows(revert, fields.object_in(revert) or {}, rows)]


def _rows_of_messages(connection: sqlite3.Connection, session_id: str) -> list[lines.Row]:
    """Parts whose message is missing, then each message with its parts."""
    messages = {
        number: lines.Row(lines.MESSAGE, _id(row_id), size or 0, _time(updated), number=number)
        for number, row_id, size, updated in connection.execute(_MESSAGES, (session_id,))
    }
    parts = ((message, _part(*columns)) for message, *columns in connection.execute(_PARTS, (session_id,)))
    lost = (_part(*columns) for columns in connection.execute(_LOST_PARTS, (session_id,)))
    return [*lost, *lines.in_order(messages, parts)]


@contextmanager
def opened_session(path: Path) -> Iterator[DatabaseSource]:
    """The lines of a session in a database."""
    with opened_database(path.parent, NOTHING_READ) as connection, session_within(path, connection) as source:
        yield source


@contextmanager
def session_within(path: Path, connection: sqlite3.Connection) -> Iterator[DatabaseSource]:
    """The lines of a session as a transaction sees it."""
    yield DatabaseSource(connection, path, state_of(path.parent, NOTHING_READ))


def session_state(path: Path) -> files.FileState | None:
    """The state of a session in a database; None if there is none."""
    if files.file_state(path.parent) is None:
        return None
    with opened_database(path.parent, NOTHING_READ) as connection:
        if not Takeover(connection).has_older or read_row(connection, lines.SESSION, path.name) is None:
            return None
        source = DatabaseSource(connection, path, state_of(path.parent, NOTHING_READ))
    return files.FileState(*source.identity, sum(line.size for line in source.lines), source.changed_ns)


def session_owner(path: Path) -> Owner:
    """The version that continues a session; OpenCode 1 if there is no such database."""
    if files.file_state(path.parent) is None:
        return Owner.FIRST
    with opened_database(path.parent, NOTHING_READ) as connection:
        return Takeover(connection).owner(path.name)


def list_database(database: Path) -> tuple[list[ListedSession], int, int]:
    """The sessions of OpenCode 1 in a database, also if OpenCode 2 has taken them over; the number of sessions of
    OpenCode 2; and how many of these are among the former. One that has no messages but those of OpenCode 2 is only
    counted."""
    with opened_database(database, "Its sessions were not listed.") as connection:
        takeover = Takeover(connection)
        newer = takeover.session_ids()
        if not takeover.has_older:
            return [], len(newer), 0
        others = takeover.owner_of_others()

        def owner(row_id: object) -> Owner:
            return Owner.SECOND if row_id in newer else others

        listed = [one for one in _listed(connection, owner) if not (one.is_empty and one.id in newer)]
        return listed, len(newer), sum(one.id in newer for one in listed)


def _listed(
    connection: sqlite3.Connection, owner: Callable[[object], Owner], condition: str = "", *values: str
) -> Iterator[ListedSession]:
    for row_id, updated, rows, times in connection.execute(_LISTING.format(condition), values):
        detail = rows + times + _OWNER_STEP * owner(row_id)
        yield ListedSession(row_id, _time(updated) * _NS + detail % _NS, is_empty=rows == 1)


def _part(number: int, row_id: object, size: int | None, updated: object, message_id: object) -> lines.Row:
    return lines.Row(lines.PART, _id(row_id), size or 0, _time(updated), _id(message_id), number=number)


def _id(value: object) -> str:
    """An id as recorded; empty if it is not a text."""
    return value if isinstance(value, str) else ""


def _time(value: object) -> int:
    """A time in milliseconds; 0 if it is not one whose nanoseconds can be stored."""
    return int(value) if isinstance(value, int | float) and 0 < value < 2**63 // _NS else 0


SUFFIX: Final = ".json"
SESSION_LIMIT: Final = 10_000_000
"""The size of a session's own document, in bytes, above which it is not read."""


def storage_of(path: Path) -> Path | None:
    """The store of a session's path; None if the path is not one of a session's document."""
    is_document = path.suffix == SUFFIX and ID.match(path.stem) is not None
    at = path.parent.parent
    return at.parent if is_document and at.name == "session" and at.parent.name == "storage" else None


class DocumentSource:
    """The lines of one session of the store."""

    def __init__(self, path: Path, storage: Path) -> None:
        self._storage = storage
        self._session = path.stem
        with files.reported(path, NOTHING_READ):
            found = files.stat_file(storage)
        self.identity = (found.st_dev, found.st_ino)
        self._rows = _rows_of(path, storage)
        self.changed_ns = changed_ns(path, storage)
        self.lines: Sequence[RenderedLine] = [
            RenderedLine(lines.size_of(row), lines.identity_of(row)) for row in self._rows
        ]

    def render(self, place: int) -> bytes:
        row = self._rows[place]
        above = Path(lines.MESSAGE, self._session) if row.type == lines.MESSAGE else Path(lines.PART, row.message_id)
        document = self._storage / above / f"{row.id}{SUFFIX}"
        return lines.render(row, row.data if row.data is not None else _read(document))


def changed_ns(path: Path, storage: Path) -> int:
    """The time of a session's last change, in nanoseconds: of its own document, its newest message, or a part of that.

    The client writes no others; a change by another program shows when the session is read. Raises BadInput
    `no_such_file`, and the errors of inspecting the documents.
    """
    state = files.file_state(path)
    if state is None:
        raise BadInput("no_such_file", f"{path} does not exist. {NOTHING_READ} Check the path.")
    times = [state.mtime_ns]
    directory = storage / lines.MESSAGE / path.stem
    newest = max(_document_names(directory), default="")
    if newest:
        parts = storage / lines.PART / newest.removesuffix(SUFFIX)
        recorded = [
            files.file_state(directory / newest),
            *(files.file_state(parts / name) for name in _document_names(parts)),
        ]
        times += [found.mtime_ns for found in recorded if found is not None]
    return max(times)


def _document_names(directory: Path) -> list[str]:
    """The names of the documents in a directory; none if it is missing."""
    with (
        files.reported(directory, NOTHING_READ),
        suppress(FileNotFoundError),
        files.scan_directory(directory) as entries,
    ):
        return [entry.name for entry in entries if _is_document(entry)]
    return []


def _is_document(entry: os.DirEntry[str]) -> bool:
    is_named = entry.name.endswith(SUFFIX) and ID.match(entry.name.removesuffix(SUFFIX))
    return bool(is_named) and entry.is_file(follow_symlinks=False)


@contextmanager
def opened_documents(path: Path, storage: Path) -> Iterator[DocumentSource]:
    """The lines of a session of the store."""
    yield DocumentSource(path, storage)


def _rows_of(path: Path, storage: Path) -> list[lines.Row]:
    state = files.file_state(path)
    if state is None:
        raise BadInput("no_such_file", f"{path} does not exist. {NOTHING_READ} Check the path.")
    if state.size > SESSION_LIMIT:
        raise BadInput("not_a_session", f"{path} is larger than {SESSION_LIMIT:,} bytes. {NOTHING_READ}")
    recorded = fields.object_in(_read(path)) or {}
    messages = {row.id: row for row in _documents(storage / lines.MESSAGE / path.stem, lines.MESSAGE)}
    parts = ((key, part) for key in messages for part in _documents(storage / lines.PART / key, lines.PART))
    session = lines.session_row(lines.columns_of(recorded, path.stem), state.mtime_ns)
    rows = [session, *lines.in_order(messages, parts)]
    revert = fields.mapping(recorded, "revert")
    return [*rows, *lines.revert_rows(json_bytes(revert), revert, rows)]


def _documents(directory: Path, row_type: str) -> Iterator[lines.Row]:
    """The rows for the documents in a directory, by id; a directory that is missing has none."""
    found = []
    with files.reported(directory, NOTHING_READ):
        try:
            with files.scan_directory(directory) as entries:
                for entry in filter(_is_document, entries):
                    state, row_id = entry.stat(follow_symlinks=False), entry.name.removesuffix(SUFFIX)
                    found.append(lines.Row(row_type, row_id, state.st_size, state.st_mtime_ns, directory.name))
        except FileNotFoundError:
            return
    yield from sorted(found, key=lambda row: row.id)


def _read(path: Path) -> bytes:
    with files.opened(path, os.O_RDONLY, NOTHING_READ) as fd, files.reported(path, NOTHING_READ):
        return files.pread(fd, 0, os.fstat(fd).st_size)


STORE: Final = Path("storage", "session")


def discover(root: Path) -> Discovery:
    """The sessions of every database in a directory, which is a real path, and of the older store beside them.

    A database is read with one query. Raises BadInput if `root` is not a directory.
    """
    with files.reported(root, "It was not searched."):
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
            listed, *counts = list_database(root / name)
        except RedlineError as fault:
            unlisted.append(RefusedPath(root / name, fault.message))
            continue
        unread, taken_over = unread + counts[0], taken_over + counts[1]
        for one in listed:
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
    """The remark on sessions of OpenCode 2, some of which are listed as OpenCode 1 left them."""
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
        with files.scan_directory(directory) as entries:
            yield from [entry.name for entry in entries if not entry.is_symlink()]
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as fault:
        unlisted.append(RefusedPath(directory, f"cannot be listed: {fault.strerror}"))


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
    discover = staticmethod(discover)
    database = staticmethod(database_of)
    is_same_row = staticmethod(is_same_row)

    def roots(self, environment: Mapping[str, str]) -> Sequence[str]:
        return (str(named_directory("XDG_DATA_HOME", Path("~/.local/share"), environment) / DIRECTORY),)

    def owns(self, path: Path) -> bool:
        is_session = database_of(path) is not None or storage_of(path) is not None
        return is_session or path.parts[-2:] == ("share", DIRECTORY)

    def recognises(self, head: bytes) -> bool:
        return lines.HEAD.match(head) is not None

    def open(self, path: Path) -> files.SessionReader:
        storage = storage_of(path)
        if database_of(path) is not None:
            return RenderedReader(path, partial(opened_session, path))
        if storage is not None:
            return RenderedReader(path, partial(opened_documents, path, storage))
        return RenderedReader(path, partial(opened_document, path, lines.lines_of_export, "an export of OpenCode 1"))

    def state(self, path: Path) -> files.FileState | None:
        if database_of(path) is not None:
            return session_state(path)
        if files.file_state(path) is None:
            return None
        with self.open(path) as reader:
            return reader.state()

    def read_only(self, path: Path) -> str:
        if database_of(path) is not None:
            return REMARKS[session_owner(path)][1]
        return _NO_DOCUMENTS if storage_of(path) is not None else ""

    def taken_over(self, path: Path) -> str:
        return REMARKS[session_owner(path)][0] if database_of(path) is not None else ""

    def export(self, path: Path) -> Iterator[bytes] | None:
        """The session in the client's export format; None if its file has that already."""
        if database_of(path) is None and storage_of(path) is None:
            return None
        return self._export(path)

    def _export(self, path: Path) -> Iterator[bytes]:
        with self.open(path) as reader:
            updated = reader.state().mtime_ns // 1_000_000
            info = lines.info_of((line.raw for line in split_lines(reader.chunks(0))), updated)
            yield from lines.export_of(info, lines.export_rows(line.raw for line in split_lines(reader.chunks(0))))

    def open_within(self, path: Path, connection: sqlite3.Connection) -> files.SessionReader:
        return RenderedReader(path, partial(session_within, path, connection))

    def open_elsewhere(self, path: Path) -> OpenElsewhere | None:
        """The evidence that a program has the database open: it may write to every session in it, as the client takes
        no lock.
        """
        database = database_of(path)
        found = files.file_state(database) if database is not None else None
        writers = writers_of(found) if found is not None else ()
        return OpenElsewhere(f"is in a database that is open in {describe(writers)}") if writers else None

    def server(self, path: Path, address: str) -> OpenCodeServer | None:
        if database_of(path) is None or not address:
            return None
        server = OpenCodeServer(loopback_address(address), path)
        return server if server.is_alone() else None
