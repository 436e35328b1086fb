"""A fork of a session that deletes nothing: the conversation up to an entry, as a new session.

It has every line of the branch if the agent has such a form (`Format.branch_copy`), and otherwise what the agent's fork
writer makes of the context. It is the way back from an agent's own compaction: the conversation before it can be
continued, or compacted instead. There is no backup, because nothing is changed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from compaction_app.session_activity import activity_of
from sessions_app.agents.pure.format import Append, Change, SessionWriter, WriteFacts
from sessions_app.agents.reading import Reading
from sessions_app.document.document import Document
from sessions_app.index.index_store import session_row
from sessions_app.models import Session
from sessions_app.sessionlog.certificate import Certificate
from sessions_app.sessionlog.entries import Deletion, Entry, Stats
from sessions_app.sessionlog.errors import BadInput
from sessions_app.sessionlog.text import printable
from sessions_app.storage.session_loader import LoadedSession

from .change import ChangePlan, Confirmations, MadeChange, apply, lines_of, write_facts
from .compaction import require_writable
from .entries import Destination, destination_of
from .proof import ReadLine, Rebuilt, certificate_of, require_approved
from .records import BackupNote, ForkNote

NOT_MADE = "No new session was made."


@dataclass(frozen=True)
class ForkPlan(ChangePlan):
    """The content a fork would have now."""

    NOT_DONE = NOT_MADE
    IS_BACKED_UP = False

    destination: Destination
    leaf_id: str
    """The last entry of the new session."""
    writer: SessionWriter

    @property
    def branch(self) -> list[Entry]:
        return self.present.tree.branch(self.leaf_id)

    @property
    def is_copy(self) -> bool:
        """Whether the new session has every recorded line of the branch."""
        with lines_of(self.present) as line:
            facts = write_facts(self.present, line, self.present.path, self.now)
            return self.present.reading.agent.format.branch_copy(self.branch, facts) is not None

    @property
    def facts(self) -> list[Any]:
        return [self.leaf_id, self.writer.name]

    @property
    def written_to(self) -> None:
        return None

    def make(self, facts: WriteFacts) -> Change:
        change: Change | None = self.present.reading.agent.format.branch_copy(self.branch, facts)
        if change is None:
            change = self.writer.write(self.branch, Deletion((), (), Stats()), facts)
        if isinstance(change, Append):
            raise _no_fork(self.present.path, self.present.reading)
        return change

    def prove(self, line: ReadLine, after: Rebuilt) -> Certificate:
        reading = self.present.reading
        before = Rebuilt(self.present.context(self.leaf_id), line, self.leaf_id)
        require_approved(self.path, self.writer, reading.agent, before, (), after)
        return certificate_of(self.path, reading.generation, before, after, self.now)

    def notes(self, backup: BackupNote | None) -> Callable[[MadeChange], ForkNote]:
        del backup

        def note(made: MadeChange) -> ForkNote:
            return ForkNote(
                session=self.path,
                created=str(made.created),
                leaf_id=self.leaf_id,
                writer=self.writer.name,
                written_at=self.now,
                certificate=made.certificate.to_json() if made.certificate is not None else None,
            )

        return note


def plan_fork(path: Path, entry_id: str, now: datetime, *, is_leaf: bool = False) -> ForkPlan:
    """The content a fork at an entry would have now. Raises the errors of `fork_session` in BadInput."""
    present = Document.to_change(path)
    require_writable(present)
    writer = _forking_writer(path, present.reading)
    destination = destination_of(present.tree, entry_id, is_leaf=is_leaf)
    leaf_id = _last_entry(present, destination)
    return ForkPlan(activity_of(present.row, None, now), {}, None, now, present, destination, leaf_id, writer)


def fork_session(path: Path, entry_id: str, now: datetime, *, is_leaf: bool = False) -> Session:
    """Make a new session with the conversation up to an entry, or before it if it is a user's message, and return its
    row.

    `is_leaf`: the entry is the last one of the new session, whatever its role. Raises BadInput `unknown_entry`,
    `nothing_before`, `no_fork`, `refused_writer` and the errors of `require_writable`, SystemFailure `not_proven`, and
    the errors of reading and writing; then there is no new session.
    """
    applied = apply(path, lambda: plan_fork(path, entry_id, now, is_leaf=is_leaf), Confirmations())
    applied.require_tidy()
    return session_row(applied.made.created or path)


def _last_entry(present: LoadedSession, destination: Destination) -> str:
    if destination.leaf_id is None:
        raise BadInput(
            "nothing_before",
            f"Nothing comes before {printable(destination.entry.id)}, the first message of {present.path}. {NOT_MADE} "
            "Start a new session in the agent instead.",
        )
    return destination.leaf_id


def _forking_writer(path: Path, reading: Reading) -> SessionWriter:
    writer = next((writer for writer in reading.honoured_writers if not writer.appends), None)
    if writer is None:
        raise _no_fork(path, reading)
    return reading.writer(writer.name)


def _no_fork(path: Path, reading: Reading) -> BadInput:
    return BadInput("no_fork", f"Sessions of {reading.generation.label} cannot be forked: {path} is one. {NOT_MADE}")
