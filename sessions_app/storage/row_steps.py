"""EDGE: a row of an agent's database before and after a change: the step, its mark, the backup that has such rows, and
the calls of the agent's server that make the change.

The mark shows whether the change was made if its process was killed. The change is one transaction: the database has
all of it, or nothing. One row in its old or its new state is therefore conclusive, whatever the agent has done to
others since. A missing row is conclusive only if no other one is: the agent may have deleted it.

The backup is JSON, one object; a row has all its columns, the data as exact text:

    {"session": …, "rows": [{"table": "part", "id": "prt_1", "row": {…} or null, "after": {…} or null}]}

A running server of the agent has no transactions: each row is changed by a separate call, and in the end all rows are
changed or none. After each call, the row is read from the database, because a successful call may have done something
else. If a row is not in its intended state, all of them are restored; after a kill, the next lock holder does that.
Rows are the same if they mean the same to the agent (`Store.is_same_row`): a server formats their JSON in its own way.
"""

from __future__ import annotations

import base64
import json
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from sessions_app.agents.base import Agent, AgentServer
from sessions_app.agents.registry import agent_at
from sessions_app.disk import agent_database
from sessions_app.disk.files import opened, pread, reported, sha256_of
from sessions_app.disk.open_files import describe, writers_of
from sessions_app.sessionlog.errors import BadInput, Conflict, SystemFailure

_BYTES: Final = "base64"

Row = Mapping[str, Any]


class RowMark(msgspec.Struct, frozen=True):
    """The digest of a row before and after a change; empty if the row does not exist."""

    table: str
    row_id: str
    before: str
    after: str


class RowStep(NamedTuple):
    """A row with all its columns before and after a change; None if the row does not exist."""

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


def apply_step(connection: sqlite3.Connection, step: RowStep) -> None:
    """Write the content of a row after a step, or delete the row."""
    table, after = agent_database.quoted(step.table), step.after
    if after is None:
        connection.execute(f"DELETE FROM {table} WHERE id = ?", (step.row_id,))  # noqa: S608  # quoted names
        return
    placeholders = list(map(agent_database.placeholder, after.values()))
    names, values = list(map(agent_database.quoted, after)), list(map(agent_database.encoded, after.values()))
    if step.before is None:
        statement = f"INSERT INTO {table} ({', '.join(names)}) VALUES ({', '.join(placeholders)})"  # noqa: S608  # quoted names
        connection.execute(statement, values)
    else:
        pairs = ", ".join(map("{} = {}".format, names, placeholders))
        connection.execute(f"UPDATE {table} SET {pairs} WHERE id = ?", (*values, step.row_id))  # noqa: S608  # quoted names


def backup_text(session: Path, steps: Iterable[RowStep]) -> bytes:
    """The content of a backup."""
    rows = [
        {"table": one.table, "id": one.row_id, "row": _shown(one.before), "after": _shown(one.after)} for one in steps
    ]
    return json.dumps({"session": os.fspath(session), "rows": rows}, indent=1).encode()


def is_backup_of(backup: Path, session: Path) -> bool:
    """Whether a backup has rows of this session."""
    head = json.dumps({"session": os.fspath(session)}, indent=1).removesuffix("\n}").encode() + b","
    not_done = "The backups were not listed."
    with opened(backup, os.O_RDONLY, not_done) as fd, reported(backup, not_done):
        return pread(fd, 0, len(head)) == head


def backed_up_steps(backup: Path) -> list[RowStep]:
    """The rows in a backup. Raises BadInput `not_a_backup`, and the errors of reading it."""
    not_done = "Nothing was put back."
    with opened(backup, os.O_RDONLY, not_done) as fd, reported(backup, not_done):
        content = pread(fd, 0, os.fstat(fd).st_size)
    try:
        return [
            RowStep(one["table"], one["id"], _read(one["row"]), _read(one["after"]))
            for one in json.loads(content)["rows"]
        ]
    except (ValueError, KeyError, TypeError, AttributeError) as fault:
        raise BadInput("not_a_backup", f"{backup} has no rows ({fault!r}). {not_done}") from fault


