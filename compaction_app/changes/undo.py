"""The undo of a compaction, or of a part of it: its present state, the steps back, the restored entries, and the proof.

    context with the entries back = the context that the agent's reader rebuilds from the branch without the
                                    compaction's lines − what stays deleted

The state of a compaction consists of its lines, the entries it still deletes, and the entries that followed. The file
decides, not the rows: a restore may have removed an undo. The rows have only the facts that a line lacks: what a new
session omits, and which lines bring entries back.

Rows of a database are restored from the backup of the compaction. A new session that a compaction made is deleted, if
its bytes are still the ones that Redline wrote: this needs no backup, and there is no context to prove.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

import msgspec

from compaction_app.core.airlock import ValidatedDeletion, validate
from compaction_app.core.transcript import prepare
from compaction_app.core.undo_ways import UndoWay, choose_way, with_pairs
from compaction_app.models import Compaction, Undo
from compaction_app.session_activity import activity_of, append_needs
from sessions_app.agents.base import AgentServer
from sessions_app.agents.pure.formats import Append, Change, SessionWriter, WriteFacts
from sessions_app.agents.reading import Reading
from sessions_app.agents.registry import agent_at
from sessions_app.cli import resume_line
from sessions_app.disk.files import file_state
from sessions_app.document.document import Document
from sessions_app.index.index_store import session_row
from sessions_app.index.session_locks import lock_session
from sessions_app.models import Session
from sessions_app.sessionlog import entries
from sessions_app.sessionlog.certificate import Certificate
from sessions_app.sessionlog.context import ActiveContext
from sessions_app.sessionlog.diagnosis import new_violations, violations
from sessions_app.sessionlog.errors import BadInput, Conflict
from sessions_app.storage.locks import LockedSession
from sessions_app.storage.new_session import remove_session, require_as_written
from sessions_app.storage.row_steps import RowStep, backed_up_steps
from sessions_app.storage.rows import found_steps, preview_rows
from sessions_app.storage.session_loader import LoadedSession, find_torn_line, reparse_entry

from .audit import FileContent
from .change import Applied, ChangePlan, Confirmations, RowPlan, apply, changed_session, database_of
from .compaction import require_writable
from .proof import ReadLine, Rebuilt, approved_messages, certificate_of, require_approved
from .records import BackupNote, MadeChange, UndoNote, content_written, record_made, text_of

NOT_UNDONE = "Nothing was undone."
NOT_IN_FORCE: Final = frozenset({"undone_already", "not_in_session", "other_branch"})
"""The errors which mean that a compaction does not have to be undone."""
OF_ANY_BRANCH: Final = frozenset({entries.EntryKind.LABEL, entries.EntryKind.NAME})
"""The kinds of entries that apply to the whole session: leaving their branch changes nothing."""
DELETION_WRITER: Final = "context-compaction"
"""The writer of the lines that a session itself describes."""


@dataclass(frozen=True, slots=True)
class UndoRequest:
    """A compaction to undo, or some of the entries that it deleted."""

    document: Document
    compaction: Compaction | None = None
    """The compaction to undo; None means the one named by `name`."""
    name: str = ""
    """The id of its entry, or of the session that it made; empty for the latest compaction."""
    entry_ids: Collection[str] = ()
    """The entries to bring back; empty for all of them."""


def undo_of_run(compaction: Compaction, entry_ids: Collection[str] = ()) -> UndoRequest:
    """The request to undo a recorded compaction. Raises the errors of `load_session`."""
    return UndoRequest(Document.of_session(compaction.session), compaction, entry_ids=entry_ids)


def planned(request: UndoRequest, now: datetime) -> UndoPlan:
    """The effect an undo would have now. Raises the errors of `plan_undo` and of finding the compaction."""
    present = request.document.now()
    if request.compaction is not None:
        state = compaction_state(request.compaction, present)
    elif request.name:
        state = state_named(request.name, present.row, present)
    else:
        state = latest_state(present.row, present)
    return plan_undo(state, present, request.entry_ids, now)


def undo(
    request: UndoRequest, confirmations: Confirmations, now: datetime, *, shown: str | None = None
) -> Applied[UndoPlan]:
    """Undo a compaction, or bring back some of its entries.

    `shown` is the digest of the plan for which the confirmations were given, if that was some time ago. Raises the
    errors of `plan_undo`, Conflict `plan_differs`, ConfirmationNeeded, and SystemFailure; then every file is unchanged,
    unless the message says otherwise.
    """
    return apply(request.document.path, lambda: planned(request, now), confirmations, shown=shown)


@dataclass(frozen=True, slots=True)
class UndoRow:
    """An undo that was made."""

    undo: Undo
    entries: int
    resume: str
    """The command that continues in the new session; empty if none was made, or it no longer exists."""


def undo_rows(compaction: Compaction) -> list[UndoRow]:
    """The undos of a compaction, the latest first."""
    agent = compaction.session.agent
    return [
        UndoRow(
            undo,
            len({raw["entryId"] for raw in undo.targets}),
            resume_line(agent, Path(undo.created)) if undo.created and Path(undo.created).exists() else "",
        )
        for undo in compaction.undos.select_related("backup").order_by("-pk")
    ]


# ---- the plan ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class UndoPlan(ChangePlan):
    """The effect an undo would have now. `activity` is that of the session that is `touched`."""

    NOT_DONE = NOT_UNDONE

    writer: SessionWriter
    """The writer of the compaction."""
    state: CompactionState
    way: UndoWay
    wanted: tuple[entries.Target, ...]
    """The requested targets; the rest of `back` must come back with them."""
    back: tuple[entries.Target, ...]
    """The targets that are brought back."""
    out_of_reach: tuple[entries.Target, ...]
    """Requested targets that have been summarised since, so that later edits cannot bring them back."""
    without: ActiveContext
    """The context without the compaction."""

    @property
    def session(self) -> Path:
        created = self.state.created
        return created if self.way is UndoWay.REMOVAL and created is not None else self.present.path

    @property
    def is_whole(self) -> bool:
        """Whether it brings back everything that can be brought back."""
        return len(self.back) + len(self.out_of_reach) == len(self.state.targets)

    @property
    def remaining(self) -> tuple[entries.Target, ...]:
        """The targets that stay deleted."""
        back = set(self.back)
        return tuple(target for target in self.state.targets if target not in back)

    @property
    def server(self) -> AgentServer | None:
        """The agent's server through which the rows are restored; None for a transaction, or if no rows are changed."""
        is_in_place = self.way is UndoWay.ROWS and self.state.created is None
        return self.activity.server if is_in_place else None

    @property
    def written_to(self) -> Path | None:
        return None if self.way is UndoWay.FORK else self.session

    @property
    def facts(self) -> list[Any]:
        return [
            self.state.undone_id,
            self.way,
            [target.to_json() for target in self.back],
            self.present.leaf_id,
            self.server_address,
        ]

    def rows(self) -> RowPlan | None:
        if self.way is not UndoWay.ROWS:
            return None
        assert self.state.row is not None  # noqa: S101  # only a recorded compaction changed rows
        database = database_of(self.present.path)
        steps = steps_back(self.state.row, self.back, database, is_whole=self.is_whole, server=self.server)
        entry_id = self.present.reading.agent.format.new_entry_id()
        return RowPlan(database, steps, "", entry_id, self.server, brings_back=True, removed=self.state.created)

    def make(self, facts: WriteFacts) -> Change:
        state, present, reading = self.state, self.present, self.present.reading
        leaf_line = reading.agent.format.leaf_line(facts.new_id(), state.leaf_id, facts.written_at, undoes=True)
        if self.way is UndoWay.LEAF and leaf_line is not None:
            return Append((leaf_line,))
        if self.way is UndoWay.SMALLER:
            return self.writer.write(present.tree.branch(state.leaf_id), self._smaller(), facts)
        restore_lines = reading.generation.restore_lines
        if self.way is UndoWay.EDITS and restore_lines is not None:
            back = {target.entry_id for target in self.back}
            messages = [message for message in self.without.messages if message.entry.id in back]
            deleted = entries.blocks_by_entry(self.remaining)
            return Append(restore_lines(present.tree.branch(present.leaf_id), messages, deleted, facts))
        rest = entries.Deletion(self.remaining, (), entries.Stats())
        return reading.writer("fork").write(state.branch, rest, facts)

    def _smaller(self) -> entries.Deletion:
        """The remaining deletion, judged by the airlock on the conversation before the compaction. Raises Conflict
        `plan_refused`."""
        assert self.state.row is not None  # noqa: S101  # `choose_way` chooses this way only then
        branch = self.present.tree.branch(self.state.leaf_id)
        rules = self.present.reading.rules(self.writer.name)
        transcript = prepare(branch, {}, self.state.row.parameters, rules)
        judged = validate(entries.request_of(self.remaining), transcript) if transcript is not None else None
        if not isinstance(judged, ValidatedDeletion) or set(judged.targets) != set(self.remaining):
            raise Conflict(
                "plan_refused",
                f"{self.path}: the deletions that would be kept are not valid without the entries that come back. "
                f"{NOT_UNDONE} Undo "
                "the whole compaction, and plan again.",
            )
        return entries.Deletion(judged.targets, judged.protected_entry_ids, judged.stats)

    def prove(self, line: ReadLine, after: Rebuilt) -> Certificate:
        before = Rebuilt(self.without, line, self.state.leaf_id)
        ignored: set[object] = set()
        if self.way is UndoWay.SMALLER:
            branch = self.present.tree.branch(self.state.leaf_id)
            ignored.update(self.writer.unapplied(branch, self.remaining))
        deleted = [target for target in self.remaining if target not in ignored]
        require_approved(self.path, self.writer, self.present.reading.agent, before, deleted, after)
        return certificate_of(self.path, self.present.reading.generation, before, after, self.now)

    def carry_out(self, locked: LockedSession, confirmations: Confirmations) -> Applied[Self]:
        if self.way is not UndoWay.REMOVAL:
            return super().carry_out(locked, confirmations)
        created, size, sha256 = made_by(self.state)
        note = msgspec.structs.replace(self.note(None), content=FileContent(size, sha256))
        with lock_session(created) as theirs, self.present.reading.agent.store.write_lock(created):
            remove_session(
                theirs,
                size,
                sha256,
                note=text_of(note),
                record=lambda: record_made(self.present.path, note, 0, ""),
            )
        return Applied(self, MadeChange(""), None)

    def note(self, backup: BackupNote | None) -> UndoNote:
        state = self.state
        is_removed = state.created is not None and self.way in (UndoWay.REMOVAL, UndoWay.ROWS)
        return UndoNote(
            session=self.path,
            backup=backup,
            undone=state.undone_id,
            way=self.way,
            is_whole=self.is_whole,
            targets=tuple(target.to_json() for target in self.back),
            leaf_id=self.present.leaf_id if self.way in (UndoWay.EDITS, UndoWay.FORK) else state.leaf_id,
            written_at=self.now,
            writer=self.writer.name,
            removed=str(state.created) if is_removed else "",
            server=self.server_address,
        )


