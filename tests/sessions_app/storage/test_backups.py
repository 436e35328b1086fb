"""Backups are exact copies or not there at all, and a restore never loses the present bytes."""

import errno
import hashlib
import os
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import msgspec
import pytest
from hypothesis import given, strategies as st

from sessions_app.disk import files
from sessions_app.sessionlog.errors import SystemFailure
from sessions_app.storage import append, backups, locks
from tests.budget import examples
from tests.files import append_as_agent, fingerprint_of, place, snapshot, state_of, unchanged
from tests.installation import refusal
from tests.processes import NOBODY, become_nobody, limit_file_size, refusal_in_child

NOW = datetime(2026, 1, 5, 10, 0, 0, 123_456, tzinfo=UTC)
NAME = "a.jsonl.2026-01-05T10-00-00-123Z.compact.bak"
DIGEST = f"{NAME}.sha256"
CONTENT = b'{"type":"session"}\n' + b'{"id":"1"}\n' * 5000
GROWN = CONTENT + b'{"type":"context_compaction"}\n'


@pytest.fixture
def session(session):
    session.write_bytes(CONTENT)
    return session


def make(data: Path, session: Path, fingerprint: files.Fingerprint | None = None) -> backups.Backup:
    with locks.session_lock(data, session, 5) as locked:
        return backups.back_up(locked, fingerprint or fingerprint_of(session), NOW)


def give_back(
    data: Path, session: Path, backup: backups.Backup | Path, replace: Callable[[Path, Path], object] = os.replace
) -> backups.Restored:
    """Restore a backup; a path is one of which no digest is recorded."""
    path, recorded = (backup, None) if isinstance(backup, Path) else (backup.path, backup.recorded_sha256)
    with locks.session_lock(data, session, 5) as locked:
        return backups.restore(locked, path, recorded, files.file_state(session), NOW, replace=replace)


def beside(session: Path) -> set[str]:
    """The names of all other files in the directory of the session."""
    return {path.name for path in session.parent.iterdir()} - {session.name}


def drafts(session: Path) -> list[str]:
    return [name for name in beside(session) if name.startswith(".")]


def refused(data: Path, session: Path, backup: backups.Backup, replace: Any = os.replace) -> str:
    """The refusal of a restore, which leaves no draft."""
    answer = refusal(lambda: give_back(data, session, backup, replace))
    assert not drafts(session)
    return answer


def act_before(monkeypatch: pytest.MonkeyPatch, name: str, act: Callable[..., object]) -> None:
    """Let something happen whenever a restore is about to call this function of its own."""
    usual = getattr(backups, name)

    def both(*arguments: object) -> object:
        act(*arguments)
        return usual(*arguments)

    monkeypatch.setattr(backups, name, both)


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def changed(content: bytes, at: int) -> bytes:
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


@pytest.mark.parametrize("mode", [0o600, 0o644, 0o440])
def test_a_backup_is_byte_exact_has_the_same_mode_and_is_named_by_its_time(session, data, mode):
    session.chmod(mode)
    backup = make(data, session)
    assert backup.path == files.real_path(session).with_name(NAME)
    assert backup.path.read_bytes() == CONTENT == session.read_bytes()
    assert stat.S_IMODE(backup.path.stat().st_mode) == mode
    assert backup.path.stat().st_nlink == 1
    taken_at = NOW.replace(microsecond=123_000)
    assert backup[1:] == (files.real_path(session), len(CONTENT), taken_at, sha256(CONTENT), "compact")
    assert beside(session) == {NAME, DIGEST}
    assert backups.list_backups(session) == [backup]


def test_a_backup_made_by_root_belongs_to_the_owner_of_its_session(session, data):
    if os.geteuid() == 0:
        os.chown(session, NOBODY, NOBODY)
    owner = session.stat().st_uid, session.stat().st_gid
    give_back(data, session, make(data, session))
    for path in session.parent.iterdir():
        assert (path.stat().st_uid, path.stat().st_gid) == owner, path.name


