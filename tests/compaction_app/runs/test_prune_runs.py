"""Runs of the prune planner, the list of runs with its filters, and the objects of a review that stay opened."""

from datetime import timedelta
from pathlib import Path

import pytest
from django.test import Client
from django.utils import timezone

from compaction_app.core.states import RunState
from compaction_app.models import Compaction, Run
from compaction_app.runs.automatic import automatic_planner
from compaction_app.runs.commands import opened_targets, record_opened
from sessions_app.index.indexer import index_file
from sessions_app.models import Root, Session
from sessions_app.sessionlog.entries import Target
from tests.factories import assistant, call, chain, result, session_bytes, text, user
from tests.files import backdate, place
from tests.html import element, elements, field, missing, text_of, texts
from tests.installation import override_configuration
from tests.runs import finish_run, plan_session
from tests.sessions import add_session


@pytest.fixture
def path(known_root):
    return written(known_root, *(12_000, 15_000, 39_000))


def written(root: Path, *sizes: int) -> Path:
    """A session with a call for each size, whose result has so many tokens, and a long answer at the end."""
    recorded = [user("fix it")]
    for number, tokens in enumerate(sizes):
        output = result(f"c{number}", "x" * 4 * tokens, name="bash")
        recorded += [assistant(call(f"c{number}", "bash", command="make")), output]
    recorded += [assistant(text("so " * 40_000)), user("go on"), assistant(text("done"))]
    return backdate(place(root / "work.jsonl", session_bytes(chain(*recorded))))


def test_a_plan_from_the_form_is_reviewed_in_one_group(browser, path):
    form = f"{index_file(path).get_absolute_url()}/compact"
    page = browser.get(form, {"planner": "prune"})
    assert field(page, "planner") == "prune"
    assert "Nothing. The prune planner works offline." in text_of(page)
    assert "newest 40,000 tokens of them, if they are at least 20,000 together." in text_of(page)
    assert browser.post(form, {"planner": "prune"}).status_code == 303
    run = finish_run(Run.objects.get())
    assert (run.planner, run.state, run.is_by_llm) == ("prune", RunState.BELOW_TARGET, False)
    assert {row.entry_id for row in run.proposals.all()} == {"e2", "e3", "e4", "e5"}
    assert "Older than the newest 40,000 tokens of tool results" in text_of(browser.get(f"/plans/{run.pk}"))
    assert "the prune planner works offline" in text_of(browser.get(f"/plans/{run.pk}/log"))


def test_a_session_with_too_little_to_prune_says_so(browser, known_root):
    session = index_file(written(known_root, 12_000, 39_000))
    assert browser.post(f"{session.get_absolute_url()}/compact", {"planner": "prune"}).status_code == 303
    run = finish_run(Run.objects.get())
    assert (run.state, run.proposals.count()) == (RunState.FAILED, 0)
    assert "could be deleted have about 12,000 tokens. The least is 20,000" in text_of(
        browser.get(f"/plans/{run.pk}/log")
    )


def test_the_command_prunes_without_a_thinking_level_once_a_missed_target_is_confirmed(redline, path):
    before = path.read_bytes()
    refused = redline.call("compact", path, "--planner", "prune", "--yes", "--json")
    assert (refused.code, path.read_bytes()) == (3, before)
    written = redline.call("compact", path, "--planner", "prune", "--yes", "--allow-below-target", "--json").ok()
    assert Compaction.objects.get().planner == "prune"
    assert {target["entryId"] for target in written.json["deletedTargets"]} == {"e2", "e3", "e4", "e5"}
    again = redline.call("compact", path, "--planner", "prune", "--dry-run", "--json")
    assert again.code != 0
    assert "could be deleted have about 0 tokens" in again.json["error"]["message"]
    assert redline.call("compact", path, "--planner", "prune", "--thinking", "low", "--json").error == "bad_thinking"


def test_it_can_plan_automatically(path, browser):
    with override_configuration(plan_by_itself=True, plan_by_itself_with="prune"):
        assert automatic_planner(index_file(path)).planner == "prune"
        assert "are planned with the prune planner." in text_of(browser.get("/inbox"))


ENTRY, BLOCK = Target("e3"), Target("e4", 0)


def test_opened_entries_and_blocks_are_remembered_since_the_first_time(session):
    run = plan_session(session)
    assert opened_targets(run) == frozenset()
    first = timezone.now()
    record_opened(run, [ENTRY, BLOCK, ENTRY], first)
    record_opened(run, [ENTRY], first + timedelta(minutes=1))
    assert opened_targets(run) == {ENTRY, BLOCK}
    assert [opening.at for opening in run.openings.all()] == [first, first]
    assert opened_targets(plan_session(run.session)) == frozenset(), "another run of the session"


SHOWN = {
    "waiting": {RunState.TARGET_MET, RunState.BELOW_TARGET},
    "active": {RunState.QUEUED, RunState.RUNNING},
    "stopped": {RunState.CANCELLED, RunState.INTERRUPTED, RunState.FAILED},
    "written": {RunState.COMMITTED, RunState.RESTORED},
    "replaced": {RunState.SUPERSEDED},
}


@pytest.fixture
def states(idle_root):
    """One run in each state, and two that wait."""
    add_session(idle_root, "a.jsonl", chain(user("Mend it.")))
    session = Session.objects.get()
    for state in (*RunState, RunState.TARGET_MET):
        Run.objects.create(session=session, planner="embedded", state=state, created_at=timezone.now())


def sentences(browser: Client, show: str) -> set[str]:
    return set(texts(browser.get("/inbox", {"show": show}), ".run-state"))


def test_every_filter_shows_its_states_and_the_counts_add_up_to_all_runs_of_configured_roots(browser, states):
    for name, expected in SHOWN.items():
        assert sentences(browser, name) == {state.sentence for state in expected}
    assert {state for found in SHOWN.values() for state in found} == set(RunState)
    assert sentences(browser, "") == sentences(browser, "nonsense") == {state.sentence for state in RunState}
    tabs = ["All 11", "Wait for a decision 3", "At work 2", "Stopped or failed 3", "Committed 2", "Replaced 1"]
    assert texts(browser.get("/inbox"), ".tabs a") == tabs
    waiting = browser.get("/inbox", {"show": "waiting"})
    assert text_of(element(waiting, ".tabs [aria-current]")) == "Wait for a decision 3"
    assert len(elements(waiting, "tbody tr")) == 3
    assert "wait for a decision" in text_of(element(waiting, "title"))
    Root.objects.update(configured=False)
    assert "0 runs" in text_of(browser.get("/inbox"))


def test_pages_keep_the_filter_and_one_without_runs_leads_to_all(browser, states):
    run = Run.objects.filter(state=RunState.TARGET_MET)[0]
    for _ in range(60):
        run.pk = None
        run.save()
    links = elements(browser.get("/inbox", {"show": "waiting"}), "a[rel=next]")
    assert [one.attributes["href"] for one in links] == ["?show=waiting&page=2"]
    Run.objects.filter(state__in=SHOWN["waiting"]).delete()
    shown = browser.get("/inbox", {"show": "waiting"})
    assert not missing(text_of(shown), "Nothing waits for a decision", "Show all runs")