def plan_undo(state: CompactionState, present: Document, wanted_ids: Collection[str], now: datetime) -> UndoPlan:
    """Plan to bring back these entries with their pairs; all entries if none are given.

    Raises BadInput `not_deleted` and the errors of `require_writable`, Conflict `not_in_force`, `original_continued`,
    `compacted_again`, `summarised`, `is_base` and `breaks_conversation`.
    """
    require_writable(present)
    reading = present.reading
    writer = _writer_of(state, present)
    without = reading.reader.rebuild(state.branch)
    messages = {message.entry.id: message for message in without.messages}
    wanted = _wanted(state, wanted_ids, present)
    companions = reading.generation.rules.companions(without.messages)
    back = with_pairs(wanted, state.targets, messages, companions)
    can_edit = reading.generation.restore_lines is not None and state.created is None
    way = choose_way(
        made_session=state.created is not None,
        is_last=state.is_last,
        is_whole=len(back) == len(state.targets),
        can_edit=can_edit,
        can_move=reading.generation.can_move_leaf,
        can_plan=state.row is not None,
    )
    if reading.agent.store.database(present.path) is not None:
        way = _way_of_rows(state, present, is_whole=len(back) == len(state.targets))
    if way is UndoWay.FORK and state.created is not None and not state.is_last:
        raise Conflict(
            "original_continued",
            f"{present.path} has continued since this compaction was made of it, so single entries are not brought "
            f"back. {NOT_UNDONE} Compact it again, with a smaller plan.",
        )
    reachable = tuple(target for target in back if target.entry_id in messages)
    out_of_reach = tuple(target for target in back if target.entry_id not in messages)
    if way is UndoWay.EDITS:
        _require_reachable(state, present, without, reachable)
    else:
        reachable, out_of_reach = back, ()
    if way is UndoWay.REMOVAL:
        made = made_by(state)
        require_as_written(*made)
        _require_no_dependents(made[0], reading)
    touched = state.created if state.created is not None and way is UndoWay.REMOVAL else present.path
    activity = activity_of(session_row(touched), reading.agent.store.state(touched), now)
    torn = find_torn_line(present.agent, present.path) if way.appends else None
    plan = UndoPlan(
        now=now,
        present=present,
        writer=writer,
        state=state,
        way=way,
        wanted=wanted,
        back=reachable,
        out_of_reach=out_of_reach,
        without=without,
        activity=activity,
        torn=torn,
        needs=dict(append_needs(str(touched), None if way is UndoWay.FORK else activity, torn, NOT_UNDONE)),
    )
    _require_legal(plan)
    return plan


