"""A fork of a session that deletes nothing: the conversation up to an entry, as a new session.

    lock → the session now → backup is not needed, nothing is changed → the new session → proof → announced → its name
    → recorded

It has every line of the branch if the agent has such a form (`Agent.branch_copy`), and otherwise what the agent's fork
writer makes of the context. It is the way back from an agent's own compaction: the conversation before it can be
continued, or compacted instead.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from django.db import DatabaseError

from compaction_app.change_notes import ForkNote, text_of
from compaction_app.change_records import record_fork
from compaction_app.commit.change import MadeChange, create_change, lines_of, write_facts
from compaction_app.commit.preflight import require_writable
from compaction_app.commit.proof import Rebuilt, certificate_of, require_approved
from compaction_app.commit.row_change import carry_out, row_plan
from sessions_app.agents.changes import Change, NewFile, RowChanges, SessionWriter
from sessions_app.agents.reading import Reading
from sessions_app.document.document import Document
from sessions_app.index.index_store import session_row
from sessions_app.index.indexer import index_file
from sessions_app.index.session_locks import lock_session
from sessions_app.models import Session
from sessions_app.sessionlog.certificate import Certificate
from sessions_app.sessionlog.deletion import Deletion, Stats
from sessions_app.sessionlog.entries import Entry
from sessions_app.sessionlog.errors import BadInput, RedlineError
from sessions_app.sessionlog.printable import printable
from sessions_app.storage.rows import way_of
from sessions_app.storage.session_loader import LoadedSession

from .moves import Destination, destination_of

NOT_MADE = "No new session was made."


@dataclass(frozen=True, slots=True)
class ForkPlan:
    """What a fork would be made of."""

    present: Document
    destination: Destination
    branch: list[Entry]
    is_copy: bool
    """Whether the new session has every recorded line of the branch."""


def plan_fork(path: Path, entry_id: str, now: datetime) -> ForkPlan:
    """What a fork at an entry would be made of at this moment. Raises the errors of `fork_session` in BadInput."""
    present = Document.to_change(path)
    require_writable(present)
    reading = present.reading
    _forking_writer(path, reading)
    branch = present.tree.branch(_last_entry(present, entry_id))
    with lines_of(present) as line:
        is_copy = reading.agent.branch_copy(branch, write_facts(present, line, path, now)) is not None
    return ForkPlan(present, destination_of(present.tree, entry_id), branch, is_copy)


def fork_session(path: Path, entry_id: str, now: datetime, *, is_leaf: bool = False) -> Session:
    """Make a new session with the conversation up to an entry, or before it if a user says it, and return its row.

    `is_leaf`: the entry is the last one of the new session, whoever says it. Raises BadInput `unknown_entry`,
    `nothing_before`, `no_fork`, `refused_writer` and what `require_writable` raises, SystemFailure `not_proven`, and
    what reading and writing raise; then there is no new session.
    """
    with lock_session(path) as locked:
        present = Document.to_change(path)
        require_writable(present)
        reading = present.reading
        writer = _forking_writer(path, reading)
        leaf_id = entry_id if is_leaf else _last_entry(present, entry_id)
        branch = present.tree.branch(leaf_id)
        context = present.context(leaf_id)

        def prove(after: Rebuilt) -> Certificate:
            with lines_of(present) as line:
                before = Rebuilt(context, line, leaf_id)
                require_approved(str(path), writer, reading.agent, before, (), after)
                return certificate_of(str(path), reading.generation, before, after, now)

        def note(made: MadeChange) -> ForkNote:
            certificate = made.certificate.to_json() if made.certificate is not None else None
            return ForkNote(str(path), str(made.created), leaf_id, writer.name, now, certificate)

        def describe(planned: MadeChange) -> str:
            return text_of(note(planned))

        def record(done: MadeChange) -> None:
            record_fork(note(done), done.size, done.sha256)

        with lines_of(present) as line:
            facts = write_facts(present, line, path, now)
            change: Change | None = reading.agent.branch_copy(branch, facts)
            if change is None:
                change = writer.write(branch, Deletion((), (), Stats()), facts)
            if isinstance(change, NewFile):
                made = create_change(locked, present, facts.session_id, change, reading.reader, prove, describe, record)
        if isinstance(change, RowChanges):
            plan = row_plan(present, change, change.created)
            way = way_of(None, path, is_in_place=False)
            made = carry_out(locked, present, plan, reading.reader, prove, describe, record, way)
        elif not isinstance(change, NewFile):
            raise _no_fork(path, reading)
    created = made.created or path
    with suppress(RedlineError, DatabaseError):  # it is written: the index can follow later
        return index_file(created)
    return session_row(created)


def _last_entry(present: LoadedSession, entry_id: str) -> str:
    leaf_id = destination_of(present.tree, entry_id).leaf_id
    if leaf_id is None:
        raise BadInput(
            "nothing_before",
            f"Nothing comes before {printable(entry_id)}, the first message of {present.path}. {NOT_MADE} Start a new "
            "session in the agent instead.",
        )
    return leaf_id


def _forking_writer(path: Path, reading: Reading) -> SessionWriter:
    writer = next((writer for writer in reading.honoured_writers if not writer.appends), None)
    if writer is None:
        raise _no_fork(path, reading)
    return reading.writer(writer.name)


def _no_fork(path: Path, reading: Reading) -> BadInput:
    return BadInput("no_fork", f"Sessions of {reading.generation.label} cannot be forked: {path} is one. {NOT_MADE}")
