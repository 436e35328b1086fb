"""EDGE: rows changed through the running server of their agent, one call for each: all of them, or none.

A server has no transaction. After each call, the row is read from the database: a call that was answered may have done
something else. If a row is not as it was to be, all of them are put back; after a kill, the next lock holder does that.
Rows are the same if they mean the same to the agent (`Store.is_same_row`): a server writes their JSON in its own way.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from sessions_app.agents.base import Agent
from sessions_app.agents.programs import AgentServer
from sessions_app.agents.registry import agent_at
from sessions_app.sessionlog.errors import Conflict, SystemFailure

from .agent_database import changed_database, opened_database, read_row, state_of
from .open_files import describe, writers_of
from .row_steps import RowStep, apply_step

CHANGED_BY_OTHERS: Final = "changed_by_others"
"""The error after which rows can never be put back: others have changed them."""
_NOT_PUT_BACK: Final = "The rows were not put back."

Row = Mapping[str, Any]


def change_through(server: AgentServer, path: Path, database: Path, steps: Sequence[RowStep]) -> None:
    """Make these changes. Raises SystemFailure `not_as_sent` and what the server and the database raise.

    If it raises, some of them may be made.
    """
    agent = agent_at(path)
    for step in steps:
        _write(server, step.before, step.after)
        with opened_database(database, _NOT_PUT_BACK) as connection:
            found = read_row(connection, step.table, step.row_id)
        if not agent.store.is_same_row(found, step.after):
            # What the row is now is of this call's making: later, it could be of anybody's.
            _write(server, found, step.before)
            raise SystemFailure(
                "not_as_sent",
                f"The server at {server.address} made something else of the {step.table} {step.row_id} in {database} "
                "than it was to become. Nothing was changed. Close the agent first, so that the rows themselves are "
                "changed.",
            )


def put_back(path: Path, database: Path, steps: Sequence[RowStep], address: str) -> None:
    """Give all rows of an unfinished change the content that they had before it.

    Through the server at `address` if it has the database open, else in a transaction. Raises Conflict
    CHANGED_BY_OTHERS and `open_in_agent`, and what the server and the database raise.
    """
    agent = agent_at(path)
    writers = writers_of(state_of(database, _NOT_PUT_BACK))
    if not writers:
        _put_back_within(agent, database, steps)
        return
    server = agent.store.server(path, address)
    if server is None:
        raise Conflict(
            "open_in_agent",
            f"{_NOT_PUT_BACK} {database} is open in {describe(writers)}, which is not, or not alone, the server at "
            f"{address}. Close it, or start that server. The rows are: {_states(agent, database, steps)}.",
        )
    server.require_answer()
    with opened_database(database, _NOT_PUT_BACK) as connection:
        changed = list(_changed(agent, connection, database, steps))
    for step, found in reversed(changed):
        _write(server, found, step.before)
    with opened_database(database, _NOT_PUT_BACK) as connection:
        left = list(_changed(agent, connection, database, steps))
    if left:
        raise SystemFailure(
            "not_as_sent",
            f"The server at {address} did not put back all rows: {_states(agent, database, steps)}.",
        )


def _put_back_within(agent: Agent, database: Path, steps: Sequence[RowStep]) -> None:
    with changed_database(database, _NOT_PUT_BACK) as connection:
        for step, found in _changed(agent, connection, database, steps):
            apply_step(connection, RowStep(step.table, step.row_id, found, step.before))
        connection.execute("COMMIT")


def _changed(
    agent: Agent, connection: sqlite3.Connection, database: Path, steps: Sequence[RowStep]
) -> Iterator[tuple[RowStep, dict[str, Any] | None]]:
    """The steps whose rows differ from before, with the present rows. Raises Conflict CHANGED_BY_OTHERS."""
    for step in steps:
        found = read_row(connection, step.table, step.row_id)
        if agent.store.is_same_row(found, step.before):
            continue
        # A row that there was not is the step's own, whatever it has by now.
        if step.before is not None and not agent.store.is_same_row(found, step.after):
            raise Conflict(
                CHANGED_BY_OTHERS,
                f"The {step.table} {step.row_id} in {database} was changed by others since. {_NOT_PUT_BACK}",
            )
        yield step, found


def _states(agent: Agent, database: Path, steps: Sequence[RowStep]) -> str:
    """Which rows are changed and which are as before, such as `changed: prt_1; as before: prt_2`."""
    with opened_database(database, _NOT_PUT_BACK) as connection:
        same = {
            step.row_id
            for step in steps
            if agent.store.is_same_row(read_row(connection, step.table, step.row_id), step.before)
        }
    groups = {
        "changed": [step.row_id for step in steps if step.row_id not in same],
        "as before": [step.row_id for step in steps if step.row_id in same],
    }
    return "; ".join(f"{name}: {', '.join(ids)}" for name, ids in groups.items() if ids)


def _write(server: AgentServer, before: Row | None, after: Row | None) -> None:
    if after is not None:
        server.write(after)
    elif before is not None:
        server.delete(before)
