"""Two who act at the same time, on the page, in the agent and in the server, and a kill at any step: a plan is applied
once, or not at all."""

import threading
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from compaction_app.changes.change import ChangePlan
from compaction_app.changes.compaction import approval, commit
from compaction_app.core.handshake_states import NextStep
from compaction_app.core.states import RunState
from compaction_app.handshakes.approval import (
    approve,
    cancel_approved,
    report_applied,
    report_failed,
    report_withdrawn,
)
from compaction_app.handshakes.lifecycle import decline
from compaction_app.handshakes.sweep import look_after_handshakes
from compaction_app.models import AuditEntry, Backup, Compaction, Handshake, Run
from compaction_app.runs.commands import start_run
from sessions_app.index.indexer import index_file
from sessions_app.index.session_locks import lock_session, settle_interrupted
from sessions_app.sessionlog.entries import Target
from tests.compaction_app.handshakes.conftest import (
    GIVEN,
    AskingAgent,
    approved,
    asking,
    remember,
    reviewed_plan,
    state_of,
    steps_to_kill,
)
from tests.compaction_app.handshakes.test_handshakes import backups, held_open
from tests.factories import assistant, call, chain, result, user
from tests.html import values
from tests.installation import refusal
from tests.kill_steps import killed_before
from tests.runs import approve_proposals, finish_run


def read_before(handshake: Handshake) -> Handshake:
    """The same handshake, as a request has read it that is not finished yet."""
    return Handshake.objects.with_session().get(pk=handshake.pk)


def to_be_written(root: Path) -> tuple[AskingAgent, Handshake]:
    """An approved plan that Redline writes, of a session that was closed a moment ago."""
    agent = asking(root, honours="nothing")
    with held_open(agent):
        return agent, approved(agent.planned(), "context-edit")


def test_a_question_that_comes_while_an_earlier_run_is_being_stopped_gets_a_run_of_its_own(agent):
    first = Run.objects.get(handshakes=agent.ask()["id"])
    assert Run.change(first.pk, RunState.RUNNING)
    agent.report("withdrawn")
    answer = agent.ask()
    assert (answer["state"], answer["do"]) == ("asked", "wait")
    look_after_handshakes(timezone.now())
    assert agent.poll()["state"] == "asked"
    assert Run.change(first.pk, RunState.CANCELLED)
    assert agent.poll()["state"] == "planning"
    second = Run.objects.get(handshakes=answer["id"])
    assert second != first
    finish_run(second)
    assert agent.poll()["state"] == "waiting"


def test_a_question_whose_run_never_starts_ends_with_its_time(agent):
    assert Run.change(Run.objects.get(handshakes=agent.ask()["id"]).pk, RunState.RUNNING)
    agent.report("withdrawn")
    asked = agent.ask()
    look_after_handshakes(timezone.now() + timedelta(hours=1))
    assert agent.poll(asked["id"])["state"] == "expired"


@pytest.mark.parametrize(
    "end",
    [
        lambda one: refusal(lambda: decline(one, NextStep.COMPACT, timezone.now())),
        lambda one: report_withdrawn(one, timezone.now()),
        lambda one: report_failed(one, "no", timezone.now()),
        lambda one: refusal(lambda: cancel_approved(one, timezone.now())),
    ],
)
def test_a_request_that_has_read_the_question_as_open_does_not_end_an_approved_one(agent, end):
    handshake = agent.planned()
    earlier = read_before(handshake)
    approved(handshake)
    answer = agent.poll(handshake.pk)
    end(earlier)
    assert agent.report("applied", handshake.pk, leaf=agent.apply(answer))["state"] == "applied"
    assert Compaction.objects.count() == len(backups(agent)) == 1


def test_a_plan_that_was_handed_over_is_not_written_by_redline_as_well(agent, browser):
    """Two tabs, or a second click."""
    handshake = agent.planned()
    approve_proposals(handshake.run)
    before, address = agent.path.read_bytes(), f"/plans/{handshake.run.pk}/confirm"
    page = browser.get(address)
    form = {"plan": page.context["plan"].digest(), "yes": values(page, "yes")}
    assert browser.post(address, form).status_code == 303
    assert browser.post(address, form).status_code == 409
    for writer in ("context-edit", "fork"):
        run = Run.objects.get(pk=handshake.run.pk)
        assert refusal(partial(commit, approval(run, writer), GIVEN, timezone.now())) == "4 approved_already"
    assert agent.path.read_bytes() == before
    assert agent.poll(handshake.pk)["do"] == "apply"
    assert len(backups(agent)) == 1


