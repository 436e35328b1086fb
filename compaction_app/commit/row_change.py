"""The change of a session in a database: planned with its rows, backed up, and proven before it is final."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from sessions_app.agents.changes import RowChanges
from sessions_app.agents.programs import AgentServer
from sessions_app.agents.pure.contexts import Reader
from sessions_app.agents.registry import agent_at
from sessions_app.sessionlog.certificate import Certificate
from sessions_app.sessionlog.errors import Conflict
from sessions_app.storage.agent_database import session_copy
from sessions_app.storage.files import GrowthKind
from sessions_app.storage.locks import NOTHING_WRITTEN, LockedSession
from sessions_app.storage.row_steps import RowStep
from sessions_app.storage.rows import ChangeRows, plan_steps, way_of
from sessions_app.storage.session_loader import LoadedSession, load_opened

from .change import (
    Describe,
    MadeChange,
    change_of,
    lines_of,
    not_in_database,
    prove_change,
    write_facts,
)
from .preflight import Preflight
from .proof import ReadLine, Rebuilt


@dataclass(frozen=True, slots=True)
class RowPlan:
    """The rows that a writer changes, or the copies that it makes."""

    database: Path
    steps: Sequence[RowStep]
    created: str
    """The id of the new session; empty if the session itself changes."""
    entry_id: str
    """Identifies the change."""
    server: AgentServer | None = None
    """The agent's server that makes the change; None if it is a transaction."""


def plan_rows(preflight: Preflight, now: datetime) -> RowPlan | None:
    """The change of a preflight's writer; None if the session is a file of lines.

    Raises BadInput `not_in_database` for documents, which are only read, or what their writer raises.
    """
    present = preflight.present
    agent = agent_at(present.path)
    database = agent.database(present.path)
    if database is None and agent.export(present.path) is None:
        return None
    with lines_of(present) as line:
        facts = write_facts(present, line, present.path, now)
        change = change_of(preflight, facts)
    if not isinstance(change, RowChanges):
        raise TypeError(f"the writer {preflight.writer.name} writes no rows")
    plan = row_plan(present, change, change.created or facts.new_id())
    return plan if preflight.server is None else plan_through(preflight.server, plan)


def plan_through(server: AgentServer, plan: RowPlan) -> RowPlan:
    """The part of a plan that a server can carry out."""
    steps = [step for step in plan.steps if server.changes(step.table)]
    return replace(plan, steps=steps, server=server)


def row_plan(present: LoadedSession, change: RowChanges, entry_id: str) -> RowPlan:
    """The rows of a change. Raises BadInput `not_in_database`, Conflict `session_changed`."""
    database = agent_at(present.path).database(present.path)
    if database is None:
        raise not_in_database(present.path)
    return RowPlan(database, plan_steps(database, change), change.created, entry_id)


def make_row_change(
    locked: LockedSession,
    preflight: Preflight,
    plan: RowPlan,
    backup: Path,
    now: datetime,
    *,
    note: Describe,
    record: Callable[[MadeChange], object],
) -> MadeChange:
    """Carry out the plan of a preflight. Raises SystemFailure `not_proven`, and what the storage raises."""
    present, reader = preflight.present, preflight.present.reading.reader
    context = reader.rebuild(present.tree.branch(preflight.parent_id))
    with _lines_before(present, plan.database) as line:
        before = Rebuilt(context, line, preflight.parent_id)

        def prove(after: Rebuilt) -> Certificate:
            return prove_change(preflight, before, after, now)

        way = way_of(plan.server, backup, is_in_place=not plan.created)
        return carry_out(locked, present, plan, reader, prove, note, record, way)


@contextmanager
def _lines_before(present: LoadedSession, database: Path) -> Iterator[ReadLine]:
    """Reads the recorded lines of a session's entries, also when its rows are changed."""
    agent = agent_at(present.path)
    with session_copy(database, agent.session_tables, present.path.name, NOTHING_WRITTEN) as copy:
        require_unchanged(present, copy)
        with agent.open_within(present.path, copy) as reader:
            yield lambda entry: reader.read_at(entry.offset, entry.length)


def carry_out(
    locked: LockedSession,
    present: LoadedSession,
    plan: RowPlan,
    reader: Reader,
    prove: Callable[[Rebuilt], Certificate],
    note: Describe,
    record: Callable[[MadeChange], object],
    change: ChangeRows,
) -> MadeChange:
    """Make a change that `prove` does not refuse. Raises what `prove` and the storage raise.

    A database without a write-ahead log is not committed while another connection reads it: `prove` closes its own.
    """
    path = present.path.with_name(plan.created) if plan.created else present.path
    made = MadeChange(plan.entry_id, created=path if plan.created else None)

    def prove_within(connection: sqlite3.Connection) -> int:
        nonlocal made
        with changed_session(path, connection) as (loaded, line):
            context = reader.rebuild(loaded.tree.branch(loaded.leaf_id))
            certificate = prove(Rebuilt(context, line, loaded.leaf_id))
            made = made._replace(certificate=certificate, size=loaded.state.size)
        return made.size

    change(
        locked,
        plan.database,
        plan.steps,
        require_unchanged=lambda connection: require_unchanged(present, connection),
        prove=prove_within,
        note=lambda _: note(made),
        record=lambda _: record(made),
    )
    return made


@contextmanager
def changed_session(path: Path, connection: sqlite3.Connection) -> Iterator[tuple[LoadedSession, ReadLine]]:
    """A session as a transaction has changed it, and how the lines of its entries are read."""
    agent = agent_at(path)
    with agent.open_within(path, connection) as reader:
        yield load_opened(agent, reader), lambda entry: reader.read_at(entry.offset, entry.length)


def require_unchanged(present: LoadedSession, connection: sqlite3.Connection) -> None:
    """Raise Conflict `session_changed` if the session is not the one that was judged."""
    with agent_at(present.path).open_within(present.path, connection) as reader:
        growth = reader.growth(present.fingerprint)
    if growth.kind is not GrowthKind.UNCHANGED:
        raise Conflict(
            "session_changed",
            f"{present.path} was written to after it was checked. Nothing was written. Read it again.",
        )
