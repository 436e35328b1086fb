"""`redline navigate`: a move, a label and a fork, after a confirmation."""

from pathlib import Path

import pytest

from sessions_app.sessionlog.outline import labels
from sessions_app.storage.session_loader import load_session
from tests.compaction_app.undo.scenes import Scene
from tests.factories import session_bytes
from tests.files import place, snapshot

from .test_moves import forked_talk


@pytest.fixture
def talk(redline):
    path = redline.home / ".pi" / "agent" / "sessions" / "s.jsonl"
    return Scene(place(path, session_bytes(forked_talk())), "pi", "fork")


@pytest.mark.parametrize(
    "step", [("--move", "e4"), ("--label", "e4", "here"), ("--fork", "e4")], ids=lambda step: step[0]
)
def test_it_says_what_would_happen_and_needs_a_confirmation(redline, talk, step):
    before = snapshot(talk.path.parent)
    refused = redline.call("navigate", talk.path, *step)
    assert (refused.code, "would" in refused.out, "--yes" in refused.err) == (5, True, True)
    dry = redline.call("navigate", talk.path, *step, "--dry-run", "--json")
    assert (dry.code, dry.json["needs"]) == (0, ["--yes"])
    assert snapshot(talk.path.parent) == before


def test_it_moves_and_gives_the_message_again(redline, talk):
    moved = redline.call("navigate", talk.path, "--move", "e3", "--yes", "--json")
    assert (moved.json["written"], moved.json["again"]) == (True, "The first way.")
    assert moved.json["leafId"] == load_session(talk.path).leaf_id
    assert Path(moved.json["backup"]).exists()
    assert len(talk.context()) == 2
    back = redline.call("navigate", talk.path, "--move", moved.json["previousLeafId"], "--yes")
    assert back.code == 0
    assert talk.context() == talk.context(leaf_id="e6")


def test_it_labels_and_removes_a_label(redline, talk):
    assert redline.call("navigate", talk.path, "--label", "e3", "better", "--yes").code == 0
    assert dict(labels(load_session(talk.path).tree)) == {"e3": "better"}
    assert redline.call("navigate", talk.path, "--label", "e3", " ", "--yes", "--json").error == "bad_label"
    assert redline.call("navigate", talk.path, "--unlabel", "e3", "--yes").code == 0
    assert not labels(load_session(talk.path).tree)


def test_it_forks_before_what_a_user_says(redline, talk):
    before = talk.path.read_bytes()
    made = redline.call("navigate", talk.path, "--fork", "e3", "--yes", "--json")
    assert made.json["again"] == "The first way."
    assert talk.path.read_bytes() == before
    new = load_session(Path(made.json["created"]))
    assert [entry.id for entry in new.tree.entries] == ["e1", "e2"]
    spoken = redline.call("navigate", talk.path, "--fork", "e4", "--yes")
    assert "Continue there with: pi --session" in spoken.out


def test_a_session_in_use_needs_its_flag(redline, talk):
    talk.path.touch()
    refused = redline.call("navigate", talk.path, "--move", "e4", "--yes", "--json")
    assert (refused.code, refused.error) == (5, "session_live")
    assert redline.call("navigate", talk.path, "--move", "e4", "--yes", "--live").code == 0


def test_one_step_is_taken_at_a_time(redline, talk):
    both = redline.call("navigate", talk.path, "--move", "e4", "--unlabel", "e4", "--json")
    assert (both.code, both.error) == (2, "bad_arguments")
