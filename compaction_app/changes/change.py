"""A change of one session: planned, shown and confirmed, then applied to the current file.

    lock → the plan again → is it the one that was shown? → confirmed → backup → the writer's output → proof
    → announced → made by one step → recorded → indexed, without the lock

A `ChangePlan` is the same object for page, command and API. It knows the result, the expected context, and the record;
`apply` does everything else, for every kind of change. If a process is killed between the announcement and the record,
the next lock does both (`records`). After a refusal the session is unchanged.

Two changes are exceptions: a restore, which replaces a file (`storage.restore`), and the removal of a session that a
compaction made (`undo`), which has neither a backup nor a context to prove.
"""

from __future__ import annotations

import hashlib
import json
import logging
import sqlite3
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final, Generic, NamedTuple, Self, TypeVar

from django.db import DatabaseError

from compaction_app.session_activity import Activity
from sessions_app.agents.base import Agent, AgentServer
from sessions_app.agents.pure.formats import Change, NewFile, RowChanges, WriteFacts
from sessions_app.agents.registry import agent_at
from sessions_app.database.sqlite import failure_of
from sessions_app.disk.agent_database import session_copy
from sessions_app.disk.files import GrowthKind
from sessions_app.disk.rendered import RenderedReader
from sessions_app.document.document import Document
from sessions_app.index.indexer import index_file
from sessions_app.index.session_locks import lock_session
from sessions_app.sessionlog.certificate import Certificate
from sessions_app.sessionlog.entries import Role
from sessions_app.sessionlog.errors import BadInput, Conflict, RedlineError, SystemFailure
from sessions_app.sessionlog.jsjson import split_lines
from sessions_app.sessionlog.session import is_complete_line
from sessions_app.sessionlog.text import title_of, title_of_prompt
from sessions_app.sessionlog.tree import labels, session_name
from sessions_app.storage.append import append_lines
from sessions_app.storage.backups import Backup, back_up, delete_backup, digest_up_to
from sessions_app.storage.locks import NOTHING_WRITTEN, LockedSession
from sessions_app.storage.new_session import create_session
from sessions_app.storage.row_steps import RowStep
from sessions_app.storage.rows import ReviewedRows, back_up_rows, plan_steps
from sessions_app.storage.session_loader import LoadedSession, TornLine, line_reader, load_opened, load_session

from .proof import ReadLine, Rebuilt, context_with
from .records import BackupNote, ChangeNote, MadeChange, record_backup, record_made, text_of

logger = logging.getLogger("redline")

BYTES_ARE_LEFT: Final = "append_left"
"""The failure after which a part of the line is in the session; its backup is kept."""
CHANGE_IS_MADE: Final = frozenset({"append_not_tidied", "line_stays"})
"""The failures after which the change was made and is recorded."""


@dataclass(frozen=True, slots=True)
class Confirmations:
    """The user's confirmations. A change may require some of them: see `ChangePlan.needs`."""

    live: bool = False
    """The session was written to in the last minutes, or a process has it open: an agent may continue from an older
    state."""
    after_torn_line: bool = False
    """The session ends in an incomplete line; the new line begins after a newline."""
    switch_branch: bool = False
    """The reviewed branch is not the active one; the commit makes it active."""
    not_honoured: bool = False
    """The agent that owns this session is unknown; another one may ignore the appended lines."""
    below_target: bool = False
    """The plan deletes less than required."""
    drop_newer: bool = False
    """The session has lines that its backup lacks, and loses them."""
    unverified: bool = False
    """Redline did not make the backup, so it cannot check whether it is complete."""


@dataclass(frozen=True, slots=True)
class RowPlan:
    """The database rows that a change modifies, or the copies that it creates."""

    database: Path
    steps: Sequence[RowStep]
    created: str
    """The id of the new session; empty if none is made."""
    entry_id: str
    """The id that identifies the change, as `MadeChange.entry_id`."""
    server: AgentServer | None = None
    """The agent's server that makes the change; None for a transaction."""
    brings_back: bool = False
    """Whether entries are brought back. They can be read only after the change."""
    removed: Path | None = None
    """The session to which all these rows belong and which is deleted; None if no session is."""

    def through(self, server: AgentServer) -> RowPlan:
        """The part of the change that a server can carry out."""
        return replace(self, steps=[step for step in self.steps if server.changes(step.table)], server=server)


class RequiredConfirmation(NamedTuple):
    """One confirmation that a change needs, as a page shows it: the value of its checkbox, what the user confirms, and
    the reason."""

    name: str
    sentence: str
    why: str


