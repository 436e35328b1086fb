"""Codex's own lock on a thread: held by Redline during a write, and a certain sign that the thread is open."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sessions_app.agents.codex.agent import CODEX
from sessions_app.agents.codex.writer_lock import thread_id_of, writer_lock
from sessions_app.sessionlog.errors import Conflict
from sessions_app.storage import held_locks

from .rollouts import THREAD, Rollout, meta


@pytest.fixture
def session(tmp_path):
    return Rollout(meta()).save(tmp_path / "codex" / "sessions" / "2026" / "01" / "05")


def lock_of(session: Path) -> Path:
    return session.parents[4] / "thread-writer-locks" / f"{THREAD}.lock"


@contextmanager
def held(session: Path) -> Iterator[None]:
    """A client has the thread open."""
    lock = lock_of(session)
    lock.parent.mkdir(exist_ok=True)
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    yield
    lock.unlink()
    os.close(descriptor)


def is_open(session: Path) -> bool:
    """Whether Codex certainly has the thread open."""
    found = CODEX.open_elsewhere(session)
    return found is not None and found.is_certain and "Codex" in found.sentence


def can_lock(session: Path) -> bool:
    descriptor = os.open(lock_of(session), os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True


def test_a_client_cannot_open_the_thread_during_a_write(session):
    with writer_lock(session):
        assert not can_lock(session)
        assert is_open(session)
    assert can_lock(session)


def test_an_open_thread_is_not_written_to(session):
    with held(session), pytest.raises(Conflict) as caught, writer_lock(session):
        pass
    assert caught.value.code == "open_in_agent"
    assert str(session) in caught.value.message
    assert "fork" in caught.value.message


def test_an_open_thread_is_certainly_open(session):
    assert CODEX.open_elsewhere(session) is None
    with held(session):
        assert is_open(session)
    assert CODEX.open_elsewhere(session) is None


def test_a_thread_is_perhaps_open_if_the_system_does_not_show_who_holds_its_lock(session, tmp_path, monkeypatch):
    monkeypatch.setattr(held_locks, "_SYSTEM", tmp_path / "nothing")
    assert CODEX.open_elsewhere(session) is None
    with held(session):
        found = CODEX.open_elsewhere(session)
    assert found is not None
    assert not found.is_certain


def test_the_lock_of_a_killed_client_is_free(session):
    lock_of(session).parent.mkdir()
    lock_of(session).touch()
    assert CODEX.open_elsewhere(session) is None
    with writer_lock(session):
        assert not can_lock(session)


def test_a_session_elsewhere_has_no_lock(tmp_path):
    path = Rollout(meta()).save(tmp_path)
    with writer_lock(path):
        assert list(tmp_path.iterdir()) == [path]
    assert CODEX.open_elsewhere(path) is None


def test_a_lock_that_is_a_link_is_not_followed(session, tmp_path):
    target = tmp_path / "target"
    target.touch()
    lock_of(session).parent.mkdir()
    lock_of(session).symlink_to(target)
    with pytest.raises(Exception, match="symbolic link"), writer_lock(session):
        pass


@pytest.mark.parametrize(
    ("name", "thread"),
    [
        (f"rollout-2026-01-05T10-00-00-{THREAD}.jsonl", THREAD),
        (f"rollout-2026-01-05T10-00-00-{THREAD}_01a20000-0000-7000-8000-0000000000aa.jsonl", THREAD),
        ("rollout-x.jsonl", ""),
        (f"{THREAD}.jsonl", ""),
    ],
)
def test_a_file_is_named_after_its_thread(name, thread):
    assert thread_id_of(Path(name)) == thread
    if thread:
        assert CODEX.resume_command(Path(name)) == ("codex", "resume", thread)