def _way_of_rows(state: CompactionState, present: LoadedSession, *, is_whole: bool) -> UndoWay:
    if state.created is not None and not is_whole:
        raise Conflict(
            "only_whole",
            f"{present.path} was never changed: the compaction made {state.created}. {NOT_UNDONE} Undo it as a whole, "
            "or make another fork with a smaller plan.",
        )
    return UndoWay.ROWS


def made_by(state: CompactionState) -> tuple[Path, int, str]:
    """The session that a compaction made, with its original size and digest. Raises Conflict `not_recorded`."""
    written = content_written(state.row) if state.row is not None else None
    if state.created is None or written is None:
        raise Conflict(
            "not_recorded",
            f"Redline has no record of what it wrote to {state.created}. It was not deleted. Delete it yourself if you "
            "do not need it.",
        )
    return state.created, written.size, written.sha256


def _require_no_dependents(created: Path, reading: Reading) -> None:
    based = reading.agent.store.sessions_based_on(created)
    if based:
        raise Conflict(
            "is_base",
            f"{based[0]} continues {created}, and would be lost without it. {NOT_UNDONE} Continue with the "
            "original session; you can keep the new one.",
        )


def _writer_of(state: CompactionState, present: Document) -> SessionWriter:
    """The writer of a compaction. Raises Conflict `not_in_force` if the agent ignores its lines."""
    reading = present.reading
    for writer in reading.honoured_writers:
        if writer.name == state.writer:
            return writer
    raise Conflict(
        "not_in_force",
        f"{present.path} is opened as {reading.reader.name}: {reading.reason}. {reading.generation.label} ignores the "
        f"compaction {state.undone_id}, so there is nothing to undo for it. {NOT_UNDONE} If an older version opens "
        "this session, change how it is opened on the page of the session.",
    )


