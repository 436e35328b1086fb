"""EDGE: rows of an agent's database changed under the lock of their session: all of them, or none.

    backup of the rows → transaction begins → each row as reviewed? → changed → proven by the caller → intent record
    → committed → recorded by the caller → intent record removed

A process that is killed before the commit has changed nothing: the database takes it back when it is next opened.
The backup is JSON, one object; a row has all its columns, the data as exact text:

    {"session": …, "rows": [{"table": "part", "id": "prt_1", "row": {…} or null, "after": {…} or null}]}
"""

from __future__ import annotations

import base64
import json
import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

from sessions_app.agents.changes import RowChanges
from sessions_app.sessionlog.errors import BadInput, Conflict, SystemFailure

from .agent_database import (
    changed_database,
    encoded,
    is_locked_by_others,
    opened_database,
    place_of,
    quoted,
    row_of,
    session_copy,
    state_of,
)
from .backups import NO_BACKUP, Backup, list_backups, write_backup
from .files import opened, pread, reported
from .locks import NOTHING_WRITTEN, LockedSession, RowsIntent
from .open_files import describe, writers_of
from .row_marks import RowMark, digest_of_row

DIRECTORY: Final = "rows"
"""The directory of these backups, in Redline's data directory."""
_BYTES: Final = "base64"

Record = Mapping[str, Any]


class RowStep(NamedTuple):
    """A row with all its columns before and after a change; None if there is no such row."""

    table: str
    row_id: str
    before: dict[str, Any] | None
    after: dict[str, Any] | None

    @property
    def mark(self) -> RowMark:
        return RowMark(self.table, self.row_id, digest_of_row(self.before), digest_of_row(self.after))

    @property
    def reversed(self) -> RowStep:
        return RowStep(self.table, self.row_id, self.after, self.before)


Prove = Callable[[sqlite3.Connection], int]
"""Called within the transaction, when the rows are changed; returns the size of the session then, in bytes."""


def plan_steps(database: Path, changes: RowChanges) -> list[RowStep]:
    """The rows of a change as they are and will be. Raises Conflict `session_changed` if one is not as reviewed."""
    with opened_database(database, NOTHING_WRITTEN) as connection:
        changed = [_changed(connection, database, *change) for change in changes.changes]
        copied = [
            _copied(
                connection, database, copy.table, copy.source_id, copy.row_id, copy.columns, copy.appended
            )
            for copy in changes.copies
        ]
    return [*changed, *copied]


def _changed(
    connection: sqlite3.Connection,
    database: Path,
    table: str,
    row_id: str,
    before: str | None,
    after: str | None,
) -> RowStep:
    row = row_of(connection, table, row_id)
    if (row["data"] if row is not None else None) != before:
        raise _not_as_reviewed(database, table, row_id)
    return RowStep(table, row_id, row, None if row is None or after is None else {**row, "data": after})


def _copied(
    connection: sqlite3.Connection,
    database: Path,
    table: str,
    source_id: str,
    row_id: str,
    columns: Mapping[str, str | int | None],
    appended: Mapping[str, str],
) -> RowStep:
    source = row_of(connection, table, source_id)
    if source is None or row_of(connection, table, row_id) is not None:
        raise _not_as_reviewed(database, table, source_id)
    known = {name: value for name, value in columns.items() if name in source}
    longer = {name: f"{source[name]}{text}" for name, text in appended.items() if name in source}
    return RowStep(table, row_id, None, {**source, **known, **longer})


def change_rows(
    locked: LockedSession,
    database: Path,
    steps: Sequence[RowStep],
    *,
    is_in_place: bool,
    require_unchanged: Callable[[sqlite3.Connection], object],
    prove: Prove,
    note: Callable[[int], str],
    record: Callable[[int], object],
) -> None:
    """Make these changes in one transaction, synced to disk on return.

    `require_unchanged` is called before the first change, `prove` before the commit; if one raises, nothing is changed.
    `record` is called with the size that `prove` returned, when the change is made; if this process is killed before it
    has finished, or it raises, the next lock holder receives the result of `note`. Raises what they raise, and

    - Conflict `open_in_agent` if the session itself is to change and another process has the database open
    - Conflict `session_changed` if a row is not as it was when the steps were planned
    - SystemFailure `database_busy` and others of `opened_database`
    - SystemFailure `outcome_unknown`: the intent record stays
    - SystemFailure `append_not_tidied`: made and recorded, but the intent record could not be removed
    """
    locked.require_held()
    if is_in_place:
        require_closed(database)
    with changed_database(database, NOTHING_WRITTEN) as connection:
        require_unchanged(connection)
        _apply_all(connection, database, steps)
        size = prove(connection)
        marks = tuple(step.mark for step in steps)
        intent = RowsIntent(os.fspath(locked.path), os.fspath(database), marks, size, note(size))
        with reported(locked.intent, NOTHING_WRITTEN):
            locked.announce(intent)
        _commit(locked, connection)
    record(size)
    try:
        locked.withdraw()
    except OSError as error:
        what = f"The rows of {locked.path} were changed, but {locked.intent} could not be removed ({error.strerror})."
        raise SystemFailure(
            "append_not_tidied", f"{what} The next lock on the session removes it."
        ) from error


@contextmanager
def preview_rows(
    database: Path, tables: Mapping[str, str], session_id: str, steps: Sequence[RowStep]
) -> Iterator[sqlite3.Connection]:
    """A copy in memory of a session's rows, with these changes; the database is only read. See `session_copy`.

    Raises Conflict `session_changed` and what reading the database raises.
    """
    with session_copy(database, tables, session_id, NOTHING_WRITTEN) as copy:
        _apply_all(copy, database, steps)
        yield copy


