"""Promises of the commit: what was approved and nothing else, each yes by itself, conflicts that keep decisions."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.test import Client
from django.utils import timezone

from compaction_app.deletion.review import Kind
from compaction_app.deletion.states import State
from compaction_app.deletion.targets import Target
from compaction_app.models import Backup, Compaction, Proposal, Run
from compaction_app.services.reviewing import decide
from compaction_app.services.running import work
from compaction_app.services.runs import worker_name
from compaction_app.services.starting import start_run
from sessions_app.appending import session_lock
from sessions_app.models import Session
from sessions_app.services.indexing import index_file
from tests.building import raw, user
from tests.running import configured, kept_ids, quiet, without, working_session

pytest_plugins = ["tests.running", "tests.browsing"]


@pytest.fixture
def path(known_root: Path) -> Path:
    path = known_root / "work.jsonl"
    path.write_bytes(raw(working_session()))
    return quiet(path)


@pytest.fixture
def run(path: Path) -> Run:
    """A run that was planned on the session, with everything it proposes approved."""
    return approve(planned(index_file(path)))


def planned(session: Session, **more: Any) -> Run:
    run = start_run(session, planner="embedded", asked={}, **more)
    work(run.pk, worker_name())
    run.refresh_from_db()
    return run


def approve(run: Run, *, first: int | None = None) -> Run:
    proposals = run.proposals.filter(source=Proposal.PLANNER).order_by("order")[:first]
    targets = [Target(row.entry_id, row.block_index) for row in proposals]
    decide(run, Kind.APPROVE, targets, timezone.now())
    return run


def append(path: Path, *entries: dict[str, Any]) -> None:
    with path.open("ab") as file:
        file.writelines(json.dumps(entry).encode() + b"\n" for entry in entries)
    quiet(path)


def commit(browser: Client, run: Run, *yeses: str) -> Any:
    return browser.post(f"/runs/{run.pk}/commit", {"yes": yeses})


def test_the_page_says_what_is_written_and_where_and_what_an_open_agent_does(
    browser: Client, run: Run
) -> None:
    answer = browser.get(f"/runs/{run.pk}/commit")
    page = answer.content.decode()
    assert answer.status_code == 200
    assert "work.jsonl" in page
    assert ".compact.bak" in page
    assert "Close the session in the agent" in page
    assert 'name="yes"' not in page


def test_one_line_is_appended_after_a_backup_and_the_run_is_committed(
    browser: Client, run: Run, path: Path
) -> None:
    before, kept = path.read_bytes(), kept_ids(path)
    answer = commit(browser, run)
    assert (answer.status_code, answer["Location"]) == (302, f"/runs/{run.pk}/result")
    after = path.read_bytes()
    assert after.startswith(before)
    written = json.loads(after[len(before) :])
    assert written["type"] == "context_compaction"
    assert kept_ids(path) == without(kept, written["deletedTargets"])
    assert Path(written["backupPath"]).read_bytes() == before
    compaction = Compaction.objects.get()
    assert (compaction.run, compaction.entry_id) == (run, written["id"])
    run.refresh_from_db()
    assert run.state == State.COMMITTED


def test_only_what_was_approved_is_written(browser: Client, path: Path) -> None:
    run = approve(planned(index_file(path)), first=1)
    commit(browser, run, "below_target")
    written = json.loads(path.read_bytes().splitlines()[-1])
    proposal = run.proposals.filter(source=Proposal.PLANNER).order_by("order")[0]
    assert proposal.entry_id in {target["entryId"] for target in written["deletedTargets"]}
    assert len(written["deletedTargets"]) < run.proposals.count()


def test_the_result_shows_before_and_after_and_the_line(browser: Client, run: Run) -> None:
    commit(browser, run)
    page = browser.get(f"/runs/{run.pk}/result").content.decode()
    assert "one line appended" in page
    assert "context_compaction" in page
    assert "Reload the session there" in page


def test_a_second_commit_of_the_same_run_writes_nothing(browser: Client, run: Run, path: Path) -> None:
    commit(browser, run)
    written = path.read_bytes()
    assert commit(browser, run).status_code == 409
    assert path.read_bytes() == written
    assert Backup.objects.count() == 1


def test_nothing_approved_is_nothing_to_write(browser: Client, path: Path) -> None:
    run = planned(index_file(path))
    before = path.read_bytes()
    assert commit(browser, run, "below_target").status_code == 409
    assert path.read_bytes() == before
    assert "Nothing is approved" in browser.get(f"/runs/{run.pk}/commit").content.decode()


# ---- explicit yeses --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["live", "below_target", "not_honoured", "switch_branch"])
def test_each_case_asks_for_its_own_yes_and_takes_no_other(
    browser: Client, path: Path, known_root: Path, name: str
) -> None:
    recorded = working_session()
    if name == "switch_branch":
        # Another branch leaves early, and is the one that the agent continues from.
        recorded.append({**user("another way"), "id": "other", "parentId": "e3"})
        path.write_bytes(raw(recorded))
        quiet(path)
    session = index_file(path)
    if name == "not_honoured":
        session.reader = "pi"
        session.save()
    first = 1 if name == "below_target" else None
    run = approve(planned(session, leaf_id="e27" if name == "switch_branch" else ""), first=first)
    if name == "live":
        os.utime(path)
    before = path.read_bytes()
    page = browser.get(f"/runs/{run.pk}/commit").content.decode()
    assert page.count('name="yes"') == 1
    assert f'value="{name}"' in page
    others = {"live", "below_target", "not_honoured", "switch_branch"} - {name}
    refused = commit(browser, run, *others)
    assert refused.status_code == 409
    assert path.read_bytes() == before
    assert commit(browser, run, name).status_code == 302
    assert path.read_bytes() != before


# ---- conflicts -------------------------------------------------------------------------------------------


def test_a_session_that_only_grew_is_committed_where_it_stands(browser: Client, run: Run, path: Path) -> None:
    append(path, {**user("and the docs"), "id": "later", "parentId": "e27"})
    assert commit(browser, run).status_code == 302
    assert json.loads(path.read_bytes().splitlines()[-1])["parentId"] == "later"


def test_a_rewritten_session_is_a_conflict_that_offers_to_plan_again(
    browser: Client, run: Run, path: Path
) -> None:
    path.write_bytes(path.read_bytes().replace(b"Step 1.", b"Step X."))
    quiet(path)
    before = path.read_bytes()
    answer = commit(browser, run)
    page = answer.content.decode()
    assert answer.status_code == 409
    assert path.read_bytes() == before
    assert f'action="/runs/{run.pk}/again"' in page
    run.refresh_from_db()
    assert run.state == State.TARGET_MET


def test_a_session_that_went_on_elsewhere_is_a_conflict_and_planning_again_keeps_the_decisions(
    browser: Client, run: Run, path: Path
) -> None:
    append(path, {**user("another way"), "id": "other", "parentId": "e5"})
    before = path.read_bytes()
    assert commit(browser, run).status_code == 409
    assert path.read_bytes() == before
    answer = browser.post(f"/runs/{run.pk}/again")
    later = Run.objects.get(replaces=run)
    assert answer["Location"] == f"/runs/{later.pk}"
    run.refresh_from_db()
    assert run.state == State.SUPERSEDED


def test_a_wait_for_the_lock_that_is_too_long_is_said(browser: Client, run: Run, path: Path) -> None:
    before = path.read_bytes()
    with configured(lock_seconds=0), session_lock(settings.REDLINE_DATA_DIR, path, 1):
        answer = commit(browser, run)
    assert answer.status_code == 409
    assert path.read_bytes() == before


def test_a_plan_that_an_agent_went_past_can_be_applied_again_where_it_went(
    browser: Client, run: Run, path: Path
) -> None:
    commit(browser, run)
    # The agent had the session open: its next line continues from its own leaf.
    append(path, {**user("and the docs"), "id": "later", "parentId": "e27"})
    session = index_file(path)
    page = browser.get(f"/sessions/{session.root_id}/{session.relative_path}").content.decode()
    assert "is bypassed" in page
    assert f'action="/runs/{run.pk}/again"' in page
    browser.post(f"/runs/{run.pk}/again")
    later = Run.objects.get(replaces=run)
    work(later.pk, worker_name())
    run.refresh_from_db()
    assert run.state == State.COMMITTED
    assert commit(browser, later).status_code == 302
    first, second = Compaction.objects.order_by("pk")
    assert second.leaf_id == "later"
    assert [(raw["entryId"], raw.get("blockIndex")) for raw in second.origins] == [
        (raw["entryId"], raw.get("blockIndex")) for raw in first.origins
    ]