def test_an_agent_that_asks_again_applies_its_earlier_plan_no_more(agent):
    first, second = approved(agent.planned()), agent.planned()
    first.refresh_from_db()
    assert (first.state, first.handed) == ("failed", None)
    approved(second)
    assert agent.applied(second) == "applied"
    look_after_handshakes(timezone.now())
    assert Compaction.objects.count() == len(backups(agent)) == 1


def test_an_agent_that_asks_again_has_applied_its_earlier_plan(agent):
    first = approved(agent.planned())
    agent.apply(agent.poll(first.pk))
    agent.ask()
    assert state_of(first) == "applied"
    assert Compaction.objects.get().run == first.run


def test_a_plan_that_deletes_the_end_is_not_seen_where_it_is_not_applied(pi_root):
    """The approved context is then the beginning of the one that there was."""
    messages = [user("Do it.")]
    for number, words in enumerate(("x" * 900, "y" * 9_000)):
        called = assistant(call(f"c{number}", "bash", command=f"run {number}"))
        messages += [called, result(f"c{number}", words, name="bash")]
    agent = asking(pi_root, chain(*messages))
    run = start_run(
        index_file(agent.path),
        planner="hand",
        requested_parameters={"compression_ratio": 0.9, "preserve_recent": 0},
        selected=[Target("e4")],
        writer="context-edit",
    )
    handshake = Handshake.objects.get(pk=agent.ask()["id"])
    finish_run(run)
    agent.poll(handshake.pk)
    handshake.refresh_from_db()
    leaf = handshake.leaf_id
    for number in range(len(agent.poll(approved(handshake).pk)["edits"])):
        agent.go_on(leaf, f"more{number}")
        leaf = f"more{number}"
    look_after_handshakes(timezone.now())
    assert state_of(handshake) == "approved"
    assert agent.report("applied", handshake.pk)["state"] == "failed"
    assert not Compaction.objects.exists()


def test_a_session_that_vanished_is_not_looked_for_for_ever(agent):
    handshake = approved(agent.planned())
    agent.path.unlink()
    look_after_handshakes(timezone.now(), 1_000.0)
    assert state_of(handshake) == "approved", "the agent may still say something"
    look_after_handshakes(timezone.now(), 1_121.0)
    assert state_of(handshake) == "failed"
    assert Backup.objects.get().path in handshake.message
    assert Run.objects.get().committing_since is None


def test_an_approval_that_takes_until_the_time_is_over_counts(agent, monkeypatch):
    """A large session takes seconds to be copied: the human decided in time."""
    handshake, answers, require = agent.planned(), [], ChangePlan.require_confirmed

    def wait_then_require(*given: Any) -> None:
        Handshake.objects.update(ends_at=timezone.now())
        look_after_handshakes(timezone.now())
        answers.append(agent.poll(handshake.pk)["do"])
        require(*given)

    monkeypatch.setattr(ChangePlan, "require_confirmed", wait_then_require)
    approved(handshake, "fork")
    assert answers == ["wait"]
    answer = agent.poll(handshake.pk)
    assert (answer["state"], answer["do"]) == ("applied", "continue")
    assert Compaction.objects.get().created in answer["message"]


def test_a_write_killed_before_any_step_is_made_once_and_is_said_to_be(pi_root):
    agent, handshake = to_be_written(pi_root)
    before, rewind = agent.path.read_bytes(), remember(agent)
    for step in steps_to_kill():
        rewind()
        was_killed = killed_before(step, partial(look_after_handshakes, timezone.now()))
        if step % 2:
            settle_interrupted()  # as a new start does; else the next look does it
        look_after_handshakes(timezone.now())
        assert state_of(handshake) == "applied", step
        assert agent.path.read_bytes().startswith(before)
        assert agent.path.read_bytes() != before
        assert Compaction.objects.count() == 1
        if not was_killed:
            return