@pytest.mark.parametrize(
    "name", ["a.jsonl", "back\\slash.jsonl", "new\nline.jsonl", "b\\oth\\\n.jsonl", "ünï çode.jsonl", "-.jsonl"]
)
def test_sha256sum_can_check_the_digest_file(session, data, name):
    session = session.rename(session.with_name(name))
    backup = make(data, session)
    record = backup.path.with_name(f"{backup.path.name}.sha256")
    if name == "a.jsonl":
        assert record.read_bytes() == f"{sha256(CONTENT)}  {NAME}\n".encode()
    assert backups.recorded_sha256(backup.path) == sha256(CONTENT)
    tool = ["sha256sum"] if shutil.which("sha256sum") else ["shasum", "-a", "256"]
    check = [*tool, "-c", "--", record.name]
    assert subprocess.run(check, cwd=session.parent, capture_output=True).returncode == 0
    backup.path.write_bytes(changed(CONTENT, 100))
    assert subprocess.run(check, cwd=session.parent, capture_output=True).returncode == 1


def test_a_taken_name_is_skipped_and_nothing_is_overwritten(session, data):
    place(session.with_name(NAME), b"the agent's own")
    place(session.with_name(DIGEST.replace("123Z", "124Z")), b"someone's note")
    session.with_name(NAME.replace("123Z", "125Z")).symlink_to("nowhere")
    before = snapshot(session.parent)
    backup = make(data, session)
    assert backup.path.name == NAME.replace("123Z", "126Z")
    assert backup.taken_at == NOW.replace(microsecond=126_000)
    made = {backup.path.name, f"{backup.path.name}.sha256"}
    assert {name: kept for name, kept in snapshot(session.parent).items() if name not in made} == before
    assert backup.path.read_bytes() == CONTENT


def test_the_name_is_in_utc_in_every_time_zone(session):
    assert backups.backup_name(session, NOW.astimezone(timezone(timedelta(hours=5, minutes=30)))) == NAME
    assert backups.backup_name(session, NOW.replace(microsecond=0)) == NAME.replace("123Z", "000Z")
    with pytest.raises(ValueError, match="aware"):
        backups.backup_name(session, NOW.replace(tzinfo=None))


def in_three_segments(session: Path) -> files.Fingerprint:
    """The fingerprint of `session` after indexing it three times while it grew."""
    content = session.read_bytes()
    fingerprint: files.Fingerprint | None = None
    for lines in (2000, 4000, 5001):
        session.write_bytes(b"".join(content.splitlines(keepends=True)[:lines]))
        with files.SessionReader(session) as reader:
            read = sum(len(chunk) for chunk in reader.chunks(fingerprint.size if fingerprint else 0))
            fingerprint = reader.fingerprint(read + (fingerprint.size if fingerprint else 0), fingerprint)
    assert len(fingerprint.segments) == 3
    assert session.read_bytes() == content
    return fingerprint


@pytest.mark.parametrize("at", [0, 10_000, 30_000, 50_000, len(CONTENT) - 1])
def test_a_changed_bit_anywhere_stops_the_backup(session, data, at):
    fingerprint = in_three_segments(session)
    with session.open("r+b") as file:
        file.write(changed(CONTENT, at))
    if at == 30_000:
        with files.SessionReader(session) as reader:
            assert reader.growth(fingerprint).kind is files.GrowthKind.UNCHANGED, "so it is the segments that find it"
    assert refusal(lambda: make(data, session, fingerprint)) == "4 session_rewritten"
    assert session.read_bytes() == changed(CONTENT, at)
    assert beside(session) == set()