@dataclass(frozen=True)
class PlannedChange(ABC):
    """The effect a change would have now: the same object for page, command and API."""

    NOT_DONE: ClassVar[str]
    """The sentence that states what did not happen if the change is refused."""

    activity: Activity
    """The activity of other processes in the session."""
    needs: Mapping[str, RedlineError]
    """The required confirmations, by field of `Confirmations`, each with the error raised if it is missing."""

    @property
    @abstractmethod
    def session(self) -> Path:
        """The session that is changed, or from which another one is made."""

    @property
    def written_to(self) -> Path | None:
        """The session that must not be open elsewhere during the change; None if none is written to."""
        return self.session

    @abstractmethod
    def digest(self) -> str:
        """Identifies this plan: a confirmation is valid for this plan only."""

    @property
    def words(self) -> dict[str, tuple[str, str]]:
        """The confirmed statement and the reason, by field of `Confirmations`, for each confirmation that may be
        needed.
        """
        return {"live": (self.activity.agreement, f"It {self.activity.sentence}. {self.activity.consequence}")}

    @property
    def confirmations(self) -> list[RequiredConfirmation]:
        """The required confirmations."""
        words = self.words
        return [RequiredConfirmation(name, *words[name]) for name in self.needs]

    def require_shown(self, shown: str | None) -> None:
        """Raise Conflict `plan_differs` if a digest was shown and this plan has another one."""
        if shown is not None and shown != self.digest():
            raise Conflict(
                "plan_differs",
                f"{self.session} has changed since this was shown. {self.NOT_DONE} Check what would happen now.",
            )

    def require_confirmed(self, given: Confirmations) -> None:
        """Raise Conflict `open_in_agent`, or the error of the first missing confirmation."""
        if self.written_to is not None:
            self.activity.require_closed(self.written_to)
        for name, failure in self.needs.items():
            if not getattr(given, name):
                raise failure


@dataclass(frozen=True)
class ChangePlan(PlannedChange):
    """A planned change of an opened session."""

    IS_BACKED_UP: ClassVar[bool] = True
    """Whether the session is backed up first."""

    torn: TornLine | None
    """The last line of the session, if it is torn."""
    now: datetime
    """The time of planning, which the written lines record."""
    present: Document
    """The session at the time of planning."""

    @property
    def session(self) -> Path:
        return self.present.path

    @property
    def words(self) -> dict[str, tuple[str, str]]:
        torn = (
            "Start a new line after the torn one.",
            f"The session ends in {self.torn}: a process was interrupted while writing it, or is still writing. If it "
            "is never finished, it is a damaged line that the agent skips.",
        )
        return {**super().words, "after_torn_line": torn}

    @property
    @abstractmethod
    def facts(self) -> list[Any]:
        """The effect of the change, as JSON values."""

    @abstractmethod
    def make(self, facts: WriteFacts) -> Change:
        """The appended lines, changed rows or new file. Raises the errors of the agent's writer."""

    @abstractmethod
    def prove(self, line: ReadLine, after: Rebuilt) -> Certificate:
        """The certificate of the context after the change; `line` reads the entries of `present`.

        Raises SystemFailure `not_proven` and BadInput `breaks_context`.
        """

    @abstractmethod
    def note(self, backup: BackupNote | None) -> ChangeNote:
        """The note of the change, to be completed with `ChangeNote.of_made`. `backup` is None only if the plan makes
        none."""

    def notify(self, applied: Applied[Self]) -> None:
        """Call the hooks for the change, which is recorded, without the lock."""

    @property
    def server(self) -> AgentServer | None:
        """The agent's server through which rows are changed; None for a transaction, or if no rows are changed."""
        return None

    @property
    def path(self) -> str:
        return str(self.present.path)

    @property
    def server_address(self) -> str:
        """The address of the agent's server; empty without one."""
        return self.server.address if self.server is not None else ""

    def rows(self) -> RowPlan | None:
        """The changed rows; None if the session is a file of lines.

        Raises BadInput `not_in_database` for documents, which are read-only, and the errors of `make`.
        """
        present = self.present
        agent = present.agent
        if agent.store.database(present.path) is None and agent.store.export(present.path) is None:
            return None
        with lines_of(present) as line:
            facts = write_facts(present, line, present.path, self.now)
            change = self.make(facts)
        if not isinstance(change, RowChanges):
            raise TypeError(f"{type(self).__name__} changes no rows")
        plan = row_plan(present, change, change.created or facts.new_id())
        return plan if self.server is None else plan.through(self.server)

    def carry_out(self, locked: LockedSession, confirmations: Confirmations) -> Applied[Self]:
        """Make the change under the lock, with the required confirmations. Raises the errors of `apply`."""
        content = hashlib.sha256()
        rows = self.rows()
        backup = self.back_up(locked, rows, content) if self.IS_BACKED_UP else None
        note = self.note(BackupNote.of(backup) if backup is not None else None)
        steps = _Steps(self, locked, backup, content, note)
        try:
            if rows is not None:
                steps.change_rows(rows)
            else:
                steps.change_file(after_torn_line=confirmations.after_torn_line)
        except RedlineError as failure:
            if isinstance(failure, SystemFailure) and failure.code in CHANGE_IS_MADE:
                return Applied(self, steps.made, backup, failure)
            if backup is not None:
                _drop_or_keep(backup, locked, failure)
            raise
        return Applied(self, steps.made, backup)

    def back_up(self, locked: LockedSession, rows: RowPlan | None, content: hashlib._Hash) -> Backup:
        """Back up the data before it changes; `content` is updated with the bytes of a file. Raises the errors of
        `backups.back_up`."""
        if rows is not None:
            return back_up_rows(locked, rows.steps, self.now)
        is_rendered = isinstance(agent_at(locked.path).store.open(locked.path), RenderedReader)
        return back_up(locked, None if is_rendered else self.present.fingerprint, self.now, content)

    def digest(self) -> str:
        return hashlib.sha256(json.dumps([*self.facts, sorted(self.needs)]).encode()).hexdigest()[:32]


