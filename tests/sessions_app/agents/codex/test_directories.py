"""A rollout is found by its id, wherever it is, without a search of everything."""

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from sessions_app.agents.codex import directories
from sessions_app.agents.codex.directories import find_rollout
from sessions_app.storage.nofollow import scan_directory

NOW_ID = "01a204d2-92d2-7320-873a-4163e9e7ed7d"
"""Given on 22 November 2026."""
OTHER_DAY = "2025/03/04"
RANDOM_ID = "01a204d2-92d2-4320-873a-4163e9e7ed7d"
LONG_AGO = 1_700_000_000


@pytest.fixture
def listed(monkeypatch):
    """The directories that are listed, by name."""
    found: list[str] = []

    def scan(path: Path) -> AbstractContextManager[Iterator[os.DirEntry[str]]]:
        found.append(path.name)
        return scan_directory(path)

    monkeypatch.setattr(directories, "scan_directory", scan)
    directories._settled_listing.cache_clear()
    return found


def rollout(directory: Path, rollout_id: str = NOW_ID, thread: str = "") -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"rollout-2026-11-22T19-53-58-{thread and thread + '_'}{rollout_id}.jsonl"
    path.touch()
    return path


def settle(home: Path) -> None:
    """Nothing has changed for a long time."""
    for directory in (home, *(one for one in home.rglob("*") if one.is_dir())):
        os.utime(directory, (LONG_AGO, LONG_AGO))


def asker(home: Path) -> Path:
    """The session for which a rollout is looked for."""
    directory = home / "sessions" / "2026" / "12" / "31"
    directory.mkdir(parents=True)
    return directory / "asker.jsonl"


@pytest.mark.parametrize("day", ["22", "21", "23"])
def test_the_day_of_the_id_is_looked_at_before_all_others(tmp_path, listed, day):
    found = rollout(tmp_path / "sessions" / "2026" / "11" / day)
    for other in range(1, 13):
        rollout(tmp_path / "sessions" / "2025" / f"{other:02}" / "04", RANDOM_ID)
    assert find_rollout(asker(tmp_path), NOW_ID) == found
    assert set(listed) <= {"31", "22", "21", "23"}


def test_a_segment_is_found_by_its_own_id(tmp_path):
    found = rollout(tmp_path / "sessions" / "2026" / "11" / "22", thread=RANDOM_ID)
    assert find_rollout(asker(tmp_path), NOW_ID) == found
    assert find_rollout(asker(tmp_path / "again"), RANDOM_ID) is None


@pytest.mark.parametrize("where", [f"sessions/{OTHER_DAY}", "sessions/odd", "sessions", "archived_sessions"])
@pytest.mark.parametrize("rollout_id", [NOW_ID, RANDOM_ID, "ffffffff-ffff-7320-873a-4163e9e7ed7d"])
def test_a_rollout_that_was_moved_is_found(tmp_path, where, rollout_id):
    found = rollout(tmp_path / where, rollout_id)
    assert find_rollout(asker(tmp_path), rollout_id) == found


def test_a_tree_that_has_not_changed_is_not_listed_again(tmp_path, listed):
    found = rollout(tmp_path / "sessions" / OTHER_DAY)
    path = asker(tmp_path)
    settle(tmp_path)
    assert find_rollout(path, NOW_ID) == found
    assert OTHER_DAY[-2:] in listed
    listed.clear()
    assert find_rollout(path, NOW_ID) == found
    assert find_rollout(path, RANDOM_ID) is None
    assert listed == []


def test_a_rollout_that_appears_later_is_found(tmp_path):
    path = asker(tmp_path)
    for directory in (OTHER_DAY, "2026/01/02"):
        settle(tmp_path)
        assert find_rollout(path, NOW_ID) is None
        found = rollout(tmp_path / "sessions" / directory)
        assert find_rollout(path, NOW_ID) == found
        found.unlink()


def test_a_directory_that_has_just_changed_is_not_remembered(tmp_path):
    """Its time of change is too coarse to show the next one."""
    path = asker(tmp_path)
    assert find_rollout(path, NOW_ID) is None
    changed = path.parent.stat()
    found = rollout(path.parent)
    os.utime(path.parent, ns=(changed.st_mtime_ns, changed.st_mtime_ns))
    assert find_rollout(path, NOW_ID) == found


def test_the_search_ends(tmp_path, listed, monkeypatch):
    monkeypatch.setattr(directories, "MAX_DIRECTORIES", 12)
    for number in range(40):
        rollout(tmp_path / "sessions" / f"{number:02}", RANDOM_ID)
    assert find_rollout(asker(tmp_path), NOW_ID) is None
    assert len(set(listed)) <= 12