def test_a_replaced_or_truncated_session_is_not_backed_up_nor_one_with_unchecked_bytes(session, data):
    fingerprint = fingerprint_of(session)
    with pytest.raises(ValueError, match="reach to its size"):
        make(data, session, msgspec.structs.replace(fingerprint, segments=()))
    os.truncate(session, len(CONTENT) - 1)
    assert refusal(lambda: make(data, session, fingerprint)) == "4 session_rewritten"
    session.rename(session.with_name("kept"))
    assert refusal(lambda: make(data, session, fingerprint)) == "2 no_such_file"
    session.write_bytes(CONTENT[:-1] + b" ")
    assert refusal(lambda: make(data, session, fingerprint)) == "4 session_rewritten"
    assert beside(session) == {"kept"}


def test_lines_added_after_indexing_are_in_the_backup(session, data):
    fingerprint = in_three_segments(session)
    append_as_agent(session, b'{"id":"2"}\n{"torn')
    backup = make(data, session, fingerprint)
    assert backup.path.read_bytes() == CONTENT + b'{"id":"2"}\n{"torn'
    assert backup.recorded_sha256 == sha256(backup.path.read_bytes())
    assert backup.size == len(CONTENT) + 17


def test_free_space_is_checked_before_anything_is_written(session, data):
    fingerprint = fingerprint_of(session)
    disk = os.statvfs(session.parent)
    size = disk.f_bavail * disk.f_frsize + (1 << 30)
    os.truncate(session, size)  # sparse: it takes no space itself

    def act() -> None:
        with pytest.raises(SystemFailure, match=rf"has \d+ bytes free; .* needs {size}") as caught:
            make(data, session, fingerprint)
        assert caught.value.code == "no_space"

    # The limit keeps a failing test from filling the disk.
    assert refusal_in_child(act, limit_file_size(1 << 20)) == "done"
    assert beside(session) == set()


@pytest.mark.parametrize("limit", [0, 1, 4096, len(CONTENT) - 1])
def test_a_disk_that_fills_up_during_a_backup_leaves_nothing_behind(session, data, limit):
    assert refusal_in_child(lambda: make(data, session), limit_file_size(limit)) == "6 disk_full"
    assert session.read_bytes() == CONTENT
    assert beside(session) == set()


def test_a_backup_that_cannot_be_made_durable_is_removed(session, data, monkeypatch):
    def fail(_: Path) -> None:
        assert beside(session) == {NAME, DIGEST}
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(files, "sync_directory", fail)
    assert refusal(lambda: make(data, session)) == "6 io_error"
    assert beside(session) == set()


def test_an_unwritable_directory_is_permission_denied(public_dir):
    session = place(public_dir / "sessions" / "a.jsonl", CONTENT)
    session.parent.chmod(0o555)
    assert refusal_in_child(lambda: make(public_dir / "data", session), become_nobody) == "6 permission_denied"
    assert beside(session) == set()


def test_leftovers_of_a_killed_backup_are_cleaned_up_and_not_listed(session, data):
    outside = place(session.parent.parent / "outside", b"not ours")
    unfinished = session.with_name(".a.jsonl.redline-backup")
    for leave in (partial(unfinished.write_bytes, b"half"), partial(unfinished.symlink_to, outside)):
        leave()
        assert backups.list_backups(session) == []
        backup = make(data, session)
        assert backup.path.read_bytes() == CONTENT
        assert beside(session) == {NAME, DIGEST}
        backups.delete_backup(backup.path)
    assert outside.read_bytes() == b"not ours"


def test_backups_are_listed_newest_first_and_only_those_of_the_session(session, data):
    # Those of 2025 and 2027 were made by the agent: there is no digest beside them.
    for name in """
        a.jsonl.2025-12-31T23-59-59-999Z.compact.bak     a.jsonl.2027-01-01T00-00-00-000Z.compact.bak
        b.jsonl.2026-01-05T10-00-00-123Z.compact.bak     a.jsonl.2026-13-05T10-00-00-123Z.compact.bak
        a.jsonl.2026-01-05T10-00-00-123Z.compact.bak.old a.jsonl.2026-01-05T10-00-00Z.compact.bak
        a.jsonl.compact.bak
    """.split():
        place(session.with_name(name), b"x")
    session.with_name("a.jsonl.2026-02-02T00-00-00-000Z.compact.bak").symlink_to(session)
    session.with_name("a.jsonl.2026-03-03T00-00-00-000Z.compact.bak").mkdir()
    ours = make(data, session)
    listed = backups.list_backups(session)
    digests = [(backup.taken_at.year, backup.recorded_sha256) for backup in listed]
    assert digests == [(2027, None), (2026, sha256(CONTENT)), (2025, None)]
    assert listed[1] == ours
    assert listed[2].size == 1