Plan = TypeVar("Plan", bound=ChangePlan)


@dataclass(frozen=True, slots=True)
class Applied(Generic[Plan]):
    """A change that was made."""

    plan: Plan
    made: MadeChange
    backup: Backup | None
    late_failure: SystemFailure | None = None
    """An error that occurred after the change was made."""

    @property
    def backup_path(self) -> Path:
        """The backup of the previous session. It exists unless the plan makes none."""
        assert self.backup is not None  # noqa: S101  # `ChangePlan.IS_BACKED_UP`
        return self.backup.path


def apply(
    path: Path,
    plan_now: Callable[[], Plan],
    confirmations: Confirmations,
    *,
    shown: str | None = None,
    meanwhile: AbstractContextManager[object] | None = None,
) -> Applied[Plan]:
    """Make a change of the session at a real path: plan it with `plan_now` under the lock, and require that the plan
    has the digest that was `shown` and that its confirmations are given. `meanwhile` is entered under the lock, before
    planning.

    Raises the errors of `plan_now` and `meanwhile`, Conflict `plan_differs`, ConfirmationNeeded and SystemFailure; then
    the session is unchanged, unless the message says otherwise. An error that occurred after the change was made is
    raised last.
    """
    with lock_session(path) as locked, meanwhile or nullcontext():
        plan = plan_now()
        plan.require_shown(shown)
        plan.require_confirmed(confirmations)
        applied = plan.carry_out(locked, confirmations)
    with suppress(RedlineError, DatabaseError):  # it is written: the index can follow later
        index_file(applied.made.created or path)
    plan.notify(applied)
    if applied.late_failure is not None:
        raise applied.late_failure
    return applied


def _drop_or_keep(backup: Backup, locked: LockedSession, failure: RedlineError) -> None:
    """Delete the backup if the session is unchanged; after any other failure keep it, as it has the previous
    content."""
    if failure.code == BYTES_ARE_LEFT:
        with tolerated(f"The backup {backup.path}"):
            record_backup(locked.path, BackupNote.of(backup))
    elif not locked.is_announced:  # otherwise the next lock decides by the content of the file
        delete_backup(backup.path)


@contextmanager
def tolerated(what: str) -> Iterator[None]:
    """Log a database error. The next lock on the session can write the row too, so the error must not hide the
    outcome."""
    try:
        yield
    except DatabaseError as fault:
        logger.warning("%s was not recorded: %s", what, failure_of(fault).code)


