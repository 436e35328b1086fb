"""Promises of the run that `redline compact` makes: its own process works on it, and a browser can review it."""

import json
import os
import signal
from collections.abc import Callable
from typing import Any

import pytest
from django.utils import timezone

from compaction_app.changes.change import Confirmations
from compaction_app.changes.compaction import approval, commit
from compaction_app.core.review_fold import Kind
from compaction_app.core.states import RunState
from compaction_app.management.commands.compact import approve_shown
from compaction_app.models import Compaction, Proposal, Run
from compaction_app.planning import plan
from compaction_app.runs.commands import begin_run, new_run, resume_run, start_run
from compaction_app.runs.reviews import approve_proposals, decide, review_of, undo
from sessions_app.index.indexer import index_file
from sessions_app.jobs.job import LEASE_SECONDS, LeaseWatch
from sessions_app.models import Session
from sessions_app.sessionlog.entries import Target
from tests.factories import session_bytes, working_session
from tests.files import place
from tests.html import fields, text_of
from tests.installation import refusal
from tests.runs import finish_run
from tests.scripted_models import add_scripted
from tests.wait import WAIT_SECONDS, wait_until


@pytest.fixture
def path(known_root):
    return place(known_root / "work.jsonl", session_bytes(working_session()))


def the_run() -> Run:
    return Run.objects.get()


def test_a_plan_that_was_not_confirmed_waits_as_a_run_in_the_browser(redline, browser, path):
    shown = redline.call("compact", path, "--ratio", "0.4", "--json")
    assert shown.code == 5
    run = the_run()
    assert shown.json["plan"] == run.pk
    assert (run.state, run.automatic) == (RunState.TARGET_MET, False)
    assert run.requested_parameters == {"compression_ratio": 0.4}
    assert [event.seq for event in run.events.order_by("seq")] == list(range(1, run.last_seq + 1))
    assert [event.kind for event in run.events.order_by("seq")][:: run.last_seq - 1] == ["prepared", "ended"]
    proposed = [Target(row.entry_id, row.block_index) for row in run.proposals.order_by("order")]
    assert [target.to_json() for target in proposed] == shown.json["deletedTargets"]
    assert run.stats == shown.json["stats"]
    assert not run.decisions.exists()
    assert f"/plans/{run.pk}" in browser.get(f"/plans/{run.pk}/log").content.decode()
    assert "nothing approved yet" in text_of(browser.get(f"/plans/{run.pk}"))
    approve_proposals(run, timezone.now())
    page = f"/plans/{run.pk}/confirm"
    assert browser.post(page, {**fields(browser.get(page)), "yes": ["unopened"]}).status_code == 303
    written = json.loads(path.read_bytes().splitlines()[-1])
    assert written["type"] == "context_compaction"
    assert written["deletedTargets"] == shown.json["deletedTargets"]


def test_what_it_commits_is_the_compaction_of_its_run(redline, browser, path):
    written = redline.call("compact", path, "--yes", "--json").ok()
    run = the_run()
    compaction = Compaction.objects.get()
    assert (run.pk, run.state, compaction.run) == (written.json["plan"], RunState.COMMITTED, run)
    assert compaction.entry_id == written.json["entryId"]
    assert [step.kind for step in run.decisions.all()] == [Kind.APPROVE]
    assert (review_of(run).undecided, browser.get(f"/plans/{run.pk}/result").status_code) == (0, 200)
    assert redline.call("restore", written.json["backupPath"], "--yes").code == 0
    run.refresh_from_db()
    assert run.state == RunState.RESTORED


def test_a_dry_run_and_a_plan_that_could_never_be_written_leave_no_run(redline, path, known_root):
    shown = redline.call("compact", path, "--dry-run", "--json")
    assert (shown.code, shown.json["plan"]) == (0, None)
    assert not Run.objects.exists()
    assert not Session.objects.exists()
    path = place(known_root / "work.jsonl", session_bytes(working_session()[1:]))
    assert redline.call("compact", path, "--yes", "--json").error == "no_header"
    assert not Run.objects.exists()