def _wanted(state: CompactionState, wanted_ids: Collection[str], present: LoadedSession) -> tuple[entries.Target, ...]:
    deleted = {target.entry_id for target in state.targets}
    unknown = next((entry_id for entry_id in wanted_ids if entry_id not in deleted), None)
    if unknown is not None:
        raise BadInput(
            "not_deleted",
            f"The compaction {state.undone_id} of {present.path} does not delete entry {unknown}, or it is back "
            f"already. {NOT_UNDONE}",
        )
    return tuple(target for target in state.targets if not wanted_ids or target.entry_id in wanted_ids)


def _require_reachable(
    state: CompactionState, present: LoadedSession, without: ActiveContext, reachable: Sequence[entries.Target]
) -> None:
    """Raise Conflict if later edits cannot bring targets back."""
    if not reachable:
        raise Conflict(
            "summarised",
            f"{present.path} was summarised since, so what {state.undone_id} deleted is no longer part of the "
            f"conversation. {NOT_UNDONE} Restore a backup instead: `redline backups` lists them.",
        )
    sought = {target.entry_id for target in reachable}
    again = next(
        (
            message
            for message in without.messages
            if message.edit is not None and message.entry.id in sought and message.edit.number > state.last_line
        ),
        None,
    )
    if again is not None and again.edit is not None:
        raise Conflict(
            "compacted_again",
            f"Entry {again.entry.id} of {present.path} was edited again by {again.edit.id}, after {state.undone_id}. "
            f"{NOT_UNDONE} Undo that first, or bring back other entries.",
        )


