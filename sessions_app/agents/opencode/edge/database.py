"""EDGE: a session in OpenCode's database, opened as lines by byte offset: see `lines`.

    DIRECTORY/opencode.db/ses_1        the rows of the session; also in opencode-CHANNEL.db

The database is opened read-only, with what its write-ahead log has. One transaction gives everything that is read of a
session, whatever the client writes meanwhile. The sizes of rows give the offsets; their data is read on demand, by the
number that SQLite gives each row: an id may be anything in a damaged database, or be there twice.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from sessions_app.agents.opencode.pure.lines import (
    MESSAGE,
    PART,
    SESSION,
    Row,
    identity_of,
    in_order,
    render,
    revert_row,
    session_row,
    size_of,
)
from sessions_app.agents.pure import fields
from sessions_app.disk.agent_database import opened_database, read_row, state_of
from sessions_app.disk.files import FileState, file_state
from sessions_app.disk.rendered import RenderedLine
from sessions_app.sessionlog.errors import BadInput
from sessions_app.sessionlog.jsjson import parse

from .takeover import Owner, Takeover

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
    MESSAGE: "SELECT CAST(data AS BLOB) FROM message WHERE rowid = ?",
    PART: "SELECT CAST(data AS BLOB) FROM part WHERE rowid = ?",
}
SESSION_TABLES: Final[Mapping[str, str]] = {SESSION: "id", MESSAGE: "session_id", PART: "session_id"}
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
"""Added for each `Owner`, so that another one is another time of change."""


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


class ListedDatabase(NamedTuple):
    """The sessions of a database."""

    sessions: list[ListedSession]
    """Those of OpenCode 1, also if OpenCode 2 has taken them over."""
    unread: int
    """The number of sessions of OpenCode 2."""
    taken_over: int
    """How many of these are among `sessions`, as OpenCode 1 left them."""


def is_database(path: Path) -> bool:
    return DATABASE_NAME.match(path.name) is not None


def database_of(path: Path) -> Path | None:
    """The database of a session's path; None if the path is not one of a database's session."""
    return path.parent if is_database(path.parent) and ID.match(path.name) else None


class DatabaseSource:
    """The lines of one session, in one transaction of a connection."""

    def __init__(self, connection: sqlite3.Connection, path: Path, state: FileState) -> None:
        self._connection = connection
        self.identity = (state.device, state.inode)
        self._rows = rows_of(connection, path)
        owner = Takeover.of(connection).owner(path.name)
        self.changed_ns = next(_listed(connection, lambda _: owner, "WHERE id = ?", path.name)).changed_ns
        self.lines: Sequence[RenderedLine] = [RenderedLine(size_of(row), identity_of(row)) for row in self._rows]

    def render(self, place: int) -> bytes:
        row = self._rows[place]
        return render(row, row.data if row.data is not None else self._data(row))

    def _data(self, row: Row) -> bytes:
        """Nothing if a damaged index named a row that does not exist: the reader then refuses the line."""
        found = self._connection.execute(_DATA[row.type], (row.number,)).fetchone()
        return bytes(found[0] or b"") if found is not None else b""


def rows_of(connection: sqlite3.Connection, path: Path) -> list[Row]:
    """The rows of the session with this path, in order.

    Raises BadInput `no_such_file` if there is no such session, and `newer_form` if only OpenCode 2 has something of it.
    """
    takeover = Takeover.of(connection)
    session = read_row(connection, SESSION, path.name) if takeover.has_older else None
    spoken = _rows_of_messages(connection, path.name) if session is not None else []
    if not spoken and takeover.owner(path.name) is Owner.SECOND:
        raise BadInput(
            "newer_form",
            f"{path} is a session of OpenCode 2, which this version of Redline does not read yet. {NOTHING_READ} "
            "Continue with it in OpenCode.",
        )
    if session is None:
        raise BadInput("no_such_file", f"{path.parent} has no session {path.name}. {NOTHING_READ}")
    rows = [session_row(session, _time(session.get("time_updated"))), *spoken]
    reverted = _revert(session.get("revert"), rows)
    return [*rows, reverted] if reverted is not None else rows


def _rows_of_messages(connection: sqlite3.Connection, session_id: str) -> list[Row]:
    """Parts whose message is missing, then each message with its parts."""
    messages = {
        number: Row(MESSAGE, _id(row_id), size or 0, _time(updated), number=number)
        for number, row_id, size, updated in connection.execute(_MESSAGES, (session_id,))
    }
    parts = ((message, _part(*columns)) for message, *columns in connection.execute(_PARTS, (session_id,)))
    lost = (_part(*columns) for columns in connection.execute(_LOST_PARTS, (session_id,)))
    return [*lost, *in_order(messages, parts)]


@contextmanager
def opened_session(path: Path) -> Iterator[DatabaseSource]:
    """The lines of a session in a database."""
    with opened_database(path.parent, NOTHING_READ) as connection, session_within(path, connection) as source:
        yield source


@contextmanager
def session_within(path: Path, connection: sqlite3.Connection) -> Iterator[DatabaseSource]:
    """The lines of a session as a transaction sees it."""
    yield DatabaseSource(connection, path, state_of(path.parent, NOTHING_READ))


def session_state(path: Path) -> FileState | None:
    """The state of a session in a database; None if there is none."""
    if file_state(path.parent) is None:
        return None
    with opened_database(path.parent, NOTHING_READ) as connection:
        if not Takeover.of(connection).has_older or read_row(connection, SESSION, path.name) is None:
            return None
        source = DatabaseSource(connection, path, state_of(path.parent, NOTHING_READ))
    return FileState(*source.identity, sum(line.size for line in source.lines), source.changed_ns)


def session_owner(path: Path) -> Owner:
    """The version that continues a session; OpenCode 1 if there is no such database."""
    if file_state(path.parent) is None:
        return Owner.FIRST
    with opened_database(path.parent, NOTHING_READ) as connection:
        return Takeover.of(connection).owner(path.name)


def list_database(database: Path) -> ListedDatabase:
    """Every session of a database. One that has no messages but those of OpenCode 2 is only counted."""
    with opened_database(database, "Its sessions were not listed.") as connection:
        takeover = Takeover.of(connection)
        newer = takeover.session_ids()
        if not takeover.has_older:
            return ListedDatabase([], len(newer), 0)
        others = takeover.owner_of_others()

        def owner(row_id: object) -> Owner:
            return Owner.SECOND if row_id in newer else others

        listed = [one for one in _listed(connection, owner) if not (one.is_empty and one.id in newer)]
        return ListedDatabase(listed, len(newer), sum(one.id in newer for one in listed))


def _listed(
    connection: sqlite3.Connection, owner: Callable[[object], Owner], condition: str = "", *values: str
) -> Iterator[ListedSession]:
    for row_id, updated, rows, times in connection.execute(_LISTING.format(condition), values):
        detail = rows + times + _OWNER_STEP * owner(row_id)
        yield ListedSession(row_id, _time(updated) * _NS + detail % _NS, is_empty=rows == 1)


def _part(number: int, row_id: object, size: int | None, updated: object, message_id: object) -> Row:
    return Row(PART, _id(row_id), size or 0, _time(updated), _id(message_id), number=number)


def _id(value: object) -> str:
    """An id as recorded; empty if it is not a text."""
    return value if isinstance(value, str) else ""


def _revert(recorded: object, rows: Sequence[Row]) -> Row | None:
    if not isinstance(recorded, str) or not recorded:
        return None
    data = recorded.encode("utf-8", "surrogateescape")
    try:
        return revert_row(data, fields.as_mapping(parse(data)), rows)
    except ValueError:
        return None


def _time(value: object) -> int:
    """A time in milliseconds; 0 if it is not one whose nanoseconds can be stored."""
    return int(value) if isinstance(value, int | float) and 0 < value < 2**63 // _NS else 0