def _read(row: Row | None) -> dict[str, Any] | None:
    if row is None:
        return None
    return {name: base64.b64decode(value[_BYTES]) if isinstance(value, dict) else value for name, value in row.items()}


def _shown(row: Row | None) -> Row | None:
    if row is None:
        return None
    return {
        name: {_BYTES: base64.b64encode(value).decode()} if isinstance(value, bytes) else value
        for name, value in row.items()
    }


def digest_of_row(row: dict[str, Any] | None) -> str:
    """A digest of a row's content; empty if there is no row."""
    return "" if row is None else sha256_of(repr(sorted(row.items())).encode("utf-8", "surrogatepass"))


def was_made(database: Path, marks: Sequence[RowMark]) -> bool | None:
    """Whether a change was made; None if no row is conclusive any longer. Raises the errors of opening the database."""
    with agent_database.opened_database(database, "An interrupted change was not settled.") as connection:
        digests = [digest_of_row(agent_database.read_row(connection, mark.table, mark.row_id)) for mark in marks]
    changed = [(mark, digest) for mark, digest in zip(marks, digests, strict=True) if mark.before != mark.after]
    by_certainty = sorted(changed, key=lambda found: not found[1])
    outcomes = ({mark.after: True, mark.before: False}.get(digest) for mark, digest in by_certainty)
    return next((outcome for outcome in outcomes if outcome is not None), None)


CHANGED_BY_OTHERS: Final = "changed_by_others"
"""The error code if rows can never be restored, because others have changed them."""
_NOT_PUT_BACK: Final = "The rows were not put back."


def change_through(server: AgentServer, path: Path, database: Path, steps: Sequence[RowStep]) -> None:
    """Make these changes through a server. Raises SystemFailure `not_as_sent`, and the errors of the server and the
    database.

    After an error, some of them may be made.
    """
    agent = agent_at(path)
    for step in steps:
        _write(server, step.before, step.after)
        with agent_database.opened_database(database, _NOT_PUT_BACK) as connection:
            found = agent_database.read_row(connection, step.table, step.row_id)
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
    """Restore the rows of an unfinished change to their content before it.

    Uses the server at `address` if it has the database open, otherwise a transaction. Raises Conflict CHANGED_BY_OTHERS
    and `open_in_agent`, and the errors of the server and the database.
    """
    agent = agent_at(path)
    writers = writers_of(agent_database.state_of(database, _NOT_PUT_BACK))
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
    with agent_database.opened_database(database, _NOT_PUT_BACK) as connection:
        changed = list(_changed_through_server(agent, connection, database, steps))
    for step, found in reversed(changed):
        _write(server, found, step.before)
    with agent_database.opened_database(database, _NOT_PUT_BACK) as connection:
        left = list(_changed_through_server(agent, connection, database, steps))
    if left:
        raise SystemFailure(
            "not_as_sent",
            f"The server at {address} did not put back all rows: {_states(agent, database, steps)}.",
        )


def _put_back_within(agent: Agent, database: Path, steps: Sequence[RowStep]) -> None:
    with agent_database.changed_database(database, _NOT_PUT_BACK) as connection:
        for step, found in _changed_through_server(agent, connection, database, steps):
            apply_step(connection, RowStep(step.table, step.row_id, found, step.before))
        connection.execute("COMMIT")


def _changed_through_server(
    agent: Agent, connection: sqlite3.Connection, database: Path, steps: Sequence[RowStep]
) -> Iterator[tuple[RowStep, dict[str, Any] | None]]:
    """The steps whose rows differ from before, with the present rows. Raises Conflict CHANGED_BY_OTHERS."""
    for step in steps:
        found = agent_database.read_row(connection, step.table, step.row_id)
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
    with agent_database.opened_database(database, _NOT_PUT_BACK) as connection:
        same = {
            step.row_id
            for step in steps
            if agent.store.is_same_row(agent_database.read_row(connection, step.table, step.row_id), step.before)
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
