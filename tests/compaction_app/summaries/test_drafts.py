"""Promises of drafts: what a worker writes of them, what is kept if it breaks off, and that only a confirmed text is
appended."""

import json
import threading
from datetime import UTC, datetime
from typing import Any, Final

import pytest
from django.db import connection

from compaction_app.changes.change import Confirmations
from compaction_app.hooks import Cancel, SupplySummary, session_before_compact, session_compact
from compaction_app.models import Provider, SummaryDraft
from compaction_app.summaries import drafts
from compaction_app.summaries.drafts import DraftRecorder, write_draft
from sessions_app.index.indexer import index_file
from sessions_app.jobs.job import LEASE_SECONDS, LeaseWatch
from sessions_app.jobs.recorder import Terminated
from sessions_app.models import Session
from sessions_app.sessionlog.errors import Conflict
from tests.factories import assistant, message, session_bytes, text, turns_of_work, user
from tests.files import backdate, place, unchanged

CONFIRMED = Confirmations(live=True)
State = SummaryDraft.State
COMPACTION: Final = drafts.WantedSummary()


@pytest.fixture
def session(redline):
    path = redline.home / ".pi" / "agent" / "sessions" / "s.jsonl"
    return index_file(place(path, session_bytes(turns_of_work(turns=8))))


def written(session: Session, script: str = "good-plan", wanted: drafts.WantedSummary = COMPACTION) -> SummaryDraft:
    """A draft that a worker has worked on."""
    draft = drafts.start_draft(session, wanted, f"scripted/{script}")
    write_draft(draft.pk, "one")
    draft.refresh_from_db()
    return draft


def failure_of(draft: SummaryDraft) -> str:
    draft.refresh_from_db()
    assert draft.state == State.FAILED
    return draft.failure


def requested(session: Session) -> SummaryDraft:
    return drafts.start_draft(session, COMPACTION, "scripted/good-plan")


def by_hand(session: Session, words: str = "We look at the cache.") -> SummaryDraft:
    draft = drafts.start_draft(session, COMPACTION)
    drafts.save_text(draft, words)
    return draft


def append(draft: SummaryDraft) -> dict[str, object]:
    """Append a draft as it is; returns the line."""
    now = datetime.now(UTC)
    drafts.append_draft(draft, CONFIRMED, now, drafts.plan_draft(draft, now).digest)
    return json.loads(draft.session.real_path().read_bytes().splitlines()[-1])


def go_on(session: Session, *messages: dict[str, Any]) -> Session:
    """Let the conversation go on with these messages."""
    path = session.real_path()
    last = json.loads(path.read_bytes().splitlines()[-1])["id"]
    for number, said in enumerate(messages):
        entry = message(f"n{number}", last, said)
        last = entry["id"]
        with path.open("ab") as file:
            file.write(json.dumps(entry).encode() + b"\n")
    return index_file(backdate(path))


def test_a_model_writes_a_draft_and_nothing_is_appended(session, provider):
    with unchanged(session.real_path()):
        draft = written(session, wanted=drafts.WantedSummary(focus="the cache"))
        assert draft.state == State.READY
        assert draft.text.startswith("## Goal")
        assert draft.generated == draft.text
        assert draft.traffic.requests == len(provider.requests)
        assert "the cache" in provider.requests[0].raw.decode()


@pytest.mark.parametrize(("script", "words"), [("refuses", "wrote no summary"), ("overflow", "window")])
def test_a_draft_that_does_not_come_says_why(session, provider, script, words):
    assert words in failure_of(written(session, script))


def test_the_partial_text_of_a_failed_draft_can_be_edited(session, provider):
    draft = requested(session)
    claimed = SummaryDraft.claim(draft.pk, "one")
    assert claimed is not None
    recorder = DraftRecorder(claimed, "one")
    recorder.on_event("streamed", {"pieces": [["thought", "hm"], ["text", "## Goal\n"]]}, {"host": "h"})
    recorder.on_event("streamed", {"pieces": [["text", "The cache"]]}, {"host": "h"})
    recorder.failed("The connection broke.")
    draft.refresh_from_db()
    assert (draft.state, draft.generated) == (State.FAILED, "## Goal\nThe cache")
    drafts.edit_partial_text(draft)
    draft.refresh_from_db()
    assert (draft.state, draft.text, draft.is_cut) == (State.READY, "## Goal\nThe cache", True)


def test_a_stop_ends_the_request(session, provider):
    draft = drafts.start_draft(session, drafts.WantedSummary(), "scripted/stalls-before")
    worker = threading.Thread(target=_work, args=(draft.pk,))
    worker.start()
    provider.wait_for(lambda: provider.requests)
    drafts.stop_draft(draft)
    worker.join()
    assert "You stopped it" in failure_of(draft)


def _work(draft_id: int) -> None:
    try:
        write_draft(draft_id, "one")
    finally:
        connection.close()