def test_an_approval_is_not_taken_back_while_it_is_written(pi_root, monkeypatch, settings):
    settings.REDLINE = settings.REDLINE.model_copy(update={"lock_seconds": 0.1})
    _, handshake = to_be_written(pi_root)
    refused: list[str] = []
    require = ChangePlan.require_confirmed

    def take_back_then_require(*given: Any) -> None:
        refused.append(refusal(lambda: cancel_approved(read_before(handshake), timezone.now())))
        require(*given)

    monkeypatch.setattr(ChangePlan, "require_confirmed", take_back_then_require)
    look_after_handshakes(timezone.now())
    handshake.refresh_from_db()
    assert refused == ["4 session_locked"]
    assert handshake.state == "applied"


def test_a_session_that_is_locked_is_written_when_it_is_not(pi_root, settings):
    settings.REDLINE = settings.REDLINE.model_copy(update={"lock_seconds": 0.1})
    agent, handshake = to_be_written(pi_root)
    is_held, is_over = threading.Event(), threading.Event()

    def hold() -> None:
        with lock_session(agent.path):
            is_held.set()
            is_over.wait(20)
        connection.close()

    other = threading.Thread(target=hold)
    other.start()
    is_held.wait(20)
    look_after_handshakes(timezone.now())
    handshake.refresh_from_db()
    is_over.set()
    other.join()
    assert handshake.state == "approved"
    look_after_handshakes(timezone.now())
    assert state_of(handshake) == "applied"


def test_a_question_that_waits_is_not_taken_back_but_declined(agent, browser):
    handshake = agent.planned()
    assert browser.post(f"/inbox/agents/{handshake.pk}/take-back").status_code == 409
    assert agent.poll(handshake.pk)["state"] == "waiting"


def test_the_question_of_an_agent_that_was_killed_ends(agent):
    handshake = agent.planned(reason="threshold")
    for clock in (1_000.0, 1_100.0):
        look_after_handshakes(timezone.now(), clock)
        assert read_before(handshake).state == "waiting"
    look_after_handshakes(timezone.now(), 1_121.0)
    ended = read_before(handshake)
    assert (ended.state, ended.step) == ("failed", "compact")
    assert "does not ask for the answer any more" in ended.message


def test_an_agent_that_polls_is_not_gone_nor_one_whose_computer_slept(agent):
    handshake = agent.planned()
    for clock in (1_000.0, 1_100.0, 1_200.0):
        look_after_handshakes(timezone.now(), clock)
        Handshake.objects.update(polled_at=timezone.now())
    Handshake.objects.update(polled_at=timezone.now() - timedelta(minutes=10))
    look_after_handshakes(timezone.now(), 1_300.0)
    look_after_handshakes(timezone.now(), 1_301.0)
    assert read_before(handshake).state == "waiting"


def test_a_new_start_of_the_server_gives_agents_their_time(agent, monkeypatch):
    handshake = agent.planned()
    look_after_handshakes(timezone.now(), 1_000.0)
    monkeypatch.setattr("compaction_app.handshakes.sweep._polls", {})
    look_after_handshakes(timezone.now(), 5_000.0)
    assert read_before(handshake).state == "waiting"


def waiting(agent: AskingAgent) -> Handshake:
    handshake = agent.planned()
    approve_proposals(handshake.run)
    return handshake


def test_an_approval_killed_before_any_step_is_given_or_can_be_given_again(agent):
    handshake, content = waiting(agent), agent.path.read_bytes()
    rewind, found = remember(agent), set()
    for step in steps_to_kill():
        rewind()
        handshake.refresh_from_db()
        was_killed = killed_before(step, partial(approve, handshake, reviewed_plan(handshake)))
        settle_interrupted()
        look_after_handshakes(timezone.now())
        found.add(state_of(handshake))
        assert agent.path.read_bytes() == content
        assert not Compaction.objects.exists()
        if handshake.state == "waiting":
            approve(handshake, reviewed_plan(handshake))
        answer = agent.poll(handshake.pk)
        assert answer["do"] == "apply"
        assert agent.report("applied", handshake.pk, leaf=agent.apply(answer))["state"] == "applied"
        assert Path(Compaction.objects.get().backup.path).read_bytes() == content
        if not was_killed:
            break
    assert found == {"waiting", "approved"}


def test_a_verification_killed_before_any_step_is_completed_by_the_next_look(agent):
    handshake = waiting(agent)
    approve(handshake, reviewed_plan(handshake))
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
