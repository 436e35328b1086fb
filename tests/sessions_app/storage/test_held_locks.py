"""Whether a file is locked by another process is seen without locking it."""

import fcntl
from unittest.mock import Mock

import pytest

from sessions_app.disk import open_files
from sessions_app.disk.open_files import is_locked
from tests.files import place
from tests.processes import held


@pytest.fixture
def lock(tmp_path):
    return place(tmp_path / "thread.lock", b"")


def test_a_held_lock_is_seen_until_it_is_given_back_but_not_through_a_link(lock):
    other = place(lock.with_name("other.lock"), b"")
    assert is_locked(lock) is False
    with held(lock):
        assert is_locked(lock) is True
        assert is_locked(other) is False
    assert is_locked(lock) is False
    assert is_locked(lock.parent / "gone" / "thread.lock") is False
    link = lock.with_name("link.lock")
    link.symlink_to(lock)
    with held(lock):
        assert is_locked(link) is False


@pytest.mark.parametrize(("how", "kind"), [(fcntl.flock, fcntl.LOCK_SH), (fcntl.lockf, fcntl.LOCK_EX)])
def test_only_an_exclusive_lock_of_the_whole_file_counts(lock, how, kind):
    with held(lock, how, kind):
        assert is_locked(lock) is False


def test_nothing_is_locked_by_the_look(lock, monkeypatch):
    taken = Mock()
    for name in ("flock", "lockf", "fcntl"):
        monkeypatch.setattr(fcntl, name, taken)
    is_locked(lock)
    taken.assert_not_called()


def test_a_system_without_a_list_of_locks_does_not_say(lock, tmp_path, monkeypatch):
    monkeypatch.setattr(open_files, "_SYSTEM", tmp_path / "nothing")
    with held(lock):
        assert is_locked(lock) is None
