"""The commands take the path of a session of OpenCode as they take a file's."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.compaction_app.commit.test_row_change import everything
from tests.installation import Installation
from tests.opencode_stores import OpenCodeStore, worked_session


@pytest.fixture
def store(redline: Installation) -> OpenCodeStore:
    return OpenCodeStore(redline.home / ".local" / "share" / "opencode")


@pytest.fixture
def path(store: OpenCodeStore) -> Path:
    return worked_session(store, turns=8)


@pytest.mark.parametrize("command", ["context", "tree", "certify", "timeline", "doctor", "backups"])
def test_a_command_that_reads_takes_the_path_of_a_session(
    redline: Installation, path: Path, command: str
) -> None:
    assert redline.call(command, path).code == 0


@pytest.mark.parametrize("writer", ["delete", "prune", "fork"])
def test_a_plan_is_committed_and_undone(
    redline: Installation, store: OpenCodeStore, path: Path, writer: str
) -> None:
    before = everything(store)
    done = redline.call("compact", path, "--yes", "--writer", writer)
    assert done.code == 0, done
    assert everything(store) != before
    assert "must reload" not in done.out
    undone = redline.call("undo", path, "--yes")
    assert undone.code == 0, undone
    assert ("Deleted " if writer == "fork" else f"Changed the rows of {path} back.") in undone.out
    assert "Appended" not in undone.out
    assert "must reload" not in undone.out
    assert everything(store) == before


def test_the_sessions_of_a_data_directory_are_listed(redline: Installation, path: Path) -> None:
    assert redline.call("index", path.parents[1]).code == 0
    assert "A title" in redline.call("sessions").out


def test_the_rows_backed_up_are_listed_and_not_restored_as_a_session(
    redline: Installation, path: Path
) -> None:
    assert redline.call("compact", path, "--yes", "--writer", "delete").code == 0
    (backup,) = redline.call("backups", path, "--json").json
    assert (backup["reason"], backup["holds"]) == ("compact", True)
    refused = redline.call("restore", backup["path"], "--yes")
    assert refused.code == 2
    assert "Undo the compaction" in refused.err
