"""The list of runs: filtered by what waits for a decision and by state, with counts that add up."""

import pytest
from django.test import Client
from django.utils import timezone

from compaction_app.core.states import RunState
from compaction_app.models import Run
from sessions_app.models import Root, Session
from tests.factories import chain, user
from tests.html import element, elements, text_of, texts
from tests.sessions import add_session

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
    return set(texts(browser.get("/runs/", {"show": show}), ".run-state"))


def test_every_filter_shows_its_states_and_each_state_has_one(browser, states):
    for name, expected in SHOWN.items():
        assert sentences(browser, name) == {state.sentence for state in expected}
    assert {state for found in SHOWN.values() for state in found} == set(RunState)
    assert sentences(browser, "") == sentences(browser, "nonsense") == {state.sentence for state in RunState}


def test_the_counts_add_up_to_all_runs(browser, states):
    tabs = dict(one.rsplit(" ", 1) for one in texts(browser.get("/runs/"), ".tabs a"))
    assert tabs == {
        "All": "11",
        "Wait for a decision": "3",
        "At work": "2",
        "Stopped or failed": "3",
        "Committed": "2",
        "Replaced": "1",
    }
    waiting = browser.get("/runs/", {"show": "waiting"})
    assert text_of(element(waiting, ".tabs [aria-current]")) == "Wait for a decision 3"
    assert len(elements(waiting, "tbody tr")) == 3
    assert "wait for a decision" in text_of(element(waiting, "title"))


def test_a_filter_without_runs_says_so_and_leads_to_all(browser, states):
    Run.objects.filter(state__in=SHOWN["waiting"]).delete()
    shown = browser.get("/runs/", {"show": "waiting"})
    assert "Nothing waits for a decision" in text_of(shown)
    assert "Show all runs" in text_of(shown)


def test_pages_keep_the_filter(browser, states):
    run = Run.objects.filter(state=RunState.TARGET_MET)[0]
    for _ in range(60):
        run.pk = None
        run.save()
    links = elements(browser.get("/runs/", {"show": "waiting"}), "a[rel=next]")
    assert [one.attributes["href"] for one in links] == ["?show=waiting&page=2"]


def test_runs_of_a_root_that_is_not_configured_are_not_counted(browser, states):
    Root.objects.update(configured=False)
    assert "0 runs" in text_of(browser.get("/runs/"))
