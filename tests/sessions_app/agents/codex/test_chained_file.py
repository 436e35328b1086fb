"""A thread's bytes: those of the files that it is based on, then its own."""

from pathlib import Path

import pytest

from sessions_app.agents.codex.chained_file import RolloutReader
from sessions_app.agents.codex.directories import find_rollout
from sessions_app.sessionlog.session import DamageKind
from sessions_app.storage.files import EDGE, Fingerprint, GrowthKind, SessionReader

from .rollouts import THREAD, Parsed, Rollout, answer, kept, meta, user

OTHER = "01a20000-0000-7000-8000-000000000002"
THIRD = "01a20000-0000-7000-8000-000000000003"


def name(thread: str, segment: str = "") -> str:
    return f"rollout-2026-01-05T10-00-00-{thread}{segment and '_' + segment}.jsonl"


def based(base: Rollout, thread: str = THREAD, lines: int | None = None) -> dict[str, object]:
    """The base of a session on the first lines of another."""
    count = len(base.lines) if lines is None else lines
    size = sum(len(one) + 1 for one in base.lines[:count])
    return {"thread_id": thread, "end_ordinal_exclusive": count, "end_byte_offset": size}


def read(path: Path) -> Parsed:
    with RolloutReader(path) as reader:
        return Parsed(b"".join(reader.chunks(0)))


BASE = Rollout(meta(), user("a"), answer("b"), user("not in the fork"))
FORK = Rollout(meta(OTHER, history_base=based(BASE, lines=3)), user("c"), first=3)


@pytest.mark.parametrize("there", ["sessions/2026/01/05", "sessions/2025/12/31", "archived_sessions"])
def test_a_fork_has_the_first_part_of_its_base(tmp_path, there):
    BASE.save(tmp_path / there)
    found = read(FORK.save(tmp_path / "sessions/2026/01/05", name(OTHER)))
    assert kept(found.sent()) == ["a", "b", "c"]
    assert [one.id for one in found.branch] == ["0", "1", "2", "3", "4"]
    assert found.log.header is not None
    assert found.log.header.id == OTHER
    assert not found.parser.damage


def test_bases_have_bases(tmp_path):
    BASE.save(tmp_path)
    FORK.save(tmp_path, name(OTHER))
    third = Rollout(meta(THIRD, history_base=based(FORK, OTHER)), user("d"), first=5)
    assert kept(read(third.save(tmp_path, name(THIRD))).sent()) == ["a", "b", "c", "d"]


def test_a_reverted_thread_continues_an_earlier_segment_of_itself(tmp_path):
    BASE.save(tmp_path)
    first = Rollout(meta(history_base=based(BASE, lines=3)), user("c"), user("gone"), first=3)
    first.save(tmp_path, name(THREAD, OTHER))
    second = Rollout(meta(history_base=based(first, OTHER, lines=2)), user("d"), first=5)
    assert kept(read(second.save(tmp_path, name(THREAD, THIRD))).sent()) == ["a", "b", "c", "d"]


def test_every_entry_is_read_at_its_offset(tmp_path):
    BASE.save(tmp_path)
    path = FORK.save(tmp_path, name(OTHER))
    with RolloutReader(path) as reader:
        content = b"".join(reader.chunks(0))
        found = Parsed(content)
        for entry in found.entries:
            assert reader.read_at(entry.offset, entry.length) == found.line(entry)
        assert b"".join(reader.chunks(found.entries[1].offset)) == content[found.entries[1].offset :]
        assert b"".join(reader.chunks(found.entries[-1].offset)) == content[found.entries[-1].offset :]
        with pytest.raises(ValueError, match="two files"):
            reader.read_at(0, len(content))


def missing(directory: Path) -> None:
    """There is no base."""


def shorter(directory: Path) -> None:
    Rollout(meta()).save(directory)


def cut_line(directory: Path) -> None:
    path = BASE.save(directory)
    content = path.read_bytes()
    path.write_bytes(b"x" * 500 + content.replace(b"\n", b" ", 3))


def linked(directory: Path) -> None:
    elsewhere = directory.with_name("elsewhere")
    (directory / name(THREAD)).symlink_to(BASE.save(elsewhere))


def linked_directory(directory: Path) -> None:
    elsewhere = directory.with_name("elsewhere")
    BASE.save(elsewhere)
    (directory / "below").symlink_to(elsewhere)


