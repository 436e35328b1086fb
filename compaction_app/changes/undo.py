"""The undo of a compaction, or of a part of it: the way, the entries brought back, the write and its proof.

    context with the entries back = the context that the agent's reader rebuilds from the branch without the
                                    compaction's lines − what stays deleted

Rows of a database are restored from the backup of the compaction. A new session that a compaction made is deleted, if
its bytes are still the ones that Redline wrote: this needs no backup, and there is no context to prove.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Self

import msgspec

from compaction_app.core.airlock import ValidatedDeletion, validate
from compaction_app.core.transcript import prepare
from compaction_app.core.undo_ways import UndoWay, choose_way, with_pairs
from compaction_app.models import Compaction, Undo
from compaction_app.session_activity import activity_of, append_needs
from sessions_app.agents.base import AgentServer
from sessions_app.agents.pure.format import Append, Change, SessionWriter, WriteFacts
from sessions_app.agents.reading import Reading
from sessions_app.cli import shell_quoted
from sessions_app.document.document import Document
from sessions_app.index.index_store import session_row
from sessions_app.index.session_locks import lock_session
from sessions_app.sessionlog.certificate import Certificate
from sessions_app.sessionlog.context import ActiveContext
from sessions_app.sessionlog.diagnosis import new_violations, violations
from sessions_app.sessionlog.entries import Deletion, Stats, Target, blocks_by_entry, request_of
from sessions_app.sessionlog.errors import BadInput, Conflict
from sessions_app.storage.locks import LockedSession
from sessions_app.storage.new_session import remove_session, require_as_written
from sessions_app.storage.session_loader import LoadedSession, find_torn_line

from .audit import FileContent
from .change import Applied, ChangePlan, Confirmations, MadeChange, RowPlan, apply, database_of
from .compaction import require_writable
from .compaction_state import CompactionState, compaction_state, latest_state, state_named, steps_back
from .proof import ReadLine, Rebuilt, approved_messages, certificate_of, require_approved
from .records import BackupNote, UndoNote, content_written, record_made, text_of

NOT_UNDONE = "Nothing was undone."


@dataclass(frozen=True)
class UndoPlan(ChangePlan):
    """The effect an undo would have now. `activity` is that of the session that is `touched`."""

    NOT_DONE = NOT_UNDONE

    writer: SessionWriter
    """The writer of the compaction."""
    state: CompactionState
    way: UndoWay
    wanted: tuple[Target, ...]
    """The requested targets; the rest of `back` belongs with them."""
    back: tuple[Target, ...]
    """The targets that are brought back."""
    out_of_reach: tuple[Target, ...]
    """Requested targets that have been summarised since, so that later edits cannot bring them back."""
    without: ActiveContext
    """The context without the compaction."""

    @property
    def session(self) -> Path:
        created = self.state.created
        return created if self.way is UndoWay.REMOVAL and created is not None else self.present.path

    @property
    def is_whole(self) -> bool:
        """Whether everything that can be brought back is."""
        return len(self.back) + len(self.out_of_reach) == len(self.state.targets)

    @property
    def remaining(self) -> tuple[Target, ...]:
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
            self.server.address if self.server is not None else "",
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
            deleted = blocks_by_entry(self.remaining)
            return Append(restore_lines(present.tree.branch(present.leaf_id), messages, deleted, facts))
        rest = Deletion(self.remaining, (), Stats())
        return reading.writer("fork").write(state.branch, rest, facts)

    def _smaller(self) -> Deletion:
        """The remaining deletion, judged by the airlock on the conversation before the compaction. Raises Conflict
        `plan_refused`."""
        assert self.state.row is not None  # noqa: S101  # `choose_way` chooses this way only then
        branch = self.present.tree.branch(self.state.leaf_id)
        rules = self.present.reading.rules(self.writer.name)
        transcript = prepare(branch, {}, self.state.row.parameters, rules)
        judged = validate(request_of(self.remaining), transcript) if transcript is not None else None
        if not isinstance(judged, ValidatedDeletion) or set(judged.targets) != set(self.remaining):
            raise Conflict(
                "plan_refused",
                f"{self.path}: what stays deleted is not valid without the entries that come back. {NOT_UNDONE} Undo "
                "the whole compaction, and plan again.",
            )
        return Deletion(judged.targets, judged.protected_entry_ids, judged.stats)

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
        note = msgspec.structs.replace(self.notes(None)(MadeChange("")), content=FileContent(size, sha256))
        with lock_session(created) as theirs, self.present.reading.agent.store.write_lock(created):
            remove_session(
                theirs,
                size,
                sha256,
                note=text_of(note),
                record=lambda: record_made(self.present.path, note, 0, ""),
            )
        return Applied(self, MadeChange(""), None)

    def notes(self, backup: BackupNote | None) -> Callable[[MadeChange], UndoNote]:
        state = self.state
        is_removed = state.created is not None and self.way in (UndoWay.REMOVAL, UndoWay.ROWS)

        def note(made: MadeChange) -> UndoNote:
            return UndoNote(
                session=self.path,
                backup=backup,
                undone=state.undone_id,
                way=self.way,
                is_whole=self.is_whole,
                targets=tuple(target.to_json() for target in self.back),
                entry_id=made.entry_id,
                leaf_id=self.present.leaf_id if self.way in (UndoWay.EDITS, UndoWay.FORK) else state.leaf_id,
                written_at=self.now,
                writer=self.writer.name,
                created=str(made.created) if made.created is not None else "",
                removed=str(state.created) if is_removed else "",
                server=self.server.address if self.server is not None else "",
                certificate=made.certificate.to_json() if made.certificate is not None else None,
            )

        return note


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
    torn = find_torn_line(present.path) if way.appends else None
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
            "original session; the new one can stay.",
        )


def _writer_of(state: CompactionState, present: Document) -> SessionWriter:
    reading = present.reading
    """The writer of a compaction. Raises Conflict `not_in_force` if the agent ignores its lines."""
    for writer in reading.honoured_writers:
        if writer.name == state.writer:
            return writer
    raise Conflict(
        "not_in_force",
        f"{present.path} is read as {reading.reader.name}: {reading.reason}. {reading.generation.label} ignores the "
        f"compaction {state.undone_id}, so there is nothing to undo for it. {NOT_UNDONE} If an older version opens "
        "this session, choose its reader on the page of the session.",
    )


def _wanted(state: CompactionState, wanted_ids: Collection[str], present: LoadedSession) -> tuple[Target, ...]:
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
    state: CompactionState, present: LoadedSession, without: ActiveContext, reachable: Sequence[Target]
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


# ---- the undo ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class UndoRequest:
    """A compaction to undo, or some of the entries that it deleted."""

    document: Document
    compaction: Compaction | None = None
    """None means the one called `name`."""
    name: str = ""
    """Empty for the latest one."""
    entry_ids: Collection[str] = ()
    """Empty for all of it."""


def undo_of_run(compaction: Compaction, entry_ids: Collection[str] = ()) -> UndoRequest:
    """The request to undo a recorded compaction. Raises the errors of `load_session`."""
    return UndoRequest(Document.of_session(compaction.session), compaction, entry_ids=entry_ids)


def planned(request: UndoRequest, now: datetime) -> UndoPlan:
    """The effect an undo would have now; see `plan_undo`."""
    return _plan(request, request.document.now(), now)


def undo(
    request: UndoRequest, confirmations: Confirmations, now: datetime, *, shown: str | None = None
) -> Applied[UndoPlan]:
    """Undo a compaction, or bring back some of its entries.

    `shown` is the digest of the plan for which the confirmations were given, if that was some time ago. Raises the
    errors of `plan_undo`, Conflict `plan_differs`, ConfirmationNeeded, and SystemFailure; then every file is unchanged,
    unless the message says otherwise.
    """
    applied = apply(request.document.path, lambda: planned(request, now), confirmations, shown=shown)
    applied.require_tidy()
    return applied


def _plan(request: UndoRequest, present: Document, now: datetime) -> UndoPlan:
    if request.compaction is not None:
        state = compaction_state(request.compaction, present)
    elif request.name:
        state = state_named(request.name, present.row, present)
    else:
        state = latest_state(present.row, present)
    return plan_undo(state, present, request.entry_ids, now)


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
            (
                " ".join(map(shell_quoted, agent.client.resume_command(Path(undo.created))))
                if undo.created and Path(undo.created).exists()
                else ""
            ),
        )
        for undo in compaction.undos.select_related("backup").order_by("-pk")
    ]
