"""The commit page writes only what was approved, each danger confirmed, and a conflict keeps the decisions."""

import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from django.conf import settings as django_settings
from django.db import connection
from django.test import Client
from django.utils import timezone

from compaction_app.changes import change as changes, compaction, records
from compaction_app.changes.backups import restore
from compaction_app.changes.change import Confirmations
from compaction_app.changes.records import record
from compaction_app.core.review_fold import Kind
from compaction_app.core.states import RunState
from compaction_app.models import Backup, Compaction, Proposal, Run
from compaction_app.runs.commands import resume_run
from compaction_app.runs.reviews import carried_from, decide
from sessions_app.index.indexer import index_file
from sessions_app.sessionlog.entries import Target
from sessions_app.sessionlog.errors import SystemFailure
from sessions_app.storage.append import append_lines
from sessions_app.storage.locks import session_lock
from tests.factories import session_bytes, user, working_session
from tests.files import place
from tests.html import actions, element, elements, fields, link, links, missing, text_of, values
from tests.installation import override_configuration, refusal
from tests.plans import context_ids, context_without
from tests.runs import approve_proposals, commit_approved, finish_run, plan_session
from tests.sessions import use_root

LATER = {**user("and the docs"), "id": "later", "parentId": "e27"}


class Work:
    """A session, and the pages of a run on it."""

    def __init__(self, browser: Client, path: Path) -> None:
        self.browser, self.path = browser, path
        self.before = path.read_bytes()

    def plan(self, first: int | None = None, leaf_id: str = "") -> None:
        """Plan a run of which the first proposals are approved, or all."""
        self.run = plan_session(index_file(self.path), leaf_id=leaf_id)
        if first != 0:
            approve_proposals(self.run, first=first)

    @property
    def url(self) -> str:
        return f"/plans/{self.run.pk}"

    @property
    def session_url(self) -> str:
        return self.run.session.get_absolute_url()

    def page(self, name: str = "/confirm", **query: str) -> Any:
        return self.browser.get(f"{self.url}{name}", query, follow=True)

    def shown(self, writer: str = "") -> str:
        """The digest of the plan that the commit page shows; empty if it shows none."""
        return "".join(fields(self.page(writer=writer)).get("plan", []))

    def post(self, **sent: Any) -> Any:
        return self.browser.post(f"{self.url}/confirm", sent)

    def commit(self, *confirmations: str, writer: str = "") -> Any:
        """Open the page of a writer, or of the best one, and confirm what it shows, unopened."""
        return self.post(yes=["unopened", *confirmations], plan=self.shown(writer), writer=writer)

    def commits(self, *confirmations: str, writer: str = "") -> None:
        assert self.commit(*confirmations, writer=writer).status_code == 303

    def refuses(self, answer: Any, status: int = 409) -> Any:
        """The answer, which says that nothing was written."""
        assert (answer.status_code, self.path.read_bytes()) == (status, self.before)
        return answer

    def append(self, *entries: dict[str, Any]) -> None:
        place(self.path, self.path.read_bytes() + session_bytes(entries))
        self.before = self.path.read_bytes()

    def last_line(self) -> Any:
        return json.loads(self.path.read_bytes().splitlines()[-1])

    def state(self) -> tuple[str, datetime | None]:
        """The state of the run, and since when it is being committed."""
        self.run.refresh_from_db()
        return str(self.run.state), self.run.committing_since

    def planned_again(self) -> Run:
        answer = self.browser.post(f"{self.url}/again")
        later = Run.objects.get(replaces=self.run)
        assert answer["Location"] == f"/plans/{later.pk}/log"
        return later

    def plans_again(self, page: Any) -> bool:
        """Whether a page offers to plan the run again."""
        return f"{self.url}/again" in actions(page)


@pytest.fixture
def session(browser, known_root):
    """A session without a run."""
    return Work(browser, place(known_root / "work.jsonl", session_bytes(working_session())))


@pytest.fixture
def work(session):
    """A session with a run of which every proposal is approved."""
    session.plan()
    return session


