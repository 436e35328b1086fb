"""Promises of labels and moves: one line, the context that was shown, a backup, an entry of the audit log, and back; a
hook sees a move, can prevent it, and a failing one does; `redline move` does the same."""

import hashlib
import json
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from compaction_app.changes.change import Applied, Confirmations
from compaction_app.changes.entries import (
    EntryChange,
    MakeChange,
    append_entries,
    destination_of,
    move_to,
    plan_append,
    set_label,
)
from compaction_app.hooks import Adjust, Cancel, session_before_tree, session_tree
from compaction_app.models import AuditEntry, Backup
from compaction_app.summaries.summary_task import branch_task
from sessions_app.agents.pi.pure.writers import new_line
from sessions_app.index.indexer import index_file
from sessions_app.models import Session
from sessions_app.sessionlog.errors import ConfirmationNeeded, RedlineError
from sessions_app.sessionlog.tree import labels
from sessions_app.storage.session_loader import load_session
from tests.compaction_app.undo.scenes import Scene, codex_scene, refused, scene
from tests.factories import assistant, chain, message, session_bytes, text, user
from tests.files import backdate, place, snapshot, unchanged
from tests.sessions_app.agents.codex.rollouts import work

CONFIRMED = Confirmations(live=True)
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


def append(path: Path, make: MakeChange, confirmations: Confirmations = CONFIRMED) -> Applied:
    appended = append_entries(path, make, confirmations, datetime.now(UTC))
    backdate(path)
    return appended


def failure_of(path: Path, make: MakeChange, confirmations: Confirmations = CONFIRMED) -> RedlineError:
    """The error of an append, after which everything is as it was."""
    with unchanged(path), pytest.raises(RedlineError) as caught:
        append_entries(path, make, confirmations, datetime.now(UTC))
    assert not AuditEntry.objects.exists()
    assert not Backup.objects.exists()
    assert [one.name for one in path.parent.iterdir()] == [path.name]
    return caught.value


def test_a_move_appends_one_line_whose_parent_is_the_entry_and_is_taken_back_by_another(talk):
    context, before = talk.context(), talk.path.read_bytes()
    appended = append(talk.path, move_to("e4"))
    assert talk.path.read_bytes() == before + appended.made.lines[0] + b"\n"
    (line,) = talk.last_lines(1)
    assert (line["type"], line["parentId"], line["id"]) == ("custom", "e4", appended.made.entry_id)
    assert talk.context() == talk.context(leaf_id="e4")
    assert Session.objects.get().leaf_id == appended.made.entry_id
    append(talk.path, move_to("e6"))
    assert talk.context() == context


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
    assert destination_of(load_session(talk.path).tree, entry_id, is_leaf=is_leaf).is_before is (parent != entry_id)
    append(talk.path, move_to(entry_id, is_leaf=is_leaf))
    assert talk.last_lines(1)[0]["parentId"] == parent
    assert [one["role"] for one in talk.context()] == roles


@pytest.mark.parametrize("reader", READERS)
def test_a_session_of_each_reader_is_moved(redline, reader):
    worked = scene(redline, reader, "fork")
    index_file(worked.path)
    Session.objects.update(reader=reader)
    for entry_id in [entry.id for entry in load_session(worked.path).tree.entries][1:4]:
        leaf = destination_of(load_session(worked.path).tree, entry_id).leaf_id
        assert append(worked.path, move_to(entry_id)).plan.present.reading.reader.name == reader
        assert worked.context() == worked.context(leaf_id=leaf)


def test_a_move_to_where_the_agent_is_changes_nothing(talk):
    assert failure_of(talk.path, move_to("e6")).code == "already_there"
    assert failure_of(talk.path, move_to("nowhere")).code == "unknown_entry"


def test_an_agent_without_a_form_says_why_not(redline):
    thread = codex_scene(redline, work(), "fork")
    entry_id = load_session(thread.path).tree.entries[3].id
    moved, labelled = failure_of(thread.path, move_to(entry_id)), failure_of(thread.path, set_label(entry_id, "x"))
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
    assert failure_of(talk.path, set_label(entry_id, words)).code == code


def test_an_append_is_backed_up_recorded_and_certified(talk):
    before = talk.path.read_bytes()
    moved, labelled = append(talk.path, move_to("e4")), append(talk.path, set_label("e4", "here"))
    assert moved.backup.path.read_bytes() == before
    first, second = AuditEntry.objects.order_by("number")
    assert (first.action, first.writer, second.action, second.writer) == ("move", "to e4", "label", "“here” on e4")
    assert (first.bytes_before, first.backup) == (len(before), str(moved.backup.path))
    assert second.sha256_after == hashlib.sha256(talk.path.read_bytes()).hexdigest()
    assert first.certificate["messages"] == 4
    assert [one.reason for one in Backup.objects.all()] == ["entries", "entries"]
    assert labelled.backup.path.exists()


