"""The approval of a plan for which an agent waits. The agent and the chosen writer decide who writes it:

| the writer                           | written by                                                      |
|--------------------------------------|-----------------------------------------------------------------|
| is one whose change the agent makes  | the agent, from the handed data; Redline verifies it afterwards  |
| makes a new session                  | Redline, immediately; the agent shows how to resume it          |
| any other that changes the session   | Redline, once the agent has closed the session                  |

In each case the backup is made, and the context proven, before anything changes.
"""
# WAS compaction_app/handshakes/automatic_approval: """Plans that pass without a review: those that touch only objects named by the rule of their root.
#
# | a proposal               | is named by the rule if                                             |
# |--------------------------|---------------------------------------------------------------------|
# | a superseded read        | every line of it is in later kept calls on the same file            |
# | a repeated output        | the entry that its reason names is kept, and has the same text      |
# | an empty output          | its results have no text                                            |
#
# The texts decide, not the planner's reasons. Content that cannot be compared as text, such as an image, does not pass;
# nor does a call that writes a text to a file, which is deleted with its output; nor a plan that deletes anything beside
# these calls and their results, such as the reasoning that an agent joins with them; nor one that changes the order in
# which the agent sends the kept messages.
#
# A rule is off unless a user switched it on for the root. Plans that it approves are judged, backed up, certified and
# undoable like everything else, and marked as automatic in the audit log.
# """

from __future__ import annotations

import hashlib
import logging
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
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
from compaction_app.changes.compaction import Preflight, approval, block_decisions, commit_run, preflight_of
from compaction_app.changes.compaction import approval as approval_of
from compaction_app.changes.proof import Rebuilt, context_with
from compaction_app.changes.records import BackupNote
from compaction_app.core.file_touches import FileHistory, text_shown, touch_of_call
from compaction_app.core.file_touches import lines_of as text_lines
from compaction_app.core.handshake_states import HandshakeState, NextStep
from compaction_app.core.reasons import repeat_in
from compaction_app.core.review_fold import ReviewItem, ReviewStatus
from compaction_app.core.transcript import Object, ToolPair, Transcript
from compaction_app.models import Handshake, PassRule, Run
from compaction_app.planning.snapshots import moved_in_snapshot, read_snapshot_texts, snapshot_of
from compaction_app.review.lines import call_of, file_history, stays
from compaction_app.runs.reviews import Reviewed, approve_proposals, reviewed
from sessions_app.agents.pure.format import Append, HandedWriter, RowChanges, SessionWriter
from sessions_app.index.session_locks import lock_session
from sessions_app.sessionlog.entries import BlockType
from sessions_app.sessionlog.errors import Conflict, RedlineError
from sessions_app.sessionlog.text import plural
from sessions_app.storage.backups import Backup, delete_backup
from sessions_app.storage.locks import LockedSession
from sessions_app.storage.rows import preview_rows

from .lifecycle import advance, change_handshake, resume_words, wrong_state
from .outcomes import ContextDigest, context_digest

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


GIVEN: Final = Confirmations(below_target=True)
"""The confirmations for a rule's plan, which deletes the objects named by the rule, whatever the target is."""

REFUSED: Final = 64
"""The number of refused plans that are cached: a waiting agent polls twice a second, and reading all texts takes
long."""

_refused: OrderedDict[tuple[int, str, str], None] = OrderedDict()
"""The run, the mark of its preparation, and the words of the rule."""
_log = logging.getLogger("redline")


def approve_by_rule(handshake: Handshake, now: datetime) -> None:
    """Approve the plan for which an agent waits, if the rule of its root accepts it and there is no decision yet."""
    run = handshake.run
    if handshake.state != HandshakeState.WAITING or run is None:
        return
    rule = PassRule.objects.filter(root=handshake.session.root_id).first()
    if rule is None or not _is_on(rule) or _decisions(run):
        return
    try:
        if _refuses(run, rule):
            return
        approve_proposals(run, now)
        plan = ReviewedPlan(GIVEN, now, rule=describe_rule(rule))
        shown = preflight_of(approval(run), now).digest()
        if _decisions(run) == 1:  # otherwise a human decided since the rule judged
            approve(handshake, replace(plan, shown=shown))
    except RedlineError as fault:
        # It then waits for a human, who sees the same error.
        _log.warning("The plan of run %d was not approved automatically (%s)", run.pk, fault.code)


