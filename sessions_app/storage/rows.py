"""EDGE: rows of an agent's database changed under the lock of their session: all of them, or none.

    backup of the rows → transaction begins → each row as reviewed? → changed → proven by the caller → intent record
    → committed → recorded by the caller → intent record removed

A process that is killed before the commit has changed nothing: the database rolls back when it is next opened.

If the running server of the agent is the only process that has the database open, the rows are changed through it:

    backup of the rows → each row as reviewed? → changed in a copy, proven by the caller → intent record → one call for
    each row → proven by the caller → intent record says so → recorded by the caller → intent record removed

A process that is killed before the second intent record leaves some rows changed: the next lock puts them back.
"""

import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

import msgspec

from sessions_app.agents.base import Agent, AgentServer
from sessions_app.agents.pure.formats import RowChange, RowChanges, RowCopy
from sessions_app.agents.registry import agent_at
from sessions_app.disk import agent_database
from sessions_app.disk.files import reported
from sessions_app.disk.open_files import describe, writers_of
from sessions_app.sessionlog.errors import Conflict, RedlineError, SystemFailure

from .backups import NO_BACKUP, Backup, list_backups, write_backup
from .locks import NOTHING_WRITTEN, LockedSession, RowsIntent, ServedRowsIntent
from .row_steps import RowStep, apply_step, backup_text, change_through, is_backup_of, put_back

DIRECTORY: Final = "rows"
"""The directory of these backups, in Redline's data directory."""

Prove = Callable[[sqlite3.Connection], int]
"""Called with a connection that sees the changed rows; returns the session's new size in bytes."""


def plan_steps(database: Path, changes: RowChanges) -> list[RowStep]:
    """The rows of a change as they are and will be. Raises Conflict `session_changed` if one is not as reviewed."""
    with agent_database.opened_database(database, NOTHING_WRITTEN) as connection:
        changed = [_changed(connection, database, change) for change in changes.changes]
        copied = [_copied(connection, database, copy) for copy in changes.copies]
    return [*changed, *copied]


def _changed(connection: sqlite3.Connection, database: Path, change: RowChange) -> RowStep:
    row = agent_database.read_row(connection, change.table, change.row_id)
    if (row["data"] if row is not None else None) != change.before:
        raise _not_as_reviewed(database, change.table, change.row_id)
    after = None if row is None or change.after is None else {**row, "data": change.after}
    return RowStep(change.table, change.row_id, row, after)


def _copied(connection: sqlite3.Connection, database: Path, copy: RowCopy) -> RowStep:
    source = agent_database.read_row(connection, copy.table, copy.source_id)
    if source is None or agent_database.read_row(connection, copy.table, copy.row_id) is not None:
        raise _not_as_reviewed(database, copy.table, copy.source_id)
    known = {name: value for name, value in copy.columns.items() if name in source}
    longer = {name: f"{source[name]}{text}" for name, text in copy.appended.items() if name in source}
    return RowStep(copy.table, copy.row_id, None, {**source, **known, **longer})


@dataclass(frozen=True, slots=True)
class ReviewedRows:
    """Rows to be changed under the lock of their session: all of them, or none.

    `require_unchanged` is called before the first change; if it or `prove` raises, nothing is changed. `record` is
    called with the size that `prove` returned, when the change is made; if this process is killed before it has
    finished, or it raises, the next lock holder receives the result of `note`.
    """

    locked: LockedSession
    database: Path
    steps: Sequence[RowStep]
    require_unchanged: Callable[[sqlite3.Connection], object]
    prove: Prove
    note: Callable[[int], str]
    record: Callable[[int], object]

    def change(self, *, is_in_place: bool) -> None:
        """Make the changes in one transaction, synced to disk on return. `prove` is called before the commit.

        Raises the errors of these functions, and

        - Conflict `open_in_agent` if the session itself is to change and another process has the database open
        - Conflict `session_changed` if a row is not as it was when the steps were planned
        - SystemFailure `database_busy` and others of `opened_database`
        - SystemFailure `outcome_unknown`: the intent record stays
        - SystemFailure `append_not_tidied`: made and recorded, but the intent record could not be removed
        """
        locked = self.locked
        locked.require_held()
        if is_in_place:
            require_closed(self.database)
        with agent_database.changed_database(self.database, NOTHING_WRITTEN) as connection:
            self.require_unchanged(connection)
            _apply_all(connection, self.database, self.steps)
            size = self.prove(connection)
            marks = tuple(step.mark for step in self.steps)
            intent = RowsIntent(
                os.fspath(self.database), marks, size, path=os.fspath(locked.path), note=self.note(size)
            )
            locked.announce(intent, NOTHING_WRITTEN)
            _commit(locked, connection)
        self._finish(size)

    def change_through(self, server: AgentServer, backup: Path) -> None:
        """Make the changes through a server. `backup` has the steps.

        `require_unchanged` and `prove` are called with a copy of the session before the first call, and `prove` again
        with the database after the last one; if it raises then, the rows are restored. Raises the errors of these
        functions, and

        - Conflict `session_changed`, and errors of `AgentServer.require_ready` and the calls: the rows are unchanged
        - SystemFailure `left_between`: the rows could not be restored, which the next lock on the session tries again
        - SystemFailure `append_not_tidied`: made and recorded, but the intent record could not be removed
        """
        locked, database, steps = self.locked, self.database, self.steps
        locked.require_held()
        tables = agent_at(locked.path).store.session_tables
        with agent_database.session_copy(database, tables, locked.path.name, NOTHING_WRITTEN) as copy:
            self.require_unchanged(copy)
            server.require_ready(copy, [step.before for step in steps if step.before is not None])
            _apply_all(copy, database, steps)
            size = self.prove(copy)
        intent = ServedRowsIntent(
            os.fspath(database), os.fspath(backup), server.address, path=os.fspath(locked.path), note=self.note(size)
        )
        locked.announce(intent, NOTHING_WRITTEN)
        try:
            change_through(server, locked.path, database, steps)
            with agent_database.opened_database(database, NOTHING_WRITTEN) as connection:
                size = self.prove(connection)
        except RedlineError as failure:
            self._take_back(intent, failure)
            raise
        not_done = "The rows are changed; the next lock on the session records it or puts them back."
        locked.announce(msgspec.structs.replace(intent, is_made=True, size=size, note=self.note(size)), not_done)
        self._finish(size)

    def _finish(self, size: int) -> None:
        self.record(size)
        self.locked.finish(f"The rows of {self.locked.path} were changed")

    def _take_back(self, intent: ServedRowsIntent, failure: RedlineError) -> None:
        locked = self.locked
        try:
            put_back(locked.path, self.database, self.steps, intent.server)
            with reported(locked.intent, "The rows are as before."):
                locked.withdraw()
        except RedlineError as fault:
            raise SystemFailure(
                "left_between",
                f"A change of {locked.path} through the server at {intent.server} failed ({failure.code}). Some rows "
                f"may be changed, and could not be put back: {fault.message} {intent.backup} has all of them as they "
                "were. Redline tries again when the session is next locked.",
            ) from failure


