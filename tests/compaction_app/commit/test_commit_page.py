"""The commit page writes only what was approved, each danger confirmed, and a conflict keeps the decisions."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.db import connection
from django.test import Client
from django.utils import timezone

from compaction_app.backups.service import RestoreConfirmations, restore
from compaction_app.change_records import record_commit
from compaction_app.commit import change as commit_change
from compaction_app.commit import service as commit_service
from compaction_app.commit.preflight import Confirmations
from compaction_app.commit.service import approval, preflight_of
from compaction_app.core.decisions import Kind
from compaction_app.core.states import RunState
from compaction_app.models import Backup, Compaction, Proposal, Run
from compaction_app.runs.commands import resume_run
from compaction_app.runs.reviews import carried_from, decide
from redline.configuration import RootSetting
from sessions_app.index.indexer import configured_roots, index_file
from sessions_app.sessionlog.errors import SystemFailure
from sessions_app.sessionlog.targets import Target
from sessions_app.storage.append import append_lines
from sessions_app.storage.locks import session_lock
from tests.factories import session_bytes, user, working_session
from tests.files import backdate, place
from tests.html import actions, fields, link, links, text_of, values
from tests.installation import override_configuration, refusal
from tests.plans import context_ids, context_without
from tests.runs import approve_proposals, finish_run, plan_session


@pytest.fixture
def path(known_root: Path) -> Path:
    path = known_root / "work.jsonl"
    path.write_bytes(session_bytes(working_session()))
    return backdate(path)


@pytest.fixture
def run(path: Path) -> Run:
    """A planned run of the session with every proposal approved."""
    return approve_proposals(plan_session(index_file(path)))


class Killed(BaseException):
    """Ends the process: nothing catches it."""


@contextmanager
def no_cleaning_up(run: Run, now: datetime, handshake: int | None = None) -> Iterator[None]:
    """A killed process does not reach the end of a commit."""
    del now, handshake
    run.refresh_from_db()
    yield


def append(path: Path, *entries: dict[str, Any]) -> None:
    with path.open("ab") as file:
        file.writelines(json.dumps(entry).encode() + b"\n" for entry in entries)
    backdate(path)


def commit(browser: Client, run: Run, *confirmations: str, writer: str = "") -> Any:
    """Open the page of a writer, or of the best one, and confirm what it shows."""
    return browser.post(
        f"/runs/{run.pk}/commit",
        {"yes": confirmations, "plan": shown(browser, run, writer), "writer": writer},
    )


def shown(browser: Client, run: Run, writer: str = "") -> str:
    """The digest of the plan that the commit page shows; empty if it shows none."""
    return "".join(fields(browser.get(f"/runs/{run.pk}/commit", {"writer": writer})).get("plan", []))


def plans_again(page: Any, run: Run) -> bool:
    """Whether a page offers to plan the run again."""
    return f"/runs/{run.pk}/again" in actions(page)


def test_the_page_shows_the_line_and_its_place_and_warns_about_an_open_agent(
    browser: Client, run: Run
) -> None:
    answer = browser.get(f"/runs/{run.pk}/commit")
    page = text_of(answer)
    assert answer.status_code == 200
    assert "work.jsonl" in page
    assert ".compact.bak" in page
    assert "Close the session in the agent" in page
    assert values(answer, "yes") == []


def test_one_line_is_appended_after_a_backup_and_the_run_is_committed(
    browser: Client, run: Run, path: Path
) -> None:
    before, kept = path.read_bytes(), context_ids(path)
    answer = commit(browser, run)
    assert (answer.status_code, answer["Location"]) == (303, f"/runs/{run.pk}/result")
    after = path.read_bytes()
    assert after.startswith(before)
    written = json.loads(after[len(before) :])
    assert written["type"] == "context_compaction"
    assert context_ids(path) == context_without(kept, written["deletedTargets"])
    assert Path(written["backupPath"]).read_bytes() == before
    compaction = Compaction.objects.get()
    assert (compaction.run, compaction.entry_id) == (run, written["id"])
    run.refresh_from_db()
    assert run.state == RunState.COMMITTED


def test_only_what_was_approved_is_written(browser: Client, path: Path) -> None:
    run = approve_proposals(plan_session(index_file(path)), first=1)
    commit(browser, run, "below_target")
    written = json.loads(path.read_bytes().splitlines()[-1])
    proposal = run.proposals.filter(source=Proposal.Source.PLANNER).order_by("order")[0]
    assert proposal.entry_id in {target["entryId"] for target in written["deletedTargets"]}
    assert len(written["deletedTargets"]) < run.proposals.count()


def test_the_result_shows_before_and_after_and_the_line(browser: Client, run: Run) -> None:
    commit(browser, run)
    page = text_of(browser.get(f"/runs/{run.pk}/result"))
    assert "recorded by context-compaction" in page
    assert "context_compaction" in page
    assert "Reload the session there" in page


def test_the_result_shows_the_certificate_and_makes_it_again(browser: Client, run: Run) -> None:
    commit(browser, run)
    assert "The agent can continue from it." in text_of(browser.get(f"/runs/{run.pk}/result"))
    first = Compaction.objects.get().certificate
    assert browser.post(f"/runs/{run.pk}/certify")["Location"] == f"/runs/{run.pk}/result"
    assert Compaction.objects.get().certificate["checkedAt"] > first["checkedAt"]
    assert "The agent can continue from it." in text_of(browser.get(f"/runs/{run.pk}/result"))


def test_a_second_commit_of_the_same_run_writes_nothing(browser: Client, run: Run, path: Path) -> None:
    plan = shown(browser, run)
    first = browser.post(f"/runs/{run.pk}/commit", {"plan": plan})
    written = path.read_bytes()
    second = browser.post(f"/runs/{run.pk}/commit", {"plan": plan})
    assert second["Location"] == first["Location"] == f"/runs/{run.pk}/result"
    assert path.read_bytes() == written
    assert Backup.objects.count() == 1


def test_nothing_approved_is_nothing_to_write(browser: Client, path: Path) -> None:
    run = plan_session(index_file(path))
    before = path.read_bytes()
    assert commit(browser, run, "below_target").status_code == 409
    assert path.read_bytes() == before
    assert "Nothing is approved" in text_of(browser.get(f"/runs/{run.pk}/commit"))


# ---- confirmations ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["live", "below_target", "switch_branch", "after_torn_line"])
def test_each_case_needs_its_own_confirmation_and_no_other(
    browser: Client, path: Path, known_root: Path, name: str
) -> None:
    recorded = working_session()
    if name == "switch_branch":
        # Another branch forks early; the agent continues from it.
        recorded.append({**user("another way"), "id": "other", "parentId": "e3"})
        path.write_bytes(session_bytes(recorded))
        backdate(path)
    session = index_file(path)
    first = 1 if name == "below_target" else None
    run = approve_proposals(
        plan_session(session, leaf_id="e27" if name == "switch_branch" else ""), first=first
    )
    if name == "after_torn_line":
        backdate(place(path, path.read_bytes() + b'{"type":"mess'))
    if name == "live":
        os.utime(path)
    before = path.read_bytes()
    assert values(browser.get(f"/runs/{run.pk}/commit"), "yes") == [name]
    others = {"live", "below_target", "not_honoured", "switch_branch", "after_torn_line"} - {name}
    refused = commit(browser, run, *others)
    assert refused.status_code == 422
    assert path.read_bytes() == before
    assert commit(browser, run, name).status_code == 303
    assert path.read_bytes() != before


def test_a_session_of_an_unknown_agent_is_marked_and_appending_needs_a_confirmation(
    browser: Client, path: Path, known_root: Path, settings: Any
) -> None:
    roots = [RootSetting(path=known_root)]
    settings.REDLINE = settings.REDLINE.model_copy(update={"roots": roots})
    configured_roots()
    session = index_file(path)
    run = approve_proposals(plan_session(session))
    page = text_of(browser.get(f"/sessions/{session.root_id}/{session.relative_path}"))
    assert "so this is a guess" in page
    assert "Writer: fork. Writes a new session" in page
    before = path.read_bytes()
    first = browser.get(f"/runs/{run.pk}/commit")
    assert values(first, "yes") == []
    (other,) = (
        address for _, address in links(first) if address.startswith("?writer=") and "fork" not in address
    )
    writer = other.removeprefix("?writer=")
    answer = browser.get(f"/runs/{run.pk}/commit{other}")
    assert values(answer, "yes") == ["not_honoured"]
    assert "it is not known which agent this session belongs to" in text_of(answer)
    assert "so this is a guess" in text_of(answer)
    assert commit(browser, run, writer=writer).status_code == 422
    assert path.read_bytes() == before
    assert commit(browser, run, "not_honoured", writer=writer).status_code == 303
    assert path.read_bytes() != before


def test_a_fork_is_offered_with_the_command_that_continues_it(browser: Client, run: Run, path: Path) -> None:
    before = path.read_bytes()
    page = text_of(browser.get(f"/runs/{run.pk}/commit?writer=fork"))
    assert "a new session is written beside it" in page
    assert "Back up and make the fork" in page
    assert commit(browser, run, writer="fork").status_code == 303
    assert path.read_bytes() == before
    compaction = Compaction.objects.get()
    new = Path(compaction.created)
    assert (compaction.writer, new.parent) == ("fork", path.parent)
    assert json.loads(new.read_bytes().splitlines()[0])["parentSession"] == str(path)
    answer = browser.get(f"/runs/{run.pk}/result")
    assert f"--session {new}" in text_of(answer)
    assert browser.get(link(answer, "Open the new session")).status_code == 200
    # Nothing was removed from the session itself.
    assert link(answer, "Read what was removed") == f"/runs/{run.pk}/undo"
    assert link(answer, "Undo…") == f"/runs/{run.pk}/undo"


def test_a_fork_of_a_live_session_needs_no_confirmation(browser: Client, run: Run, path: Path) -> None:
    os.utime(path)
    assert values(browser.get(f"/runs/{run.pk}/commit?writer=fork"), "yes") == []
    assert commit(browser, run, writer="fork").status_code == 303


def test_a_writer_of_another_agent_is_refused(browser: Client, run: Run, path: Path) -> None:
    before = path.read_bytes()
    answer = browser.get(f"/runs/{run.pk}/commit?writer=context-edit")
    assert "does not honour the writer context-edit" in text_of(answer)
    assert commit(browser, run, writer="context-edit").status_code >= 400
    assert path.read_bytes() == before


# ---- conflicts -------------------------------------------------------------------------------------------


def test_a_session_that_only_grew_is_committed_at_its_new_leaf(browser: Client, run: Run, path: Path) -> None:
    append(path, {**user("and the docs"), "id": "later", "parentId": "e27"})
    assert commit(browser, run).status_code == 303
    assert json.loads(path.read_bytes().splitlines()[-1])["parentId"] == "later"


def test_a_rewritten_session_is_a_conflict_that_offers_to_plan_again(
    browser: Client, run: Run, path: Path
) -> None:
    path.write_bytes(path.read_bytes().replace(b"Step 1.", b"Step X."))
    backdate(path)
    before = path.read_bytes()
    answer = commit(browser, run)
    assert answer.status_code == 409
    assert path.read_bytes() == before
    assert plans_again(answer, run)
    run.refresh_from_db()
    assert run.state == RunState.TARGET_MET


def test_a_session_continued_on_another_branch_is_a_conflict_and_its_decisions_are_kept(
    browser: Client, run: Run, path: Path
) -> None:
    append(path, {**user("another way"), "id": "other", "parentId": "e5"})
    before = path.read_bytes()
    assert commit(browser, run).status_code == 409
    assert path.read_bytes() == before
    answer = browser.post(f"/runs/{run.pk}/again")
    later = Run.objects.get(replaces=run)
    assert answer["Location"] == f"/runs/{later.pk}"
    finish_run(later)
    run.refresh_from_db()
    assert run.state == RunState.SUPERSEDED


def test_a_lock_that_is_not_released_in_time_is_a_conflict(browser: Client, run: Run, path: Path) -> None:
    before = path.read_bytes()
    with override_configuration(lock_seconds=0), session_lock(django_settings.REDLINE_DATA_DIR, path, 1):
        answer = commit(browser, run)
    assert answer.status_code == 409
    assert path.read_bytes() == before


def test_a_compaction_bypassed_by_an_agent_can_be_applied_again_on_its_branch(
    browser: Client, run: Run, path: Path
) -> None:
    commit(browser, run)
    # The agent had the session open: its next line continues from its own leaf.
    append(path, {**user("and the docs"), "id": "later", "parentId": "e27"})
    session = index_file(path)
    page = browser.get(f"/sessions/{session.root_id}/{session.relative_path}")
    assert "is bypassed" in text_of(page)
    assert plans_again(page, run)
    assert "sends to" not in text_of(page)
    Run.objects.filter(pk=run.pk).update(base_url="https://models.example:8443/v1")
    page = browser.get(f"/sessions/{session.root_id}/{session.relative_path}")
    assert "sends to models.example:8443 again" in text_of(page)
    Run.objects.filter(pk=run.pk).update(base_url="")
    browser.post(f"/runs/{run.pk}/again")
    later = Run.objects.get(replaces=run)
    finish_run(later)
    run.refresh_from_db()
    assert run.state == RunState.COMMITTED
    assert commit(browser, later).status_code == 303
    first, second = Compaction.objects.order_by("pk")
    assert second.leaf_id == "later"
    assert [(raw["entryId"], raw.get("blockIndex")) for raw in second.origins] == [
        (raw["entryId"], raw.get("blockIndex")) for raw in first.origins
    ]


# ---- only what was shown --------------------------------------------------------------------------------


def test_confirming_another_plan_than_the_one_shown_writes_nothing(browser: Client, path: Path) -> None:
    run = approve_proposals(plan_session(index_file(path)), first=1)
    plan, before = shown(browser, run), path.read_bytes()
    approve_proposals(run)
    answer = browser.post(f"/runs/{run.pk}/commit", {"yes": ["below_target"], "plan": plan})
    assert answer.status_code == 409
    assert "no longer the one on this page" in text_of(answer)
    assert path.read_bytes() == before
    assert browser.post(f"/runs/{run.pk}/commit").status_code == 409
    assert path.read_bytes() == before


def test_decisions_and_resuming_are_refused_during_a_commit(
    browser: Client, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = approve_proposals(plan_session(index_file(path)))
    Run.objects.filter(pk=run.pk).update(state=RunState.INTERRUPTED)
    refused: list[str] = []
    usual = commit_service.back_up

    def back_up(*arguments: Any) -> Any:
        target = Target(run.proposals.order_by("order")[0].entry_id)
        refused.append(refusal(lambda: decide(run, Kind.REJECT, [target], timezone.now())))
        refused.append(refusal(lambda: resume_run(run)))
        return usual(*arguments)

    monkeypatch.setattr(commit_service, "back_up", back_up)
    assert commit(browser, run).status_code == 303
    assert refused == ["4 being_committed", "4 wrong_state"]
    run.refresh_from_db()
    assert (run.state, run.committing_since) == (RunState.COMMITTED, None)
    assert not run.decisions.filter(kind="reject").exists()


def test_after_a_failed_commit_decisions_are_possible_again(
    browser: Client, run: Run, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise SystemFailure("disk_full", "It does not fit. Nothing was written.")

    before = path.read_bytes()
    with monkeypatch.context() as broken:
        broken.setattr(commit_service, "back_up", fail)
        assert commit(browser, run).status_code == 503
    assert path.read_bytes() == before
    run.refresh_from_db()
    assert (run.state, run.committing_since) == (RunState.TARGET_MET, None)
    assert commit(browser, run).status_code == 303


def test_a_link_in_place_of_a_session_is_never_followed(
    browser: Client, run: Run, path: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.jsonl").write_bytes(path.read_bytes())
    before = (outside / "secret.jsonl").read_bytes()
    path.unlink()
    path.symlink_to(outside / "secret.jsonl")
    for address in ("commit", "review", "transcript.jsonl"):
        assert browser.get(f"/runs/{run.pk}/{address}").status_code == 409, address
    assert browser.post(f"/runs/{run.pk}/commit", {"plan": "x"}).status_code == 409
    session = run.session
    page = browser.get(f"/sessions/{session.root_id}/{session.relative_path}")
    assert page.status_code in (404, 409)
    assert sorted(outside.iterdir()) == [outside / "secret.jsonl"]
    assert (outside / "secret.jsonl").read_bytes() == before


def test_an_entry_id_that_now_names_another_line_is_a_conflict(browser: Client, run: Run, path: Path) -> None:
    proposal = run.proposals.filter(block_index=None).order_by("order")[0]
    recorded = next(
        json.loads(line)
        for line in path.read_bytes().splitlines()
        if f'"{proposal.entry_id}"'.encode() in line[:200]
    )
    append(path, recorded, {**user("and the docs"), "id": "later", "parentId": "e27"})
    before = path.read_bytes()
    assert commit(browser, run).status_code == 409
    assert path.read_bytes() == before


def test_a_side_branch_that_became_the_active_one_is_not_cut_off(browser: Client, path: Path) -> None:
    recorded = [*working_session(), {**user("another way"), "id": "other", "parentId": "e3"}]
    path.write_bytes(session_bytes(recorded))
    backdate(path)
    run = approve_proposals(plan_session(index_file(path), leaf_id="e27"))
    append(path, {**user("back again"), "id": "n1", "parentId": "e27"})
    assert values(browser.get(f"/runs/{run.pk}/commit"), "yes") == []
    assert commit(browser, run).status_code == 303
    assert json.loads(path.read_bytes().splitlines()[-1])["parentId"] == "n1"


def test_a_reader_changed_since_the_plan_is_a_conflict_that_offers_to_plan_again(
    browser: Client, run: Run, path: Path
) -> None:
    before = path.read_bytes()
    session = run.session
    session.reader = "pi"
    session.save()
    answer = browser.get(f"/runs/{run.pk}/commit")
    assert "was planned as atomic-0.8 reads it, and is now read as pi" in text_of(answer)
    assert plans_again(answer, run)
    assert browser.post(f"/runs/{run.pk}/commit", {"plan": "x"}).status_code == 409
    assert path.read_bytes() == before


def test_a_locked_session_offers_no_new_plan(browser: Client, run: Run, path: Path) -> None:
    plan = shown(browser, run)
    with override_configuration(lock_seconds=0), session_lock(django_settings.REDLINE_DATA_DIR, path, 1):
        answer = browser.post(f"/runs/{run.pk}/commit", {"plan": plan})
    assert answer.status_code == 409
    assert not plans_again(answer, run)


def test_an_older_session_version_is_not_planned(browser: Client, known_root: Path) -> None:
    old = known_root / "old.jsonl"
    recorded = working_session()
    recorded[0] = {**recorded[0], "version": 2}
    old.write_bytes(session_bytes(recorded))
    session = index_file(backdate(old))
    answer = browser.post(f"/sessions/{session.root_id}/old.jsonl/compact", {"planner": "embedded"})
    assert answer.status_code == 409
    assert "version 3 copy" in text_of(answer)


def test_a_failed_new_plan_leaves_the_decisions_with_the_old_run(
    browser: Client, run: Run, path: Path
) -> None:
    browser.post(f"/runs/{run.pk}/again")
    later = Run.objects.get(replaces=run)
    away = path.rename(path.with_suffix(".away"))
    finish_run(later)
    run.refresh_from_db()
    assert (later.state, run.state) == (RunState.FAILED, RunState.TARGET_MET)
    away.rename(path)
    assert commit(browser, run).status_code == 303


def test_planning_again_approves_nothing_that_was_not_approved(browser: Client, path: Path) -> None:
    run = plan_session(index_file(path))
    Proposal.objects.create(
        run=run, order=10_000, entry_id="gone", source=Proposal.Source.PLANNER, call=1, tool="context_delete"
    )
    assert carried_from(run).targets == []


# ---- a torn last line, a restore, a kill ------------------------------------------------------------------


def test_a_torn_last_line_is_shown_on_the_form_the_review_and_the_commit_page(
    browser: Client, path: Path
) -> None:
    session = index_file(path)
    run = approve_proposals(plan_session(session))
    form = f"/sessions/{session.root_id}/{session.relative_path}/compact"
    pages = (form, f"/runs/{run.pk}/review", f"/runs/{run.pk}/commit")
    for page in pages:
        assert "a torn line of" not in text_of(browser.get(page))
    size = path.stat().st_size
    place(path, path.read_bytes() + b'{"type":"mess')
    for page in pages:
        assert f"a torn line of 13 bytes, from byte {size:,} on" in text_of(browser.get(page)), page


def test_a_run_is_shown_as_restored_until_the_restore_is_taken_back(browser: Client, run: Run) -> None:
    commit(browser, run)
    backup = Path(Compaction.objects.get().backup.path)

    def pages() -> dict[str, str]:
        names = {"list": "/runs/", "run": f"/runs/{run.pk}", "result": f"/runs/{run.pk}/result"}
        found = {name: browser.get(address, follow=True) for name, address in names.items()}
        assert f"/runs/{run.pk}/result" in [address for _, address in links(found["run"])]
        return {name: text_of(page) for name, page in found.items()}

    assert not [name for name, page in pages().items() if "taken back" in page]
    way_back = restore(backup, RestoreConfirmations(), timezone.now()).previous_backup
    run.refresh_from_db()
    assert run.state == RunState.RESTORED
    after = pages()
    assert [name for name, page in after.items() if "taken back" in page] == list(after)
    assert "recorded by context-compaction" not in after["result"]
    assert "every recorded byte is still in the file" not in after["result"]
    assert "Reload the session there" not in after["result"]
    assert way_back is not None
    restore(way_back.path, RestoreConfirmations(), timezone.now())
    run.refresh_from_db()
    assert run.state == RunState.COMMITTED
    assert not [name for name, page in pages().items() if "taken back" in page]


def test_a_restored_run_can_be_planned_again_with_its_decisions(browser: Client, run: Run) -> None:
    commit(browser, run)
    first = Compaction.objects.get()
    restore(Path(first.backup.path), RestoreConfirmations(), timezone.now())
    assert plans_again(browser.get(f"/runs/{run.pk}/result"), run)
    browser.post(f"/runs/{run.pk}/again")
    later = Run.objects.get(replaces=run)
    finish_run(later)
    assert commit(browser, later).status_code == 303
    run.refresh_from_db()
    assert run.state == RunState.RESTORED
    assert Compaction.objects.latest("pk").origins[0]["entryId"] == first.origins[0]["entryId"]


@pytest.mark.parametrize("page", ["", "/commit", "/review", "/result"])
def test_a_page_of_a_run_whose_commit_was_killed_shows_what_was_written(
    browser: Client, run: Run, path: Path, page: str
) -> None:
    def write_and_die(fd: int, payload: bytes) -> int:
        os.write(fd, payload)
        raise Killed

    now, before = timezone.now(), path.read_bytes()
    seen = preflight_of(approval(run), now).digest()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(commit_change, "append_lines", partial(append_lines, write=write_and_die))
        patch.setattr(commit_service, "block_decisions", no_cleaning_up)
        with pytest.raises(Killed):
            commit_service.commit_run(run, Confirmations(), seen, now)
    Run.objects.filter(pk=run.pk).update(committing_since=now)
    assert path.read_bytes() != before
    assert not Compaction.objects.exists()
    answer = browser.get(f"/runs/{run.pk}{page}", follow=True)
    assert Compaction.objects.get().run == run
    addresses = [address for _, address in links(answer)]
    assert f"/runs/{run.pk}/result" in addresses or "recorded by context-compaction" in text_of(answer)
    assert "Nothing was written" not in text_of(answer)
    run.refresh_from_db()
    assert (run.state, run.committing_since) == (RunState.COMMITTED, None)


@pytest.fixture
def other_writer(path: Path) -> Iterator[sqlite3.Connection]:
    """Another connection to the database, while this process waits only a moment for it."""
    connection.close()
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(connection.settings_dict["OPTIONS"], "timeout", 0.05)
        with closing(sqlite3.connect(str(connection.settings_dict["NAME"]), isolation_level=None)) as other:
            yield other
        connection.close()


def test_a_busy_database_after_the_append_does_not_hide_the_written_line(
    browser: Client, run: Run, path: Path, other_writer: sqlite3.Connection
) -> None:
    before, plan = path.read_bytes(), shown(browser, run)

    def record_too_late(*arguments: Any) -> None:
        other_writer.execute("BEGIN IMMEDIATE")
        record_commit(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(commit_service, "record_commit", record_too_late)
        answer = browser.post(f"/runs/{run.pk}/commit", {"plan": plan})
    page = text_of(answer)
    assert path.read_bytes() != before
    assert (answer.status_code, "was written" in page) == (503, True)
    assert "Nothing was written" not in page
    other_writer.execute("ROLLBACK")
    assert "recorded by context-compaction" in text_of(browser.get(f"/runs/{run.pk}/result"))
    run.refresh_from_db()
    assert (run.state, run.committing_since) == (RunState.COMMITTED, None)


def test_pages_of_an_interrupted_commit_work_while_the_database_is_busy(
    browser: Client, run: Run, path: Path, other_writer: sqlite3.Connection
) -> None:
    def write_and_die(fd: int, payload: bytes) -> int:
        os.write(fd, payload)
        raise Killed

    seen = preflight_of(approval(run), timezone.now()).digest()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(commit_change, "append_lines", partial(append_lines, write=write_and_die))
        with pytest.raises(Killed):
            commit_service.commit_run(run, Confirmations(), seen, timezone.now())
    other_writer.execute("BEGIN IMMEDIATE")
    address = f"/sessions/{run.session.root_id}/{run.session.relative_path}"
    assert browser.get(address).status_code == 200
    assert not Compaction.objects.exists()
    other_writer.execute("ROLLBACK")
    assert browser.get(address).status_code == 200
    assert Compaction.objects.get().run == run