@pytest.mark.parametrize("prepare", [missing, shorter, cut_line, linked, linked_directory])
def test_a_base_that_cannot_be_used_is_reported_and_the_own_file_is_read(tmp_path, prepare):
    directory = tmp_path / "sessions"
    path = FORK.save(directory, name(OTHER))
    prepare(directory)
    found = read(path)
    assert kept(found.sent()) == ["c"]
    assert [one.kind for one in found.parser.damage] == [DamageKind.MISSING_PARENT]


def test_a_file_that_is_its_own_base_is_read_once(tmp_path):
    sizes = (based(Rollout(meta(history_base=own_base(size)))) for size in range(100, 999))
    size = next(end for end, found in enumerate(sizes, 100) if found["end_byte_offset"] == end)
    path = Rollout(meta(history_base=own_base(size)), user("a")).save(tmp_path)
    assert kept(read(path).sent()) == ["a"]


def own_base(size: int) -> dict[str, object]:
    return {"thread_id": THREAD, "end_ordinal_exclusive": 1, "end_byte_offset": size}


def test_a_link_does_not_hide_the_base(tmp_path):
    BASE.save(tmp_path / "archived_sessions")
    path = FORK.save(tmp_path / "sessions", name(OTHER))
    (tmp_path / "sessions" / name(THREAD)).symlink_to(path)
    assert kept(read(path).sent()) == ["a", "b", "c"]


@pytest.mark.parametrize("base", [5, {}, {"thread_id": "../x", "end_byte_offset": 1}, {"thread_id": THREAD}])
def test_an_unusable_base_is_none(tmp_path, base):
    found = read(Rollout(meta(OTHER, history_base=base), user("a")).save(tmp_path, name(OTHER)))
    assert kept(found.sent()) == ["a"]


def test_only_rollouts_are_bases(tmp_path):
    BASE.save(tmp_path, f"other-{THREAD}.jsonl")
    assert find_rollout(tmp_path / name(OTHER), THREAD) is None


# ---- fingerprints ---------------------------------------------------------------------------------------------


def fingerprint(path: Path, previous: Fingerprint | None = None, start: int = 0) -> Fingerprint:
    with RolloutReader(path) as reader:
        end = start + sum(map(len, reader.chunks(start)))
        return reader.fingerprint(end, previous)


def growth(path: Path, previous: Fingerprint) -> GrowthKind:
    with RolloutReader(path) as reader:
        return reader.growth(previous).kind


def test_a_fingerprint_is_of_the_own_file(tmp_path):
    BASE.save(tmp_path)
    path = FORK.save(tmp_path, name(OTHER))
    found = fingerprint(path)
    assert found.size == path.stat().st_size
    with RolloutReader(path) as reader, SessionReader(path) as plain:
        assert reader.state() == plain.state()
        assert plain.growth(found).kind is GrowthKind.UNCHANGED


def test_growth_of_the_own_file_is_read_alone(tmp_path):
    BASE.save(tmp_path)
    path = FORK.save(tmp_path, name(OTHER))
    before, state = fingerprint(path), read(path).parser.state
    FORK.with_lines(Rollout(user("more"), first=5).lines).save(tmp_path, name(OTHER))
    assert growth(path, before) is GrowthKind.GROWN
    with RolloutReader(path) as reader:
        added = b"".join(reader.chunks(state.next_offset))
        assert b"more" in added
        assert b'"c"' not in added
    assert fingerprint(path, before, state.next_offset).segments[:1] == before.segments


def test_growth_of_the_base_changes_nothing(tmp_path):
    BASE.save(tmp_path)
    path = FORK.save(tmp_path, name(OTHER))
    before = fingerprint(path)
    BASE.with_lines(Rollout(user("on"), first=4).lines).save(tmp_path)
    assert growth(path, before) is GrowthKind.UNCHANGED


def test_another_base_is_a_rewritten_session(tmp_path):
    base = BASE.save(tmp_path)
    path = FORK.save(tmp_path, name(OTHER))
    before = fingerprint(path)
    base.write_bytes(base.read_bytes().replace(b'"b"', b'"B"'))
    assert growth(path, before) is GrowthKind.REWRITTEN
    base.unlink()
    assert growth(path, before) is GrowthKind.REWRITTEN


def test_a_session_without_a_base_reads_as_any_file(tmp_path):
    path = Rollout(meta(), user("x" * 2 * EDGE)).save(tmp_path)
    with RolloutReader(path) as reader, SessionReader(path) as plain:
        assert list(reader.chunks(0)) == list(plain.chunks(0))
        size = path.stat().st_size
        assert reader.fingerprint(size, None) == plain.fingerprint(size, None)
