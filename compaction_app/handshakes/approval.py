"""The approval of a plan for which an agent waits, and its outcome: applied, or taken back.

The agent and the chosen writer decide who writes the plan:

| the writer                           | written by                                                      |
|--------------------------------------|-----------------------------------------------------------------|
| is one whose change the agent makes  | the agent, from the handed data; Redline verifies it afterwards |
| makes a new session                  | Redline, immediately; the agent shows how to resume it          |
| any other that changes the session   | Redline, once the agent has closed the session                  |

In each case the backup is made, and the context proven, before anything changes.

The session itself shows whether the agent has applied a handed plan: the messages that the agent rebuilds from it begin
with those of the approved context, one by one, and later messages follow them. The session is searched when the agent
reports the plan applied, and each second from then on, so the plan is also found if the agent, or Redline, was killed
in between.
"""

import hashlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
from django.db import DatabaseError, transaction

from compaction_app.changes import change as changes
from compaction_app.changes.compaction import Approved, Preflight, approval, block_decisions, commit, preflight_of
from compaction_app.changes.proof import ReadLine, Rebuilt, context_with
from compaction_app.changes.records import BackupNote, CommitNote, MadeChange, record, record_backup
from compaction_app.core.handshake_states import HandshakeState, NextStep
from compaction_app.models import Handshake, Run
from compaction_app.planning.hook_runner import after_compact, is_from_hook
from compaction_app.planning.snapshots import known_fingerprint
from compaction_app.runs.reviews import approved_of
from compaction_app.session_activity import activity_of
from sessions_app.agents.base import Agent, RebuiltMessage
from sessions_app.agents.pure.formats import Append, Change, HandedWriter, RowChanges, SessionWriter
from sessions_app.agents.registry import agent_at
from sessions_app.cli import resume_line
from sessions_app.disk.agent_database import opened_database, read_row
from sessions_app.disk.files import file_state
from sessions_app.index.index_store import read_entries, session_row
from sessions_app.index.indexer import index_file
from sessions_app.index.session_locks import lock_session
from sessions_app.index.session_reading import reading_of_session
from sessions_app.sessionlog.errors import Conflict, RedlineError
from sessions_app.storage.backups import delete_backup, digest_up_to
from sessions_app.storage.row_steps import backed_up_steps
from sessions_app.storage.rows import preview_rows
from sessions_app.storage.session_loader import line_reader

from .lifecycle import advance, change_handshake, end_handshake, wrong_state

NOT_APPROVED: Final = "Nothing was approved."
NOT_READ: Final = "Whether the plan was applied is not known."
LATER: Final = frozenset({"open_in_agent", "session_locked", "being_indexed"})
"""The failures of a write that may not recur at the next attempt."""


class AppliedBy(Enum):
    """Who carries out an approved plan: the agent or Redline."""

    AGENT = "the agent"
    REDLINE_NOW = "Redline, at once"
    REDLINE_LATER = "Redline, once the session is closed"


@dataclass(frozen=True, slots=True)
class ReviewedPlan:
    """The decision to approve a plan for a waiting agent."""

    approved: Approved
    confirmations: changes.Confirmations
    now: datetime
    shown: str | None = None
    """The digest of the preflight that was shown; None if there was none."""


def applied_by(handshake: Handshake, writer: SessionWriter) -> AppliedBy:
    """Who carries out the change of this writer."""
    if isinstance(writer, HandedWriter) and writer.honours == handshake.honours:
        return AppliedBy.AGENT
    return AppliedBy.REDLINE_LATER if writer.appends else AppliedBy.REDLINE_NOW


