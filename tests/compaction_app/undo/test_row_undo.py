"""An undo puts the rows of a session of OpenCode back as they were, whole or in part."""

from contextlib import closing
from pathlib import Path

import pytest

from compaction_app.models import Compaction, Undo
from compaction_app.undo.compaction_state import latest_state
from sessions_app.index.index_store import session_row
from sessions_app.sessionlog.errors import RedlineError
from sessions_app.storage.session_loader import load_session
from tests.compaction_app.commit.rows import CALL, RESULT, THINKING, RowScene, row_scene
from tests.installation import refusal
from tests.opencode_stores import text


@pytest.fixture
def scene(redline):
    return row_scene(redline)


def assert_refused(scene: RowScene, words: str, code: str) -> None:
    now = scene.rows()
    with pytest.raises(RedlineError, match=words) as raised:
        scene.undo()
    assert raised.value.code == code
    assert scene.rows() == now


@pytest.mark.parametrize("writer", ["delete", "prune"])
def test_the_rows_are_as_before(scene, writer):
    scene.delete(writer, CALL, RESULT)
    assert scene.rows() != scene.before
    scene.undo()
    assert scene.rows() == scene.before
    assert Undo.objects.get().is_whole
    assert refusal(scene.undo).endswith(" no_compaction")


def test_a_preview_waits_for_nobody_and_writes_nothing(scene):
    scene.delete("prune", CALL, RESULT)
    now = scene.rows()
    with closing(scene.store.connect()) as writer:
        writer.execute("BEGIN IMMEDIATE")
        state = latest_state(session_row(scene.path), load_session(scene.path))
        writer.execute("ROLLBACK")
    assert [entry.id for entry in state.branch if entry.id in (CALL, RESULT)] == [CALL, RESULT]
    assert scene.rows() == now
    assert scene.sent() != scene.messages


def test_what_was_said_since_stays(scene):
    scene.delete("delete", CALL, RESULT)
    scene.store.user("And then?")
    scene.store.assistant(text("Then nothing."))
    scene.undo()
    said = [{"role": "user", "content": "And then?"}, {"role": "assistant", "content": "Then nothing."}]
    assert scene.sent() == [*scene.messages, *said]


def test_single_entries_are_put_back(scene):
    scene.delete("delete", CALL, RESULT, THINKING)
    scene.undo(THINKING)
    assert [row["id"] for row in scene.before["part"] if row not in scene.rows()["part"]] == [RESULT]
    scene.undo()
    assert scene.rows() == scene.before


def test_a_fork_is_deleted_if_nobody_continued_it(scene):
    scene.delete("fork", CALL, RESULT)
    scene.undo()
    assert scene.rows() == scene.before
    made = scene.delete("fork", CALL, RESULT)
    assert made is not None
    scene.store.user("More.", session_id=made.name)
    assert_refused(scene, "was continued", "fork_continued")


def test_rows_that_somebody_has_changed_since_stay(scene):
    scene.delete("prune", CALL, RESULT)
    scene.store.run("UPDATE part SET data = replace(data, 'output', 'other') WHERE id = ?", RESULT)
    assert_refused(scene, "changed again since", "rows_changed")
    assert Compaction.objects.count() == 1


def test_without_its_backup_a_compaction_is_not_undone(scene):
    scene.delete("prune", CALL, RESULT)
    Path(Compaction.objects.get().backup.path).unlink()
    assert_refused(scene, "has these rows, unless", "backup_gone")


def test_compactions_of_the_same_rows_are_undone_one_by_one(scene):
    scene.delete("prune", CALL, RESULT)
    pruned = scene.rows()
    scene.delete("delete", CALL, RESULT)
    scene.undo()
    assert scene.rows() == pruned
    scene.undo()
    assert scene.rows() == scene.before
