"""A thread's bytes: those of the files that it is based on, then its own.

A base is found by its id, wherever it is, without a search of everything.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

import pytest

from sessions_app.agents.codex.edge import store
from sessions_app.agents.codex.edge.store import RolloutReader, find_rollout
from sessions_app.disk import files
from sessions_app.disk.files import EDGE, Fingerprint, GrowthKind, SessionReader, scan_directory
from sessions_app.sessionlog.session import DamageKind
from tests.files import append_as_agent, place

from .rollouts import THREAD, Parsed, Rollout, answer, kept, meta, user

OTHER = "01a20000-0000-7000-8000-000000000002"
THIRD = "01a20000-0000-7000-8000-000000000003"


def name(thread: str, segment: str = "") -> str:
    return f"rollout-2026-01-05T10-00-00-{thread}{segment and '_' + segment}.jsonl"


def based(base: Rollout, thread: str = THREAD, lines: int | None = None) -> dict[str, object]:
    """The base of a session on the first lines of another."""
    kept = base.lines[:lines]
    return based_on(sum(len(one) + 1 for one in kept), len(kept), thread)


def based_on(size: int, lines: int = 1, thread: str = THREAD) -> dict[str, object]:
    return {"thread_id": thread, "end_ordinal_exclusive": lines, "end_byte_offset": size}


def read(path: Path) -> Parsed:
    with RolloutReader(path) as reader:
        return Parsed(b"".join(reader.chunks(0)))


BASE = Rollout(meta(), user("a"), answer("b"), user("not in the fork"))


@pytest.fixture
def fork(tmp_path):
    """A fork beside its base."""
    BASE.save(tmp_path)
    return FORK.save(tmp_path, name(OTHER))


def messages_of(path: Path) -> list[str]:
    return kept(read(path).sent())


FORK = Rollout(meta(OTHER, history_base=based(BASE, lines=3)), user("c"), first=3)


@pytest.mark.parametrize("there", ["sessions/2026/01/05", "sessions/2025/12/31", "archived_sessions"])
def test_a_fork_has_the_first_part_of_its_base(tmp_path, there):
    BASE.save(tmp_path / there)
    found = read(FORK.save(tmp_path / "sessions/2026/01/05", name(OTHER)))
    assert kept(found.sent()) == ["a", "b", "c"]
    assert [one.id for one in found.branch] == ["0", "1", "2", "3", "4"]
    assert (found.log.header.id, found.parser.damage) == (OTHER, [])


def test_bases_have_bases(tmp_path, fork):
    third = Rollout(meta(THIRD, history_base=based(FORK, OTHER)), user("d"), first=5)
    assert messages_of(third.save(tmp_path, name(THIRD))) == ["a", "b", "c", "d"]


def test_a_reverted_thread_continues_an_earlier_segment_of_itself(tmp_path):
    BASE.save(tmp_path)
    first = Rollout(meta(history_base=based(BASE, lines=3)), user("c"), user("gone"), first=3)
    first.save(tmp_path, name(THREAD, OTHER))
    second = Rollout(meta(history_base=based(first, OTHER, lines=2)), user("d"), first=5)
    assert messages_of(second.save(tmp_path, name(THREAD, THIRD))) == ["a", "b", "c", "d"]


def test_every_entry_is_read_at_its_offset(fork):
    with RolloutReader(fork) as reader:
        content = b"".join(reader.chunks(0))
        found = Parsed(content)
        for entry in found.entries:
            assert reader.read_at(entry.offset, entry.length) == found.line(entry)
        for entry in (found.entries[1], found.entries[-1]):
            assert b"".join(reader.chunks(entry.offset)) == content[entry.offset :]
        with pytest.raises(ValueError, match="two files"):
            reader.read_at(0, len(content))


def cut_line(path: Path) -> None:
    BASE.save(path.parent)
    path.write_bytes(b"x" * 500 + path.read_bytes().replace(b"\n", b" ", 3))


def save_elsewhere(path: Path) -> Path:
    return BASE.save(path.parent.with_name("elsewhere"))


BASES: Final[dict[str, Callable[[Path], object]]] = {
    "missing": lambda _: None,
    "shorter": lambda path: Rollout(meta()).save(path.parent),
    "a cut line": cut_line,
    "linked": lambda path: path.symlink_to(save_elsewhere(path)),
    "in a linked directory": lambda path: (path.parent / "below").symlink_to(save_elsewhere(path).parent),
}


@pytest.mark.parametrize("base", BASES)
def test_a_base_that_cannot_be_used_is_reported_and_the_own_file_is_read(tmp_path, base):
    path = FORK.save(tmp_path / "sessions", name(OTHER))
    BASES[base](path.with_name(name(THREAD)))
    found = read(path)
    assert kept(found.sent()) == ["c"]
    assert [one.kind for one in found.parser.damage] == [DamageKind.MISSING_PARENT]


def test_a_file_that_is_its_own_base_is_read_once(tmp_path):
    sizes = (based(Rollout(meta(history_base=based_on(size)))) for size in range(100, 999))
    size = next(end for end, found in enumerate(sizes, 100) if found["end_byte_offset"] == end)
    path = Rollout(meta(history_base=based_on(size)), user("a")).save(tmp_path)
    assert messages_of(path) == ["a"]


def test_a_link_does_not_hide_the_base_and_only_rollouts_are_bases(tmp_path):
    BASE.save(tmp_path / "archived_sessions")
    path = FORK.save(tmp_path / "sessions", name(OTHER))
    (tmp_path / "sessions" / name(THREAD)).symlink_to(path)
    assert messages_of(path) == ["a", "b", "c"]
    BASE.save(tmp_path / "elsewhere", f"other-{THREAD}.jsonl")
    assert find_rollout(tmp_path / "elsewhere" / name(OTHER), THREAD) is None


@pytest.mark.parametrize("base", [5, {}, {"thread_id": "../x", "end_byte_offset": 1}, {"thread_id": THREAD}])
def test_an_unusable_base_is_none(tmp_path, base):
    path = Rollout(meta(OTHER, history_base=base), user("a")).save(tmp_path, name(OTHER))
    assert messages_of(path) == ["a"]


def fingerprint(path: Path, previous: Fingerprint | None = None, start: int = 0) -> Fingerprint:
    with RolloutReader(path) as reader:
        end = start + sum(map(len, reader.chunks(start)))
        return reader.fingerprint(end, previous)


def growth(path: Path, previous: Fingerprint) -> GrowthKind:
    with RolloutReader(path) as reader:
        return reader.growth(previous).kind


def test_a_fingerprint_is_of_the_own_file(fork):
    found = fingerprint(fork)
    assert found.size == fork.stat().st_size
    with RolloutReader(fork) as reader, SessionReader(fork) as plain:
        assert reader.state() == plain.state()
        assert plain.growth(found).kind is GrowthKind.UNCHANGED


def test_growth_of_the_own_file_is_read_alone(fork):
    before, state = fingerprint(fork), read(fork).parser.state
    append_as_agent(fork, Rollout(user("more"), first=5).content)
    assert growth(fork, before) is GrowthKind.GROWN
    with RolloutReader(fork) as reader:
        added = b"".join(reader.chunks(state.next_offset))
        assert b"more" in added
        assert b'"c"' not in added
    assert fingerprint(fork, before, state.next_offset).segments[:1] == before.segments


def test_growth_of_the_base_changes_nothing_and_another_base_is_a_rewritten_session(tmp_path, fork):
    base, before = BASE.save(tmp_path), fingerprint(fork)
    append_as_agent(base, Rollout(user("on"), first=4).content)
    assert growth(fork, before) is GrowthKind.UNCHANGED
    base.write_bytes(base.read_bytes().replace(b'"b"', b'"B"'))
    assert growth(fork, before) is GrowthKind.REWRITTEN
    base.unlink()
    assert growth(fork, before) is GrowthKind.REWRITTEN


def test_a_session_without_a_base_reads_as_any_file(tmp_path):
    path = Rollout(meta(), user("x" * 2 * EDGE)).save(tmp_path)
    with RolloutReader(path) as reader, SessionReader(path) as plain:
        assert list(reader.chunks(0)) == list(plain.chunks(0))
        size = path.stat().st_size
        assert reader.fingerprint(size, None) == plain.fingerprint(size, None)


NOW_ID = "01a204d2-92d2-7320-873a-4163e9e7ed7d"
"""Given on 22 November 2026."""
OTHER_DAY = "2025/03/04"
RANDOM_ID = "01a204d2-92d2-4320-873a-4163e9e7ed7d"
LONG_AGO = 1_700_000_000


@pytest.fixture
def listed(monkeypatch):
    found: list[str] = []

    def scan(path: Path) -> AbstractContextManager[Iterator[os.DirEntry[str]]]:
        found.append(path.name)
        return scan_directory(path)

    monkeypatch.setattr(files, "scan_directory", scan)
    store._settled_listing.cache_clear()
    return found


def touched(directory: Path, rollout_id: str = NOW_ID, thread: str = "") -> Path:
    """An empty rollout."""
    return place(directory / f"rollout-2026-11-22T19-53-58-{thread and thread + '_'}{rollout_id}.jsonl", b"")


def settle(home: Path) -> None:
    """Nothing has changed for a long time."""
    for directory in (home, *(one for one in home.rglob("*") if one.is_dir())):
        os.utime(directory, (LONG_AGO, LONG_AGO))


def asker(home: Path) -> Path:
    """The session for which a rollout is looked for."""
    return place(home / "sessions" / "2026" / "12" / "31" / "asker.jsonl", b"")


@pytest.mark.parametrize("day", ["22", "21", "23"])
def test_the_day_of_the_id_is_looked_at_before_all_others(tmp_path, listed, day):
    found = touched(tmp_path / "sessions" / "2026" / "11" / day)
    for other in range(1, 13):
        touched(tmp_path / "sessions" / "2025" / f"{other:02}" / "04", RANDOM_ID)
    assert find_rollout(asker(tmp_path), NOW_ID) == found
    assert set(listed) <= {"31", "22", "21", "23"}


def test_a_segment_is_found_by_its_own_id(tmp_path):
    found = touched(tmp_path / "sessions" / "2026" / "11" / "22", thread=RANDOM_ID)
    assert find_rollout(asker(tmp_path), NOW_ID) == found
    assert find_rollout(asker(tmp_path / "again"), RANDOM_ID) is None


@pytest.mark.parametrize("where", [f"sessions/{OTHER_DAY}", "sessions/odd", "sessions", "archived_sessions"])
@pytest.mark.parametrize("rollout_id", [NOW_ID, RANDOM_ID, "ffffffff-ffff-7320-873a-4163e9e7ed7d"])
def test_a_rollout_that_was_moved_is_found(tmp_path, where, rollout_id):
    found = touched(tmp_path / where, rollout_id)
    assert find_rollout(asker(tmp_path), rollout_id) == found


def test_a_tree_that_has_not_changed_is_not_listed_again(tmp_path, listed):
    found = touched(tmp_path / "sessions" / OTHER_DAY)
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
        found = touched(tmp_path / "sessions" / directory)
        assert find_rollout(path, NOW_ID) == found
        found.unlink()


def test_a_directory_that_has_just_changed_is_not_remembered(tmp_path):
    """Its time of change is too coarse to show the next one."""
    path = asker(tmp_path)
    assert find_rollout(path, NOW_ID) is None
    changed = path.parent.stat()
    found = touched(path.parent)
    os.utime(path.parent, ns=(changed.st_mtime_ns, changed.st_mtime_ns))
    assert find_rollout(path, NOW_ID) == found


def test_the_search_ends(tmp_path, listed, monkeypatch):
    monkeypatch.setattr(store, "MAX_DIRECTORIES", 12)
    for number in range(40):
        touched(tmp_path / "sessions" / f"{number:02}", RANDOM_ID)
    assert find_rollout(asker(tmp_path), NOW_ID) is None
    assert len(set(listed)) <= 12
