"""EDGE: an agent's SQLite database, opened while the agent may use it. No view or trigger in it is executed."""

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

from sessions_app.sessionlog.errors import BadInput, SystemFailure

from .files import FileState, file_state

BUSY_SECONDS: Final = 2.0
"""How long to wait for a lock; in the journal mode of the known agents, locks last moments."""


@contextmanager
def opened_database(path: Path, not_done: str) -> Iterator[sqlite3.Connection]:
    """A read-only connection to the database at a real path, which shows one state of it, with its write-ahead log.

    Raises BadInput `no_such_file`, `not_a_file` and `not_a_database`, and SystemFailure `database_busy` and
    `database_unreadable`.
    """
    with _connected(path, "ro", "BEGIN", not_done) as connection:
        # Only a read begins the transaction.
        connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall()
        yield connection


@contextmanager
def changed_database(path: Path, not_done: str) -> Iterator[sqlite3.Connection]:
    """A connection in a transaction that excludes other writers; without a COMMIT, it changes nothing.

    Raises the errors of `opened_database`.
    """
    with _connected(path, "rw", "BEGIN IMMEDIATE", not_done) as connection:
        yield connection


@contextmanager
def session_copy(path: Path, tables: Mapping[str, str], session_id: str, not_done: str) -> Iterator[sqlite3.Connection]:
    """A copy in memory of the rows of one session, which can be changed without touching the database.

    `tables` names the column with the session's id in each table. Raises the errors of `opened_database`.
    """
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as copy:
        copy.text_factory = _text
        with opened_database(path, not_done) as connection:
            for table, column in tables.items():
                _copy_rows(connection, copy, quoted(table), quoted(column), session_id)
        yield copy


def _copy_rows(
    connection: sqlite3.Connection, copy: sqlite3.Connection, table: str, column: str, session_id: str
) -> None:
    rows = connection.execute(f"SELECT * FROM {table} WHERE {column} = ?", (session_id,))  # noqa: S608  # quoted names
    names = ", ".join(quoted(described[0]) for described in rows.description)
    # Without a type, a column keeps each value as it is.
    copy.execute(f"CREATE TABLE {table} ({names})")
    copy.execute(f"CREATE INDEX {quoted(f'{table} by id')} ON {table} (id)")
    for row in rows:
        places = ", ".join(map(placeholder, row))
        copy.execute(f"INSERT INTO {table} VALUES ({places})", list(map(encoded, row)))  # noqa: S608  # quoted names


@contextmanager
def _connected(path: Path, mode: str, begin: str, not_done: str) -> Iterator[sqlite3.Connection]:
    before = state_of(path, not_done)
    uri = f"{path.as_uri()}?mode={mode}"
    try:
        with closing(sqlite3.connect(uri, uri=True, timeout=BUSY_SECONDS, isolation_level=None)) as connection:
            connection.text_factory = _text
            connection.execute("PRAGMA trusted_schema = 0")
            connection.execute("PRAGMA synchronous = FULL")
            connection.set_authorizer(_authorize)
            connection.execute(begin)
            now = state_of(path, not_done)
            if (now.device, now.inode) != (before.device, before.inode):
                raise BadInput("not_a_file", f"{path} was replaced while it was opened. {not_done} Try again.")
            yield connection
    except (sqlite3.Error, UnicodeDecodeError) as fault:
        # Python decodes the names of columns, which may be damaged too.
        raise _failure(fault, path, not_done) from fault


def state_of(path: Path, not_done: str) -> FileState:
    """The state of the database's file. Raises BadInput `no_such_file`."""
    found = file_state(path)
    if found is None:
        raise BadInput("no_such_file", f"{path} does not exist. {not_done} Check the path.")
    return found


def read_row(connection: sqlite3.Connection, table: str, row_id: str) -> dict[str, Any] | None:
    """A row by its id, with all its columns; None if there is none."""
    cursor = connection.execute(f"SELECT * FROM {quoted(table)} WHERE id = ?", (row_id,))  # noqa: S608  # a quoted name
    names = [column[0] for column in cursor.description]
    found = cursor.fetchone()
    return dict(zip(names, found, strict=True)) if found is not None else None


def placeholder(value: object) -> str:
    """The placeholder of a value in a statement with `encoded` values."""
    return "CAST(? AS TEXT)" if isinstance(value, str) else "?"


def encoded(value: Any) -> Any:
    """A value of a row as the parameter of a statement: text as its recorded bytes."""
    return bytes_of(value) if isinstance(value, str) else value


def quoted(name: str) -> str:
    """The name of a table or a column in a statement."""
    return '"{}"'.format(name.replace('"', '""'))


def is_locked_by_others(fault: sqlite3.Error) -> bool:
    """Whether a statement failed because of another connection's lock, and has done nothing."""
    return getattr(fault, "sqlite_errorname", "").startswith(("SQLITE_BUSY", "SQLITE_LOCKED"))


def _failure(fault: sqlite3.Error | UnicodeDecodeError, path: Path, not_done: str) -> BadInput | SystemFailure:
    name = getattr(fault, "sqlite_errorname", "")
    if isinstance(fault, sqlite3.Error) and is_locked_by_others(fault):
        what = f"{path} is locked by another process. {not_done} Try again in a moment."
        return SystemFailure("database_busy", what)
    if name.startswith(("SQLITE_CANTOPEN", "SQLITE_READONLY", "SQLITE_IOERR", "SQLITE_FULL")):
        what = f"{path} cannot be opened, read or written as a database ({fault}). {not_done}"
        return SystemFailure("database_unreadable", f"{what} Check its permissions and the disk.")
    if name == "SQLITE_AUTH":
        what = f"{path} has a view or a trigger where the agent has plain tables ({fault}). {not_done}"
        return BadInput("not_a_database", f"{what} Delete it if you trust the database.")
    what = f"{path} is not a database of the agent's, or is damaged ({fault}). {not_done}"
    return BadInput("not_a_database", f"{what} Check it with `sqlite3 FILE 'pragma integrity_check'`.")


def _authorize(action: int, first: str | None, second: str | None, name: str | None, code: str | None) -> int:
    """Refuse what a view or a trigger does: it would read and change more than was requested."""
    del action, first, second, name
    return sqlite3.SQLITE_OK if code is None else sqlite3.SQLITE_DENY


def _text(data: bytes) -> str:
    """Text as recorded, whatever its bytes are."""
    return data.decode("utf-8", "surrogateescape")


def bytes_of(text: str) -> bytes:
    """The recorded bytes of a text. Statements take them with a CAST to TEXT: not every text can be encoded as one."""
    return text.encode("utf-8", "surrogateescape")
