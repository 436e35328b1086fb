"""A running agent asks, waits, and applies what was approved; nothing else is ever written."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from compaction_app.changes.change import Confirmations
from compaction_app.changes.compaction import approval, commit
from compaction_app.core.review_fold import Kind
from compaction_app.core.states import RunState
from compaction_app.handshakes.approval import ReviewedPlan, approve
from compaction_app.handshakes.review_requests import branch_of
from compaction_app.handshakes.sweep import look_after_handshakes
from compaction_app.models import AuditEntry, Compaction, Handshake, Run, WaitRule
from compaction_app.runs.commands import plan_again, start_run, stop_run
from compaction_app.runs.reviews import decide, review_of
from sessions_app.agents.registry import READERS
from sessions_app.index.indexer import index_file
from sessions_app.models import Session
from sessions_app.storage.session_loader import load_session
from tests.compaction_app.handshakes.conftest import AskingAgent, approved, asking, reviewed_plan, state_of
from tests.factories import session_bytes, working_session
from tests.files import place, unchanged
from tests.html import missing, text_of
from tests.installation import refusal
from tests.runs import approve_proposals, finish_run


def backups(agent: AskingAgent) -> list[str]:
    return [path.name for path in agent.path.parent.glob("*.bak")]


@contextmanager
def held_open(agent: AskingAgent) -> Iterator[None]:
    """Another process has the session open for writing, as an agent does."""
    command = ["sh", "-c", 'exec 9>>"$0"; echo; read line', str(agent.path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        yield
        process.communicate(b"\n")


def context_of(agent: AskingAgent) -> list[str]:
    """The entries that the model sees."""
    loaded = load_session(agent.path)
    return [one.entry.id for one in READERS["pi"].rebuild(loaded.tree.branch(loaded.leaf_id)).messages]


def test_the_agent_continues_with_what_was_approved(agent):
    before, handshake = agent.path.read_bytes(), approved(agent.planned())
    assert agent.path.read_bytes() == before
    answer = agent.poll(handshake.pk)
    assert (answer["state"], answer["do"]) == ("approved", "apply")
    leaf = agent.apply(answer)
    reported = agent.report("applied", handshake.pk, leaf=leaf)
    assert (reported["state"], reported["do"]) == ("applied", "continue")
    compaction = Compaction.objects.get()
    assert (compaction.entry_id, compaction.writer) == (leaf, "context-edit")
    assert compaction.certificate is not None
    assert compaction.run == handshake.run
    assert Run.objects.get().state == RunState.COMMITTED
    assert backups(agent) == [Path(compaction.backup.path).name]
    assert missing(AuditEntry.objects.get().writer, "by the running agent", "automatically") == ["automatically"]


def test_a_changed_review_is_what_the_agent_applies(agent):
    handshake = agent.planned()
    review = review_of(handshake.run)
    whole, first = len(list(review.leads())), next(iter(review.leads())).target
    approve_proposals(handshake.run)
    decide(handshake.run, Kind.REJECT, [first], timezone.now())
    approve(handshake, reviewed_plan(handshake))
    answer = agent.poll(handshake.pk)
    assert whole > 1
    assert first.entry_id not in [edit["targetId"] for edit in answer["edits"]]
    agent.report("applied", handshake.pk, leaf=agent.apply(answer))
    assert first.entry_id in context_of(agent)


def test_what_the_agent_says_after_it_does_not_hide_that_the_plan_is_applied(agent):
    handshake = approved(agent.planned())
    leaf = agent.apply(agent.poll(handshake.pk))
    agent.go_on(leaf)
    assert agent.report("applied", handshake.pk)["state"] == "applied"
    assert Compaction.objects.get().entry_id == leaf


def test_a_report_is_not_believed_without_the_session(agent):
    handshake = approved(agent.planned())
    reported = agent.report("applied", handshake.pk)
    assert (reported["state"], reported["do"]) == ("failed", "continue")
    assert "does not show it" in reported["message"]
    assert not Compaction.objects.exists()
    assert backups(agent) == []
    handshake.run.refresh_from_db()
    assert handshake.run.is_reviewable
    assert handshake.run.committing_since is None


def test_a_part_of_a_plan_is_not_taken_for_the_whole(agent):
    handshake = approved(agent.planned())
    agent.apply({"edits": agent.poll(handshake.pk)["edits"][:-1]})
    look_after_handshakes(timezone.now())
    assert state_of(handshake) == "approved"
    reported = agent.report("failed", handshake.pk, message="the extension was stopped")
    assert reported["state"] == "failed"
    assert "the extension was stopped" in reported["message"]
    assert len(backups(agent)) == 1, "the backup has what was there before"
    assert not Compaction.objects.exists()


def test_a_silent_agent_gets_no_compaction_recorded(agent):
    handshake = approved(agent.planned())
    agent.poll(handshake.pk)
    for clock in (1_000.0, 1_110.0):
        look_after_handshakes(timezone.now(), clock)
        assert state_of(handshake) == "approved"
    look_after_handshakes(timezone.now(), 1_121.0)
    assert state_of(handshake) == "failed"
    assert backups(agent) == []


def test_nobody_decides_on_a_plan_that_was_handed_over(agent):
    handshake = approved(agent.planned())
    assert refusal(lambda: approve_proposals(handshake.run)) == "4 being_committed"
    look_after_handshakes(timezone.now())
    assert refusal(lambda: approve(handshake, reviewed_plan(handshake))) == "4 wrong_state"


def test_an_agent_that_asks_while_the_fork_is_made_is_answered_how_to_resume_it(agent, monkeypatch):
    """The run is written a moment before the handshake is."""
    handshake, answers = agent.planned(), []

    def commit_and_poll(*given: Any, **named: Any) -> Any:
        written = commit(*given, **named)
        answers.append(agent.poll(handshake.pk))
        return written

    monkeypatch.setattr("compaction_app.handshakes.approval.commit", commit_and_poll)
    approved(handshake, "fork")
    assert (answers[0]["state"], answers[0]["do"]) == ("applied", "continue")
    assert Compaction.objects.get().created in answers[0]["message"]
    handshake.refresh_from_db()
    assert (handshake.writer, handshake.message) == ("fork", answers[0]["message"])


def test_an_agent_that_applies_nothing_has_it_written_once_the_session_is_closed(pi_root):
    agent = asking(pi_root, honours="nothing")
    before = agent.path.read_bytes()
    with held_open(agent):
        handshake = approved(agent.planned(), "context-edit")
        answer = agent.poll(handshake.pk)
        assert (answer["state"], answer["do"]) == ("approved", "continue"), answer
        assert "pi --session" in answer["message"]
        look_after_handshakes(timezone.now())
        assert agent.path.read_bytes() == before
    look_after_handshakes(timezone.now())
    assert state_of(handshake) == "applied"
    assert agent.path.read_bytes().startswith(before)
    assert Compaction.objects.get().run == handshake.run


def test_a_rejection_is_the_decision_and_a_target_that_it_misses_needs_no_second_one(pi_root, browser):
    agent = asking(pi_root, honours="nothing")
    with held_open(agent):
        handshake = agent.planned()
        run, now = handshake.run, timezone.now()
        first, *others = [item.target for item in review_of(run).leads()]
        decide(run, Kind.APPROVE, [first], now)

        def ticks() -> list[str]:
            plan_shown = browser.get(f"/plans/{run.pk}/confirm?writer=context-edit").context["plan"]
            return [one.name for one in plan_shown.confirmations]

        def approve_as_shown() -> None:
            approve(handshake, ReviewedPlan(approval(run, "context-edit"), Confirmations(), now))

        assert ticks() == ["below_target"], "what is undecided may still be approved"
        assert refusal(approve_as_shown) == "3 target_not_met"
        decide(run, Kind.REJECT, others, now)
        assert ticks() == []
        approve_as_shown()
    look_after_handshakes(timezone.now())
    assert state_of(handshake) == "applied", "also once the agent no longer waits"


def test_an_approval_that_is_not_written_yet_can_be_taken_back(pi_root, browser):
    agent = asking(pi_root, honours="nothing")
    with unchanged(agent.path):
        with held_open(agent):
            handshake = approved(agent.planned(), "context-edit")
            browser.post(f"/inbox/agents/{handshake.pk}/take-back")
        look_after_handshakes(timezone.now())
        assert state_of(handshake) == "declined"
    approve_proposals(handshake.run)


@pytest.mark.parametrize("step", ["compact", "continue", "stop"])
def test_a_declined_agent_does_what_was_chosen(agent, browser, step):
    before, address = agent.path.read_bytes(), f"/inbox/agents/{agent.planned().pk}/decline"
    assert browser.post(address, {"step": step}).status_code == 303
    answer = agent.poll()
    assert (answer["state"], answer["do"]) == ("declined", step)
    assert agent.path.read_bytes() == before
    assert browser.post(address, {"step": step}).status_code == 409


@pytest.mark.parametrize(
    ("reason", "step"), [("manual", "continue"), ("threshold", "compact"), ("overflow", "compact")]
)
def test_nobody_waits_longer_than_the_limit(agent, reason, step):
    handshake = agent.planned(reason=reason)
    Handshake.objects.update(ends_at=timezone.now())
    answer = agent.poll(handshake.pk)
    assert (answer["state"], answer["do"]) == ("expired", step)
    assert refusal(lambda: approved(handshake)) == "4 wrong_state"


def test_the_limit_and_what_happens_then_are_chosen_by_agent_and_reason(agent):
    WaitRule.objects.create(agent="pi", reason="overflow", seconds=60, then="stop", planner="prune")
    assert 0 < agent.ask(reason="overflow")["seconds"] <= 60
    handshake = Handshake.objects.get()
    assert handshake.ends_at - handshake.asked_at == timedelta(seconds=60)
    assert (handshake.then, handshake.run.planner) == ("stop", "prune")
    assert agent.ask(reason="manual")["seconds"] > 1_700


def test_a_planner_that_is_still_at_work_is_stopped_when_the_time_is_over(agent):
    handshake = Handshake.objects.get(pk=agent.ask()["id"])
    look_after_handshakes(timezone.now() + timedelta(hours=1))
    assert state_of(handshake) == "expired"
    assert handshake.run.state == RunState.CANCELLED


def test_esc_in_the_agent_ends_the_question(agent):
    handshake = agent.planned()
    answer = agent.report("withdrawn", handshake.pk)
    assert (answer["state"], answer["do"]) == ("declined", "continue")
    assert refusal(lambda: approved(handshake)) == "4 wrong_state"


def test_a_plan_without_deletions_leaves_the_agent_to_its_own(agent):
    handshake = Handshake.objects.get(pk=agent.ask()["id"])
    stop_run(handshake.run)
    answer = agent.poll(handshake.pk)
    assert (answer["state"], answer["do"]) == ("failed", "compact")


def test_a_session_without_enough_to_compact_is_compacted_as_usual(pi_root):
    agent = asking(pi_root, working_session(steps=0))
    handshake = Handshake.objects.get(pk=agent.ask()["id"])
    if handshake.run is not None and handshake.run.is_active:
        finish_run(handshake.run)
    answer = agent.poll(handshake.pk)
    assert (answer["state"], answer["do"]) == ("failed", "compact")
    assert "compacts as usual" in answer["message"]


def test_a_branch_that_the_file_does_not_have_is_a_conflict_and_the_one_that_it_has_is_accepted(agent):
    for wrong in (agent.ask(leaf="nowhere"), agent.ask(branch={"entries": 3, "sha256": "0" * 64})):
        assert (wrong["status"], wrong["error"]["code"]) == (409, "moved_on")
    assert not Handshake.objects.exists()
    loaded = load_session(agent.path)
    assert agent.ask(branch=branch_of(loaded.tree.branch(loaded.leaf_id)).model_dump())["state"] == "planning"


def test_a_session_that_continued_is_a_conflict_on_the_page_and_the_agent_still_waits(agent, browser):
    handshake = agent.planned()
    approve_proposals(handshake.run)
    agent.go_on(handshake.leaf_id)
    with unchanged(agent.path):
        assert refusal(lambda: approve(handshake, reviewed_plan(handshake))) == "4 moved_on"
    assert agent.poll(handshake.pk)["state"] == "waiting"
    assert backups(agent) == []


def test_a_plan_that_is_made_again_is_the_one_the_agent_waits_for(agent):
    handshake = agent.planned()
    again = plan_again(handshake.run)
    finish_run(again)
    assert agent.poll(handshake.pk)["state"] == "waiting"
    handshake.refresh_from_db()
    assert handshake.run == again
    approved(handshake)
    assert agent.applied(handshake) == "applied"


def test_an_agent_that_asks_again_ends_its_earlier_question(agent):
    first, second = agent.planned(), agent.ask()
    assert (state_of(first), second["do"]) == ("declined", "wait")
    assert second["id"] != first.pk


def test_a_question_whose_run_is_being_started_is_not_taken_for_lost(agent, monkeypatch):
    """The server looks after handshakes each second, also while an agent asks."""

    def look_and_start(*given: Any, **named: Any) -> Run:
        look_after_handshakes(timezone.now())
        return start_run(*given, **named)

    monkeypatch.setattr("compaction_app.handshakes.review_requests.start_run", look_and_start)
    assert agent.ask()["state"] == "planning"


def test_two_agents_wait_at_once(pi_root, browser):
    one, other = (asking(pi_root, name=name) for name in ("one", "other"))
    other.token = one.token = other.token
    first, second = one.planned(), other.planned()
    assert text_of(browser.get("/")).count("pi waits") >= 2
    approved(first)
    one.report("applied", first.pk, leaf=one.apply(one.poll(first.pk)))
    assert other.poll(second.pk)["state"] == "waiting"
    approved(second)
    assert other.applied(second) == "applied"


def test_an_agent_asks_for_itself_and_sees_its_own_questions_only(agent):
    answer = agent.ask(agent="claude-code")
    assert (answer["status"], answer["error"]["code"]) == (400, "other_agent")
    handshake = agent.planned()
    stranger = AskingAgent(agent.path, agent="atomic", honours="deletions")
    assert stranger.poll(handshake.pk)["status"] == 404
    assert stranger.report("withdrawn", handshake.pk)["status"] == 404
    assert agent.poll(handshake.pk)["state"] == "waiting"


def test_nothing_of_a_session_outside_all_roots_is_read_and_it_is_compacted_as_usual(agent, tmp_path):
    path = place(tmp_path / "elsewhere.jsonl", session_bytes(working_session()))
    link = agent.path.with_name("link.jsonl")
    link.symlink_to(path)
    for named in (path, link):
        answer = agent.ask(session=str(named), leaf="")
        assert (answer["status"], answer["error"]["code"]) == (400, "unlisted_session")
        assert "compacts as usual" in answer["error"]["message"]
    assert not Session.objects.filter(root__configured=False).exists()


def test_a_question_that_is_none_is_refused(agent):
    wrong: dict[str, list[object]] = {
        "reason": ["whim"],
        "honours": ["everything"],
        "leaf": ["\ud800"],
        "preparation": [{"x": "y" * 5_000}, {"x": "NUL: \0"}],
        "branch": [{"entries": -1, "sha256": "0" * 64}],
        "session": ["x" * 5_000],
    }
    for name, value in [(name, value) for name, values in wrong.items() for value in values]:
        answer = agent.ask(**{name: value})
        assert (answer["status"], answer["error"]["code"]) == (400, "bad_body"), name
    body = json.dumps({"agent": "pi", "session": str(agent.path), "preparation": {"x": 0}})
    headers = {"Authorization": f"Bearer {agent.token}"}
    for number in ("NaN", "Infinity", "1e999"):  # JSON does not have them
        sent = body.replace("0}", f"{number}}}").encode()
        assert agent.send("POST", "/api/handshakes", sent, headers)[0] == 400, number


def test_a_test_of_the_connection_asks_nothing_and_a_session_can_be_named_by_its_id(agent):
    answer = agent.ask(test=True)
    assert (answer["state"], answer["do"]) == ("tested", "continue")
    assert not Handshake.objects.exists()
    assert agent.ask(session=index_file(agent.path).header_id)["state"] == "planning"
    assert agent.ask(session="unknown")["error"]["code"] == "unknown_session"
