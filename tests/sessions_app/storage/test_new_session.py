"""A new session beside another one appears whole or not at all, replaces nothing, and is recorded once."""

import hashlib
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from sessions_app.disk import files
from sessions_app.sessionlog.errors import SystemFailure
from sessions_app.storage import locks, new_session
from sessions_app.storage.locks import LockedSession, RecoveryKind, session_lock
from sessions_app.storage.new_session import NewSession, create_session
from tests.files import append_as_agent, place, snapshot, unchanged
from tests.installation import refusal
from tests.processes import limit_file_size, refusal_in_child

LINES = (b'{"type":"session"}\n', b'{"id":"e1"}\n', b'{"id":"e2"}\n')
NAME = "new.jsonl"


class Crash(BaseException):
    """Ends the process: nothing catches it."""


def ignore(_: object) -> None: ...


def create(
    data: Path,
    session: Path,
    pieces: Iterable[bytes] = LINES,
    *,
    check: Callable[[Path], object] = ignore,
    record: Callable[[NewSession], object] = ignore,
    settle: Callable[[LockedSession], object] = ignore,
) -> NewSession:
    with session_lock(data, session, 5, settle) as locked:
        return create_session(locked, NAME, pieces, check=check, note=lambda _: "the note", record=record)


def recovery_of(data: Path, session: Path) -> tuple[RecoveryKind, str]:
    """What the next lock finds, and passes to whoever records it."""
    found = []
    with session_lock(data, session, 5, lambda locked: found.append(locked.recovery)):
        pass
    assert not list((data / "locks").glob("*.intent"))
    return found[0].kind, found[0].note


NOTHING = (RecoveryKind.NOT_NEEDED, "")


def test_it_has_every_byte_and_the_mode_of_the_session(data, session):
    session.chmod(0o640)
    made = create(data, session)
    path, content = session.with_name(NAME), b"".join(LINES)
    assert path.read_bytes() == content
    assert made == NewSession(path, len(content), hashlib.sha256(content).hexdigest())
    assert path.stat().st_mode == session.stat().st_mode
    assert sorted(snapshot(session.parent)) == ["a.jsonl", NAME]
    assert recovery_of(data, session) == NOTHING


def test_long_content_is_written_in_pieces(data, session):
    line = b"x" * 999 + b"\n"
    made = create(data, session, (line for _ in range(3 * files.CHUNK // 1_000)))
    assert made.size == session.with_name(NAME).stat().st_size == 3 * files.CHUNK // 1_000 * 1_000


def test_it_is_checked_before_it_has_its_name(data, session):
    seen = []
    create(
        data,
        session,
        check=lambda draft: seen.append((draft.read_bytes(), session.with_name(NAME).exists())),
        record=lambda made: seen.append((made.path.read_bytes(), True)),
    )
    assert seen == [(b"".join(LINES), False), (b"".join(LINES), True)]


def test_a_refused_content_and_a_full_disk_leave_nothing(data, session):
    before = snapshot(session.parent)
    assert refusal(lambda: create(data, session, check=fail)) == "6 not_now"
    assert snapshot(session.parent) == before
    assert recovery_of(data, session) == NOTHING
    act = partial(create, data, session, [b"x" * 9_999 + b"\n"] * 50)
    assert refusal_in_child(act, limit_file_size(100_000)) == "6 disk_full"
    assert snapshot(session.parent) == before


@pytest.mark.parametrize("is_link", [False, True])
def test_no_file_is_replaced(data, session, is_link):
    there = session.with_name(NAME)
    if is_link:
        there.symlink_to("nowhere")
    else:
        there.write_bytes(b"mine")
    with unchanged(session.parent):
        assert refusal(lambda: create(data, session)) == "2 exists"
    assert recovery_of(data, session) == NOTHING


def test_content_that_reads_back_differently_is_reported(data, session, monkeypatch):
    def write_wrong(fd: int, content: bytes) -> None:
        files.write_all(fd, content.replace(b"e2", b"e3"))

    with unchanged(session.parent):
        monkeypatch.setattr(new_session, "write_all", write_wrong)
        assert refusal(lambda: create(data, session), "read back differ") == "6 write_failed"


def fail(_: object) -> None:
    raise SystemFailure("not_now", "The database is busy.")


def test_what_could_not_be_recorded_is_recorded_by_the_next_lock(data, session):
    assert refusal(lambda: create(data, session, record=fail)) == "6 not_now"
    assert session.with_name(NAME).read_bytes() == b"".join(LINES)
    assert recovery_of(data, session) == (RecoveryKind.MADE, "the note")
    assert recovery_of(data, session) == NOTHING


def crash_at(owner: object, name: str, data: Path, session: Path, how: Any = Crash) -> None:
    """End a creation where it calls a function."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, Mock(side_effect=how))
        with pytest.raises(Crash):
            create(data, session)


def test_one_that_was_announced_and_not_made_leaves_nothing(data, session):
    with unchanged(session.parent):
        crash_at(Path, "hardlink_to", data, session)
        assert recovery_of(data, session) == (RecoveryKind.NOT_MADE, "the note")


def test_one_that_was_made_is_recorded_though_its_agent_has_continued_it(data, session):
    crash_at(new_session, "sync_directory", data, session)
    append_as_agent(session.with_name(NAME), b'{"id":"e3"}\n')
    with session_lock(data, session, 5) as locked:
        assert locked.recovery.kind is RecoveryKind.MADE
        assert locked.recovery.size == len(b"".join(LINES))


def test_another_file_of_its_name_is_not_taken_for_it(data, session):
    def crash_with_draft(draft: Path) -> None:
        # A killed process leaves its draft, so that no other file gets its inode.
        draft.rename(draft.with_name("kept"))
        raise Crash

    crash_at(Path, "hardlink_to", data, session, crash_with_draft)
    session.with_name(NAME).write_bytes(b"".join(LINES))
    assert recovery_of(data, session) == (RecoveryKind.NOT_MADE, "the note")


def test_the_draft_of_a_dead_process_is_removed(data, session):
    draft = place(session.with_name(".a.jsonl.redline-fork"), b"half")
    recovery_of(data, session)
    assert not draft.exists()


def test_a_record_that_cannot_be_removed_is_reported(data, session):
    def block(_: NewSession) -> None:
        (record,) = (data / "locks").glob("*.intent")
        record.unlink()
        (record / "in the way").mkdir(parents=True)

    with session_lock(data, session, 5) as locked, pytest.raises(SystemFailure) as caught:
        create_session(locked, NAME, LINES, check=ignore, note=lambda _: "", record=block)
    assert caught.value.code == "append_not_tidied"
    assert session.with_name(NAME).read_bytes() == b"".join(LINES)


def test_it_needs_the_lock(data, session):
    with locks.session_lock(data, session, 5) as locked:
        pass
    with pytest.raises(RuntimeError, match="was released"):
        create_session(locked, NAME, LINES, check=ignore, note=lambda _: "", record=ignore)
    assert list(snapshot(session.parent)) == ["a.jsonl"]
