"""Plans that pass without a review: those that touch only what the rule of their root names.

| a proposal               | is named by the rule if                                             |
|--------------------------|---------------------------------------------------------------------|
| a superseded read        | every line of it stands in later calls on the same file that stay   |
| a repeated output        | the entry that its reason names stays, and has the same text        |
| an empty output          | its results have no text                                            |

The texts decide, not what the planner says about them. A rule is off unless somebody switched it on for the root. What
it approves is judged, backed up, certified and undoable like everything else, and marked as automatic in the audit log.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import datetime
from typing import Final

from compaction_app.commit.preflight import Confirmations
from compaction_app.core.handshake_states import HandshakeState
from compaction_app.core.reasons import repeat_in
from compaction_app.core.review_fold import ReviewItem, ReviewStatus
from compaction_app.core.transcript import Transcript
from compaction_app.core.transcript_entries import WHOLE, Object
from compaction_app.evidence.line_checks import LineChecks, call_of, stays
from compaction_app.models import Handshake, PassRule, Run
from compaction_app.planning.snapshots import read_snapshot_texts, snapshot_of
from compaction_app.runs.reviews import Reviewed, approve_proposals, reviewed
from sessions_app.sessionlog.errors import RedlineError

from .approval import ReviewedPlan, approve

GIVEN: Final = Confirmations(below_target=True)
"""A plan of a rule deletes what the rule names, whatever the target is."""

_log = logging.getLogger("redline")


def approve_by_rule(handshake: Handshake, now: datetime) -> None:
    """Approve the plan for which an agent waits, if the rule of its root lets it pass and nobody has decided yet."""
    run = handshake.run
    if handshake.state != HandshakeState.WAITING or run is None:
        return
    rule = PassRule.objects.filter(root=handshake.session.root_id).first()
    if rule is None or not _is_on(rule) or run.decisions.filter(seq__gt=0).exists():
        return
    try:
        if passes(run, rule):
            approve_proposals(run, now)
            approve(handshake, ReviewedPlan(GIVEN, now, rule=words_of(rule)))
    except RedlineError as fault:
        # It waits for a human then, who sees the same error.
        _log.warning("The plan of run %d was not approved automatically (%s)", run.pk, fault.code)


def _is_on(rule: PassRule) -> bool:
    return rule.most_tokens > 0 and (rule.superseded or rule.repeated or rule.empty)


def words_of(rule: PassRule) -> str:
    """What a rule lets pass, such as `repeated outputs, empty outputs, up to 20,000 tokens`."""
    names = {
        "superseded reads whose lines all still stand": rule.superseded,
        "repeated outputs": rule.repeated,
        "empty outputs": rule.empty,
    }
    named = ", ".join(name for name, is_named in names.items() if is_named)
    return f"{named}, up to {rule.most_tokens:,} tokens"


def passes(run: Run, rule: PassRule) -> bool:
    """Whether a plan touches only what a rule names, and no more tokens than that. Raises what reading texts raises."""
    if run.struck > rule.most_tokens:
        return False
    found = reviewed(run)
    leads = list(found.review.leads())
    if not leads or any(item.standing is not ReviewStatus.UNDECIDED for item in leads):
        return False
    prepared = snapshot_of(run, found.mark).prepared
    transcript = prepared.transcript(read_snapshot_texts(run.session.real_path(), prepared))
    checks = LineChecks(run, found) if rule.superseded else None
    return all(
        (checks is not None and _is_standing(checks, item))
        or (rule.repeated and _is_repeated(transcript, found, item))
        or (rule.empty and _is_empty(transcript, item))
        for item in leads
    )


def _is_standing(checks: LineChecks, item: ReviewItem) -> bool:
    standing = checks.of(item.target)
    return standing is not None and standing.lines == standing.total


def _is_repeated(transcript: Transcript, found: Reviewed, item: ReviewItem) -> bool:
    named = repeat_in(item.origin.reason) if item.origin is not None else None
    other = transcript.entry(named) if named is not None else None
    if other is None or not stays(found.reviewer, found.review, Object(other.position)):
        return False
    texts = list(_result_texts(transcript, item))
    return bool(texts) and all(text == _text(transcript, Object(other.position)) for text in texts)


def _is_empty(transcript: Transcript, item: ReviewItem) -> bool:
    texts = list(_result_texts(transcript, item))
    return bool(texts) and not any(text.strip() for text in texts)


def _result_texts(transcript: Transcript, item: ReviewItem) -> Iterator[str]:
    """The texts of the results of the call that a proposal deletes."""
    call = call_of(transcript, item.target)
    return (_text(transcript, one) for one in (call.results if call is not None else ()))


def _text(transcript: Transcript, found: Object) -> str:
    entry = transcript.entries[found.position]
    if found.slot == WHOLE:
        return transcript.text(entry)
    return transcript.block_text(entry, entry.blocks[found.slot])
