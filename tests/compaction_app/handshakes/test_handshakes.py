"""A running agent asks, waits, and applies what was approved; nothing else is ever written."""

from __future__ import annotations

from django.utils import timezone

from compaction_app.commit.preflight import Confirmations
from compaction_app.core.states import RunState
from compaction_app.handshakes.approval import approve
from compaction_app.models import Compaction, Handshake, Run
from compaction_app.runs.reviews import approve_proposals
from tests.compaction_app.handshakes.conftest import AskingAgent

GIVEN = Confirmations(below_target=True)


def approved(handshake: Handshake, writer: str = "") -> Handshake:
    assert handshake.run is not None
    approve_proposals(handshake.run, timezone.now())
    approve(handshake, GIVEN, None, timezone.now(), writer)
    return handshake


def test_the_agent_continues_with_what_was_approved(agent: AskingAgent) -> None:
    before = agent.path.read_bytes()
    handshake = approved(agent.planned())
    assert agent.path.read_bytes() == before
    answer = agent.poll(handshake)
    assert (answer["state"], answer["do"]) == ("approved", "apply")
    leaf = agent.apply(answer)
    reported = agent.report(handshake, "applied", leaf=leaf)
    assert (reported["state"], reported["do"]) == ("applied", "continue")
    compaction = Compaction.objects.get()
    assert compaction.entry_id == leaf
    assert compaction.certificate is not None
    assert compaction.run == handshake.run
    assert Run.objects.get().state == RunState.COMMITTED
    assert compaction.backup.sha256
