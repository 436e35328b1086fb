"""Promises of runs of the prune planner: wherever a planner is named, it can be chosen, and its plan is reviewed."""

from pathlib import Path

import pytest

from compaction_app.core.states import RunState
from compaction_app.models import Compaction, Run
from compaction_app.runs.automatic import automatic_planner
from sessions_app.index.indexer import index_file
from sessions_app.models import Session
from tests.factories import assistant, call, chain, result, session_bytes, text, user
from tests.files import backdate, place
from tests.html import field, text_of
from tests.installation import override_configuration
from tests.runs import finish_run

SIZES = (12_000, 15_000, 39_000)
GROUP = "Older than the newest 40,000 tokens of tool results"


@pytest.fixture
def path(known_root):
    return written(known_root, *SIZES)


def written(root: Path, *sizes: int) -> Path:
    """A session with a call for each size, whose result has so many tokens, and a long answer at the end."""
    recorded = [user("fix it")]
    for number, tokens in enumerate(sizes):
        output = result(f"c{number}", "x" * 4 * tokens, name="bash")
        recorded += [assistant(call(f"c{number}", "bash", command="make")), output]
    recorded += [assistant(text("so " * 40_000)), user("go on"), assistant(text("done"))]
    return backdate(place(root / "work.jsonl", session_bytes(chain(*recorded))))


def session_at(path: Path) -> Session:
    return index_file(path)


def test_a_plan_from_the_form_is_reviewed_in_one_group(browser, path):
    session = session_at(path)
    form = f"{session.get_absolute_url()}/compact"
    page = browser.get(form, {"planner": "prune"})
    assert field(page, "planner") == "prune"
    assert "Nothing. The prune planner works offline." in text_of(page)
    assert "newest 40,000 tokens of them, if they are at least 20,000 together." in text_of(page)
    assert browser.post(form, {"planner": "prune"}).status_code == 303
    run = finish_run(Run.objects.get())
    assert (run.planner, run.state, run.is_by_llm) == ("prune", RunState.BELOW_TARGET, False)
    assert {row.entry_id for row in run.proposals.all()} == {"e2", "e3", "e4", "e5"}
    assert GROUP in text_of(browser.get(f"/runs/{run.pk}/review"))
    assert "the prune planner works offline" in text_of(browser.get(f"/runs/{run.pk}"))


def test_a_session_with_too_little_to_prune_says_so(browser, known_root):
    session = session_at(written(known_root, 12_000, 39_000))
    assert browser.post(f"{session.get_absolute_url()}/compact", {"planner": "prune"}).status_code == 303
    run = finish_run(Run.objects.get())
    assert (run.state, run.proposals.count()) == (RunState.FAILED, 0)
    assert "could go have about 12,000 tokens. Pruning begins at 20,000" in text_of(browser.get(f"/runs/{run.pk}"))


def test_the_command_prunes_and_needs_the_confirmation_of_a_missed_target(redline, path):
    before = path.read_bytes()
    refused = redline.call("compact", path, "--planner", "prune", "--yes", "--json")
    assert (refused.code, path.read_bytes()) == (3, before)
    written = redline.call("compact", path, "--planner", "prune", "--yes", "--allow-below-target", "--json")
    assert written.code == 0, written
    assert Compaction.objects.get().planner == "prune"
    assert {target["entryId"] for target in written.json["deletedTargets"]} == {"e2", "e3", "e4", "e5"}
    again = redline.call("compact", path, "--planner", "prune", "--dry-run", "--json")
    assert again.code != 0
    assert "could go have about 0 tokens" in again.json["error"]["message"]


def test_it_takes_no_thinking_level(redline, path):
    refused = redline.call("compact", path, "--planner", "prune", "--thinking", "low", "--json")
    assert refused.json["error"]["code"] == "bad_thinking"


def test_it_can_plan_automatically(path, browser):
    with override_configuration(plan_by_itself=True, plan_by_itself_with="prune"):
        assert automatic_planner(session_at(path)).planner == "prune"
        assert "are planned with the prune planner." in text_of(browser.get("/runs/"))
