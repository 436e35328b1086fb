"""Promises of labels and moves: one line, the context that was shown, a backup, an entry of the audit log, and back."""

import hashlib
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from compaction_app.models import AuditEntry, Backup
from compaction_app.navigation.entry_append import AppendConfirmations, AppendedEntries, append_entries, plan_append
from compaction_app.navigation.entry_change import EntryChange, MakeChange
from compaction_app.navigation.moves import destination_of, move_to, set_label
from sessions_app.agents.pi.lines import new_line
from sessions_app.agents.reading import Reading
from sessions_app.index.indexer import index_file
from sessions_app.models import Session
from sessions_app.sessionlog.errors import ConfirmationNeeded, RedlineError
from sessions_app.sessionlog.outline import labels
from sessions_app.storage.session_loader import LoadedSession, load_session
from tests.compaction_app.undo.scenes import Scene, codex_scene, scene
from tests.factories import assistant, chain, message, session_bytes, text, user
from tests.files import backdate, place
from tests.sessions_app.agents.codex.rollouts import work

CONFIRMED = AppendConfirmations(live=True)
READERS = ["pi", "pi-0.86", "atomic-0.8", "atomic-0.9"]


def forked_talk() -> list[dict[str, Any]]:
    """e1 user, e2 answer ─┬─ e3 user, e4 answer
    └─ e5 user, e6 answer, the leaf"""
    talk = chain(
        user("Mend the parser."),
        assistant(text("I looked.")),
        user("The first way."),
        assistant(text("Done so.")),
        user("The second way."),
        assistant(text("Done otherwise.")),
    )
    talk[5]["parentId"] = "e2"
    return talk


@pytest.fixture
def talk(redline):
    path = redline.home / ".pi" / "agent" / "sessions" / "s.jsonl"
    return Scene(place(path, session_bytes(forked_talk())), "pi", "fork")


def append(path: Path, make: MakeChange, confirmations: AppendConfirmations = CONFIRMED) -> AppendedEntries:
    appended = append_entries(path, make, confirmations, datetime.now(UTC))
    backdate(path)
    return appended


def refusal(path: Path, make: MakeChange, confirmations: AppendConfirmations = CONFIRMED) -> RedlineError:
    """The error of an append, after which everything is as it was."""
    before = path.read_bytes()
    with pytest.raises(RedlineError) as caught:
        append_entries(path, make, confirmations, datetime.now(UTC))
    assert path.read_bytes() == before
    assert not AuditEntry.objects.exists()
    assert not Backup.objects.exists()
    assert [one.name for one in path.parent.iterdir()] == [path.name]
    return caught.value


def test_a_move_appends_one_line_whose_parent_is_the_entry(talk):
    before = talk.path.read_bytes()
    appended = append(talk.path, move_to("e4"))
    assert talk.path.read_bytes() == before + appended.lines[0] + b"\n"
    (line,) = talk.last_lines(1)
    assert (line["type"], line["parentId"], line["id"]) == ("custom", "e4", appended.leaf_id)
    assert talk.context() == talk.context(leaf_id="e4")
    assert Session.objects.get().leaf_id == appended.leaf_id


@pytest.mark.parametrize(
    ("entry_id", "is_leaf", "parent", "roles"),
    [
        ("e3", False, "e2", ["user", "assistant"]),
        ("e3", True, "e3", ["user", "assistant", "user"]),
        ("e4", False, "e4", ["user", "assistant", "user", "assistant"]),
        ("e1", False, None, []),
    ],
)
def test_a_move_to_what_a_user_says_goes_before_it_unless_it_is_to_be_the_end(talk, entry_id, is_leaf, parent, roles):
    tree = load_session(talk.path).tree
    assert destination_of(tree, entry_id, is_leaf=is_leaf).is_before is (parent != entry_id)
    append(talk.path, move_to(entry_id, is_leaf=is_leaf))
    assert talk.last_lines(1)[0]["parentId"] == parent
    assert [one["role"] for one in talk.context()] == roles


def test_a_move_is_taken_back_by_a_move(talk):
    before = talk.context()
    append(talk.path, move_to("e4"))
    append(talk.path, move_to("e6"))
    assert talk.context() == before


@pytest.mark.parametrize("reader", READERS)
def test_a_session_of_each_reader_is_moved(redline, reader):
    worked = scene(redline, reader, "fork")
    index_file(worked.path)
    Session.objects.update(reader=reader)
    places = [entry.id for entry in load_session(worked.path).tree.entries]
    for entry_id in places[1:-1]:
        leaf = destination_of(load_session(worked.path).tree, entry_id).leaf_id
        appended = append(worked.path, move_to(entry_id))
        assert appended.plan.reading.reader.name == reader
        assert worked.context() == worked.context(leaf_id=leaf)


def test_a_move_to_where_the_agent_is_changes_nothing(talk):
    assert refusal(talk.path, move_to("e6")).code == "already_there"
    assert refusal(talk.path, move_to("nowhere")).code == "unknown_entry"