def test_a_session_in_use_needs_a_confirmation(talk):
    talk.path.touch()
    failure = failure_of(talk.path, move_to("e4"), Confirmations())
    assert (type(failure), failure.code) == (ConfirmationNeeded, "session_live")
    assert list(plan_append(talk.path, move_to("e4"), datetime.now(UTC)).needs) == ["live"]


def test_after_a_torn_line_an_append_needs_a_confirmation(talk):
    talk.append(b'{"type":"mess')
    assert failure_of(talk.path, move_to("e4")).code == "torn_last_line"
    append(talk.path, move_to("e4"), Confirmations(after_torn_line=True))
    assert talk.context() == talk.context(leaf_id="e4")


def test_what_was_shown_for_another_state_is_not_confirmed(talk):
    shown = plan_append(talk.path, move_to("e4"), datetime.now(UTC)).digest()
    talk.continue_with("On.")
    before = talk.path.read_bytes()
    act = partial(append_entries, talk.path, move_to("e4"), CONFIRMED, datetime.now(UTC), shown=shown)
    assert (refused(act), talk.path.read_bytes()) == ("plan_differs", before)


def to_e4(line: Callable[[Any], bytes], **more: int) -> MakeChange:
    """A change that says that the context of e4 results, and writes this line."""
    return lambda *_: EntryChange(AuditEntry.Action.MOVE, "to e4", "e4", lambda facts: (line(facts),), **more)


@pytest.mark.parametrize(
    "line",
    [
        lambda facts: new_line("custom", facts.new_id(), "e2", facts.written_at, customType="x"),
        lambda facts: json.dumps(message(facts.new_id(), "e4", user("not announced"))).encode(),
    ],
    ids=["another move", "a message that is not announced"],
)
def test_lines_that_do_not_give_the_announced_context_are_not_written(talk, line):
    assert failure_of(talk.path, to_e4(line)).code == "not_proven"


def test_announced_messages_follow_the_context(talk):
    said = {"fromId": "e6", "summary": "Tried another way."}
    append(
        talk.path,
        to_e4(lambda one: new_line("branch_summary", one.new_id(), "e4", one.written_at, **said), added_messages=1),
    )
    assert [one["role"] for one in talk.context()][-2:] == ["assistant", "branchSummary"]
    assert talk.context()[:-1] == talk.context(leaf_id="e4")


@pytest.fixture
def path(talk):
    index_file(talk.path)
    return talk.path


def test_hooks_see_a_move_before_and_after_it(path, connect):
    seen: list[dict[str, Any]] = []
    before = path.read_bytes()

    def note(**sent: Any) -> None:
        seen.append({**sent, "bytes": path.read_bytes()})

    connect(session_before_tree, note)
    connect(session_tree, note)
    append(path, move_to("e4"))
    first, second = seen
    assert (first["bytes"], second["bytes"]) == (before, path.read_bytes())
    assert (first["target_id"], first["common_ancestor_id"], first["wants_summary"]) == ("e4", "e2", False)
    assert [entry.id for entry in first["entries"]] == ["e5", "e6"]
    for sent in seen:
        assert (sent["old_leaf_id"], sent["new_leaf_id"]) == ("e6", "e4")
        assert sent["session"].real_path() == path
    assert second["entries"] == [json.loads(path.read_bytes().splitlines()[-1])]
    assert second["backup"].read_bytes() == before


def test_a_hook_cancels_a_move(path, connect):
    connect(session_before_tree, lambda **_: Cancel("it is finished"))
    failure = failure_of(path, move_to("e4"))
    assert failure.code == "cancelled_by_hook"
    assert failure.message.endswith("it is finished. Nothing was moved.")


def test_a_failing_hook_prevents_a_move(path, connect):
    def failing(**sent: Any) -> None:
        raise KeyError("text of the session")

    connect(session_before_tree, failing)
    failure = failure_of(path, move_to("e4"))
    assert (failure.code, "Nothing was moved" in failure.message) == ("hook_failed", True)


def test_hooks_are_not_asked_about_a_label_or_a_move_that_cannot_be_made(path, connect):
    seen: list[object] = []
    for signal in (session_before_tree, session_tree):
        connect(signal, lambda **sent: seen.append(sent))
    append_entries(path, set_label("e4", "way"), CONFIRMED, datetime.now(UTC))
    path.touch()
    act = partial(append_entries, path, move_to("e4"), Confirmations(), datetime.now(UTC))
    assert (refused(act), seen) == ("session_live", [])


