"""A kill at any step leaves a state from which both sides go on, and nothing unapproved is written."""

from functools import partial
from pathlib import Path

from django.utils import timezone

from compaction_app.core.states import RunState
from compaction_app.handshakes.approval import ReviewedPlan, approve
from compaction_app.handshakes.outcomes import report_applied
from compaction_app.handshakes.sweep import look_after_handshakes
from compaction_app.models import AuditEntry, Compaction, Handshake, Run
from compaction_app.runs.reviews import approve_proposals
from sessions_app.index.session_locks import settle_interrupted
from tests.compaction_app.handshakes.conftest import GIVEN, AskingAgent, remember, state_of, steps_to_kill
from tests.kill_steps import killed_before


def waiting(agent: AskingAgent) -> Handshake:
    handshake = agent.planned()
    approve_proposals(handshake.run, timezone.now())
    return handshake


def test_an_approval_killed_before_any_step_is_given_or_can_be_given_again(agent):
    handshake, content = waiting(agent), agent.path.read_bytes()
    rewind, found = remember(agent), set()
    for step in steps_to_kill():
        rewind()
        handshake.refresh_from_db()
        was_killed = killed_before(step, partial(approve, handshake, ReviewedPlan(GIVEN, timezone.now())))
        settle_interrupted()
        look_after_handshakes(timezone.now())
        found.add(state_of(handshake))
        assert agent.path.read_bytes() == content
        assert not Compaction.objects.exists()
        if handshake.state == "waiting":
            approve(handshake, ReviewedPlan(GIVEN, timezone.now()))
        answer = agent.poll(handshake.pk)
        assert answer["do"] == "apply"
        assert agent.report("applied", handshake.pk, leaf=agent.apply(answer))["state"] == "applied"
        assert Path(Compaction.objects.get().backup.path).read_bytes() == content
        if not was_killed:
            break
    assert found == {"waiting", "approved"}


def test_a_verification_killed_before_any_step_is_completed_by_the_next_look(agent):
    handshake = waiting(agent)
    approve(handshake, ReviewedPlan(GIVEN, timezone.now()))
    agent.apply(agent.poll(handshake.pk))
    applied, rewind, found = agent.path.read_bytes(), remember(agent), set()
    for step in steps_to_kill():
        rewind()
        handshake.refresh_from_db()
        was_killed = killed_before(step, partial(report_applied, handshake, timezone.now()))
        found.add(state_of(handshake))
        settle_interrupted()
        look_after_handshakes(timezone.now())
        assert state_of(handshake) == "applied"
        assert agent.path.read_bytes() == applied
        assert Run.objects.get().state == RunState.COMMITTED
        assert Compaction.objects.count() == AuditEntry.objects.count() == 1
        if not was_killed:
            break
    assert found == {"approved", "applied"}
