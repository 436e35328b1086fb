"""Promises of the benchmark: what is tested and sent is shown first, the figures agree, and nothing is executed."""

import json
from pathlib import Path

import pytest

from compaction_app.models import PlannerModel, Provider
from lab_app.lab.experiments import measure_experiment, start_experiment
from lab_app.models import Experiment, MeasuredSession
from lab_app.pure.strategies import KEYS, strategies_named
from sessions_app.index.indexer import index_file
from sessions_app.models import Session
from tests.clients import page
from tests.compaction_app.hostile import TOGETHER
from tests.factories import session_bytes, working_session
from tests.files import place
from tests.html import assert_inert, element, elements, field, link, missing, text_of, values
from tests.lab_app.lab_sessions import worked_session

STEPS = 20
"""Enough for a session of forty messages, and for one cut."""


def add(root: Path, name: str, wish: str = "Go on until it is done.") -> Session:
    return index_file(place(root / name, session_bytes(worked_session(STEPS, wish))))


@pytest.fixture
def session(idle_root):
    return add(idle_root, "long.jsonl")


@pytest.fixture
def experiment(session):
    return measured([session])


def measured(sessions: list[Session], keys: tuple[str, ...] = KEYS) -> Experiment:
    found = start_experiment(sessions, strategies_named(keys), [0.7, 0.5, 0.3])
    measure_experiment(found.pk, "one")
    found.refresh_from_db()
    return found


def test_the_newest_long_sessions_are_measured_by_default(browser, session, idle_root):
    index_file(place(idle_root / "short.jsonl", session_bytes(working_session(steps=3))))
    Session.objects.filter(pk=add(idle_root, "fork.jsonl").pk).update(made_from=str(session.path))
    shown = page(browser, link(page(browser, "/insights/benchmark"), "Test on my sessions…"))
    assert "1 session of 40 messages or more" in text_of(element(shown, "#chosen"))
    chosen = [one.attributes["value"] for one in elements(shown, "input[checked]")]
    assert chosen == [*KEYS, "0.7", "0.5", "0.3"]
    sent = {"newest": "20", "text": "", "strategy": ["embedded"], "keep": ["0.5"], "planner": "none"}
    answered = browser.post("/insights/benchmark/new", sent)
    found = Experiment.objects.get()
    assert (answered.status_code, answered["Location"]) == (303, found.get_absolute_url())
    assert (found.strategies, found.keeps, found.planner) == (["embedded"], [0.5], "")
    assert [one.session for one in found.measured.all()] == [session]


def test_a_text_or_the_page_of_a_session_chooses_among_the_sessions(browser, session, idle_root):
    add(idle_root, "other.jsonl", "Mend the parser.")
    shown = page(browser, "/insights/benchmark/new", text="parser", keep="0.5")
    assert not missing(text_of(element(shown, "#chosen")), "1 session of", "Mend the parser.")
    shown = page(browser, link(page(browser, session.get_absolute_url()), "Measure…"))
    assert values(shown, "session") == [str(session.pk)]
    browser.post("/insights/benchmark/new", {"session": [session.pk], "strategy": ["oldest"], "keep": ["0.5"]})
    assert [one.session for one in MeasuredSession.objects.all()] == [session]


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        ({"keep": []}, "required"),
        ({"strategy": []}, "No strategy is chosen"),
        ({"strategy": ["guess"]}, "guess"),
        ({"text": "nothing like this"}, "No session matches"),
        ({"session": ["99999"]}, "No session matches"),
        ({"newest": "many"}, "whole number"),
        ({"planner": "no/such"}, "no/such"),
    ],
)
def test_what_cannot_be_measured_is_refused_with_what_was_typed(browser, session, sent, words):
    filled = {"newest": "20", "text": "", "strategy": ["embedded"], "keep": ["0.5"], "planner": "none"}
    answered = browser.post("/insights/benchmark/new", {**filled, **sent})
    assert answered.status_code in (409, 422)
    assert words in text_of(answered)
    assert not Experiment.objects.exists()


def test_a_model_is_asked_only_after_its_address_was_shown(browser, session):
    Provider.objects.create(name="own", dialect="openai", base_url="http://models.example:9/v1")
    PlannerModel.objects.create(provider="own", name="m", window=100_000, output_limit=8_000)
    filled = {"newest": "20", "text": "", "strategy": [], "keep": ["0.5", "0.3"], "planner": "own/m"}
    refused = browser.post("/insights/benchmark/new", filled)
    assert refused.status_code == 409
    assert not missing(text_of(element(refused, "#chosen")), "models.example:9", "6 plans")
    assert (
        browser.post("/insights/benchmark/new", {**filled, "disclosed": field(refused, "disclosed")}).status_code == 303
    )
    found = Experiment.objects.get()
    assert (found.planner, found.base_url, found.strategies) == ("own/m", "http://models.example:9/v1", [])


