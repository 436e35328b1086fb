"""Notes of the user in place of what a fork leaves out: written as typed, marked, in their place, and proven."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from compaction_app.changes.change import Confirmations
from compaction_app.changes.compaction import approval, commit, preflight_of
from compaction_app.changes.proof import require_approved
from compaction_app.models import Compaction, Run
from compaction_app.review.notes import NOTE_LENGTH, save_notes
from sessions_app.agents.pure.formats import note_text
from sessions_app.index.indexer import index_file
from sessions_app.sessionlog.errors import SystemFailure
from sessions_app.storage.session_loader import load_session
from tests.compaction_app.hostile import TOGETHER
from tests.factories import session_bytes, working_session
from tests.files import place
from tests.html import assert_inert, field, missing, text_of, text_sent, values
from tests.runs import approve_proposals, plan_session


@pytest.fixture
def run(known_root):
    """A planned run with every proposal approved."""
    path = place(known_root / "work.jsonl", session_bytes(working_session()))
    return approve_proposals(plan_session(index_file(path)))


def spans(browser: Client, run: Run, writer: str = "fork") -> list[str]:
    return values(browser.get(f"/plans/{run.pk}/confirm", {"writer": writer}), "span")


def send(browser: Client, run: Run, notes: dict[str, str]) -> Any:
    page = browser.get(f"/plans/{run.pk}/confirm", {"writer": "fork"})
    found = values(page, "span")
    sent = {"plan": field(page, "plan"), "writer": "fork", "span": found, "yes": ["unopened"]}
    return browser.post(f"/plans/{run.pk}/confirm", {**sent, "note": [notes.get(one, "") for one in found]})


def created() -> list[dict[str, Any]]:
    made = Path(Compaction.objects.get().created)
    return [json.loads(line) for line in made.read_bytes().splitlines()]


def test_a_note_stands_where_its_span_was_says_whose_it_is_and_is_counted(browser, run):
    (first, *_) = spans(browser, run)
    assert send(browser, run, {first: " the parser was\tread "}).status_code == 303
    lines = created()
    (at,) = (at for at, one in enumerate(lines) if one["type"] == "custom_message")
    note = lines[at]
    assert (note["content"], note["parentId"]) == (note_text("the parser was read"), lines[at - 1]["id"])
    assert lines[at + 1]["parentId"] == note["id"]
    order = [one["id"] for one in working_session()]
    places = [order.index(one) for one in (lines[at - 1]["id"], first, lines[at + 1]["id"])]
    assert places == sorted(places)
    shown = text_of(browser.get(f"/plans/{run.pk}/result"))
    assert not missing(shown, "Your notes in place of deletions", "the parser was read")
    assert "the parser was read" in browser.get(f"/plans/{run.pk}/review.md").content.decode()
    loaded = load_session(Path(Compaction.objects.get().created))
    assert any(entry.type == "custom_message" and entry.tokens for entry in loaded.tree.entries)


def test_no_note_stands_between_a_call_and_its_result(browser, run):
    notes = {one: f"note of {one}" for one in spans(browser, run)}
    assert send(browser, run, notes).status_code == 303
    lines = created()
    assert len([one for one in lines if one["type"] == "custom_message"]) == len(notes)
    for at, one in enumerate(lines):
        if one["type"] == "custom_message" and at + 1 < len(lines):
            assert lines[at + 1].get("message", {}).get("role") != "toolResult"


def test_a_note_whose_entries_stay_is_not_written(run):
    approved = approval(run)
    gone = {target.entry_id for target in approved.targets}
    save_notes(run, {next(entry.id for entry in approved.document.tree.entries if entry.id not in gone): "it stays"})
    assert preflight_of(approval(run, "fork"), timezone.now()).notes_kept == {}


def test_a_writer_without_room_for_notes_says_so(browser, run):
    assert spans(browser, run, "context-compaction") == []
    page = text_of(browser.get(f"/plans/{run.pk}/confirm", {"writer": "context-compaction"}))
    assert "which has no room for notes" in page
    save_notes(run, {"e2": "lost?"})
    assert preflight_of(approval(run, "context-compaction"), timezone.now()).notes_kept == {}


def test_a_note_that_cannot_be_written_is_refused(browser, run):
    (first, *_) = spans(browser, run)
    for words in ("x" * (NOTE_LENGTH + 1), "a\x1bb"):
        assert "A note has at most" in text_sent(send(browser, run, {first: words}), 409), words
    assert not Compaction.objects.exists()


def test_a_hostile_note_does_nothing(browser, run):
    (first, *_), (words, _) = spans(browser, run), TOGETHER
    save_notes(run, {first: words})
    assert_inert(browser.get(f"/plans/{run.pk}/confirm", {"writer": "fork"}))
    assert send(browser, run, {first: words}).status_code == 303
    assert_inert(browser.get(f"/plans/{run.pk}/result"))


def test_a_note_that_is_not_in_the_new_session_is_not_proven(run, monkeypatch):
    gone = next(target.entry_id for target in approval(run).targets if target.block_index is None)
    save_notes(run, {gone: "it was read"})
    wrong = [note_text("something else")]
    monkeypatch.setattr(
        "compaction_app.changes.compaction.require_approved", lambda *given: require_approved(*given[:-1], wrong)
    )
    with pytest.raises(SystemFailure, match="a note of the context"):
        commit(replace(approval(run), writer="fork"), Confirmations(), timezone.now())
    assert not Compaction.objects.exists()