def test_backups_of_a_missing_session_are_listed_even_through_a_symlink(session, data):
    backup = make(data, session)
    alias = session.parent.parent / "alias.jsonl"
    alias.symlink_to(session)
    session.unlink()
    assert backups.list_backups(session) == backups.list_backups(files.real_path(alias)) == [backup]


def test_a_backup_is_verified_by_reading_all_of_it_and_an_invalid_digest_file_counts_as_no_digest(session, data):
    backup = make(data, session)
    assert backups.verify(backup.path, backup.recorded_sha256) == (True, sha256(CONTENT))
    assert backups.verify(backup.path, None) == (None, sha256(CONTENT))
    backup.path.write_bytes(changed(CONTENT, 30_000))
    assert backups.verify(backup.path, backup.recorded_sha256) == (False, sha256(changed(CONTENT, 30_000)))
    for damaged in (b"", b"zz" * 40, sha256(CONTENT).encode(), sha256(CONTENT).upper().encode() + b"  x\n"):
        backup.path.with_name(DIGEST).write_bytes(damaged)
        assert backups.recorded_sha256(backup.path) is None


def acts_on(data: Path, session: Path, path: Path) -> list[Callable[[], object]]:
    """All that can be done with a backup."""
    return [
        lambda: backups.verify(path, None),
        lambda: backups.delete_backup(path),
        lambda: give_back(data, session, path),
    ]


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.compact.bak", DIGEST, NAME[7:]])
def test_a_backup_knows_its_session_and_a_file_not_named_like_one_is_no_backup(session, data, name):
    assert backups.backed_up_session(session.with_name(NAME)) == session
    twice = session.with_name(f"{NAME}.2026-02-05T10-00-00-123Z.compact.bak")
    assert backups.backed_up_session(twice) == session.with_name(NAME)
    path = place(session.with_name(name), CONTENT)
    for act in (lambda: backups.backed_up_session(path), *acts_on(data, session, path)):
        assert refusal(act) == "2 not_a_backup"
    assert path.read_bytes() == CONTENT


def test_a_symlink_named_like_a_backup_is_neither_read_nor_deleted(session, data):
    link = session.with_name(NAME)
    link.symlink_to(session)
    for act in acts_on(data, session, link):
        assert refusal(act) == "2 not_a_file"
    assert link.is_symlink()
    assert session.read_bytes() == CONTENT


def test_deleting_a_backup_removes_its_digest_and_nothing_else(session, data):
    first, second = make(data, session), make(data, session)
    backups.delete_backup(first.path)
    assert backups.list_backups(session) == [second]
    assert beside(session) == {second.path.name, second.path.name + ".sha256"}
    assert refusal(lambda: backups.delete_backup(first.path)) == "2 no_such_file"
    assert session.read_bytes() == CONTENT


def grown(data: Path, session: Path) -> backups.Backup:
    """A backup of `session`, to which one more line is then added."""
    backup = make(data, session)
    append_as_agent(session, GROWN[len(CONTENT) :])
    return backup


def test_restoring_brings_the_old_bytes_back_and_backs_up_the_present_ones(session, data):
    session.chmod(0o640)
    backup = grown(data, session)
    restored = give_back(data, session, backup)
    assert session.read_bytes() == CONTENT
    assert stat.S_IMODE(session.stat().st_mode) == 0o640
    assert (restored.path, restored.sha256) == (files.real_path(session), sha256(CONTENT))
    assert not restored.overtaken
    previous = restored.previous_backup
    assert previous.path.read_bytes() == GROWN
    assert backups.list_backups(session) == [previous, backup]
    assert beside(session) == {path.name + tail for path in (backup.path, previous.path) for tail in ("", ".sha256")}
    again = give_back(data, session, previous)
    assert session.read_bytes() == GROWN
    assert again.previous_backup is not None