def _require_legal(plan: UndoPlan) -> None:
    """Raise Conflict `breaks_conversation` if providers would refuse the result, but accept the context now and
    accepted it before the compaction."""
    if plan.way is UndoWay.REMOVAL:
        return
    rebuild, tree = plan.present.reading.reader.rebuild, plan.present.tree
    now = rebuild(tree.branch(plan.present.leaf_id))
    earlier = rebuild(tree.branch(plan.state.leaf_id))
    after = replace(plan.without, messages=tuple(approved_messages(plan.without, plan.remaining, plan.writer)))
    added = new_violations((*violations(now), *violations(earlier)), violations(after))
    if added:
        raise Conflict(
            "breaks_conversation",
            f"{plan.path}: {added[0].sentence} {NOT_UNDONE} Bring back other entries, or restore a backup.",
        )


# ---- the state of a compaction -----------------------------------------------------------------------------


class LineRange(NamedTuple):
    """Consecutive lines of a branch: after one entry, up to and including another."""

    after: str
    last: str

    @classmethod
    def of(cls, undo: Undo) -> Self:
        return cls(undo.leaf_id, undo.entry_id)


@dataclass(frozen=True, slots=True)
class CompactionState:
    """A compaction in a session."""

    undone_id: str
    """The entry of the compaction, or the id of the session that it made."""
    row: Compaction | None
    """Redline's record of the compaction; None if there is none."""
    writer: str
    leaf_id: str
    """The entry before its lines."""
    targets: tuple[entries.Target, ...]
    """The targets that it still deletes, in the order of recording."""
    branch: tuple[entries.Entry, ...]
    """The branch without the compaction: without its lines, and those that brought back a part of it."""
    last_line: int
    """The number of its last line in the file; 0 if it made a new session."""
    is_last: bool
    """Whether no message followed."""

    @property
    def created(self) -> Path | None:
        """The new session that the compaction made."""
        return Path(self.row.created) if self.row is not None and self.row.created else None


def targets_of(recorded: Iterable[dict[str, Any]]) -> tuple[entries.Target, ...]:
    """Targets from the form in which rows store them."""
    return tuple(entries.Target(raw["entryId"], raw.get("blockIndex")) for raw in recorded)


def compaction_state(row: Compaction, present: LoadedSession) -> CompactionState:
    """The state of a recorded compaction.

    Raises Conflict with a code of NOT_IN_FORCE; for a compaction of rows also `rows_changed` and `backup_gone`.
    """
    if present.agent.store.database(present.path) is not None:
        return _state_of_rows(row, present)
    if row.created:
        return _state_of_fork(row, present)
    branch = present.tree.branch(present.leaf_id)
    places = {entry.id: place for place, entry in enumerate(branch)}
    version = next((one for one in reversed(_versions(row)) if one[0].last in places), None)
    if version is None:
        raise _not_in_force(row, present)
    partly = [undo for undo in row.undos.filter(way=UndoWay.EDITS).order_by("pk") if undo.entry_id in places]
    lines, deleted = version
    ours = [lines, *map(LineRange.of, partly), *_taken_back(row.session, row.pk)]
    back = {target for undo in partly for target in targets_of(undo.targets)}
    targets = tuple(target for target in deleted if target not in back)
    if not targets or any(undo.is_whole for undo in partly):
        raise _undone_already(row, present.path)
    return _state(row.entry_id, row, row.writer, lines, targets, branch, ours)


def unrecorded_state(entry_id: str, present: LoadedSession) -> CompactionState:
    """The state of a compaction known only from its line. Raises BadInput `not_ours`, Conflict `other_branch`."""
    entry = present.tree.entry(entry_id)
    control, parent_id = entry.control, entry.parent_id
    if not _is_beside(entry, present.path) or not isinstance(control, entries.DeletionControl) or parent_id is None:
        raise BadInput(
            "not_ours",
            f"Redline has no record of {entry_id} in {present.path} as a compaction. Nothing was undone. Restore a "
            "backup: `redline backups` lists them.",
        )
    branch = present.tree.branch(present.leaf_id)
    if entry not in branch:
        raise _other_branch(entry_id, present.path)
    lines = LineRange(parent_id, entry_id)
    return _state(entry_id, None, DELETION_WRITER, lines, control.targets, branch, [lines])