class Killed(BaseException):
    """Ends the process: nothing catches it."""


@contextmanager
def no_cleaning_up(run: Run, now: datetime, handshake: int | None = None) -> Iterator[None]:
    """A killed process does not reach the end of a commit."""
    del now, handshake
    run.refresh_from_db()
    yield


def write_and_die(fd: int, payload: bytes) -> int:
    os.write(fd, payload)
    raise Killed


def commit_killed_after_its_write(work: Work, *, is_blocking: bool) -> None:
    """With `is_blocking`, decisions on the run stay blocked, as a killed process leaves them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(changes, "append_lines", partial(append_lines, write=write_and_die))
        if is_blocking:
            patch.setattr(compaction, "block_decisions", no_cleaning_up)
        with pytest.raises(Killed):
            commit_approved(work.run)
    if is_blocking:
        Run.objects.filter(pk=work.run.pk).update(committing_since=timezone.now())
    assert work.path.read_bytes() != work.before
    assert not Compaction.objects.exists()


def test_one_line_is_appended_after_a_backup_and_the_result_shows_it_and_certifies_it_again(work):
    kept, page = context_ids(work.path), text_of(work.page())
    assert not missing(page, "work.jsonl", ".compact.bak", "Close the session in the agent")
    answer = work.commit()
    assert (answer.status_code, answer["Location"]) == (303, f"{work.url}/result")
    after = work.path.read_bytes()
    assert after.startswith(work.before)
    written = json.loads(after[len(work.before) :])
    assert written["type"] == "context_compaction"
    assert context_ids(work.path) == context_without(kept, written["deletedTargets"])
    assert Path(written["backupPath"]).read_bytes() == work.before
    compacted = Compaction.objects.get()
    assert (compacted.run, compacted.entry_id) == (work.run, written["id"])
    assert work.state() == (RunState.COMMITTED, None)
    page = text_of(work.page("/result"))
    certified = "Atomic can continue from this"
    assert not missing(page, "as an edit in this session", "context_compaction", "reload it there", certified)
    first = compacted.certificate
    assert work.browser.post(f"{work.url}/certify")["Location"] == f"{work.url}/result"
    assert Compaction.objects.get().certificate["checkedAt"] > first["checkedAt"]
    assert certified in text_of(work.page("/result"))


def test_only_what_was_approved_is_written(session):
    session.plan(first=1)
    assert values(session.page(), "yes") == ["unopened", "below_target"]
    session.commits("below_target")
    deleted = {target["entryId"] for target in session.last_line()["deletedTargets"]}
    assert session.run.proposals.filter(source=Proposal.Source.PLANNER).order_by("order")[0].entry_id in deleted
    assert len(session.last_line()["deletedTargets"]) < session.run.proposals.count()


def test_a_second_commit_of_the_same_run_writes_nothing(work):
    plan = work.shown()
    first, written = work.post(plan=plan, yes=["unopened"]), work.path.read_bytes()
    assert work.post(plan=plan)["Location"] == first["Location"] == f"{work.url}/result"
    assert work.path.read_bytes() == written
    assert Backup.objects.count() == 1


def test_nothing_approved_is_nothing_to_write(session):
    session.plan(first=0)
    session.refuses(session.commit("below_target"))
    assert "Nothing is approved" in text_of(session.page())


@pytest.mark.parametrize("name", ["live", "below_target", "switch_branch", "after_torn_line"])
def test_each_case_needs_its_own_confirmation_and_no_other(session, name):
    if name == "switch_branch":  # another branch forks early; the agent continues from it
        session.append({**user("another way"), "id": "other", "parentId": "e3"})
    session.plan(first=1 if name == "below_target" else None, leaf_id="e27" if name == "switch_branch" else "")
    if name == "after_torn_line":
        place(session.path, session.path.read_bytes() + b'{"type":"mess')
    if name == "live":
        os.utime(session.path)
    session.before = session.path.read_bytes()
    assert values(session.page(), "yes") == ["unopened", name]
    others = {"live", "below_target", "not_honoured", "switch_branch", "after_torn_line"} - {name}
    refused = session.refuses(session.commit(*others), 422)
    (ticked,) = elements(refused, "[autofocus]")
    assert (ticked.id, ticked.attributes["aria-invalid"]) == (f"yes-{name}", "true")
    sentence = text_of(element(refused, f"label[for=yes-{name}]"))
    assert link(element(refused, "[role=alert]"), sentence) == f"#yes-{name}"
    session.commits(name)
    assert session.path.read_bytes() != session.before


def test_a_session_of_an_unknown_agent_is_marked_and_appending_needs_a_confirmation(session, settings):
    use_root(settings, session.path.parent, None)
    session.plan()
    page = text_of(session.browser.get(session.session_url))
    assert "Opened as" in page
    assert "guess" in page
    first = session.page()
    assert values(first, "yes") == ["unopened"]
    offered = [one.removeprefix("?writer=") for _, one in links(first) if one.startswith("?writer=")]
    (writer,) = (one for one in offered if "fork" not in one)
    answer = session.page(writer=writer)
    assert values(answer, "yes") == ["unopened", "not_honoured"]
    assert not missing(text_of(answer), "it is not known which agent this session belongs to", "so this is a guess")
    session.refuses(session.commit(writer=writer), 422)
    session.commits("not_honoured", writer=writer)
    assert session.path.read_bytes() != session.before


def test_a_fork_is_offered_with_the_command_that_continues_it(work):
    os.utime(work.path)
    page = work.page(writer="fork")
    assert values(page, "yes") == ["unopened"], "a session that is live can be saved as a new one"
    assert not missing(text_of(page), "a new session is written beside it", "Back up and make the new session")
    work.commits(writer="fork")
    assert work.path.read_bytes() == work.before
    compacted = Compaction.objects.get()
    new = Path(compacted.created)
    assert (compacted.writer, new.parent) == ("fork", work.path.parent)
    assert json.loads(new.read_bytes().splitlines()[0])["parentSession"] == str(work.path)
    answer = work.page("/result")
    assert f"--session {new}" in text_of(answer)
    assert work.browser.get(link(answer, "Open the new session")).status_code == 200
    # Nothing was deleted from the session itself.
    assert link(answer, "Read what was deleted") == link(answer, "Undo…") == f"{work.url}/undo"


def test_a_rewritten_session_is_a_conflict_that_offers_to_plan_again(work):
    place(work.path, work.before.replace(b"Step 1.", b"Step X."))
    work.before = work.path.read_bytes()
    assert work.plans_again(work.refuses(work.commit()))
    assert work.state() == (RunState.TARGET_MET, None)


def test_a_session_continued_on_another_branch_is_a_conflict_and_its_decisions_are_kept(work):
    work.append({**user("another way"), "id": "other", "parentId": "e5"})
    work.refuses(work.commit())
    finish_run(work.planned_again())
    assert work.state() == (RunState.SUPERSEDED, None)


def test_a_lock_that_is_not_released_in_time_is_a_conflict_that_offers_no_new_plan(work):
    plan = work.shown()
    with override_configuration(lock_seconds=0), session_lock(django_settings.REDLINE_DATA_DIR, work.path, 1):
        assert not work.plans_again(work.refuses(work.post(plan=plan, yes=["unopened"])))


def test_a_compaction_bypassed_by_an_agent_can_be_applied_again_on_its_branch(work):
    work.commit()
    # The agent had the session open: its next line continues from its own leaf.
    work.append(LATER)
    index_file(work.path)
    for base_url, said in (("https://models.example:8443/v1", True), ("", False)):
        Run.objects.filter(pk=work.run.pk).update(base_url=base_url)
        page = work.browser.get(work.session_url)
        assert "is bypassed" in text_of(page)
        assert work.plans_again(page)
        assert ("sends to models.example:8443 again" in text_of(page)) is ("sends to" in text_of(page)) is said
    later = finish_run(work.planned_again())
    assert work.state() == (RunState.COMMITTED, None)
    work.run = later
    work.commits()
    first, second = Compaction.objects.order_by("pk")
    assert second.leaf_id == "later"
    assert [(raw["entryId"], raw.get("blockIndex")) for raw in second.origins] == [
        (raw["entryId"], raw.get("blockIndex")) for raw in first.origins
    ]


def test_confirming_another_plan_than_the_one_shown_writes_nothing(session):
    session.plan(first=1)
    plan = session.shown()
    approve_proposals(session.run)
    yes = ["unopened", "below_target"]
    assert "no longer the one that was shown" in text_of(session.refuses(session.post(yes=yes, plan=plan)))
    session.refuses(session.post(yes=yes))


def test_decisions_and_resuming_are_refused_during_a_commit(work, monkeypatch):
    run = work.run
    Run.objects.filter(pk=run.pk).update(state=RunState.INTERRUPTED)
    refused: list[str] = []
    usual = changes.back_up

    def back_up(*arguments: Any) -> Any:
        target = Target(run.proposals.order_by("order")[0].entry_id)
        refused.append(refusal(lambda: decide(run, Kind.REJECT, [target], timezone.now())))
        refused.append(refusal(lambda: resume_run(run)))
        return usual(*arguments)

    monkeypatch.setattr(changes, "back_up", back_up)
    work.commits()
    assert refused == ["4 being_committed", "4 wrong_state"]
    assert work.state() == (RunState.COMMITTED, None)
    assert not run.decisions.filter(kind="reject").exists()


def test_after_a_failed_commit_decisions_are_possible_again(work, monkeypatch):
    with monkeypatch.context() as broken:
        full = SystemFailure("disk_full", "It does not fit. Nothing was written.")
        broken.setattr(changes, "back_up", Mock(side_effect=full))
        work.refuses(work.commit(), 503)
    assert work.state() == (RunState.TARGET_MET, None)
    work.commits()


def test_a_link_in_place_of_a_session_is_never_followed(work, tmp_path):
    secret = place(tmp_path / "outside" / "secret.jsonl", work.before)
    work.path.unlink()
    work.path.symlink_to(secret)
    for name in ("/confirm", "", "/transcript.jsonl"):
        assert work.page(name).status_code == 409, name
    assert work.post(plan="x").status_code == 409
    assert work.browser.get(work.session_url).status_code in (404, 409)
    assert list(secret.parent.iterdir()) == [secret]
    assert secret.read_bytes() == work.before


def test_an_entry_id_that_now_names_another_line_is_a_conflict(work):
    proposal = work.run.proposals.filter(block_index=None).order_by("order")[0]
    work.append(next(one for one in working_session() if one["id"] == proposal.entry_id), LATER)
    work.refuses(work.commit())


def test_a_side_branch_that_became_the_active_one_is_not_cut_off(session):
    session.append({**user("another way"), "id": "other", "parentId": "e3"})
    session.plan(leaf_id="e27")
    session.append(LATER)
    assert values(session.page(), "yes") == ["unopened"]
    session.commits()
    assert session.last_line()["parentId"] == "later"


def test_a_reader_changed_since_the_plan_is_a_conflict_that_offers_to_plan_again(work):
    work.run.session.reader = "pi"
    work.run.session.save()
    answer = work.page()
    assert "was planned as atomic-0.8 opens it, and is now opened as pi" in text_of(answer)
    assert work.plans_again(answer)
    work.refuses(work.post(plan="x"))


def test_a_failed_new_plan_leaves_the_decisions_with_the_old_run(work):
    later = work.planned_again()
    away = work.path.rename(work.path.with_suffix(".away"))
    assert finish_run(later).state == RunState.FAILED
    assert work.state() == (RunState.TARGET_MET, None)
    away.rename(work.path)
    work.commits()


def test_planning_again_approves_nothing_that_was_not_approved(session):
    session.plan(first=0)
    Proposal.objects.create(
        run=session.run, order=10_000, entry_id="gone", source=Proposal.Source.PLANNER, call=1, tool="context_delete"
    )
    assert carried_from(session.run).targets == []


def test_a_torn_last_line_is_shown_on_the_form_the_review_and_the_commit_page(work):
    pages = (f"{work.session_url}/compact", f"{work.url}", f"{work.url}/confirm")
    for page in pages:
        assert "a torn line of" not in text_of(work.browser.get(page))
    place(work.path, work.before + b'{"type":"mess')
    for page in pages:
        words = f"a torn line of 13 bytes, from byte {len(work.before):,} on"
        assert words in text_of(work.browser.get(page)), page


def test_a_run_is_shown_as_restored_until_the_restore_is_taken_back(work):
    work.commit()
    backup = Path(Compaction.objects.get().backup.path)

    def taken_back() -> set[str]:
        """The pages that say so."""
        found = {"/inbox": work.browser.get("/inbox")} | {one: work.page(one) for one in ("/log", "/result")}
        assert f"{work.url}/result" in [address for _, address in links(found["/log"])]
        return {name for name, page in found.items() if "taken back" in text_of(page)}

    assert not taken_back()
    way_back = restore(backup, Confirmations(), timezone.now()).previous_backup
    assert work.state() == (RunState.RESTORED, None)
    assert taken_back() == {"/inbox", "/log", "/result"}
    page = work.page("/result")
    untrue = ["Continue", "Every recorded byte is still in the file", "reload it there"]
    assert missing(text_of(page), *untrue) == untrue
    assert work.plans_again(page)
    restore(way_back.path, Confirmations(), timezone.now())
    assert work.state() == (RunState.COMMITTED, None)
    assert not taken_back()


def test_a_restored_run_can_be_planned_again_with_its_decisions(work):
    work.commit()
    first = Compaction.objects.get()
    restore(Path(first.backup.path), Confirmations(), timezone.now())
    later = finish_run(work.planned_again())
    assert work.state() == (RunState.RESTORED, None)
    work.run = later
    work.commits()
    assert Compaction.objects.latest("pk").origins[0]["entryId"] == first.origins[0]["entryId"]


@pytest.mark.parametrize("page", ["", "/confirm", "/log", "/result"])
def test_a_page_of_a_run_whose_commit_was_killed_shows_what_was_written(work, page):
    commit_killed_after_its_write(work, is_blocking=True)
    answer = work.page(page)
    assert Compaction.objects.get().run == work.run
    addresses = [address for _, address in links(answer)]
    assert f"{work.url}/result" in addresses or "as an edit in this session" in text_of(answer)
    assert "Nothing was written" not in text_of(answer)
    assert work.state() == (RunState.COMMITTED, None)


@pytest.fixture
def other_writer(work):
    """Another connection to the database, while this process waits only a moment for it."""
    connection.close()
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(connection.settings_dict["OPTIONS"], "timeout", 0.05)
        with closing(sqlite3.connect(str(connection.settings_dict["NAME"]), isolation_level=None)) as other:
            yield other
        connection.close()


def test_a_busy_database_after_the_append_does_not_hide_the_written_line(work, other_writer):
    plan = work.shown()

    def record_too_late(*arguments: Any) -> None:
        other_writer.execute("BEGIN IMMEDIATE")
        record(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(records, "record", record_too_late)
        answer = work.post(plan=plan, yes=["unopened"])
    page = text_of(answer)
    assert work.path.read_bytes() != work.before
    assert (answer.status_code, "was written" in page) == (503, True)
    assert "Nothing was written" not in page
    other_writer.execute("ROLLBACK")
    assert "as an edit in this session" in text_of(work.page("/result"))
    assert work.state() == (RunState.COMMITTED, None)


def test_pages_of_an_interrupted_commit_work_while_the_database_is_busy(work, other_writer):
    commit_killed_after_its_write(work, is_blocking=False)
    other_writer.execute("BEGIN IMMEDIATE")
    assert work.browser.get(work.session_url).status_code == 200
    assert not Compaction.objects.exists()
    other_writer.execute("ROLLBACK")
    assert work.browser.get(work.session_url).status_code == 200
    assert Compaction.objects.get().run == work.run