def test_a_draft_that_was_stopped_or_whose_address_changed_is_not_requested(session, provider):
    draft = requested(session)
    drafts.stop_draft(draft)
    write_draft(draft.pk, "one")
    assert failure_of(draft)
    assert not provider.requests
    draft = requested(session)
    Provider.objects.update(base_url="http://127.0.0.1:9/v1")
    write_draft(draft.pk, "one")
    assert "address" in failure_of(draft)
    assert not provider.requests


def test_a_draft_that_is_being_written_allows_no_other_and_is_not_discarded(session, provider):
    draft = requested(session)
    for act in (lambda: requested(session), lambda: drafts.discard_draft(draft)):
        with pytest.raises(Conflict, match="is being written"):
            act()
    assert by_hand(session).state == State.READY
    drafts.stop_draft(draft)
    drafts.discard_draft(draft)
    assert SummaryDraft.objects.get().state == State.READY


def test_two_workers_never_write_one_draft_which_is_given_up_once_its_worker_is_gone(session, provider, clock):
    draft = requested(session)
    assert SummaryDraft.claim(draft.pk, "one") is not None
    assert SummaryDraft.claim(draft.pk, "two") is None
    write_draft(draft.pk, "two")
    assert not provider.requests
    watch = LeaseWatch(SummaryDraft)
    assert (watch.give_up_dead(), clock.watch(watch, LEASE_SECONDS)) == ([], [draft.pk])
    assert "Its worker ended." in failure_of(draft)


def test_a_worker_that_has_to_end_says_so_and_a_draft_for_which_none_starts_fails_in_words(session, provider):
    draft = requested(session)
    ending = threading.Event()
    ending.set()
    with pytest.raises(Terminated):
        write_draft(draft.pk, "one", ending)
    assert "Its worker was stopped." in failure_of(draft)
    assert not provider.requests
    draft = requested(session)
    assert SummaryDraft.fail_unstarted(draft.pk, "exit code 2")
    assert not SummaryDraft.fail_unstarted(draft.pk, "exit code 2")
    assert "could not be started (exit code 2)" in failure_of(draft)


def test_only_the_edited_text_is_appended(session):
    draft = by_hand(session, "We look at the cache.\n")
    recorded = append(draft)
    assert recorded["type"] == "compaction"
    assert str(recorded["summary"]).startswith("We look at the cache.\n\n<read-files>")
    draft.refresh_from_db()
    assert (draft.state, draft.appended_id) == (State.APPENDED, recorded["id"])
    with pytest.raises(Conflict, match="cannot be edited or appended"):
        drafts.save_text(draft, "Another text")


def test_a_text_that_was_edited_since_it_was_shown_is_not_appended(session):
    draft = by_hand(session)
    before, now = session.real_path().read_bytes(), datetime.now(UTC)
    shown = drafts.plan_draft(draft, now).digest
    drafts.save_text(draft, "Something else")
    with pytest.raises(Conflict, match="has changed since this was shown"):
        drafts.append_draft(draft, CONFIRMED, now, shown)
    assert session.real_path().read_bytes() == before


def test_a_draft_is_of_no_use_once_the_session_has_continued(session):
    draft = by_hand(session)
    go_on(session, user("Go on."))
    with pytest.raises(Conflict, match="has continued since"):
        drafts.plan_draft(draft, datetime.now(UTC))
    draft.refresh_from_db()
    assert draft.text == "We look at the cache."


def test_an_update_by_hand_starts_from_the_summary_before_it(session):
    append(by_hand(session, "The first summary."))
    later = go_on(session, *[user("go " * 4_000), assistant(text("done"))] * 15)
    assert drafts.start_draft(later, COMPACTION).text.startswith("The first summary.")


def test_a_hook_supplies_the_draft_with_its_files_and_what_it_keeps(session, provider, connect):
    notified: list[dict[str, object]] = []
    supplied = SupplySummary("From the hook.", read_files=("a.py",), first_kept_id="e9", why="cheaper")
    connect(session_before_compact, lambda **_: supplied)
    connect(session_compact, lambda **sent: notified.append(sent))
    draft = written(session)
    assert not provider.requests
    assert (draft.text, draft.state) == ("From the hook.", State.READY)
    assert any("cheaper" in words for words in draft.hook_messages)
    task = drafts.task_of(draft)
    assert (task.first_kept_id, task.files.read) == ("e9", ("a.py",))
    recorded = append(draft)
    assert recorded["firstKeptEntryId"] == "e9"
    assert recorded["fromHook"] is True
    assert notified[0]["from_hook"] is True


def test_a_hook_that_cancels_ends_the_draft_before_anything_is_sent(session, provider, connect):
    connect(session_before_compact, lambda **_: Cancel("not now"))
    assert "not now" in failure_of(written(session))
    assert not provider.requests