def test_the_page_shows_each_strategy_and_leads_to_the_entries_of_what_was_lost(browser, experiment, session):
    shown = page(browser, experiment.get_absolute_url())
    words = text_of(element(shown, ".loss-table"))
    assert not missing(words, "The least possible", "Built-in planner", "Oldest first", "Old results only, as OpenCode")
    assert len(elements(shown, ".insight-chart__line")) == 6
    assert len(elements(shown, ".insight-chart__line--embedded circle")) == 3
    shown = page(browser, experiment.get_absolute_url(), keep="0.5", strategy="oldest")
    rows = elements(element(shown, "section[aria-labelledby=lost-references]"), "tbody tr")
    assert "src/module_00.py" in text_of(rows[0])
    addresses = [one.attributes["href"] for one in elements(rows[0], "a.ref")]
    assert addresses[1] == f"{session.get_absolute_url()}/entries/e3"
    assert page(browser, str(addresses[0])).status_code == 200


def test_the_share_of_the_details_can_be_chosen_and_no_session_outside_the_roots_is_shown(browser, experiment):
    at = experiment.get_absolute_url()
    current = "nav[aria-label='Share that is kept'] a[aria-current]"
    assert text_of(element(page(browser, at, keep="0.3"), current)) == "keep 30%"
    shown = page(browser, at, keep="x", strategy="<b>", other="999999999999999999999")
    assert text_of(element(shown, current)) == "keep 50%"
    Session.objects.get().root.__class__.objects.update(configured=False)
    assert "Go on until it is done." not in text_of(page(browser, experiment.get_absolute_url()))


def test_two_experiments_are_compared_where_both_measured(browser, session, experiment, idle_root):
    second = measured([session, add(idle_root, "more.jsonl")], ("embedded", "oldest"))
    shown = page(browser, second.get_absolute_url(), other=str(experiment.pk))
    found = element(shown, "section[aria-labelledby=changes]")
    assert "Over the 1 session that both tested" in text_of(found)
    changes = [text_of(one) for one in elements(found, "tbody tr td:last-child")]
    assert (len(changes), set(changes)) == (9, {"+0.0"})


def test_the_exports_have_every_trial_and_the_list_counts_what_was_measured(browser, experiment, session):
    trials = MeasuredSession.objects.get().trials
    at = experiment.get_absolute_url()
    table = browser.get(f"{at}.csv")
    assert table["Content-Disposition"] == f'attachment; filename="redline-benchmark-{experiment.pk}.csv"'
    assert len(table.content.decode().splitlines()) == len(trials) + 1
    document = json.loads(browser.get(f"{at}.json").content)
    assert len(document["sessions"][0]["trials"]) == len(trials)
    assert (document["experiment"], document["state"]) == (experiment.pk, "done")
    start_experiment([session], strategies_named(["oldest"]), [0.5])
    shown = page(browser, "/insights/benchmark")
    rows = [text_of(one) for one in elements(shown, "[aria-labelledby=all] tbody tr")]
    assert not missing(rows[0], "0 of 1", "waiting for a worker")
    assert "tested" in rows[1]
    # The newest that has ended is shown above.
    assert text_of(element(shown, ".lead")).startswith("Keeping half of the tokens, the built-in planner loses ")
    assert len(elements(shown, "aside tbody tr")) == 6
    assert not missing(text_of(element(shown, "aside")), "Tested on", "1 session, 3 cuts")


def test_a_queued_experiment_says_so_and_can_be_stopped(browser, session):
    at = start_experiment([session], strategies_named(KEYS), [0.5]).get_absolute_url()
    assert "Waiting for a worker" in text_of(page(browser, at))
    part = browser.get(at, {"part": "progress"}, headers={"HX-Request": "true"})
    assert text_of(part).startswith("Waiting for a worker")
    assert (browser.post(f"{at}/delete").status_code, browser.post(f"{at}/stop").status_code) == (409, 303)
    assert browser.get(at, {"part": "progress"}, headers={"HX-Request": "true"})["HX-Refresh"] == "true"
    assert browser.post(f"{at}/stop").status_code == 409
    assert (browser.post(f"{at}/delete")["Location"], browser.get(at).status_code) == ("/insights/benchmark", 404)


def test_hostile_texts_are_inert(browser, idle_root):
    found = [add(idle_root, f"{number}.jsonl", words) for number, words in enumerate(TOGETHER)]
    assert_inert(page(browser, measured(found, ("oldest",)).get_absolute_url()))
    for session in found:
        assert_inert(page(browser, "/insights/benchmark/new", session=session.pk))