def found_steps(agent: Agent, database: Path, steps: Sequence[RowStep]) -> list[RowStep]:
    """The same steps with the rows as they are now. Raises Conflict `session_changed` if one no longer means the
    same.
    """
    found = []
    with agent_database.opened_database(database, NOTHING_WRITTEN) as connection:
        for step in steps:
            row = agent_database.read_row(connection, step.table, step.row_id)
            if not agent.store.is_same_row(row, step.before):
                raise _not_as_reviewed(database, step.table, step.row_id)
            found.append(step._replace(before=row))
    return found


@contextmanager
def preview_rows(
    database: Path, tables: Mapping[str, str], session_id: str, steps: Sequence[RowStep]
) -> Iterator[sqlite3.Connection]:
    """A copy in memory of a session's rows, with these changes; the database is only read. See `session_copy`.

    Raises Conflict `session_changed`, and the errors of reading the database.
    """
    with agent_database.session_copy(database, tables, session_id, NOTHING_WRITTEN) as copy:
        _apply_all(copy, database, steps)
        yield copy


def _apply_all(connection: sqlite3.Connection, database: Path, steps: Sequence[RowStep]) -> None:
    for step in steps:
        if agent_database.read_row(connection, step.table, step.row_id) != step.before:
            raise _not_as_reviewed(database, step.table, step.row_id)
    for step in steps:
        apply_step(connection, step)


def require_closed(database: Path) -> None:
    """Raise Conflict `open_in_agent` if another process has the database open for writing."""
    writers = writers_of(agent_database.state_of(database, NOTHING_WRITTEN))
    if writers:
        raise Conflict(
            "open_in_agent",
            f"{database} is open in {describe(writers)}. {NOTHING_WRITTEN} Close it there first.",
        )


def _commit(locked: LockedSession, connection: sqlite3.Connection) -> None:
    """Commit. Only another connection's lock certainly prevents it: after any other failure, the rows show the
    outcome."""
    try:
        connection.execute("COMMIT")
    except sqlite3.Error as fault:
        if not agent_database.is_locked_by_others(fault):
            raise SystemFailure(
                "outcome_unknown",
                f"Whether the rows of {locked.path} were changed is not known: the database failed ({fault}). Check "
                "the disk. The next lock on the session finds out, and records it.",
            ) from fault
        connection.execute("ROLLBACK")
        with reported(locked.intent, NOTHING_WRITTEN):
            locked.withdraw()
        raise


def _not_as_reviewed(database: Path, table: str, row_id: str) -> Conflict:
    return Conflict(
        "session_changed",
        f"The {table} {row_id} in {database} is not as it was when it was checked. {NOTHING_WRITTEN} Read the session "
        "again.",
    )


# Backups ----------------------------------------------------------------------------------------------------


def back_up_rows(locked: LockedSession, steps: Sequence[RowStep], now: datetime) -> Backup:
    """Write the rows of a change to a separate file in Redline's data directory, synced to disk on return."""
    locked.require_held()
    directory = locked.intent.parent.parent / DIRECTORY
    with reported(directory, NO_BACKUP):
        directory.mkdir(mode=0o700, exist_ok=True)
        like = locked.path.parent.stat()
    backup = write_backup(directory / locked.path.name, backup_text(locked.path, steps), like, now)
    return backup._replace(session=locked.path)


def list_row_backups(data: Path, session: Path) -> list[Backup]:
    """The backups of rows of a session in Redline's data directory, newest first.

    Their names have only the session's id, which databases may share; the path is in their content.
    """
    directory = data / DIRECTORY
    if not directory.is_dir():
        return []
    listed = list_backups(directory / session.name)
    return [one._replace(session=session) for one in listed if is_backup_of(one.path, session)]