def latest_state(session: Session, present: LoadedSession) -> CompactionState:
    """The latest compaction that can be undone: one on the active branch, otherwise a new session that was made.

    Of compactions that changed rows, only the latest is considered, as it may hide earlier ones. Raises BadInput
    `no_compaction`, Conflict `rows_changed` and `backup_gone`.
    """
    is_in_database = present.agent.store.database(present.path) is not None
    found = list(islice(_states(session, present), 1 if is_in_database else None))
    recorded = session.own_entries
    for entry in reversed(present.tree.branch(present.leaf_id)):
        if entry.id not in recorded and _is_beside(entry, present.path):
            found.append(unrecorded_state(entry.id, present))
            break
    if not found:
        raise BadInput(
            "no_compaction",
            f"{present.path} has no compaction by Redline on its active branch that can be undone. Nothing was undone. "
            "A backup can be restored: `redline backups` lists them.",
        )
    return max(found, key=lambda state: state.last_line)


def state_named(name: str, session: Session, present: LoadedSession) -> CompactionState:
    """The compaction with this entry id or this id of the session that it made."""
    row = session.compactions.select_related("backup", "session__root").filter(entry_id=name).last()
    if row is None:
        smaller = session.undos.filter(entry_id=name, way=UndoWay.SMALLER, compaction__isnull=False).last()
        row = smaller.compaction if smaller is not None else None
    return compaction_state(row, present) if row is not None else unrecorded_state(name, present)


def _states(session: Session, present: LoadedSession) -> Iterator[CompactionState]:
    """The recorded compactions in force, the latest first."""
    for row in session.compactions.select_related("backup", "session__root").order_by("-pk"):
        try:
            yield compaction_state(row, present)
        except Conflict as conflict:
            if conflict.code not in NOT_IN_FORCE:
                raise


def _state_of_rows(row: Compaction, present: LoadedSession) -> CompactionState:
    """The state of a compaction that changed rows of a database, or copied them into a new session."""
    created = Path(row.created)
    is_gone = bool(row.created) and agent_at(created).store.state(created) is None
    if is_gone or row.undos.filter(is_whole=True).exists():
        raise _undone_already(row, present.path)
    back = {target for undo in row.undos.all() for target in targets_of(undo.targets)}
    targets = tuple(target for target in targets_of(row.origins) if target not in back)
    branch = _branch_with(row, targets, present)
    return CompactionState(row.entry_id, row, row.writer, present.leaf_id, targets, branch, row.pk, is_last=False)


def _branch_with(row: Compaction, back: Sequence[entries.Target], present: LoadedSession) -> tuple[entries.Entry, ...]:
    """The branch with these targets brought back. Raises Conflict `backup_gone` and `rows_changed`."""
    backup = row.backup.path
    if file_state(Path(backup)) is None:
        raise Conflict(
            "backup_gone",
            f"{backup}, the backup of the rows that the compaction {row.entry_id} of {present.path} changed, "
            "does not exist any more. Nothing was undone. Nothing else has these rows, unless you have a copy of the "
            "backup: put it back there.",
        )
    try:
        with _preview(row, back, present) as connection:
            if connection is None:
                return tuple(present.tree.branch(present.leaf_id))
            with changed_session(present.path, connection) as (loaded, _):
                return tuple(loaded.tree.branch(loaded.leaf_id))
    except Conflict as conflict:
        if conflict.code != "session_changed":
            raise
        raise Conflict(
            "rows_changed",
            f"A row that the compaction {row.entry_id} of {present.path} changed was changed again since, and an undo "
            f"would overwrite that. Nothing was undone. Take the later change back first. {backup} has the row as it "
            "was.",
        ) from conflict


def _state_of_fork(row: Compaction, present: LoadedSession) -> CompactionState:
    if not Path(row.created).exists():
        raise Conflict(
            "undone_already",
            f"{row.created}, the session that this compaction made, does not exist any more. Nothing has to be undone: "
            f"{present.path} was never changed.",
        )
    branch = tuple(present.tree.branch(row.leaf_id))
    targets, is_last = targets_of(row.origins), present.leaf_id == row.leaf_id
    return CompactionState(row.entry_id, row, row.writer, row.leaf_id, targets, branch, 0, is_last)


def _state(
    undone_id: str,
    row: Compaction | None,
    writer: str,
    lines: LineRange,
    targets: tuple[entries.Target, ...],
    branch: Sequence[entries.Entry],
    ours: Iterable[LineRange],
) -> CompactionState:
    places = {entry.id: place for place, entry in enumerate(branch)}
    own = {
        place
        for found in ours
        if found.last in places and found.after in places
        for place in range(places[found.after] + 1, places[found.last] + 1)
    }
    last = places[lines.last]
    later = (entry for place, entry in enumerate(branch[last + 1 :], last + 1) if place not in own)
    without = tuple(entry for place, entry in enumerate(branch) if place not in own)
    is_last = all(entry.kind in OF_ANY_BRANCH for entry in later)
    return CompactionState(undone_id, row, writer, lines.after, targets, without, branch[last].number, is_last)


