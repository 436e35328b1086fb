"""Runs of the prune planner, the list of runs with its filters, and the objects of a review that stay opened."""

from datetime import timedelta
from pathlib import Path

import pytest
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
    assert "Nothing leaves this machine. It deletes tool results with their calls, and nothing else" in text_of(page)
    assert "newest 40,000 tokens of them, if they are at least 20,000 together." in text_of(page)
    assert browser.post(form, {"planner": "prune"}).status_code == 303
    run = finish_run(Run.objects.get())
    assert (run.planner, run.state, run.is_by_llm) == ("prune", RunState.BELOW_TARGET, False)
    assert {row.entry_id for row in run.proposals.all()} == {"e2", "e3", "e4", "e5"}
    assert "Older than the newest 40,000 tokens of tool results" in text_of(browser.get(f"/plans/{run.pk}"))
    assert "the built-in planner works offline" in text_of(browser.get(f"/plans/{run.pk}/log"))


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


SHOWN = {"": 5, "running": 2, "done": 4}
"""The tabs of the inbox, and how many of `states` each shows."""


@pytest.fixture
def states(idle_root):
    """A session with a run in each state, and one more whose plan is ready."""
    for number, state in enumerate((*RunState, RunState.TARGET_MET)):
        add_session(idle_root, f"{number}.jsonl", chain(user("Mend it.")))
        session = Session.objects.latest("pk")
        Run.objects.create(session=session, planner="embedded", state=state, created_at=timezone.now())


def test_every_run_of_a_configured_root_is_in_one_tab_of_the_inbox(browser, states):
    found: list[str] = []
    for show, number in SHOWN.items():
        rows = elements(browser.get("/inbox", {"show": show}), ".inbox__row")
        assert len(rows) == number, show
        found += [str(row.id) for row in rows]
    assert sorted(found) == sorted(f"run-{run.pk}" for run in Run.objects.all())
    page = browser.get("/inbox", {"show": "nonsense"})
    assert texts(page, ".tabs a") == ["Needs you 5", "Running 2", "Done 4"]
    assert texts(page, ".list-head .facts span") == ["3 plans are ready", "2 failed"]
    assert text_of(element(page, "#waiting")).startswith("5 ")
    Root.objects.update(configured=False)
    page = browser.get("/inbox")
    assert texts(page, ".tabs a") == ["Needs you 0", "Running 0", "Done 0"]
    assert "No plans yet" in text_of(page)


def test_pages_keep_the_tab_and_an_empty_inbox_shows_what_was_done_last(browser, states):
    run = Run.objects.get(state=RunState.COMMITTED)
    for _ in range(60):
        run.pk = None
        run.save()
    links = elements(browser.get("/inbox", {"show": "done"}), "a[rel=next]")
    assert [one.attributes["href"] for one in links] == ["?show=done&page=2"]
    Run.objects.exclude(state=RunState.COMMITTED).delete()
    shown = browser.get("/inbox")
    assert not missing(text_of(shown), "Nothing needs you.", "Done last")
    assert len(elements(shown, ".inbox__row")) == 3