def test_a_damaged_backup_is_not_restored(session, data):
    backup = grown(data, session)
    before = session.read_bytes(), state_of(session), beside(session)
    backup.path.write_bytes(changed(CONTENT, 30_000))
    assert refused(data, session, backup) == "4 backup_damaged"
    assert (session.read_bytes(), state_of(session), beside(session)) == before


def test_the_agents_own_backup_can_be_restored_without_a_digest(session, data):
    assert give_back(data, session, place(session.with_name(NAME), b"older\n")).sha256 == sha256(b"older\n")
    assert session.read_bytes() == b"older\n"


def test_a_missing_session_is_restored(session, data):
    backup = make(data, session)
    session.unlink()
    assert give_back(data, session, backup) == (files.real_path(session), sha256(CONTENT), (), False, ())
    assert session.read_bytes() == CONTENT
    assert session.stat().st_nlink == 1
    assert beside(session) == {NAME, DIGEST}


@pytest.mark.parametrize("shown", ["size", "inode", "gone", "there"])
def test_a_session_in_another_state_than_the_one_shown_is_not_restored(session, data, shown):
    backup, present = make(data, session), state_of(session)
    if shown in ("size", "inode"):
        present = msgspec.structs.replace(present, **{shown: getattr(present, shown) - 1})
    elif shown == "gone":
        present = None
    else:
        session.unlink()
    with unchanged(session.parent), locks.session_lock(data, session, 5) as locked:
        act = partial(backups.restore, locked, backup.path, backup.recorded_sha256, present, NOW)
        assert refusal(act) == "4 session_changed"


@pytest.mark.parametrize("vanished", [False, True])
def test_a_session_that_changes_during_the_restore_is_left_alone(session, data, monkeypatch, vanished):
    backup = grown(data, session)
    if vanished:
        session.unlink()
    act_before(monkeypatch, "_write_ready", lambda *_: append_as_agent(session, b"theirs\n"))
    assert refused(data, session, backup) == "4 session_changed"
    assert session.read_bytes() == (b"theirs\n" if vanished else GROWN + b"theirs\n")


def test_a_session_that_appears_at_the_last_moment_is_not_replaced(session, data, monkeypatch):
    backup = make(data, session)
    session.unlink()
    act_before(monkeypatch, "_appear", lambda _, path: path.write_bytes(b"theirs\n"))
    assert refused(data, session, backup) == "4 session_changed"
    assert session.read_bytes() == b"theirs\n"
    assert beside(session) == {NAME, DIGEST}


def test_lines_written_at_the_moment_of_replacement_are_not_lost(session, data):
    def overtaken(ready: Path, path: Path) -> None:
        append_as_agent(path, b"theirs\n")
        ready.replace(path)

    restored = give_back(data, session, grown(data, session), overtaken)
    assert session.read_bytes() == CONTENT
    assert restored.overtaken
    assert restored.previous_backup.path.read_bytes() == GROWN + b"theirs\n"


def test_a_failed_replacement_leaves_the_session_and_no_partial_file(session, data):
    fail = Mock(side_effect=OSError(errno.EIO, "Input/output error", str(session)))
    assert refused(data, session, grown(data, session), fail) == "6 io_error"
    assert session.read_bytes() == GROWN
    assert all(backups.verify(b.path, b.recorded_sha256).holds for b in backups.list_backups(session))


def test_a_backup_that_changes_after_verification_is_not_restored(session, data, monkeypatch):
    backup = grown(data, session)
    act_before(monkeypatch, "_write_ready", lambda *_: backup.path.write_bytes(changed(CONTENT, 30_000)))
    assert refused(data, session, backup) == "4 backup_damaged"
    assert session.read_bytes() == GROWN


