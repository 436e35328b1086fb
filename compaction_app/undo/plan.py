"""What an undo would do at this moment: which way, what comes back, and the confirmations that it needs.

    context with the entries back = what the agent's reader rebuilds of the branch without the compaction's lines
                                    − what stays deleted

The page and the command show it; the undo makes it again under the lock, and proves the same context before it writes.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from compaction_app.change_records import content_written
from compaction_app.changes.plan import ChangePlan
from compaction_app.commit.preflight import require_writable
from compaction_app.commit.proof import approved_messages
from compaction_app.core.undo_ways import UndoWay, choose_way, with_pairs
from compaction_app.session_activity import activity_of, append_needs
from sessions_app.agents.changes import SessionWriter
from sessions_app.agents.programs import AgentServer
from sessions_app.agents.reading import Reading
from sessions_app.document.document import Document
from sessions_app.index.index_store import session_row
from sessions_app.sessionlog.context import ActiveContext
from sessions_app.sessionlog.errors import BadInput, Conflict
from sessions_app.sessionlog.provider_rules import new_violations, violations
from sessions_app.sessionlog.targets import Target
from sessions_app.storage.new_session import require_as_written
from sessions_app.storage.session_loader import LoadedSession, torn_line_of

from .compaction_state import CompactionState

NOT_UNDONE = "Nothing was undone."


@dataclass(frozen=True)
class UndoPlan(ChangePlan):
    """What an undo would do at this moment. `activity` is that of the session that is `touched`."""

    NOT_DONE = NOT_UNDONE

    writer: SessionWriter
    """The writer of the compaction."""
    state: CompactionState
    way: UndoWay
    wanted: tuple[Target, ...]
    """What was to come back; the rest of `back` belongs with it."""
    back: tuple[Target, ...]
    """What comes back."""
    out_of_reach: tuple[Target, ...]
    """What was to come back, but has been summarised since, so that later edits cannot bring it back."""
    without: ActiveContext
    """The context as it would be without the compaction."""
    touched: Path
    """The session that is written to, or deleted."""

    @property
    def is_whole(self) -> bool:
        """Whether everything comes back that can."""
        return len(self.back) + len(self.out_of_reach) == len(self.state.targets)

    @property
    def remaining(self) -> tuple[Target, ...]:
        """What stays deleted."""
        back = set(self.back)
        return tuple(target for target in self.state.targets if target not in back)

    @property
    def server(self) -> AgentServer | None:
        """The agent's server through which the rows are put back; None if that is a transaction, or none are."""
        is_in_place = self.way is UndoWay.ROWS and self.state.created is None
        return self.activity.server if is_in_place else None

    @property
    def written_to(self) -> Path | None:
        return None if self.way is UndoWay.FORK else self.touched

    @property
    def facts(self) -> list[Any]:
        return [
            self.state.undone_id,
            self.way,
            [target.to_json() for target in self.back],
            self.present.leaf_id,
            self.server.address if self.server is not None else "",
        ]


def plan_undo(state: CompactionState, present: Document, wanted_ids: Collection[str], now: datetime) -> UndoPlan:
    """Plan to bring back these entries, with their pairs; without any, everything.

    Raises BadInput `not_deleted` and what `require_writable` raises, Conflict `not_in_force`, `original_continued`,
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
    if reading.agent.database(present.path) is not None:
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
    activity = activity_of(session_row(touched), reading.agent.state(touched), now)
    torn = torn_line_of(present.path) if way.appends else None
    plan = UndoPlan(
        present=present,
        writer=writer,
        state=state,
        way=way,
        wanted=wanted,
        back=reachable,
        out_of_reach=out_of_reach,
        without=without,
        touched=touched,
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
    """The session that a compaction made, with the size and the digest that it had then. Raises Conflict
    `not_recorded`."""
    written = content_written(state.row) if state.row is not None else None
    if state.created is None or written is None:
        raise Conflict(
            "not_recorded",
            f"Redline has no record of what it wrote to {state.created}. It was not deleted. Delete it yourself if you "
            "do not need it.",
        )
    return state.created, written.size, written.sha256


def _require_no_dependents(created: Path, reading: Reading) -> None:
    dependents = reading.agent.dependents(created)
    if dependents:
        raise Conflict(
            "is_base",
            f"{dependents[0]} continues {created}, and would be lost without it. {NOT_UNDONE} Continue with the "
            "original session; the new one can stay.",
        )


def _writer_of(state: CompactionState, present: Document) -> SessionWriter:
    reading = present.reading
    """The writer of a compaction. Raises Conflict `not_in_force` if the agent ignores what it wrote."""
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
    """Raise Conflict `breaks_conversation` if providers would refuse what they accept now, and accepted before the
    compaction."""
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
