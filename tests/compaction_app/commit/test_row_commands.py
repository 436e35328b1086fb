"""The commands take the path of a session of OpenCode as they take a file's."""

import pytest

from .rows import row_scene


@pytest.fixture
def scene(redline):
    return row_scene(redline, turns=8)


def test_commands_that_read_take_the_path_of_a_session(redline, scene):
    for command in ("context", "tree", "certify", "timeline", "doctor", "backups"):
        assert redline.call(command, scene.path).code == 0, command
    assert redline.call("index", scene.path.parents[1]).code == 0
    assert "A title" in redline.call("sessions").out


@pytest.mark.parametrize("writer", ["delete", "prune", "fork"])
def test_a_plan_is_committed_and_undone(redline, scene, writer):
    done = redline.call("compact", scene.path, "--yes", "--writer", writer)
    assert done.code == 0, done
    assert scene.rows() != scene.before
    assert "must reload" not in done.out
    undone = redline.call("undo", scene.path, "--yes")
    assert undone.code == 0, undone
    changed = "Deleted " if writer == "fork" else f"Changed the rows of {scene.path} back."
    assert changed in undone.out
    assert "Appended" not in undone.out
    assert "must reload" not in undone.out
    assert scene.rows() == scene.before


def test_the_rows_backed_up_are_listed_and_not_restored_as_a_session(redline, scene):
    assert redline.call("compact", scene.path, "--yes", "--writer", "delete").code == 0
    (backup,) = redline.call("backups", scene.path, "--json").json
    assert (backup["reason"], backup["holds"]) == ("compact", True)
    refused = redline.call("restore", backup["path"], "--yes")
    assert refused.code == 2
    assert "Undo the compaction" in refused.err