def _apply_all(connection: sqlite3.Connection, database: Path, steps: Sequence[RowStep]) -> None:
    for step in steps:
        if row_of(connection, step.table, step.row_id) != step.before:
            raise _not_as_reviewed(database, step.table, step.row_id)
    for step in steps:
        _apply(connection, step)


def require_closed(database: Path) -> None:
    """Raise Conflict `open_in_agent` if another process has the database open for writing."""
    writers = writers_of(state_of(database, NOTHING_WRITTEN))
    if writers:
        raise Conflict(
            "open_in_agent",
            f"{database} is open in {describe(writers)}. {NOTHING_WRITTEN} Close it there first, or write a new "
            "session with the writer fork.",
        )


def _commit(locked: LockedSession, connection: sqlite3.Connection) -> None:
    """Commit. Only a lock of others certainly prevents it: after any other failure, the rows themselves must tell."""
    try:
        connection.execute("COMMIT")
    except sqlite3.Error as fault:
        if not is_locked_by_others(fault):
            raise SystemFailure(
                "outcome_unknown",
                f"Whether the rows of {locked.path} were changed is not known: the database failed ({fault}). Check "
                "the disk. The next lock on the session finds out, and records it.",
            ) from fault
        connection.execute("ROLLBACK")
        with reported(locked.intent, NOTHING_WRITTEN):
            locked.withdraw()
        raise


def _apply(connection: sqlite3.Connection, step: RowStep) -> None:
    table, after = quoted(step.table), step.after
    if after is None:
        connection.execute(f"DELETE FROM {table} WHERE id = ?", (step.row_id,))  # noqa: S608  # quoted names
        return
    places = list(map(place_of, after.values()))
    names, values = list(map(quoted, after)), list(map(encoded, after.values()))
    if step.before is None:
        statement = f"INSERT INTO {table} ({', '.join(names)}) VALUES ({', '.join(places)})"  # noqa: S608  # quoted names
        connection.execute(statement, values)
    else:
        pairs = ", ".join(map("{} = {}".format, names, places))
        connection.execute(f"UPDATE {table} SET {pairs} WHERE id = ?", (*values, step.row_id))  # noqa: S608  # quoted names


def _not_as_reviewed(database: Path, table: str, row_id: str) -> Conflict:
    return Conflict(
        "session_changed",
        f"The {table} {row_id} in {database} is not as it was when it was checked. {NOTHING_WRITTEN} Read the session "
        "again.",
    )


# Backups ----------------------------------------------------------------------------------------------------


def back_up_rows(locked: LockedSession, steps: Sequence[RowStep], now: datetime) -> Backup:
    """Write the rows of a change to a file of their own in Redline's data directory, synced to disk on return."""
    locked.require_held()
    content = json.dumps(
        {
            "session": os.fspath(locked.path),
            "rows": [
                {"table": one.table, "id": one.row_id, "row": _shown(one.before), "after": _shown(one.after)}
                for one in steps
            ],
        },
        indent=1,
    ).encode()
    directory = locked.intent.parent.parent / DIRECTORY
    with reported(directory, NO_BACKUP):
        directory.mkdir(mode=0o700, exist_ok=True)
        like = locked.path.parent.stat()
    backup = write_backup(directory / locked.path.name, content, like, now)
    return backup._replace(session=locked.path)


def list_row_backups(data: Path, session: Path) -> list[Backup]:
    """The backups of rows of a session in Redline's data directory, newest first.

    Their names have only the session's id, which databases may share; the path is in their content.
    """
    directory = data / DIRECTORY
    if not directory.is_dir():
        return []
    listed = list_backups(directory / session.name)
    return [one._replace(session=session) for one in listed if _is_backup_of(one.path, session)]


def _is_backup_of(backup: Path, session: Path) -> bool:
    head = json.dumps({"session": os.fspath(session)}, indent=1).removesuffix("\n}").encode() + b","
    not_done = "The backups were not listed."
    with opened(backup, os.O_RDONLY, not_done) as fd, reported(backup, not_done):
        return pread(fd, 0, len(head)) == head


def backed_up_steps(backup: Path) -> list[RowStep]:
    """The rows that a backup has. Raises BadInput `not_a_backup` and what reading it raises."""
    not_done = "Nothing was put back."
    with opened(backup, os.O_RDONLY, not_done) as fd, reported(backup, not_done):
        content = pread(fd, 0, os.fstat(fd).st_size)
    try:
        return list(_steps(json.loads(content)))
    except (ValueError, KeyError, TypeError, AttributeError) as fault:
        raise BadInput("not_a_backup", f"{backup} has no rows ({fault!r}). {not_done}") from fault


def _steps(content: Record) -> Iterator[RowStep]:
    for one in content["rows"]:
        yield RowStep(one["table"], one["id"], _read(one["row"]), _read(one["after"]))


def _shown(row: Record | None) -> Record | None:
    if row is None:
        return None
    return {
        name: {_BYTES: base64.b64encode(value).decode()} if isinstance(value, bytes) else value
        for name, value in row.items()
    }


def _read(row: Record | None) -> dict[str, Any] | None:
    if row is None:
        return None
    return {
        name: base64.b64decode(value[_BYTES]) if isinstance(value, dict) else value
        for name, value in row.items()
    }