def test_a_disk_that_stores_wrong_bytes_is_detected(session, data, monkeypatch):
    def spoil(path: Path) -> None:
        if path.name == ".a.jsonl.redline-restore":
            path.write_bytes(changed(path.read_bytes(), 30_000))

    act_before(monkeypatch, "file_digest", spoil)
    assert refused(data, session, grown(data, session)) == "6 write_failed"
    assert session.read_bytes() == GROWN


def test_a_disk_that_fills_up_during_a_restore_leaves_the_session_alone(session, data):
    backup = make(data, session)
    session.write_bytes(b"short now\n")
    act = partial(give_back, data, session, backup)
    assert refusal_in_child(act, limit_file_size(len(CONTENT) - 1)) == "6 disk_full"
    assert session.read_bytes() == b"short now\n"
    assert not drafts(session)
    assert all(b.path.read_bytes() in (CONTENT, b"short now\n") for b in backups.list_backups(session))


def test_leftovers_of_a_killed_restore_are_cleaned_up_and_never_written_through(session, data):
    outside = place(session.parent.parent / "outside", b"not ours")
    session.with_name(".a.jsonl.redline-restore").symlink_to(outside)
    give_back(data, session, grown(data, session))
    assert session.read_bytes() == CONTENT
    assert not session.is_symlink()
    assert outside.read_bytes() == b"not ours"
    assert not drafts(session)


def test_a_session_behind_a_symlink_is_backed_up_and_restored_at_its_real_path(session, data):
    alias = session.parent.parent / "alias.jsonl"
    alias.symlink_to(session)
    backup = make(data, files.real_path(alias))
    assert backup.path.parent == files.real_path(session).parent
    append_as_agent(alias, b"more\n")
    give_back(data, files.real_path(alias), backup)
    assert alias.is_symlink()
    assert session.read_bytes() == CONTENT


def test_backing_up_and_restoring_need_the_lock(session, data):
    backup = make(data, session)
    with locks.session_lock(data, session, 0) as locked:
        pass
    with pytest.raises(RuntimeError, match="was released"):
        backups.back_up(locked, fingerprint_of(session), NOW)
    with pytest.raises(RuntimeError, match="was released"):
        backups.restore(locked, backup.path, None, state_of(session), NOW)
    assert session.read_bytes() == CONTENT


def test_a_missing_backup_and_one_of_another_session_or_directory_are_not_restored(session, data):
    assert refusal(lambda: give_back(data, session, session.with_name(NAME)), NAME) == "2 no_such_file"
    other = place(session.with_name("b.jsonl"), b"other\n")
    elsewhere = place(session.parent.parent / NAME, b"elsewhere\n")
    for backup in (make(data, other).path, elsewhere):
        assert refusal(partial(give_back, data, session, backup)) == "2 not_a_backup"
    assert session.read_bytes() == CONTENT


@examples(15)
@given(content=st.binary(max_size=20_000), line=st.binary(min_size=1, max_size=500))
def test_backup_append_and_restore_bring_every_byte_back(content, line):
    line = line.replace(b"\n", b" ")
    with tempfile.TemporaryDirectory() as home:
        session, data = place(Path(home) / "a.jsonl", content), Path(home) / "data"
        with locks.session_lock(data, session, 5) as locked:
            backup = backups.back_up(locked, fingerprint_of(session), NOW)
            appended = append.append_lines(locked, [line], state_of(session), lambda _: True)
            after = session.read_bytes()
            joint = b"" if not content or content.endswith(b"\n") else b"\n"
            assert after == content + joint + line + b"\n"
            assert after[appended.offset : appended.offset + appended.length] == line
            restored = backups.restore(locked, backup.path, backup.recorded_sha256, state_of(session), NOW)
        assert session.read_bytes() == content
        assert restored.previous_backup.path.read_bytes() == after
