"""The undo of a compaction that changed rows of an agent's database: they are put back from its backup."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from compaction_app.commit.row_change import changed_session, require_unchanged
from compaction_app.models import Compaction
from sessions_app.agents.programs import AgentServer
from sessions_app.agents.registry import agent_at
from sessions_app.sessionlog.entries import Entry, Texts
from sessions_app.sessionlog.errors import Conflict
from sessions_app.sessionlog.lines import split_lines
from sessions_app.sessionlog.targets import Target
from sessions_app.storage.locks import LockedSession
from sessions_app.storage.row_steps import RowStep, backed_up_steps
from sessions_app.storage.rows import ChangeRows, found_steps, preview_rows
from sessions_app.storage.session_loader import LoadedSession, read_again

Approve = Callable[[LoadedSession, Callable[[Entry], bytes]], object]
"""Called with the session as the transaction has changed it; raises if it is not as approved."""


def steps_back(
    row: Compaction,
    back: Sequence[Target],
    database: Path,
    *,
    is_whole: bool,
    server: AgentServer | None = None,
) -> list[RowStep]:
    """The changes that bring back these targets of a compaction, as far as a server can make them, if one is to.

    What else the compaction changed goes back with the last of them. Raises BadInput `not_a_backup`, Conflict
    `session_changed`, and what reading the backup and the database raises.
    """
    steps = [step.reversed for step in backed_up_steps(Path(row.backup.path))]
    every = {raw["entryId"] for raw in row.origins}
    wanted = {target.entry_id for target in back}
    chosen = [
        step
        for step in steps
        if (step.row_id in wanted or (is_whole and step.row_id not in every))
        and (server is None or server.changes(step.table))
    ]
    return found_steps(row.session.agent, database, chosen)


def branch_with(row: Compaction, back: Sequence[Target], present: LoadedSession) -> tuple[Entry, ...]:
    """The active branch with these targets back; nothing is changed."""
    with _preview(row, back, present) as connection:
        if connection is None:
            return tuple(present.tree.branch(present.leaf_id))
        with changed_session(present.path, connection) as (loaded, _):
            return tuple(loaded.tree.branch(loaded.leaf_id))


def texts_with(
    row: Compaction, back: Sequence[Target], present: LoadedSession, entries: Iterable[Entry]
) -> dict[str, Texts]:
    """The texts of entries of the branch with these targets back, by id; nothing is changed.

    Raises Conflict `session_rewritten` if the session is no longer the one that the entries are of.
    """
    agent = agent_at(present.path)
    with _preview(row, back, present) as connection:
        if connection is None:
            return present.texts(entries)
        with agent.open_within(present.path, connection) as reader:
            return {entry.id: read_again(agent, reader, entry)[1] for entry in entries if entry.has_text}


@contextmanager
def _preview(row: Compaction, back: Sequence[Target], present: LoadedSession) -> Iterator[sqlite3.Connection | None]:
    """A copy of the session's rows with these targets back; None if the compaction changed no rows of the session."""
    agent = agent_at(present.path)
    database = agent.database(present.path)
    if database is None or row.created:
        yield None
        return
    steps = steps_back(row, back, database, is_whole=True)
    with preview_rows(database, agent.session_tables, present.path.name, steps) as connection:
        yield connection


def put_back(
    locked: LockedSession,
    present: LoadedSession,
    steps: Sequence[RowStep],
    created: Path | None,
    change: ChangeRows,
    *,
    approve: Approve,
    note: Callable[[], str],
    record: Callable[[int], object],
) -> None:
    """Carry out these changes. Without the rows of a session that was `created`, that one is gone.

    Raises Conflict `fork_continued` and what the `change` raises.
    """
    database = agent_at(present.path).database(present.path)
    if database is None:
        raise TypeError(f"{present.path} is not in a database")

    def require(connection: sqlite3.Connection) -> None:
        require_unchanged(present, connection)
        if created is not None:
            _require_as_made(created, steps, connection)

    def prove(connection: sqlite3.Connection) -> int:
        with changed_session(present.path, connection) as (loaded, line):
            if created is None:
                approve(loaded, line)
            return loaded.state.size if created is None else 0

    change(
        locked,
        database,
        steps,
        require_unchanged=require,
        prove=prove,
        note=lambda _: note(),
        record=record,
    )


def _require_as_made(created: Path, steps: Sequence[RowStep], connection: sqlite3.Connection) -> None:
    with agent_at(created).open_within(created, connection) as reader:
        rows = sum(1 for _ in split_lines(reader.chunks(0)))
    if rows != len(steps):
        raise Conflict(
            "fork_continued",
            f"{created} was continued since it was made. It was not deleted. Delete it in the agent if you do not need "
            "it.",
        )
