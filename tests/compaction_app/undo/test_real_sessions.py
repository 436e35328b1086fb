"""Real sessions, or a generated one: compacted, continued, brought back in part and then as a whole."""

import random
from pathlib import Path

import pytest

from sessions_app.storage.session_loader import load_session
from tests.budget import long_except
from tests.files import place
from tests.paths import sessions_to_try

from .scenes import Scene, deleted_by


def sessions(directory: Path) -> list[bytes]:
    """The sessions that can be written to."""
    logs = {path: load_session(path).log for path in sessions_to_try(directory)}
    return [path.read_bytes() for path, log in logs.items() if log.header is not None and log.version == 3]


@pytest.mark.parametrize(
    ("reader", "writer", "continues"),
    [
        pytest.param("atomic-0.8", "context-compaction", False, id="atomic at once"),
        pytest.param("atomic-0.8", "context-compaction", True, id="atomic continued", marks=pytest.mark.long),
        pytest.param("pi", "context-edit", False, id="pi at once", marks=pytest.mark.long),
        pytest.param("pi", "context-edit", True, id="pi continued"),
    ],
)
def test_a_real_session_has_its_context_again(redline, tmp_path, reader, writer, continues):
    rng = random.Random(7)
    directory = redline.home / (".pi" if reader == "pi" else ".atomic") / "agent" / "sessions"
    found = sessions(tmp_path)
    assert found
    for number, content in enumerate(found):
        scene = Scene(place(directory / f"{number}.jsonl", content), reader, writer)
        before, later = scene.context(), []
        committed = scene.compact()
        if continues:
            scene.continue_with("Go on.", "Done.")
            later = scene.context()[-2:]
        compacted = scene.path.read_bytes()
        undone = scene.undo(rng.choice(deleted_by(committed)).entry_id, live=True)
        if undone.created is not None or not undone.plan.is_whole:
            undone = scene.undo(live=True)
        assert scene.path.read_bytes().startswith(compacted)
        assert without_usage(scene.context(undone.created)) == without_usage([*before, *later])


@pytest.mark.parametrize("reader", long_except(["pi"], ["atomic-0.8", "pi"]))
def test_a_real_session_is_as_it_was_after_the_undo_of_a_fork(redline, tmp_path, reader):
    directory = redline.home / (".pi" if reader == "pi" else ".atomic") / "agent" / "sessions"
    for number, content in enumerate(sessions(tmp_path)):
        scene = Scene(place(directory / f"{number}.jsonl", content), reader, "fork")
        committed = scene.compact()
        scene.undo(live=True)
        assert committed.created is not None
        assert not committed.created.exists()
        assert scene.path.read_bytes() == content


def without_usage(messages: list[dict[str, object]]) -> list[dict[str, object]]:
    return [{name: value for name, value in one.items() if name != "usage"} for one in messages]
