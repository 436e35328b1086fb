"""The approval of a plan for which an agent waits. The agent and the chosen writer decide who writes it:

| the writer                           | written by                                                      |
|--------------------------------------|-----------------------------------------------------------------|
| is one whose change the agent makes  | the agent, from the handed data; Redline verifies it afterwards  |
| makes a new session                  | Redline, immediately; the agent shows how to resume it          |
| any other that changes the session   | Redline, once the agent has closed the session                  |

In each case the backup is made, and the context proven, before anything changes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime
from enum import Enum
from typing import Any, Final

import msgspec

from compaction_app.changes.change import (
    Confirmations,
    MadeChange,
    RowPlan,
    changed_session,
    lines_of,
    row_plan,
    write_facts,
)
from compaction_app.changes.compaction import Preflight, block_decisions, commit_run, preflight_of
from compaction_app.changes.compaction import approval as approval_of
from compaction_app.changes.proof import Rebuilt, context_with
from compaction_app.changes.records import BackupNote
from compaction_app.core.handshake_states import HandshakeState, NextStep
from compaction_app.models import Handshake, Run
from sessions_app.agents.changes import Append, HandedWriter, RowChanges, SessionWriter
from sessions_app.index.session_locks import lock_session
from sessions_app.sessionlog.errors import Conflict
from sessions_app.storage.backups import Backup, delete_backup
from sessions_app.storage.locks import LockedSession
from sessions_app.storage.rows import preview_rows

from .applied import ContextDigest, context_digest
from .lifecycle import advance, change_handshake, resume_words, wrong_state

NOT_APPROVED: Final = "Nothing was approved."


class AppliedBy(Enum):
    """The writer of an approved plan: the agent or Redline."""

    AGENT = "the agent"
    REDLINE_NOW = "Redline, at once"
    REDLINE_LATER = "Redline, once the session is closed"


def applied_by(handshake: Handshake, writer: SessionWriter) -> AppliedBy:
    """Who makes the change of this writer."""
    if isinstance(writer, HandedWriter) and writer.honours == handshake.honours:
        return AppliedBy.AGENT
    return AppliedBy.REDLINE_LATER if writer.appends else AppliedBy.REDLINE_NOW


@dataclass(frozen=True, slots=True)
class ReviewedPlan:
    """A decision to give an agent a plan."""

    confirmations: Confirmations
    now: datetime
    shown: str | None = None
    """The digest of the preflight that was shown; None if the approved plan cannot have changed since."""
    writer: str = ""
    """Empty for the planned one."""
    rule: str = ""
    """The rule that approved it instead of a human, in words; empty if a human approved it."""


def approve(handshake: Handshake, approval: ReviewedPlan) -> None:
    """Approve the plan in the review of the agent's run.

    Raises Conflict `wrong_state` and `moved_on`, and the errors of `commit_run`. Then nothing was written, and the
    agent still waits.
    """
    run = handshake.run
    if run is None or not handshake.is_open:
        raise wrong_state(handshake, NOT_APPROVED)
    preflight = _preflight(run, approval)
    require_same_place(handshake, preflight)
    applied = applied_by(handshake, preflight.writer)
    if applied is AppliedBy.AGENT:
        _hand_over(handshake, run, approval)
    elif applied is AppliedBy.REDLINE_NOW:
        _write_now(handshake, run, approval)
    else:
        _write_later(handshake, run, approval)


def _preflight(run: Run, approval: ReviewedPlan) -> Preflight:
    """The approved plan, checked against the present session."""
    return preflight_of(approval_of(run, approval.rule), approval.now, approval.writer)


def _require_same(handshake: Handshake, preflight: Preflight, approval: ReviewedPlan) -> None:
    """Require that a preflight is the shown one, at the entry at which the agent waits, and confirmed."""
    preflight.require_shown(approval.shown)
    require_same_place(handshake, preflight)
    preflight.require_confirmed(approval.confirmations)


def _write_now(handshake: Handshake, run: Run, approval: ReviewedPlan) -> None:
    """Make the new session immediately."""
    written = commit_run(run, approval.confirmations, approval.shown, approval.now, approval.writer, approval.rule)
    # The agent may have polled since it was written, and received an answer.
    Handshake.objects.filter(pk=handshake.pk).update(writer=written.plan.writer.name, rule=approval.rule)
    handshake.refresh_from_db()
    advance(handshake, approval.now)


def _write_later(handshake: Handshake, run: Run, approval: ReviewedPlan) -> None:
    """Let Redline write it once the session is closed; decisions stay blocked until then."""
    with lock_session(run.session.real_path()), block_decisions(run, approval.now):
        preflight = _preflight(run, approval)
        _require_same(handshake, preflight, approval)
        _require_seen_open(handshake, preflight)
        command = resume_words(run, run.session.path)
        _approve(
            handshake,
            approval,
            writer=preflight.writer.name,
            confirmations=[name for name, is_given in asdict(approval.confirmations).items() if is_given],
            step=NextStep.CONTINUE,
            message=f"Approved, and written once the session is closed here. Then continue with: {command}",
        )


def _approve(handshake: Handshake, approval: ReviewedPlan, **fields: Any) -> None:
    """Set the state. Raises Conflict `wrong_state` if the handshake ended meanwhile."""
    fields |= {"rule": approval.rule, "ended_at": approval.now}
    if not change_handshake(handshake, HandshakeState.APPROVED, **fields):
        raise wrong_state(handshake, NOT_APPROVED)


def _require_seen_open(handshake: Handshake, preflight: Preflight) -> None:
    """Raise Conflict `closing_unseen` if no sign shows that the agent has the session open: then no sign would show
    that it closes it, and lines appended before that are ignored."""
    activity = preflight.activity
    if activity.elsewhere is None and not activity.writers:
        raise Conflict(
            "closing_unseen",
            f"Nothing shows that {handshake.agent_label} has {preflight.present.path} open, so nothing would show that "
            f"it closes it, and until then it ignores what is appended. {NOT_APPROVED} Use the writer fork.",
        )


def require_same_place(handshake: Handshake, preflight: Preflight) -> None:
    """Raise Conflict `moved_on` if the plan would not be written after the entry at which the agent waits."""
    if handshake.leaf_id and preflight.parent_id != handshake.leaf_id:
        raise Conflict(
            "moved_on",
            f"{handshake.agent_label} waits after the entry {handshake.leaf_id} of {preflight.present.path}, and the "
            f"session has continued after it, up to {preflight.parent_id}. {NOT_APPROVED} Decline the review, and let "
            "the agent ask again.",
        )


def _hand_over(handshake: Handshake, run: Run, approval: ReviewedPlan) -> None:
    """Give the agent the data to make the change itself; decisions stay blocked until it is applied or failed."""
    with (
        lock_session(run.session.real_path()) as locked,
        ExitStack() as undo,
        block_decisions(run, approval.now),
    ):
        preflight = _preflight(run, approval)
        _require_same(handshake, preflight, approval)
        handed = _handed(locked, preflight, undo)
        note = preflight.notes(BackupNote.of(handed.backup))(handed.made)
        _approve(
            handshake,
            approval,
            writer=preflight.writer.name,
            handed=handed.fields,
            note=msgspec.to_builtins(msgspec.structs.replace(note, by_agent=True)),
            approved_context=msgspec.to_builtins(handed.context),
        )
        undo.pop_all()


class _HandedOver(msgspec.Struct):
    """A change to be handed over, proven, with its backup."""

    fields: dict[str, object]
    made: MadeChange
    context: ContextDigest
    backup: Backup


def _handed(locked: LockedSession, preflight: Preflight, undo: ExitStack) -> _HandedOver:
    """The data given to the agent for a plan, proven on the present session. `undo` deletes the backup."""
    present, reading, writer = preflight.present, preflight.present.reading, preflight.writer
    assert isinstance(writer, HandedWriter)  # noqa: S101  # `applied_by` decides by it
    with ExitStack() as opened:
        line = opened.enter_context(lines_of(present))
        facts = write_facts(present, line, present.path, preflight.now)
        given = writer.hand(present.tree.branch(preflight.parent_id), preflight.make(facts))
        made = MadeChange(facts.new_id())
        rows = row_plan(present, given.change, made.entry_id) if isinstance(given.change, RowChanges) else None
        backup = preflight.back_up(locked, rows, hashlib.sha256())
        undo.callback(delete_backup, backup.path)
        lines = 0
        if rows is not None:
            after = opened.enter_context(_with_rows(preflight, rows))
        elif isinstance(given.change, Append):
            lines = len(given.change.lines)
            after = context_with(present, given.change.lines, reading, line)
        else:
            raise TypeError(f"the writer {writer.name} makes a new session")
        made = made._replace(certificate=preflight.prove(line, after))
        return _HandedOver(dict(given.fields), made, context_digest(reading.agent, after, lines=lines), backup)


@contextmanager
def _with_rows(preflight: Preflight, rows: RowPlan) -> Iterator[Rebuilt]:
    """The context that the agent rebuilds once these rows are changed."""
    present, reading = preflight.present, preflight.present.reading
    with (
        preview_rows(rows.database, reading.agent.store.session_tables, present.path.name, rows.steps) as copy,
        changed_session(present.path, copy) as (loaded, line),
    ):
        yield Rebuilt(reading.reader.rebuild(loaded.tree.branch(loaded.leaf_id)), line, loaded.leaf_id)
