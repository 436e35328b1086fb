"""Promises of hooks before and after a move: they see it, can prevent it, and a failing one does."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from compaction_app.hooks import Adjust, Cancel, HookSignal, load_hooks, session_before_tree, session_tree
from compaction_app.models import AuditEntry, Backup
from compaction_app.navigation.entry_append import AppendConfirmations, append_entries
from compaction_app.navigation.moves import move_to, set_label
from compaction_app.summaries.summary_task import branch_task
from sessions_app.index.indexer import index_file
from sessions_app.models import Session
from sessions_app.sessionlog.errors import RedlineError
from sessions_app.storage.session_loader import load_session
from tests.compaction_app.navigation.test_moves import forked_talk
from tests.factories import session_bytes
from tests.files import place
from tests.html import elements, text_of
from tests.installation import refusal
from tests.sessions import add_session

CONFIRMED = AppendConfirmations(live=True)


Connect = Callable[[HookSignal, Callable[..., object]], None]


@pytest.fixture
def path(redline):
    found = place(redline.home / ".pi" / "agent" / "sessions" / "s.jsonl", session_bytes(forked_talk()))
    index_file(found)
    return found


def move(path: Path, entry_id: str = "e4") -> None:
    append_entries(path, move_to(entry_id), CONFIRMED, datetime.now(UTC))


def refused(path: Path) -> tuple[str, str]:
    """The code and message of a move that is not made, after which everything is as it was."""
    before = path.read_bytes()
    with pytest.raises(RedlineError) as caught:
        move(path)
    assert path.read_bytes() == before
    assert not Backup.objects.exists()
    assert not AuditEntry.objects.exists()
    return caught.value.code, caught.value.message


def test_hooks_see_a_move_before_and_after_it(path, connect):
    seen: list[dict[str, Any]] = []
    before = path.read_bytes()

    def note(**sent: Any) -> None:
        seen.append({**sent, "bytes": path.read_bytes()})

    connect(session_before_tree, note)
    connect(session_tree, note)
    move(path)
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
    code, words = refused(path)
    assert code == "cancelled_by_hook"
    assert words.endswith("it is finished. Nothing was moved.")


def test_the_page_of_a_move_says_who_cancelled_it(browser, idle_root, connect):
    address = f"{add_session(idle_root, 'a.jsonl', forked_talk())}/tree/move"
    Session.objects.update(reader="pi")
    before = (idle_root / "a.jsonl").read_bytes()
    connect(session_before_tree, lambda **_: Cancel("<b>it</b> is finished"))
    (form,) = elements(browser.get(address, {"entry": "e4"}), "form.form input[name=plan]")
    answer = browser.post(address, {"entry": "e4", "plan": str(form.attributes["value"])})
    assert answer.status_code == 409
    assert "<b>it</b> is finished. Nothing was moved." in text_of(answer)
    assert (idle_root / "a.jsonl").read_bytes() == before


def test_a_failing_hook_prevents_a_move(path, connect):
    def failing(**sent: Any) -> None:
        raise KeyError("text of the session")

    connect(session_before_tree, failing)
    code, words = refused(path)
    assert code == "hook_failed"
    assert "Nothing was moved" in words


def test_a_hook_that_could_not_be_loaded_prevents_a_move(path):
    load_hooks(["hooks_that_nobody_wrote"])
    try:
        assert refused(path)[0] == "hook_not_loaded"
    finally:
        load_hooks([])


def test_a_hook_is_not_asked_about_a_move_that_cannot_be_made(path, connect):
    seen: list[object] = []
    connect(session_before_tree, lambda **sent: seen.append(sent))
    path.touch()
    with pytest.raises(RedlineError) as caught:
        append_entries(path, move_to("e4"), AppendConfirmations(), datetime.now(UTC))
    assert (caught.value.code, seen) == ("session_live", [])


def test_a_session_that_changes_while_a_hook_is_asked_is_not_moved(path, connect):
    def meanwhile(**sent: Any) -> None:
        line = json.dumps({"type": "custom", "id": "new", "parentId": "e6", "customType": "x"})
        place(path, path.read_bytes() + line.encode() + b"\n")

    connect(session_before_tree, meanwhile)
    assert refusal(lambda: move(path)).endswith(" plan_differs")
    assert json.loads(path.read_bytes().splitlines()[-1])["id"] == "new"


def test_a_label_is_no_move(path, connect):
    seen: list[object] = []
    for signal in (session_before_tree, session_tree):
        connect(signal, lambda **sent: seen.append(sent))
    append_entries(path, set_label("e4", "way"), CONFIRMED, datetime.now(UTC))
    assert seen == []


def test_a_hook_labels_the_entry_to_which_the_agent_is_moved(path, connect):
    connect(session_before_tree, lambda **_: Adjust(label=" the other\nway "))
    move(path)
    moved, label = map(json.loads, path.read_bytes().splitlines()[-2:])
    assert (label["type"], label["parentId"]) == ("label", moved["id"])
    assert (label["targetId"], label["label"]) == ("e4", "the other way")
    loaded = load_session(path)
    assert loaded.leaf_id == label["id"]
    assert moved["parentId"] == "e4"


def test_a_hook_labels_the_summary_of_the_branch_that_is_left(path, connect):
    connect(session_before_tree, lambda **_: Adjust(label="tried"))
    task = branch_task(path, "e4")
    done = append_entries(path, task.change("It failed."), CONFIRMED, datetime.now(UTC))
    summary, label = map(json.loads, path.read_bytes().splitlines()[-2:])
    assert (summary["type"], summary["id"]) == ("branch_summary", done.first_id)
    assert (label["targetId"], label["parentId"]) == (summary["id"], summary["id"])


def test_a_label_that_cannot_be_written_prevents_the_move(path, connect):
    connect(session_before_tree, lambda **_: Adjust(label="x" * 300))
    assert refused(path)[0] == "bad_label"