def _decisions(run: Run) -> int:
    return run.decisions.filter(seq__gt=0).count()


def _refuses(run: Run, rule: PassRule) -> bool:
    """Whether a rule refuses a plan, now or in an earlier check. Raises the errors of `passes`."""
    key = run.pk, reviewed(run).mark, describe_rule(rule)
    if key in _refused:
        return True
    _refused[key] = None  # even if it fails
    if passes(run, rule):
        _refused.pop(key, None)
        return False
    while len(_refused) > REFUSED:
        _refused.popitem(last=False)
    return True


def _is_on(rule: PassRule) -> bool:
    return rule.most_tokens > 0 and (rule.superseded or rule.repeated or rule.empty)


def describe_rule(rule: PassRule) -> str:
    """The plans that a rule accepts, such as `repeated outputs, empty outputs, up to 20,000 tokens`."""
    names = {
        "superseded reads whose lines all still stand": rule.superseded,
        "repeated outputs": rule.repeated,
        "empty outputs": rule.empty,
    }
    named = ", ".join(name for name, is_named in names.items() if is_named)
    return f"{named}, up to {plural(rule.most_tokens, 'token')}"


def passes(run: Run, rule: PassRule) -> bool:
    """Whether a plan deletes only objects that a rule names, within its limit of tokens. Raises the errors of reading
    texts."""
    if run.struck > rule.most_tokens:
        return False
    found = reviewed(run)
    leads = list(found.review.leads())
    if not leads or any(item.standing is not ReviewStatus.UNDECIDED for item in leads):
        return False
    prepared = snapshot_of(run, found.mark).prepared
    transcript = prepared.transcript(read_snapshot_texts(run.session.real_path(), prepared))
    history = file_history(run, found.mark) if rule.superseded else None
    for item in leads:
        call = call_of(transcript, item.target)
        if call is None or not _is_text(transcript, call.results):
            return False
        if not (
            (history is not None and _is_standing(history, transcript, found, call))
            or (rule.repeated and _is_repeated(transcript, found, item, call))
            or (rule.empty and _is_empty(transcript, call))
        ):
            return False
    return not moved_in_snapshot(run.session.real_path(), prepared, found.review.would_go)


def _is_text(transcript: Transcript, results: Sequence[Object]) -> bool:
    """Whether results consist of text only, so that they can be compared."""
    entries = [transcript.entries[one.position] for one in results]
    return bool(entries) and all(block.type == BlockType.TEXT for entry in entries for block in entry.blocks)


def _is_standing(history: FileHistory, transcript: Transcript, found: Reviewed, call: ToolPair) -> bool:
    """Whether a call is a read whose lines, however short, are all in later kept calls on the file."""
    own = history.calls.get(call.order)
    if own is None or not own.touch.reads or not own.lines:
        return False
    standing: set[str] = set()
    for later in history.later(call.order):
        if stays(found.reviewer, found.review, later.shown):
            standing.update(text_lines(text_shown(transcript, later.shown)))
    return all(not line or line in standing for text in _texts(transcript, call) for line in text_lines(text))


def _is_repeated(transcript: Transcript, found: Reviewed, item: ReviewItem, call: ToolPair) -> bool:
    named = repeat_in(item.origin.reason) if item.origin is not None else None
    other = transcript.entry(named) if named is not None else None
    if other is None or not stays(found.reviewer, found.review, Object(other.position)):
        return False
    if _writes(transcript, call) or not _is_text(transcript, [Object(other.position)]):
        return False
    return all(text == transcript.text(other) for text in _texts(transcript, call))


def _is_empty(transcript: Transcript, call: ToolPair) -> bool:
    return not _writes(transcript, call) and not any(text.strip() for text in _texts(transcript, call))


def _writes(transcript: Transcript, call: ToolPair) -> bool:
    """Whether a call writes a text to a file: the text is in the call, and is deleted with it."""
    touches = [touch_of_call(transcript, block) for block in (*call.repeats, *call.blocks)]
    return any(touch is not None and not touch.reads for touch in touches)


def _texts(transcript: Transcript, call: ToolPair) -> list[str]:
    """The texts of the results of a call."""
    return [transcript.text(transcript.entries[one.position]) for one in call.results]
