"""A kill at any step leaves a state from which both sides go on, and nothing unapproved is written."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

from django.utils import timezone

from compaction_app.commit.preflight import Confirmations
from compaction_app.core.states import RunState
from compaction_app.handshakes.approval import ReviewedPlan, approve
from compaction_app.handshakes.outcomes import report_applied
from compaction_app.handshakes.sweep import look_after_handshakes
from compaction_app.models import AuditEntry, Compaction, Handshake, Run
from compaction_app.runs.reviews import approve_proposals
from sessions_app.index.session_locks import settle_interrupted
from tests.compaction_app.handshakes.conftest import AskingAgent
from tests.factories import session_bytes, working_session
from tests.files import place
from tests.kill_steps import killed_before

MOST: Final = 2_000
GIVEN: Final = Confirmations(below_target=True)


def waiting(agent: AskingAgent) -> Handshake:
    handshake = agent.planned()
    assert handshake.run is not None
    approve_proposals(handshake.run, timezone.now())
    return handshake


def agents(root: Path) -> Iterator[AskingAgent]:
    """A new session for each attempt."""
    for number in range(1, MOST):
        yield AskingAgent(place(root / f"session-{number}.jsonl", session_bytes(working_session())))


def test_an_approval_killed_before_any_step_is_given_or_can_be_given_again(pi_root: Path) -> None:
    found = set()
    for step, agent in enumerate(agents(pi_root), 1):
        content = agent.path.read_bytes()
        handshake = waiting(agent)
        was_killed = killed_before(step, partial(approve, handshake, ReviewedPlan(GIVEN, timezone.now())))
        settle_interrupted()
        look_after_handshakes(timezone.now())
        handshake.refresh_from_db()
        assert agent.path.read_bytes() == content
        assert not Compaction.objects.filter(run=handshake.run).exists()
        found.add(handshake.state)
        if handshake.state == "waiting":
            approve(handshake, ReviewedPlan(GIVEN, timezone.now()))
        answer = agent.poll(handshake.pk)
        assert answer["do"] == "apply"
        assert agent.report("applied", handshake.pk, leaf=agent.apply(answer))["state"] == "applied"
        assert Path(Compaction.objects.get(run=handshake.run).backup.path).read_bytes() == content
        if not was_killed:
            break
    assert found == {"waiting", "approved"}


def test_a_verification_killed_before_any_step_is_completed_by_the_next_look(pi_root: Path) -> None:
    found = set()
    for step, agent in enumerate(agents(pi_root), 1):
        handshake = waiting(agent)
        approve(handshake, ReviewedPlan(GIVEN, timezone.now()))
        agent.apply(agent.poll(handshake.pk))
        applied = agent.path.read_bytes()
        was_killed = killed_before(step, partial(report_applied, handshake, timezone.now()))
        handshake.refresh_from_db()
        found.add(handshake.state)
        settle_interrupted()
        look_after_handshakes(timezone.now())
        handshake.refresh_from_db()
        assert handshake.state == "applied"
        assert agent.path.read_bytes() == applied
        assert Run.objects.get(pk=handshake.run_id).state == RunState.COMMITTED
        assert Compaction.objects.count() == AuditEntry.objects.count() == step
        if not was_killed:
            break
    assert found == {"approved", "applied"}