@dataclass(slots=True)
class _Steps:
    """The steps that carry out a plan under a lock. Each raises the errors of `ChangePlan.prove` and the storage."""

    plan: ChangePlan
    locked: LockedSession
    backup: Backup | None
    content: hashlib._Hash
    """The hash of the backed up bytes."""
    note: ChangeNote
    made: MadeChange = field(default_factory=lambda: MadeChange(""))

    def change_file(self, *, after_torn_line: bool) -> None:
        """Append lines, or make a new session."""
        plan, present = self.plan, self.plan.present
        with lines_of(present) as line:
            facts = write_facts(present, line, self._backup_path, plan.now)
            change = plan.make(facts)
            if isinstance(change, NewFile):
                self._create(facts.session_id, change, line)
                return
            if isinstance(change, RowChanges):
                raise not_in_database(present.path)
            after = context_with(present, change.lines, present.reading, line)
            self.made = MadeChange(after.leaf_id, lines=change.lines, certificate=plan.prove(line, after))
        with agent_at(self.locked.path).store.write_lock(self.locked.path):
            append_lines(
                self.locked,
                change.lines,
                present.state,
                is_complete_line,
                after_torn_line=after_torn_line,
                note=self._text(),
                record=lambda appended: self._record(appended.end, self._digest(appended.end)),
            )

    def _create(self, session_id: str, change: NewFile, line: ReadLine) -> None:
        self.made = MadeChange(session_id, created=self.locked.path.with_name(change.name))

        def prove_draft(draft: Path) -> None:
            _require_unchanged(self.plan.present)
            loaded = load_session(draft)
            with lines_of(loaded) as line_of_draft:
                self._prove(line, loaded, line_of_draft)

        create_session(
            self.locked,
            change.name,
            change.pieces,
            check=prove_draft,
            note=lambda _: self._text(),
            record=lambda new: self._record(new.size, new.sha256),
        )

    def change_rows(self, rows: RowPlan) -> None:
        """Change rows of a database.

        A database without a write-ahead log cannot be committed while another connection reads it, so the proof closes
        its own connection.
        """
        present = self.plan.present
        path = present.path.with_name(rows.created) if rows.created else present.path
        self.made = MadeChange(rows.entry_id, created=path if rows.created else None)

        def require_unchanged(connection: sqlite3.Connection) -> None:
            require_same_rows(present, connection)
            if rows.removed is not None:
                _require_as_made(rows.removed, rows.steps, connection)

        def prove(line: ReadLine, connection: sqlite3.Connection) -> int:
            if rows.removed is None:
                with changed_session(path, connection) as (loaded, read):
                    before = (lambda entry: read(loaded.tree.entry(entry.id))) if rows.brings_back else line
                    self._prove(before, loaded, read)
                self.made = self.made._replace(size=loaded.state.size)
            return self.made.size

        with _lines_before(present, rows.database) as line:
            reviewed = ReviewedRows(
                self.locked,
                rows.database,
                rows.steps,
                require_unchanged,
                prove=partial(prove, line),
                note=lambda _: self._text(),
                record=lambda size: self._record(size, ""),
            )
            if rows.server is not None:
                reviewed.change_through(rows.server, self._backup_path)
            else:
                reviewed.change(is_in_place=not rows.created)

    @property
    def _backup_path(self) -> Path:
        """The backup; the session itself if the plan makes none."""
        return self.backup.path if self.backup is not None else self.locked.path

    def _prove(self, line: ReadLine, changed: LoadedSession, changed_line: ReadLine) -> None:
        context = self.plan.present.reading.reader.rebuild(changed.tree.branch(changed.leaf_id))
        certificate = self.plan.prove(line, Rebuilt(context, changed_line, changed.leaf_id))
        self.made = self.made._replace(certificate=certificate)

    def _text(self) -> str:
        return text_of(self.note.of_made(self.made))

    def _digest(self, end: int) -> str:
        """The digest of the session with the appended lines; empty if others have rewritten it since."""
        if self.backup is not None:
            with suppress(RedlineError):
                return digest_up_to(self.locked.path, end, self.backup.size, self.content)
        return ""

    def _record(self, size: int, sha256: str) -> None:
        self.made = self.made._replace(size=size, sha256=sha256)
        record_made(self.plan.present.path, self.note.of_made(self.made), size, sha256)


# ---- input of a writer ---------------------------------------------------------------------------------------


def write_facts(present: LoadedSession, line: ReadLine, backup: Path, now: datetime) -> WriteFacts:
    """A writer's input other than the branch and the deletion. The session must have a header."""
    assert present.log.header is not None  # noqa: S101  # `require_writable` refuses others
    agent = present.agent
    elsewhere = agent.store.open_elsewhere(present.path)
    return WriteFacts(
        new_id=_new_ids(present, agent).__next__,
        session_id=str(uuid.uuid4()),
        written_at=now,
        session=str(present.path),
        header=present.log.header,
        backup=str(backup),
        line=line,
        labels=labels(present.tree),
        title=partial(_title_of, present),
        state=present.log.state,
        lines=partial(_complete_lines, present),
        is_open=elsewhere is not None and elsewhere.is_certain,
    )


