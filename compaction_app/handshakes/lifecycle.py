"""The life of a handshake: every change is one conditional update by the table of transitions.

`advance` updates a handshake from its run and the time. It is called first by every user of a handshake: the polling
agent, the page, and the server each second; so they do not depend on each other.

How long an agent waits for a review, and what happens then, is configured for each agent and reason, or a default.
"""

from collections.abc import Collection
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from django.db import transaction
from django.urls import reverse

from compaction_app.core.handshake_states import OPEN, TRANSITIONS, HandshakeState, NextStep
from compaction_app.core.states import RunState
from compaction_app.models import Compaction, Handshake, Run, WaitRule
from compaction_app.planning.plan import EMBEDDED
from compaction_app.runs.commands import stop_run
from compaction_app.runs.unseen_proposals import inbox_count
from sessions_app.cli import resume_line
from sessions_app.database.sqlite import left_out_if_busy
from sessions_app.jobs.job import change_rows
from sessions_app.server.broadcast import SESSIONS, publish
from sessions_app.sessionlog.errors import Conflict
from sessions_app.sessionlog.text import one_line

TITLE_CHARACTERS: Final = 120
LONGEST_WAIT_SECONDS: Final = 3600
"""The maximum wait for a review. Hook commands are ended one minute later."""
DEFAULT_WAITS: Final = {
    Run.Reason.MANUAL: (1800, NextStep.CONTINUE),
    Run.Reason.THRESHOLD: (900, NextStep.COMPACT),
    Run.Reason.OVERFLOW: (120, NextStep.COMPACT),
}
"""The wait in seconds by reason, and the agent's action after it. An overflow prevents the next reply."""


def wait_for(agent: str, reason: str) -> WaitRule:
    """The rule for an agent and a reason: the configured one, otherwise the default."""
    chosen = WaitRule.objects.filter(agent=agent, reason=reason).first()
    if chosen is not None:
        return chosen
    seconds, then = DEFAULT_WAITS[Run.Reason(reason)]
    return WaitRule(agent=agent, reason=reason, seconds=seconds, then=then, planner=EMBEDDED)


def change_handshake(
    handshake: Handshake,
    to: HandshakeState,
    *,
    leaving: Collection[HandshakeState] | None = None,
    **fields: Any,
) -> bool:
    """Change the state of a handshake and of its object, if the table allows the transition; returns whether it did.

    `leaving` names the only states that it may leave. The row decides: the object may have been read before another
    process changed it.
    """
    rows = Handshake.objects.filter(pk=handshake.pk)
    changed = change_rows(rows, TRANSITIONS, to, leaving, **fields) == 1
    handshake.refresh_from_db()
    if changed:
        transaction.on_commit(lambda: publish_change(handshake))
    return changed


def publish_change(handshake: Handshake) -> None:
    """Make open pages redraw the waiting agents and their number, and notify once one waits for a review."""
    page: dict[str, Any] = {"asked": True, "waiting": inbox_count()}
    if handshake.state == HandshakeState.WAITING and handshake.run_id is not None:
        title = one_line(handshake.session.heading, TITLE_CHARACTERS)
        page["tell"] = {
            "tag": f"redline-handshake-{handshake.pk}",
            "title": f"{handshake.agent_label} waits for your review",
            "words": f"{title}. If nobody decides in time, it {handshake.then_sentence}.",
            "address": reverse("compaction:review", args=(handshake.run_id,)),
        }
    publish(SESSIONS, sessions=[handshake.session_id], page=page)


def end_handshake(handshake: Handshake, to: HandshakeState, step: NextStep, message: str, now: datetime) -> bool:
    """End an open handshake without applying anything; a run that is still planning for it is stopped.

    Returns whether this call ended it: one that was approved meanwhile is not ended.
    """
    if not change_handshake(handshake, to, leaving=OPEN, step=step, message=message, ended_at=now):
        return False
    if handshake.run is not None and handshake.run.is_active:
        # It may have ended meanwhile.
        with suppress(Conflict):
            stop_run(handshake.run)
    return True