def test_a_session_that_changes_while_a_hook_is_asked_is_not_moved(path, connect):
    def meanwhile(**sent: Any) -> None:
        line = json.dumps({"type": "custom", "id": "new", "parentId": "e6", "customType": "x"})
        place(path, path.read_bytes() + line.encode() + b"\n")

    connect(session_before_tree, meanwhile)
    assert refused(partial(append, path, move_to("e4"))) == "plan_differs"
    assert json.loads(path.read_bytes().splitlines()[-1])["id"] == "new"


def test_a_hook_labels_the_entry_to_which_the_agent_is_moved(path, connect):
    connect(session_before_tree, lambda **_: Adjust(label=" the other\nway "))
    append(path, move_to("e4"))
    moved, label = map(json.loads, path.read_bytes().splitlines()[-2:])
    assert (label["type"], label["parentId"]) == ("label", moved["id"])
    assert (label["targetId"], label["label"]) == ("e4", "the other way")
    assert load_session(path).leaf_id == label["id"]
    assert moved["parentId"] == "e4"


def test_a_hook_labels_the_summary_of_the_branch_that_is_left(path, connect):
    connect(session_before_tree, lambda **_: Adjust(label="tried"))
    done = append_entries(path, branch_task(path, "e4").change("It failed."), CONFIRMED, datetime.now(UTC))
    summary, label = map(json.loads, path.read_bytes().splitlines()[-2:])
    assert (summary["type"], summary["id"]) == ("branch_summary", done.made.first_id)
    assert (label["targetId"], label["parentId"]) == (summary["id"], summary["id"])


def test_a_label_that_cannot_be_written_prevents_the_move(path, connect):
    connect(session_before_tree, lambda **_: Adjust(label="x" * 300))
    assert failure_of(path, move_to("e4")).code == "bad_label"


@pytest.mark.parametrize(
    "step", [("--to", "e4"), ("--label", "e4", "here"), ("--fork", "e4")], ids=lambda step: step[0]
)
def test_it_says_what_would_happen_and_needs_a_confirmation(redline, talk, step):
    before, refused = snapshot(talk.path.parent), redline.call("move", talk.path, *step)
    assert (refused.code, "would" in refused.out, "--yes" in refused.err) == (5, True, True)
    dry = redline.call("move", talk.path, *step, "--dry-run", "--json")
    assert (dry.code, dry.json["needs"]) == (0, ["--yes"])
    assert snapshot(talk.path.parent) == before


def test_it_moves_and_gives_the_message_again(redline, talk):
    moved = redline.call("move", talk.path, "--to", "e3", "--yes", "--json")
    assert (moved.json["written"], moved.json["again"]) == (True, "The first way.")
    assert moved.json["leafId"] == load_session(talk.path).leaf_id
    assert Path(moved.json["backup"]).exists()
    assert len(talk.context()) == 2
    assert redline.call("move", talk.path, "--to", moved.json["previousLeafId"], "--yes").code == 0
    assert talk.context() == talk.context(leaf_id="e6")


def test_it_labels_and_removes_a_label_and_takes_one_step_at_a_time(redline, talk):
    assert redline.call("move", talk.path, "--label", "e3", "better", "--yes").code == 0
    assert dict(labels(load_session(talk.path).tree)) == {"e3": "better"}
    assert redline.call("move", talk.path, "--label", "e3", " ", "--yes", "--json").error == "bad_label"
    assert redline.call("move", talk.path, "--unlabel", "e3", "--yes").code == 0
    assert not labels(load_session(talk.path).tree)
    assert redline.call("move", talk.path, "--to", "e4", "--unlabel", "e4", "--json").refusal == "2 bad_arguments"


def test_it_forks_before_what_a_user_says(redline, talk):
    with unchanged(talk.path):
        made = redline.call("move", talk.path, "--fork", "e3", "--yes", "--json")
        assert made.json["again"] == "The first way."
    assert [entry.id for entry in load_session(Path(made.json["created"])).tree.entries] == ["e1", "e2"]
    assert "Continue there with: pi --session" in redline.call("move", talk.path, "--fork", "e4", "--yes").out


def test_a_session_in_use_needs_its_flag(redline, talk):
    talk.path.touch()
    assert redline.call("move", talk.path, "--to", "e4", "--yes", "--json").refusal == "5 session_live"
    assert redline.call("move", talk.path, "--to", "e4", "--yes", "--live").code == 0