@pytest.mark.parametrize(
    ("arguments", "code"), [(["--branch", "nowhere"], "unknown_entry"), (["--planner", "x"], "unknown_planner")]
)
def test_a_mistake_in_the_arguments_leaves_no_run(redline, path, arguments, code):
    assert redline.call("compact", path, "--json", *arguments).error == code
    assert not Run.objects.exists()


def test_a_run_that_fails_says_so_in_the_browser_too(redline, known_root):
    path = place(known_root / "short.jsonl", session_bytes(working_session(steps=0)[:2]))
    refused = redline.call("compact", path, "--json")
    assert (refused.code, refused.error) == (2, "nothing_to_compact")
    assert (the_run().state, the_run().failure) == (RunState.FAILED, refused.json["error"]["message"])


def test_a_session_outside_of_all_roots_is_compacted_as_ever(redline, browser, tmp_path):
    path = place(tmp_path / "elsewhere" / "work.jsonl", session_bytes(working_session()))
    redline.call("compact", path, "--yes", "--not-honoured", "--json").ok()
    assert the_run().state == RunState.COMMITTED
    # Its directory is not configured, so pages do not show it.
    assert browser.get(f"/plans/{the_run().pk}/log").status_code == 404
    assert f"/plans/{the_run().pk}/log" not in browser.get("/inbox").content.decode()


def test_it_plans_during_another_run_of_the_session(redline, path):
    other = start_run(index_file(path), planner="embedded", requested_parameters={})
    assert redline.call("compact", path, "--yes").code == 0
    other.refresh_from_db()
    assert other.state == RunState.QUEUED


@pytest.fixture
def approved(redline, path):
    """A run that the command planned, and what it showed before its prompt."""
    redline.call("compact", path)
    approve_proposals(the_run(), timezone.now())
    shown = approval(the_run())
    undo(the_run(), timezone.now())
    return shown


def test_a_proposal_that_was_rejected_meanwhile_is_not_written(approved, path):
    before, run = path.read_bytes(), the_run()
    decide(run, Kind.REJECT, [approved.targets[0]], timezone.now())
    assert refusal(lambda: approve_proposals(run, timezone.now())) == "4 decided_elsewhere"
    assert path.read_bytes() == before


def test_nothing_more_is_written_than_was_shown(approved, path):
    before, run = path.read_bytes(), the_run()
    kept = next(entry_id for entry_id in ("e5", "e7", "e25") if Target(entry_id) not in approved.targets)
    decide(run, Kind.ADD, [Target(kept)], timezone.now())
    assert refusal(lambda: approve_shown(approved, timezone.now())) == "4 plan_differs"
    assert refusal(lambda: commit(approved, Confirmations(), timezone.now())) == "4 plan_differs"
    assert path.read_bytes() == before


def test_no_other_worker_can_claim_its_run(redline, path):
    run = new_run(index_file(path), "embedded", {})
    begin_run(run, "mine")
    assert not Run.objects.queued().exists()
    assert Run.claim(run.pk, "another") is None
    assert Run.objects.get().worker == "mine"


@pytest.fixture
def acting(monkeypatch):
    """Have the embedded planner act before each of its turns."""

    def put(act: Callable[[], object]) -> None:
        usual = plan.PLANNERS["embedded"]

        def make(transcript: Any) -> Any:
            planner = usual(transcript)
            next_turn = planner.next_turn
            planner.next_turn = lambda report: (act(), next_turn(report))[1]
            return planner

        monkeypatch.setitem(plan.PLANNERS, "embedded", make)

    return put


def test_it_is_watched_and_stopped_in_the_browser(redline, browser, path, acting):
    before = path.read_bytes()

    def stop() -> None:
        page = f"/plans/{the_run().pk}"
        assert the_run().worker.split(":")[1] == str(os.getpid())
        assert 'data-seq="1"' in browser.get(f"{page}/log").content.decode()
        assert browser.post(f"{page}/stop").status_code == 303

    acting(stop)
    assert redline.call("compact", path, "--yes", "--json").refusal == "4 run_stopped"
    assert (the_run().state, path.read_bytes()) == (RunState.CANCELLED, before)


