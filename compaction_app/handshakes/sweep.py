"""The server's task each second for waiting agents: it plans, expires, approves by rules, and verifies.

It also ends the review request of an agent that no longer polls: a review for an agent that is gone is wasted.

A plan passes without a review if it touches only objects named by the rule of its root:

| a proposal               | is named by the rule if                                             |
|--------------------------|---------------------------------------------------------------------|
| a superseded read        | every line of it is in later kept calls on the same file            |
| a repeated output        | the entry that its reason names is kept, and has the same text      |
| an empty output          | its results have no text                                            |

The texts decide, not the planner's reasons. Content that cannot be compared as text, such as an image, does not pass;
nor does a call that writes a text to a file, which is deleted with its output; nor a plan that deletes anything besides
these calls and their results, such as the reasoning that an agent joins with them; nor one that changes the order in
which the agent sends the kept messages.

A rule is off unless a user switched it on for the root. Plans that it approves are judged, backed up, certified and
undoable like everything else, and marked as automatic in the audit log.
"""

import logging
import time
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

from compaction_app.changes.change import Confirmations
from compaction_app.changes.compaction import approval
from compaction_app.core.file_touches import FileHistory, lines_of as text_lines, text_shown, touch_of_call
from compaction_app.core.handshake_states import HandshakeState, NextStep
from compaction_app.core.reasons import repeat_in
from compaction_app.core.review_fold import ReviewItem, ReviewStatus
from compaction_app.core.transcript import Object, ToolPair, Transcript
from compaction_app.models import Handshake, PassRule, Run
from compaction_app.planning.snapshots import moved_in_snapshot, read_snapshot_texts, snapshot_of
from compaction_app.review.lines import call_of, file_history, stays
from compaction_app.runs.reviews import Reviewed, approve_proposals, reviewed
from sessions_app.sessionlog.entries import BlockType
from sessions_app.sessionlog.errors import RedlineError
from sessions_app.sessionlog.text import plural

from .approval import ReviewedPlan, approve, settle_approved
from .lifecycle import advance, end_handshake
from .review_requests import start_requested

SILENT_SECONDS: Final = 120
"""After this time without a poll an agent counts as gone: bridges give up after half a minute without an answer."""
GIVEN: Final = Confirmations(below_target=True)
"""The confirmations for a plan approved by a rule: it deletes only objects that the rule names, even if that misses the
target."""
REFUSED: Final = 64
"""The number of refused plans that are cached: a waiting agent polls twice a second, and reading all texts takes
long."""
_polls: dict[int, tuple[datetime, float]] = {}
"""The last poll of each waiting agent, and when it was first seen here, by the clock of this process, which stops while
the computer sleeps, and does not jump."""
_refused: OrderedDict[tuple[int, str, str], None] = OrderedDict()
"""The refused plans: the run, the mark of its preparation, and the words of the rule."""
_log = logging.getLogger("redline")


def look_after_handshakes(now: datetime, clock: float | None = None) -> None:
    """Bring all unfinished handshakes up to date. Raises DatabaseError; any other failure affects one handshake only.

    `clock` is the time of this process in seconds, by default `time.monotonic`.
    """
    found = list(Handshake.objects.unfinished().with_session())
    silent = _silent(found, time.monotonic() if clock is None else clock)
    for handshake in found:
        try:
            is_gone = handshake.pk in silent
            if is_gone:
                # If it comes back, it continues as without an answer.
                step = NextStep.CONTINUE if handshake.is_manual else NextStep.COMPACT
                words = f"{handshake.agent_label} does not ask for the answer any more."
                end_handshake(handshake, HandshakeState.FAILED, step, words, now)
            start_requested(handshake, now)
            approve_by_rule(advance(handshake, now), now)
            settle_approved(handshake, now, is_gone=is_gone)
        except RedlineError as fault:
            _log.warning("%s could not be looked after (%s)", handshake, fault.code)


def _silent(found: Iterable[Handshake], clock: float) -> set[int]:
    """The handshakes whose agents have not polled for too long since this process saw their last poll. An agent that
    closes its session before Redline writes stops polling, and is not reported."""
    present = {one.pk: one.polled_at for one in found if one.is_open or one.note is not None}
    for pk in _polls.keys() - present.keys():
        del _polls[pk]
    for pk, polled_at in present.items():
        if pk not in _polls or _polls[pk][0] != polled_at:
            _polls[pk] = polled_at, clock
    return {pk for pk, (_, since) in _polls.items() if clock - since > SILENT_SECONDS}


# ---- plans that pass without a review ----------------------------------------------------------------------


def approve_by_rule(handshake: Handshake, now: datetime) -> None:
    """Approve the plan for which an agent waits, if the rule of its root accepts it and there is no decision yet."""
    run = handshake.run
    if handshake.state != HandshakeState.WAITING or run is None:
        return
    rule = PassRule.objects.filter(root=handshake.session.root_id).first()
    is_on = rule is not None and rule.most_tokens > 0 and (rule.superseded or rule.repeated or rule.empty)
    if rule is None or not is_on or _decisions(run):
        return
    try:
        if _refuses(run, rule):
            return
        approve_proposals(run, now)
        approved = approval(run, rule=describe_rule(rule))
        if _decisions(run) == 1:  # otherwise a human decided since the rule judged
            approve(handshake, ReviewedPlan(approved, GIVEN, now))
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


def describe_rule(rule: PassRule) -> str:
    """The plans that a rule accepts, such as `repeated outputs, empty outputs, up to 20,000 tokens`."""
    names = {
        "superseded reads whose lines are all kept": rule.superseded,
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