def decline(handshake: Handshake, step: NextStep, now: datetime) -> None:
    """Decline a handshake, at the user's request on the page. Raises Conflict `wrong_state`."""
    words = f"The review was declined: {handshake.agent_label} {step.sentence}."
    if not end_handshake(handshake, HandshakeState.DECLINED, step, words, now):
        raise wrong_state(handshake, "It was not declined.")


def wrong_state(handshake: Handshake, not_done: str) -> Conflict:
    return Conflict("wrong_state", f"The question of {handshake.agent_label} is over: {handshake.sentence}. {not_done}")


def advance(handshake: Handshake, now: datetime) -> Handshake:
    """Update an open handshake from its run and the time, and return it."""
    if not handshake.is_open:
        return handshake
    run = _follow(handshake)
    if handshake.state == HandshakeState.ASKED:
        # Its run starts once an earlier one has been stopped: see `review_requests.start_requested`.
        if now >= handshake.ends_at:
            _expire(handshake, now)
    elif run is None:
        return _fail(handshake, "The run that planned it was deleted.", now)
    elif run.is_written:
        words = written_words(run)
        with transaction.atomic():  # it is never shown as approved and still to be written
            change_handshake(handshake, HandshakeState.WAITING)
            change_handshake(handshake, HandshakeState.APPROVED)
            change_handshake(handshake, HandshakeState.APPLIED, step=NextStep.CONTINUE, message=words, ended_at=now)
    elif now >= handshake.ends_at and run.committing_since is None:  # otherwise it is approved and being written
        _expire(handshake, now)
    elif run.is_active:
        change_handshake(handshake, HandshakeState.PLANNING)
    elif run.is_reviewable and run.plan_stats.objects_deleted:
        change_handshake(handshake, HandshakeState.WAITING)
    else:
        return _fail(handshake, run.failure or "The planner found nothing to delete.", now)
    return handshake


def written_words(run: Run) -> str:
    """The answer to the agent if Redline has written the approved plan: how to continue with it.

    The agent may poll between the write and the following steps, so this depends only on recorded facts.
    """
    compaction = Compaction.objects.filter(run=run).first()
    if compaction is not None and compaction.created:
        command = resume_line(run.session.agent, Path(compaction.created))
        return f"Approved as a new session. To continue in it: {command}"
    command = resume_line(run.session.agent, run.session.path)
    return f"What was approved is written. To continue with it: {command}"


def _follow(handshake: Handshake) -> Run | None:
    """The run that plans for it now: the one that continues the earlier one, if any."""
    run = handshake.run
    while run is not None and run.state == RunState.SUPERSEDED:
        later = run.replaced_by.order_by("pk").last()
        if later is None:
            break
        run = later
    if run is not None and run.pk != handshake.run_id:
        Handshake.objects.filter(pk=handshake.pk).update(run=run)
        handshake.run = run
    return run


def _expire(handshake: Handshake, now: datetime) -> None:
    then = NextStep(handshake.then)
    words = f"Nobody decided in time: {handshake.agent_label} {then.sentence}."
    end_handshake(handshake, HandshakeState.EXPIRED, then, words, now)


def _fail(handshake: Handshake, why: str, now: datetime) -> Handshake:
    words = f"{why} {handshake.agent_label} compacts as usual."
    end_handshake(handshake, HandshakeState.FAILED, NextStep.COMPACT, words, now)
    return handshake


def shown_now(handshake: Handshake, now: datetime) -> Handshake:
    """A handshake for a page: brought up to date, unless the database is busy."""
    with left_out_if_busy(f"The state of {handshake}"):
        advance(handshake, now)
    return handshake


def waiting_handshake(run: Run, now: datetime) -> Handshake | None:
    """The handshake whose agent waits for a run; None if there is none."""
    found = run.handshakes.open().with_session().order_by("pk").last()
    return found if found is not None and shown_now(found, now).is_open else None