def _title_of(present: LoadedSession) -> str:
    """The title of a session, as the index has it."""
    entries = present.tree.entries
    prompts = (entry for entry in entries if entry.role == Role.USER and entry.has_text)
    said = (present.texts([entry])[entry.id].joined(entry.blocks) for entry in prompts)
    return title_of(session_name(entries)) or next(filter(None, map(title_of_prompt, said)), "")


def _complete_lines(session: LoadedSession) -> Iterator[bytes]:
    """The lines that the session had when it was loaded."""
    with session.agent.store.open(session.path) as reader:
        for line in split_lines(reader.chunks(0)):
            if line.end > session.log.state.next_offset:
                return
            yield line.raw


def _new_ids(present: LoadedSession, agent: Agent) -> Iterator[str]:
    """Ids that no entry of the session uses."""
    used: set[str] = set()
    while True:
        entry_id = agent.format.new_entry_id()
        if entry_id not in present.tree and entry_id not in used:
            used.add(entry_id)
            yield entry_id


@contextmanager
def lines_of(session: LoadedSession) -> Iterator[ReadLine]:
    """A context manager that yields a reader for the recorded lines of a session's entries."""
    with session.agent.store.open(session.path) as reader:
        yield line_reader(reader)


def _require_unchanged(present: LoadedSession) -> None:
    """Raise Conflict `session_changed` if the bytes that a fork was made of are not the ones that were judged."""
    with present.agent.store.open(present.path) as reader:
        growth = reader.growth(present.fingerprint)
    if growth.kind is GrowthKind.REWRITTEN:
        raise Conflict(
            "session_changed",
            f"{present.path}: {growth.reason}, while the fork was written. No new session was made. Plan again.",
        )


# ---- rows of a database --------------------------------------------------------------------------------------


def row_plan(present: LoadedSession, change: RowChanges, entry_id: str) -> RowPlan:
    """The changed rows. Raises BadInput `not_in_database`, Conflict `session_changed`."""
    database = database_of(present.path)
    return RowPlan(database, plan_steps(database, change), change.created, entry_id)


def database_of(path: Path) -> Path:
    """The database that has a session. Raises BadInput `not_in_database`."""
    database = agent_at(path).store.database(path)
    if database is None:
        raise not_in_database(path)
    return database


def not_in_database(path: Path) -> BadInput:
    """The error for a change of rows of a session that is not in a database."""
    return BadInput(
        "not_in_database",
        f"{path} is not in a database, so its rows cannot be changed. Nothing was written. Open it in a version of its "
        "agent that moves it into one first.",
    )


@contextmanager
def changed_session(path: Path, connection: sqlite3.Connection) -> Iterator[tuple[LoadedSession, ReadLine]]:
    """A session as changed by a transaction, and a function that reads the lines of its entries."""
    agent = agent_at(path)
    with agent.store.open_within(path, connection) as reader:
        yield load_opened(agent, reader), line_reader(reader)


def require_same_rows(present: LoadedSession, connection: sqlite3.Connection) -> None:
    """Raise Conflict `session_changed` if the session is not the one that was judged."""
    with present.agent.store.open_within(present.path, connection) as reader:
        growth = reader.growth(present.fingerprint)
    if growth.kind is not GrowthKind.UNCHANGED:
        raise Conflict(
            "session_changed",
            f"{present.path} was written to after it was checked. Nothing was written. Read it again.",
        )


@contextmanager
def _lines_before(present: LoadedSession, database: Path) -> Iterator[ReadLine]:
    """A function that reads the recorded lines of a session's entries, even after its rows change."""
    agent = present.agent
    with session_copy(database, agent.store.session_tables, present.path.name, NOTHING_WRITTEN) as copy:
        require_same_rows(present, copy)
        with agent.store.open_within(present.path, copy) as reader:
            yield line_reader(reader)


def _require_as_made(created: Path, steps: Sequence[RowStep], connection: sqlite3.Connection) -> None:
    with agent_at(created).store.open_within(created, connection) as reader:
        rows = sum(1 for _ in split_lines(reader.chunks(0)))
    if rows != len(steps):
        raise Conflict(
            "fork_continued",
            f"{created} was continued since it was made. It was not deleted. Delete it in the agent if you do not need "
            "it.",
        )