def approve(handshake: Handshake, plan: ReviewedPlan) -> None:
    """Approve the reviewed plan of the agent's run.

    Raises Conflict `wrong_state` and `moved_on`, and the errors of `commit`. Then nothing was written, and the agent
    still waits.
    """
    run, now = handshake.run, plan.now
    if run is None or not handshake.is_open:
        raise wrong_state(handshake, NOT_APPROVED)
    preflight = preflight_of(plan.approved, now)
    require_same_place(handshake, preflight)
    applied = applied_by(handshake, preflight.writer)
    if applied is AppliedBy.AGENT:
        _hand_over(handshake, run, plan)
    elif applied is AppliedBy.REDLINE_LATER:
        _write_later(handshake, run, plan)
    else:
        written = commit(plan.approved, plan.confirmations, now, shown=plan.shown)
        # The agent may have polled since it was written, and received an answer.
        Handshake.objects.filter(pk=handshake.pk).update(writer=written.plan.writer.name, rule=plan.approved.rule)
        handshake.refresh_from_db()
        advance(handshake, now)


def cancel_approved(handshake: Handshake, now: datetime) -> None:
    """Withdraw the approval of a plan that Redline has not written yet, at the user's request on the page.

    Raises Conflict `wrong_state`, and `session_locked` if it is being written.
    """
    words = "The approval was taken back before anything was written."
    with lock_session(handshake.session.real_path()):
        handshake.refresh_from_db()
        if handshake.note is not None or not change_handshake(
            handshake, HandshakeState.DECLINED, leaving=[HandshakeState.APPROVED], message=words, ended_at=now
        ):
            raise wrong_state(handshake, "The approval was not taken back.")
        _allow_decisions(handshake)


def report_applied(handshake: Handshake, now: datetime) -> None:
    """Handle an agent's report that it has applied the plan. Raises Conflict `wrong_state` if it had none to apply."""
    if handshake.state == HandshakeState.APPLIED:
        return
    if handshake.state != HandshakeState.APPROVED or handshake.note is None:
        raise wrong_state(handshake, "There was no plan to apply.")
    Handshake.objects.filter(pk=handshake.pk).update(reported_at=now)
    handshake.reported_at = now
    confirm(handshake, now)


def report_failed(handshake: Handshake, why: str, now: datetime) -> None:
    """Handle an agent's report that it cannot apply the plan, or cannot wait for it."""
    if handshake.state == HandshakeState.APPROVED and handshake.note is not None:
        _take_back(handshake, _look(handshake), f"{handshake.agent_label} did not apply the plan: {why}", now)
    elif handshake.is_open:
        end_handshake(handshake, HandshakeState.FAILED, NextStep.CONTINUE, why, now)


def report_withdrawn(handshake: Handshake, now: datetime) -> None:
    """Handle an agent's report that its user stopped the compaction; ignored if the handshake has ended."""
    if handshake.is_open:
        words = f"The compaction was stopped in {handshake.agent_label}."
        end_handshake(handshake, HandshakeState.DECLINED, NextStep.CONTINUE, words, now)
    elif handshake.state == HandshakeState.APPROVED and handshake.note is not None:
        report_failed(handshake, "the compaction was stopped there.", now)


def settle_approved(handshake: Handshake, now: datetime, *, is_gone: bool = False) -> None:
    """Check the outcome of an approved plan; write it, if that is Redline's part and the session is closed. `is_gone`:
    the agent has stopped polling.
    """
    if handshake.state != HandshakeState.APPROVED:
        return
    if handshake.note is not None:
        confirm(handshake, now, is_gone=is_gone)
    else:
        _write_if_closed(handshake, now)


def confirm(handshake: Handshake, now: datetime, *, is_gone: bool = False) -> None:
    """Record an approved plan as applied if the session shows it, or as failed if it is overdue.

    Raises the errors of reading the session, as long as the agent may still apply it.
    """
    try:
        found = _look(handshake)
    except RedlineError as fault:
        if not is_gone:
            raise
        _give_up(handshake, fault, now)
        return
    if found.entry_id:
        _record(handshake, found, now)
    elif handshake.reported_at is not None:
        why = f"{handshake.agent_label} reported the plan as applied, and the session does not show it."
        _take_back(handshake, found, why, now)
    elif is_gone:
        why = f"{handshake.agent_label} has not applied the plan, and does not answer any more."
        _take_back(handshake, found, why, now)


# ---- the approval ------------------------------------------------------------------------------------------