def _versions(row: Compaction) -> list[tuple[LineRange, tuple[entries.Target, ...]]]:
    """The original lines and their targets, then those of the smaller compactions that replaced them."""
    versions = [(LineRange(row.leaf_id, row.entry_id), targets_of(row.origins))]
    for undo in row.undos.filter(way=UndoWay.SMALLER).order_by("pk"):
        back = set(targets_of(undo.targets))
        left = tuple(target for target in versions[-1][1] if target not in back)
        versions.append((LineRange.of(undo), left))
    return versions


def _taken_back(session: Session, besides: int) -> Iterator[LineRange]:
    """The lines of other compactions that were undone completely, and of their undos: together they change nothing."""
    for undo in session.undos.filter(is_whole=True, created="").exclude(compaction=besides):
        if undo.way in (UndoWay.LEAF, UndoWay.EDITS):
            yield LineRange.of(undo)
        if undo.way == UndoWay.EDITS and undo.compaction is not None:
            yield from (lines for lines, _ in _versions(undo.compaction))
            yield from map(LineRange.of, undo.compaction.undos.filter(way=UndoWay.EDITS))


def _is_beside(entry: entries.Entry, path: Path) -> bool:
    """Whether an entry is a compaction whose backup has the name of one of this session; compared as text only."""
    control = entry.control
    return isinstance(control, entries.DeletionControl) and Path(control.backup).name.startswith(f"{path.name}.")


def _not_in_force(row: Compaction, present: LoadedSession) -> Conflict:
    if row.entry_id not in present.tree:
        return Conflict(
            "not_in_session",
            f"{present.path} no longer contains the compaction {row.entry_id}: a backup was restored since. Nothing "
            "has to be undone.",
        )
    if row.undos.filter(is_whole=True).exists():
        return _undone_already(row, present.path)
    return _other_branch(row.entry_id, present.path)


def _undone_already(row: Compaction, path: Path) -> Conflict:
    return Conflict(
        "undone_already",
        f"The compaction {row.entry_id} of {path} is undone already. Nothing was changed. To apply it again, plan "
        "again.",
    )


def _other_branch(entry_id: str, path: Path) -> Conflict:
    return Conflict(
        "other_branch",
        f"The active branch of {path} does not contain the compaction {entry_id}, so nothing on it has to be undone. "
        "Nothing was changed.",
    )


# ---- rows of a database ------------------------------------------------------------------------------------


def steps_back(
    row: Compaction,
    back: Sequence[entries.Target],
    database: Path,
    *,
    is_whole: bool,
    server: AgentServer | None = None,
) -> list[RowStep]:
    """The changes that bring back these targets of a compaction, limited to what the server can do if there is one.

    The compaction's other changes are reverted with the last target. Raises BadInput `not_a_backup`, Conflict
    `session_changed`, and the errors of reading the backup and the database.
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


def texts_with(
    row: Compaction, back: Sequence[entries.Target], present: LoadedSession, entries: Iterable[entries.Entry]
) -> dict[str, entries.Texts]:
    """The texts of entries of the branch with these targets brought back, by id; nothing is changed.

    Raises Conflict `session_rewritten` if the session no longer has these entries.
    """
    agent = present.agent
    with _preview(row, back, present) as connection:
        if connection is None:
            return present.texts(entries)
        with agent.store.open_within(present.path, connection) as reader:
            return {entry.id: reparse_entry(agent, reader, entry)[1] for entry in entries if entry.has_text}


@contextmanager
def _preview(
    row: Compaction, back: Sequence[entries.Target], present: LoadedSession
) -> Iterator[sqlite3.Connection | None]:
    """A copy of the session's rows with these targets brought back; None if the compaction changed no rows of the
    session."""
    agent = present.agent
    database = agent.store.database(present.path)
    if database is None or row.created:
        yield None
        return
    steps = steps_back(row, back, database, is_whole=True)
    with preview_rows(database, agent.store.session_tables, present.path.name, steps) as connection:
        yield connection