def test_a_run_that_was_given_up_is_not_committed(redline, path, acting):
    """As if the command had been suspended for a while, watched by a server."""
    before = path.read_bytes()
    acting(lambda: Run.objects.update(state=RunState.INTERRUPTED))
    assert redline.call("compact", path, "--yes", "--json").refusal == "4 run_given_up"
    assert (the_run().state, path.read_bytes()) == (RunState.INTERRUPTED, before)


@pytest.fixture
def compact_with(redline, path, provider):
    """`redline compact` with a script as the planner."""

    def compact(script: str) -> Any:
        add_scripted(provider, script)
        return redline.call("compact", path, "--planner", f"scripted/{script}", "--yes", "--json")

    return compact


def test_the_usage_of_a_model_is_kept_with_the_run(compact_with):
    ended = compact_with("good-plan").ok()
    run = the_run()
    assert (run.state, run.usage) == (RunState.COMMITTED, ended.json["usage"])
    assert run.usage["requests"] == run.events.filter(kind="asked").count() > 0
    assert Compaction.objects.get().planner == "scripted/good-plan"


@pytest.mark.parametrize(
    ("asked", "effort", "dry"), [([], "medium", []), (["--thinking", "off"], None, []), ([], "medium", ["--dry-run"])]
)
def test_a_model_thinks_as_the_session_does_unless_a_level_is_named(redline, known_root, provider, asked, effort, dry):
    recorded = working_session()
    level = {"type": "thinking_level_change", "id": "level", "parentId": recorded[-1]["id"], "thinkingLevel": "high"}
    path = place(known_root / "thinks.jsonl", session_bytes([*recorded, level]))
    add_scripted(provider, "good-plan", thinking_levels=["low", "medium"])
    redline.call("compact", path, "--planner", "scripted/good-plan", *asked, *dry, "--json")
    assert {one.body.get("reasoning_effort") for one in provider.requests} == {effort}
    assert {one.thinking for one in Run.objects.all()} == (set() if dry else {effort or ""})


def test_a_provider_that_fails_ends_the_command_and_its_run(compact_with):
    ended = compact_with("wrong-key")
    assert ended.code != 0
    assert the_run().state == RunState.FAILED
    assert the_run().failure.startswith(ended.json["error"]["message"])
    assert the_run().events.filter(kind="ended").exists()


@pytest.fixture
def stalled(redline, path, provider):
    """A command in the middle of its run: its model has deleted something, and sends nothing more."""
    add_scripted(provider, "stalls")
    child = redline.start("compact", path, "--yes", "--planner", "scripted/stalls")
    wait_until(Proposal.objects.exists)
    yield child
    child.kill()
    child.communicate()


def test_the_run_of_a_killed_command_is_interrupted_and_can_be_resumed(path, stalled, clock):
    before = path.read_bytes()
    watch = LeaseWatch(Run)
    assert watch.give_up_dead() == []
    stalled.kill()
    stalled.wait()
    kept = the_run().proposals.count()
    assert clock.watch(watch, 2 * LEASE_SECONDS) == [the_run().pk]
    Run.objects.update(planner="embedded", base_url="")
    resume_run(the_run())
    run = finish_run(the_run())
    assert (run.state, run.events.get(kind="carried").data["kept"]) == (RunState.TARGET_MET, kept)
    assert path.read_bytes() == before


def test_an_interrupt_from_the_terminal_ends_it_and_its_run(stalled):
    stalled.send_signal(signal.SIGINT)
    _, err = stalled.communicate(timeout=WAIT_SECONDS)
    assert (stalled.returncode, err) == (130, "redline: interrupted\n")
    assert the_run().state == RunState.INTERRUPTED
    assert the_run().failure == f"Its worker was stopped. {Run.KEPT}"