def _require_same(handshake: Handshake, plan: ReviewedPlan) -> Preflight:
    """The plan, checked against the present session: the shown one, at the entry at which the agent waits, and
    confirmed."""
    preflight = preflight_of(plan.approved, plan.now)
    preflight.require_shown(plan.shown)
    require_same_place(handshake, preflight)
    preflight.require_confirmed(plan.confirmations)
    return preflight


def require_same_place(handshake: Handshake, preflight: Preflight) -> None:
    """Raise Conflict `moved_on` if the plan would not be written after the entry at which the agent waits."""
    if handshake.leaf_id and preflight.parent_id != handshake.leaf_id:
        raise Conflict(
            "moved_on",
            f"{handshake.agent_label} waits after the entry {handshake.leaf_id} of {preflight.present.path}, and the "
            f"session has continued after it, up to {preflight.parent_id}. {NOT_APPROVED} Decline the review, and let "
            "the agent ask again.",
        )


def _write_later(handshake: Handshake, run: Run, plan: ReviewedPlan) -> None:
    """Let Redline write it once the session is closed; decisions stay blocked until then."""
    with lock_session(run.session.real_path()), block_decisions(run, plan.now):
        preflight = _require_same(handshake, plan)
        _require_seen_open(handshake, preflight)
        command = resume_line(run.session.agent, run.session.path)
        _approve(
            handshake,
            plan,
            writer=preflight.writer.name,
            confirmations=[name for name, is_given in asdict(plan.confirmations).items() if is_given],
            step=NextStep.CONTINUE,
            message=f"Approved, and written once the session is closed here. Then continue with: {command}",
        )


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


def _approve(handshake: Handshake, plan: ReviewedPlan, **fields: Any) -> None:
    """Set the state. Raises Conflict `wrong_state` if the handshake ended meanwhile."""
    fields |= {"rule": plan.approved.rule, "ended_at": plan.now}
    if not change_handshake(handshake, HandshakeState.APPROVED, **fields):
        raise wrong_state(handshake, NOT_APPROVED)


def _hand_over(handshake: Handshake, run: Run, plan: ReviewedPlan) -> None:
    """Give the agent the data to make the change itself, proven on the present session; decisions stay blocked until it
    is applied or failed."""
    with (
        lock_session(run.session.real_path()) as locked,
        ExitStack() as undo,
        block_decisions(run, plan.now),
    ):
        preflight = _require_same(handshake, plan)
        present, writer = preflight.present, preflight.writer
        assert isinstance(writer, HandedWriter)  # noqa: S101  # `applied_by` decides by it
        with changes.lines_of(present) as line:
            facts = changes.write_facts(present, line, present.path, preflight.now)
            handed = writer.hand(present.tree.branch(preflight.parent_id), preflight.make(facts))
            change, entry_id = handed.change, facts.new_id()
            rows = changes.row_plan(present, change, entry_id) if isinstance(change, RowChanges) else None
            backup = preflight.back_up(locked, rows, hashlib.sha256())
            undo.callback(delete_backup, backup.path)
            with _rebuilt_with(preflight, change, rows, line) as after:
                made = MadeChange(entry_id, certificate=preflight.prove(line, after))
                lines = len(change.lines) if isinstance(change, Append) else 0
                context = context_digest(present.agent, after, lines=lines)
        note = preflight.note(BackupNote.of(backup)).of_made(made)
        _approve(
            handshake,
            plan,
            writer=writer.name,
            handed=dict(handed.fields),
            note=msgspec.to_builtins(msgspec.structs.replace(note, by_agent=True)),
            approved_context=msgspec.to_builtins(context),
        )
        undo.pop_all()


@contextmanager
def _rebuilt_with(
    preflight: Preflight, change: Change, rows: changes.RowPlan | None, line: ReadLine
) -> Iterator[Rebuilt]:
    """The context that the agent rebuilds once it has made a change: appended lines, or these rows."""
    present, reading = preflight.present, preflight.present.reading
    if isinstance(change, Append):
        yield context_with(present, change.lines, reading, line)
        return
    if rows is None:
        raise TypeError(f"the writer {preflight.writer.name} makes a new session")
    with (
        preview_rows(rows.database, reading.agent.store.session_tables, present.path.name, rows.steps) as copy,
        changes.changed_session(present.path, copy) as (loaded, read),
    ):
        yield Rebuilt(reading.reader.rebuild(loaded.tree.branch(loaded.leaf_id)), read, loaded.leaf_id)