def test_an_agent_without_a_form_says_why_not(redline):
    thread = codex_scene(redline, work(), "fork")
    entry_id = load_session(thread.path).tree.entries[3].id
    moved, labelled = refusal(thread.path, move_to(entry_id)), refusal(thread.path, set_label(entry_id, "x"))
    assert (moved.code, labelled.code) == ("no_move", "no_label")
    assert moved.message.startswith("Sessions of Codex have no entry that makes it continue after an earlier")


def test_a_label_is_set_changed_and_removed_by_one_line_each(talk):
    before, context = talk.path.read_bytes(), talk.context()
    named = []
    for words in ("a good place", "  another\tname ", ""):
        append(talk.path, set_label("e3", words))
        named.append(labels(load_session(talk.path).tree).get("e3"))
    assert named == ["a good place", "another name", None]
    assert talk.path.read_bytes().startswith(before)
    first, second, removed = talk.last_lines(3)
    assert (first["targetId"], first["label"], first["parentId"]) == ("e3", "a good place", "e6")
    assert second["parentId"] == first["id"]
    assert "label" not in removed
    assert talk.context() == context


@pytest.mark.parametrize(
    ("entry_id", "words", "code"),
    [
        ("nowhere", "x", "unknown_entry"),
        ("e3", "x" * 201, "bad_label"),
        ("e3", "\x1b[2J", "bad_label"),
        ("e3", "\ud800", "bad_label"),
        ("e3", " ", "same_label"),
    ],
)
def test_a_label_that_cannot_be_is_refused(talk, entry_id, words, code):
    assert refusal(talk.path, set_label(entry_id, words)).code == code


def test_an_append_is_backed_up_recorded_and_certified(talk):
    before = talk.path.read_bytes()
    moved, labelled = append(talk.path, move_to("e4")), append(talk.path, set_label("e4", "here"))
    assert moved.backup.read_bytes() == before
    first, second = AuditEntry.objects.order_by("number")
    assert (first.action, first.writer, second.action, second.writer) == ("move", "to e4", "label", "“here” on e4")
    assert (first.bytes_before, first.backup) == (len(before), str(moved.backup))
    assert second.sha256_after == hashlib.sha256(talk.path.read_bytes()).hexdigest()
    assert first.certificate is not None
    assert first.certificate["messages"] == 4
    assert [one.reason for one in Backup.objects.all()] == ["entries", "entries"]
    assert labelled.backup.exists()


def test_a_session_in_use_needs_a_confirmation(talk):
    talk.path.touch()
    failure = refusal(talk.path, move_to("e4"), AppendConfirmations())
    assert isinstance(failure, ConfirmationNeeded)
    assert failure.code == "session_live"
    assert list(plan_append(talk.path, move_to("e4"), datetime.now(UTC)).needs) == ["live"]


def test_after_a_torn_line_an_append_needs_a_confirmation(talk):
    talk.append(b'{"type":"mess')
    assert refusal(talk.path, move_to("e4")).code == "torn_last_line"
    append(talk.path, move_to("e4"), AppendConfirmations(after_torn_line=True))
    assert talk.context() == talk.context(leaf_id="e4")


def test_what_was_shown_for_another_state_is_not_confirmed(talk):
    shown = plan_append(talk.path, move_to("e4"), datetime.now(UTC)).digest()
    talk.continue_with("On.")
    before = talk.path.read_bytes()
    with pytest.raises(RedlineError) as caught:
        append_entries(talk.path, move_to("e4"), CONFIRMED, datetime.now(UTC), shown=shown)
    assert caught.value.code == "plan_differs"
    assert talk.path.read_bytes() == before


def wrong_move(present: LoadedSession, reading: Reading) -> EntryChange:
    """Says that the context of e4 results, and makes another one."""

    def lines(facts: Any) -> tuple[bytes, ...]:
        return (new_line("custom", facts.new_id(), "e2", facts.written_at, customType="x"),)

    return EntryChange(AuditEntry.Action.MOVE, "to e4", "e4", lines)


def silent_message(present: LoadedSession, reading: Reading) -> EntryChange:
    """Adds a message to the context that it does not announce."""

    def lines(facts: Any) -> tuple[bytes, ...]:
        added = message(facts.new_id(), "e4", user("not announced"))
        return (json.dumps(added).encode(),)

    return EntryChange(AuditEntry.Action.MOVE, "to e4", "e4", lines)


@pytest.mark.parametrize("make", [wrong_move, silent_message])
def test_lines_that_do_not_give_the_announced_context_are_not_written(talk, make):
    assert refusal(talk.path, make).code == "not_proven"


def test_announced_messages_follow_the_context(talk):
    def make(present: LoadedSession, reading: Reading) -> EntryChange:
        def lines(facts: Any) -> tuple[bytes, ...]:
            summary = {"fromId": "e6", "summary": "Tried another way."}
            return (new_line("branch_summary", facts.new_id(), "e4", facts.written_at, **summary),)

        return EntryChange(AuditEntry.Action.MOVE, "to e4", "e4", lines, added_messages=1)

    append(talk.path, make)
    assert [one["role"] for one in talk.context()][-2:] == ["assistant", "branchSummary"]
    assert talk.context()[:-1] == talk.context(leaf_id="e4")