# ---- the outcome -------------------------------------------------------------------------------------------


class ContextDigest(msgspec.Struct, frozen=True):
    """A context to be recognised: the number of its messages, and a hash of everything that the model receives."""

    messages: int
    sha256: str
    lines: int = 0
    """The number of lines that the agent appends for it; 0 if it changes rows."""


def context_digest(agent: Agent, rebuilt: Rebuilt, messages: int | None = None, lines: int = 0) -> ContextDigest:
    """The digest of a context, or of its first messages; `lines` is the number of lines that the agent appends for
    it."""
    found = rebuilt.context.messages[:messages]
    together = hashlib.sha256()
    for one in found:
        edit = rebuilt.line(one.edit) if one.edit is not None else None
        content = agent.format.message_json(one, rebuilt.line(one.entry), edit)
        together.update(RebuiltMessage.of(content).digest.encode())
    return ContextDigest(len(found), together.hexdigest(), lines)


class HandedPlan(NamedTuple):
    """The state of a handed plan in the session."""

    path: Path
    size: int
    """The size of the session in bytes."""
    entry_id: str = ""
    """The last entry of the change; empty if the context is not the approved one."""
    lines: tuple[bytes, ...] = ()
    is_untouched: bool = False
    """Whether the session is unchanged since the backup."""


def _look(handshake: Handshake) -> HandedPlan:
    """The state of a handed plan in the session. Raises the errors of reading it, and Conflict `session_rewritten`."""
    note, approved = _note_of(handshake), msgspec.convert(handshake.approved_context, ContextDigest)
    session = index_file(handshake.session.real_path())
    path, agent = session.path, session.agent
    with agent.store.open(path) as reader:
        # An agent that changes rows one by one may have changed another one since.
        known_fingerprint(session, reader)
        entries = list(read_entries(session, reader, session.version))
        tree, size = agent.format.tree(entries), reader.state().size
        reading = reading_of_session(session, path, entries, session.parser_state)
        branch = tree.branch(tree.leaf.id)
        line = line_reader(reader)
        rebuilt = Rebuilt(reading.reader.rebuild(branch), line, tree.leaf.id)
        is_there = context_digest(agent, rebuilt, approved.messages, approved.lines) == approved
        if approved.lines:
            # None of its entries follow an entry that is not on the branch.
            start = next((at for at, entry in enumerate(branch, 1) if entry.id == note.leaf_id), len(branch))
            after = branch[start:]
            own, since = after[: approved.lines], {entry.id for entry in after}
            # As long as nothing is applied, messages to be deleted from the end of the context follow the approved
            # ones.
            rest = rebuilt.context.messages[approved.messages :]
            is_there = is_there and all(message.entry.id in since for message in rest)
            if is_there and len(own) == approved.lines:
                return HandedPlan(path, size, own[-1].id, tuple(map(line, own)))
            return HandedPlan(path, size, is_untouched=size == note.backup.size)
    states = _row_states(handshake, note)
    is_applied = is_there and states == {True}
    return HandedPlan(path, size, note.entry_id if is_applied else "", is_untouched=states == {False})


def _row_states(handshake: Handshake, note: CommitNote) -> set[bool]:
    """Whether the rows of a plan have their new state; rows with neither the new nor the old state count as both."""
    path = handshake.session.real_path()
    agent = agent_at(path)
    database = agent.store.database(path)
    assert database is not None  # noqa: S101  # a plan without lines is one of rows
    states: set[bool] = set()
    with opened_database(database, NOT_READ) as connection:
        for step in backed_up_steps(Path(note.backup.path)):
            row = read_row(connection, step.table, step.row_id)
            is_after = agent.store.is_same_row(row, step.after)
            states |= {is_after} if is_after or agent.store.is_same_row(row, step.before) else {True, False}
    return states


def _note_of(handshake: Handshake) -> CommitNote:
    return msgspec.convert(handshake.note, CommitNote)


def _record(handshake: Handshake, found: HandedPlan, now: datetime) -> None:
    """Record an applied plan as a compaction, and the handshake as applied: both, or neither."""
    path, size = found.path, found.size
    note = msgspec.structs.replace(_note_of(handshake), entry_id=found.entry_id, written_at=now)
    sha256 = ""
    if agent_at(path).store.database(path) is None:
        with suppress(RedlineError):
            sha256 = digest_up_to(path, size)
    words = f"{handshake.agent_label} continues with the approved context; the session shows it."
    with lock_session(path), transaction.atomic():
        changed = change_handshake(
            handshake,
            HandshakeState.APPLIED,
            step=NextStep.CONTINUE,
            message=words,
            handed=None,
            ended_at=now,
        )
        if changed:
            record(path, note, size, sha256)
    if not changed:
        return
    with suppress(RedlineError, DatabaseError):  # it is recorded: the index can follow later
        index_file(path)
    if handshake.run is None:
        return
    validated, _, origins = approved_of(handshake.run)
    if validated is not None:
        after_compact(
            path,
            session_row(path),
            found.lines,
            Path(note.backup.path),
            handshake.reason,
            from_hook=is_from_hook(origins),
            validated=validated,
        )


def _take_back(handshake: Handshake, found: HandedPlan, why: str, now: datetime) -> None:
    """End an approved plan that was not applied: it can be reviewed again. A part of it may be in the session."""
    if found.entry_id:
        _record(handshake, found, now)
        return
    note = _note_of(handshake)
    rest = "Nothing was changed." if found.is_untouched else f"{note.backup.path} has what was there before."
    if not _end_unapplied(handshake, f"{why} {rest}", now):
        return
    if found.is_untouched and file_state(Path(note.backup.path)) is not None:
        delete_backup(Path(note.backup.path))
    elif not found.is_untouched:
        record_backup(found.path, note.backup)


def _give_up(handshake: Handshake, fault: RedlineError, now: datetime) -> None:
    """End an approved plan of a session that can no longer be read; its backup is kept."""
    note = _note_of(handshake)
    words = f"{fault.message} {NOT_READ} {note.backup.path} has what was there before."
    if _end_unapplied(handshake, words, now):
        record_backup(handshake.session.path, note.backup)


def _end_unapplied(handshake: Handshake, words: str, now: datetime) -> bool:
    """End an approved plan as failed, so that it can be reviewed again; returns whether this call ended it."""
    fields: dict[str, Any] = {"step": NextStep.CONTINUE, "message": words, "handed": None, "ended_at": now}
    is_ended = change_handshake(handshake, HandshakeState.FAILED, **fields)
    if is_ended:
        _allow_decisions(handshake)
    return is_ended


def _allow_decisions(handshake: Handshake) -> None:
    Run.objects.filter(handshakes=handshake).update(committing_since=None)


def _write_if_closed(handshake: Handshake, now: datetime) -> None:
    """Write an approved plan once no process has the session open."""
    run = handshake.run
    if run is None:
        change_handshake(handshake, HandshakeState.FAILED, message="Its run was deleted.", ended_at=now)
        return
    path = run.session.real_path()
    activity = activity_of(run.session, agent_at(path).store.state(path), now)
    if activity.elsewhere is not None or activity.writers:
        return
    given = changes.Confirmations(**{**dict.fromkeys(handshake.confirmations, True), "live": True})
    try:
        commit(approval(run, handshake.writer, handshake.rule), given, now, handshake=handshake.pk)
    except RedlineError as fault:
        run.refresh_from_db(fields=["state"])
        if not run.is_written:
            if fault.code not in LATER:
                _end_unapplied(handshake, fault.message, now)
            return
        # It is in the session: a process was killed before reporting it, or something failed after that.
    words = "The session was closed, and what was approved is written."
    change_handshake(handshake, HandshakeState.APPLIED, message=words)
