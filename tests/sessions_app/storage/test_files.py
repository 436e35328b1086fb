"""Sessions on disk: reading returns what is there, and an append is complete or leaves no trace."""

import base64
import errno
import hashlib
import json
import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sessions_app.sessionlog.errors import BadInput, SystemFailure
from sessions_app.storage import append as storage_append
from sessions_app.storage import discovery, files, locks, truncation
from sessions_app.storage.files import GrowthKind
from sessions_app.storage.locks import RecoveryKind
from tests.files import append_as_agent, fingerprint_of, never_complete, state_of
from tests.installation import refusal
from tests.processes import become_nobody, limit_file_size, refusal_in_child, start_child
from tests.wait import wait_until

HEADER = b'{"type":"session","id":"x"}\n'
LINE = b'{"type":"context_compaction","id":"0badcafe"}'


class Killed(BaseException):
    """Like SIGKILL: nothing may catch it and clean up."""


@pytest.fixture
def session(tmp_path):
    path = tmp_path / "sessions" / "a.jsonl"
    path.parent.mkdir()
    path.write_bytes(HEADER + b'{"id":"1"}\n')
    return path


@pytest.fixture
def public_dir():
    """A directory that an unprivileged child can write to; `tmp_path` is private to root."""
    path = Path(tempfile.mkdtemp())
    path.chmod(0o777)
    yield path
    for directory in (path, *(below for below in path.iterdir() if below.is_dir())):
        directory.chmod(0o777)
    shutil.rmtree(path)


def append(
    data: Path,
    session: Path,
    line: bytes = LINE,
    write: Callable[[int, bytes], int] = os.write,
    is_complete: Callable[[bytes], bool] = never_complete,
    **more: Any,
) -> storage_append.Appended:
    with locks.session_lock(data, session, 5) as locked:
        state = state_of(session)
        return storage_append.append_lines(locked, [line], state, is_complete, write=write, **more)


def records(data: Path) -> list[str]:
    """The kinds of records beside the locks."""
    return sorted(path.suffix for path in (data / "locks").iterdir() if path.suffix != ".lock")


# Discovery


def test_every_session_is_listed_once_and_sorted(tmp_path):
    names = ["b/2.jsonl", "a.jsonl", "b/1.jsonl", "b/c/.hidden.jsonl", "b/c/ü\n.jsonl"]
    others = ["b/x.json", "a.jsonl.2026-01-05T10-00-00-123Z.compact.bak", ".a.jsonl.redline-restore", "c.jsonl~"]
    for name in names + others:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    found = discovery.discover(tmp_path)
    assert (found.paths, found.refused, found.unlisted) == (tuple(sorted(tmp_path / name for name in names)), (), ())


def test_a_directory_named_like_a_session_is_searched_and_not_listed_and_a_fifo_is_refused(tmp_path):
    (tmp_path / "dir.jsonl").mkdir()
    (tmp_path / "dir.jsonl" / "a.jsonl").touch()
    os.mkfifo(tmp_path / "pipe.jsonl")
    found = discovery.discover(tmp_path)
    assert (found.paths, found.unlisted) == ((tmp_path / "dir.jsonl" / "a.jsonl",), ())
    assert found.refused == ((tmp_path / "pipe.jsonl", "is not a regular file"),)


def test_a_symlink_out_of_the_root_is_refused_with_a_reason(tmp_path):
    root, outside = tmp_path / "root", tmp_path / "outside"
    root.mkdir()
    outside.mkdir()
    (outside / "secret.jsonl").touch()
    (root / "file.jsonl").symlink_to(outside / "secret.jsonl")
    (root / "dir").symlink_to(outside)
    (root / "up").symlink_to("..")
    found = discovery.discover(root)
    assert found.paths == ()
    assert [path.name for path, _ in found.refused] == ["dir", "file.jsonl", "up"]
    assert all("leads out of the root" in reason for _, reason in found.refused)


def test_symlink_loops_end_and_no_session_is_listed_twice(tmp_path):
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "a.jsonl").touch()
    (tmp_path / "d" / "loop").symlink_to(tmp_path)
    (tmp_path / "alias").symlink_to("d")
    (tmp_path / "alias.jsonl").symlink_to("d/a.jsonl")
    (tmp_path / "self.jsonl").symlink_to("self.jsonl")
    found = discovery.discover(tmp_path)
    assert found.paths == (tmp_path / "d" / "a.jsonl",)
    assert [path.name for path, _ in found.refused] == ["alias", "alias.jsonl", "loop", "self.jsonl"]


def test_a_symlink_inside_the_root_is_a_session_unless_it_leads_to_a_backup(tmp_path):
    (tmp_path / "data.txt").touch()
    (tmp_path / "a.jsonl.2026-01-05T10-00-00-123Z.compact.bak").touch()
    (tmp_path / "gone.jsonl").symlink_to("nowhere")
    (tmp_path / "gone.txt").symlink_to("nowhere")
    (tmp_path / "other.txt").symlink_to("data.txt")
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "pipe.jsonl").symlink_to("fifo")
    (tmp_path / "good.jsonl").symlink_to("data.txt")
    (tmp_path / "bad.jsonl").symlink_to("a.jsonl.2026-01-05T10-00-00-123Z.compact.bak")
    found = discovery.discover(tmp_path)
    assert found.paths == (tmp_path / "data.txt",)
    assert [path.name for path, _ in found.refused] == ["bad.jsonl", "gone.jsonl", "pipe.jsonl"]


def test_a_root_that_became_a_symlink_is_refused(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "a.jsonl").touch()
    (tmp_path / "root").symlink_to("real")
    found = discovery.discover(tmp_path / "root")
    assert found.paths == ()
    assert [path for path, _ in found.refused] == [tmp_path / "root"]


def test_an_unreadable_directory_is_refused_and_the_rest_is_listed(public_dir):
    (public_dir / "closed").mkdir(mode=0)
    (public_dir / "a.jsonl").touch()

    def look() -> None:
        found = discovery.discover(public_dir)
        assert found.paths == (public_dir / "a.jsonl",)
        assert found.refused == ((public_dir / "closed", "cannot be listed: Permission denied"),)

    assert refusal_in_child(look, become_nobody) == "done"


@pytest.mark.parametrize("name", ["gone", "file"])
def test_a_root_that_is_not_a_directory_is_bad_input(tmp_path, name):
    (tmp_path / "file").touch()
    assert refusal(lambda: discovery.discover(tmp_path / name)) == "2 no_such_root"


@pytest.mark.parametrize("path", ["../x", "/etc/passwd", "out/x", "a/../../x", "a\0b", "\ud800", "a/\0/../x"])
def test_no_name_can_leave_the_root(tmp_path, path):
    root = tmp_path / "root"
    root.mkdir()
    (root / "out").symlink_to(tmp_path)
    assert refusal(lambda: discovery.resolve_inside(root, path)) == "2 outside_root"


def test_a_name_inside_the_root_is_resolved(tmp_path):
    (tmp_path / "link").symlink_to("real")
    real = files.real_path(tmp_path)
    assert discovery.resolve_inside(tmp_path, "link/a.jsonl") == real / "real" / "a.jsonl"


# Reading


def read_until_end(reader: files.SessionReader, start: int) -> int:
    """Read from `start` to the end; returns the offset after the last newline."""
    end = at = start
    for chunk in reader.chunks(start):
        end = at + chunk.rfind(b"\n") + 1 if b"\n" in chunk else end
        at += len(chunk)
    return end


def open_only(path: Path) -> None:
    with files.SessionReader(path):
        pass


def test_a_fifo_a_device_and_a_directory_are_refused_without_blocking(tmp_path):
    os.mkfifo(tmp_path / "pipe.jsonl")
    for path in (tmp_path / "pipe.jsonl", tmp_path, Path("/dev/null"), Path("/dev/zero")):
        assert refusal_in_child(partial(open_only, path)) == "2 not_a_file"


def test_a_missing_file_is_bad_input(tmp_path, session):
    assert files.file_state(tmp_path / "gone.jsonl") is None
    assert refusal(lambda: files.file_state(tmp_path)) == "2 not_a_file"
    with pytest.raises(BadInput, match="was not read") as caught:
        open_only(tmp_path / "gone.jsonl")
    assert (caught.value.code, str(tmp_path / "gone.jsonl") in caught.value.message) == ("no_such_file", True)
    assert refusal(lambda: open_only(session / "below.jsonl")) == "2 no_such_file"


def test_an_unreadable_file_is_permission_denied(public_dir):
    path = public_dir / "a.jsonl"
    path.touch(mode=0)
    assert refusal_in_child(lambda: open_only(path), become_nobody) == "6 permission_denied"


@given(pieces=st.lists(st.binary(max_size=9000), min_size=1, max_size=4), size=st.sampled_from([4096, 5000, 1 << 20]))
@example(pieces=[b"\nabc", b"", b"\n"], size=4096)
def test_a_fingerprint_made_in_steps_matches_the_bytes(tmp_path, pieces, size):
    path = tmp_path / "grown.jsonl"
    path.write_bytes(b"")
    fingerprint = None
    for piece in pieces:
        append_as_agent(path, piece)
        content = path.read_bytes()
        end = content.rfind(b"\n") + 1
        with files.SessionReader(path) as reader:
            start = fingerprint.size if fingerprint else 0
            assert b"".join(reader.chunks(start, size)) == content[start:]
            fingerprint = reader.fingerprint(end, fingerprint)
            kind = GrowthKind.GROWN if len(content) > end else GrowthKind.UNCHANGED
            assert reader.growth(fingerprint).kind is kind
        indexed = content[:end]
        assert fingerprint.size == end
        assert fingerprint.head == hashlib.sha256(indexed[:4096]).hexdigest()
        assert fingerprint.tail == hashlib.sha256(indexed[-4096:]).hexdigest()
        at = 0
        for segment_end, digest in fingerprint.segments:
            assert segment_end > at
            assert digest == hashlib.sha256(indexed[at:segment_end]).hexdigest()
            at = segment_end
        assert at == end


def test_a_last_line_without_newline_can_be_included_and_a_fingerprint_survives_json(session):
    append_as_agent(session, b'{"id":"2"}')
    with files.SessionReader(session) as reader:
        content = b"".join(reader.chunks(0))
        whole = reader.fingerprint(len(content), None)
    assert whole.segments == ((len(content), hashlib.sha256(content).hexdigest()),)
    assert msgspec.json.decode(msgspec.json.encode(whole), type=files.Fingerprint) == whole


def test_only_bytes_that_were_read_can_be_fingerprinted(session):
    with files.SessionReader(session) as reader:
        end = read_until_end(reader, 0)
        for wrong in (end - 1, end + 1, 1):
            with pytest.raises(ValueError, match="can fingerprint up to"):
                reader.fingerprint(wrong, None)
        fingerprint = reader.fingerprint(end, None)
        with pytest.raises(ValueError, match="can fingerprint up to"):
            reader.fingerprint(end, fingerprint)


def test_a_wrong_offset_is_a_programming_error_and_one_past_the_end_a_conflict(session):
    with files.SessionReader(session) as reader:
        for wrong in (lambda: reader.chunks(-1), lambda: reader.chunks(0, 4095), lambda: reader.read_at(-1, 1)):
            with pytest.raises(ValueError, match="cannot read"):
                wrong()
        beyond = session.stat().st_size + 1
        assert refusal(lambda: list(reader.chunks(beyond))) == "4 session_rewritten"
        assert refusal(lambda: reader.read_at(beyond, 1)) == "4 session_rewritten"


def test_growth_reads_only_the_new_bytes_and_the_edges(tmp_path):
    path = tmp_path / "large.jsonl"
    path.write_bytes((b"x" * 99 + b"\n") * 100_000)
    before = fingerprint_of(path)
    append_as_agent(path, b"ten more bytes to read\n")
    with files.SessionReader(path) as reader:
        assert reader.growth(before).kind is GrowthKind.GROWN
        assert reader.bytes_read <= 8192
        after = reader.fingerprint(read_until_end(reader, before.size), before)
        assert reader.bytes_read <= 16384 + 23
    assert after.segments == (*before.segments, (after.size, hashlib.sha256(b"ten more bytes to read\n").hexdigest()))


def replace_by_a_copy(path: Path) -> None:
    copy = path.with_name("copy")
    shutil.copy2(path, copy)
    copy.replace(path)


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


def overwrite_at(offset: int) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        with path.open("r+b") as file:
            file.seek(offset, os.SEEK_SET if offset >= 0 else os.SEEK_END)
            file.write(b"?")

    return change


@pytest.mark.parametrize(
    ("attack", "reason"),
    [
        (replace_by_a_copy, "it was replaced by another file"),
        (truncate, "it shrank from 20,000 to 19,999 bytes"),
        (overwrite_at(4095), "its beginning changed"),
        (overwrite_at(-4096), "the bytes before 20,000 changed"),
    ],
)
def test_a_rewritten_session_is_recognised(tmp_path, attack, reason):
    path = tmp_path / "a.jsonl"
    path.write_bytes((b"x" * 99 + b"\n") * 200)
    before = fingerprint_of(path)
    attack(path)
    with files.SessionReader(path) as reader:
        assert reader.growth(before) == (GrowthKind.REWRITTEN, reason)


def rewrite_in_place(path: Path) -> None:
    path.write_bytes((b"y" * 99 + b"\n") * 40_000)


def rewrite_after_the_first_bytes(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:4096] + (b"y" * 99 + b"\n") * 40_000)


def rewrite_the_first_bytes(path: Path) -> None:
    path.write_bytes(b"y" * 50 + path.read_bytes()[50:])


@pytest.mark.parametrize(
    "attack",
    [
        truncate,
        replace_by_a_copy,
        Path.unlink,
        rewrite_in_place,
        rewrite_after_the_first_bytes,
        rewrite_the_first_bytes,
        overwrite_at(-5),
        lambda path: os.truncate(path, 10),
    ],
)
def test_a_session_that_changes_during_reading_gives_no_fingerprint(tmp_path, attack):
    path = tmp_path / "a.jsonl"
    path.write_bytes((b"x" * 99 + b"\n") * 30_000)
    size = path.stat().st_size

    def index() -> None:
        with files.SessionReader(path) as reader:
            at = 0
            for chunk in reader.chunks(0):
                at += len(chunk)
                if at == size:
                    attack(path)
            reader.fingerprint(at, None)

    assert refusal(index) == "4 session_rewritten"


@pytest.mark.parametrize("left", [0, files.CHUNK - 1, files.CHUNK, files.CHUNK + 1])
def test_a_session_that_shrinks_during_reading_is_a_conflict(tmp_path, left):
    path = tmp_path / "a.jsonl"
    path.write_bytes((b"x" * 99 + b"\n") * 30_000)

    def read() -> None:
        with files.SessionReader(path) as reader:
            for _ in reader.chunks(0):
                os.truncate(path, left)

    assert refusal(read) == "4 session_rewritten"


def test_a_fingerprint_keeps_the_old_head_when_lines_are_added(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes((b"x" * 99 + b"\n") * 100)
    before = fingerprint_of(path)
    overwrite_at(0)(path)
    append_as_agent(path, b"more\n")
    with files.SessionReader(path) as reader:
        end = read_until_end(reader, before.size)
        assert refusal(lambda: reader.fingerprint(end, before)) == "4 session_rewritten"


def test_a_session_that_grows_during_reading_is_read_to_its_new_end(session):
    with files.SessionReader(session) as reader:
        chunks = reader.chunks(0)
        first = next(chunks)
        append_as_agent(session, b'{"id":"2"}\n{"torn')
        assert first + b"".join(chunks) == session.read_bytes()
        fingerprint = reader.fingerprint(session.read_bytes().rfind(b"\n") + 1, None)
    indexed = session.read_bytes()[: fingerprint.size]
    assert indexed.endswith(b'{"id":"2"}\n')
    assert fingerprint.segments == ((len(indexed), hashlib.sha256(indexed).hexdigest()),)


def test_a_text_that_is_gone_is_a_conflict_and_never_shortened(session):
    with files.SessionReader(session) as reader:
        assert reader.read_at(2, 4) == HEADER[2:6]
        os.truncate(session, 5)
        assert refusal(lambda: reader.read_at(2, 4)) == "4 session_rewritten"


# The lock


def lock(data: Path, session: Path) -> None:
    with locks.session_lock(data, session, 0.05):
        pass


def test_a_busy_lock_is_a_conflict_in_another_process_and_in_this_one(session, data):
    act = partial(lock, data, session)
    with locks.session_lock(data, session, 0):
        assert refusal_in_child(act) == "4 session_locked"
        assert refusal(act) == "4 session_locked"
    assert refusal_in_child(act) == "done"


def test_a_symlink_is_locked_as_the_session_it_leads_to_and_no_other_session(session, data):
    alias = session.with_name("alias.jsonl")
    alias.symlink_to(session)
    with locks.session_lock(data, files.real_path(alias), 0):
        assert refusal_in_child(partial(lock, data, session)) == "4 session_locked"
        lock(data, session.with_name("b.jsonl"))
    with pytest.raises(ValueError, match="not negative"):
        locks.session_lock(data, session, -1).__enter__()


def test_nothing_is_written_after_the_lock_was_released(session, data):
    before = session.read_bytes()
    with locks.session_lock(data, session, 0) as locked:
        pass
    with pytest.raises(RuntimeError, match="was released"):
        storage_append.append_lines(locked, [LINE], state_of(session), never_complete)
    assert session.read_bytes() == before


def test_the_lock_is_released_after_an_error(session, data):
    with pytest.raises(Killed), locks.session_lock(data, session, 0):
        raise Killed
    assert refusal_in_child(lambda: append(data, session)) == "done"


def test_a_data_directory_that_cannot_be_written_is_reported(public_dir, session):
    (public_dir / "data").mkdir(mode=0o500)
    answer = refusal_in_child(lambda: append(public_dir / "data", session), become_nobody)
    assert answer == "6 permission_denied"


# Appending


OURS: Final = slice(None)
THEIRS: Final = b'{"id":"theirs"}\n'
UNRESOLVED: Final = [".unresolved"]


def writes(*pieces: bytes | slice) -> Callable[[Path], Callable[[int, bytes], int]]:
    """A write of these slices of our payload, and of bytes of another process before, between and after them."""

    def at(session: Path) -> Callable[[int, bytes], int]:
        def write(fd: int, payload: bytes) -> int:
            written = 0
            for piece in pieces:
                if isinstance(piece, slice):
                    written += os.write(fd, payload[piece])
                else:
                    append_as_agent(session, piece)
            return written

        return write

    return at


def failing(number: int) -> Callable[[Path], Callable[[int, bytes], int]]:
    def write(fd: int, payload: bytes) -> int:
        raise OSError(number, os.strerror(number))

    return lambda _: write


def replaced(session: Path) -> Callable[[int, bytes], int]:
    def write(fd: int, payload: bytes) -> int:
        replace_by_a_copy(session)
        return os.write(fd, payload)

    return write


def other_bytes(_: Path) -> Callable[[int, bytes], int]:
    return lambda fd, payload: os.write(fd, payload.upper())


@pytest.mark.parametrize(
    ("write", "answer", "added", "left"),
    [
        pytest.param(writes(OURS), "done", LINE + b"\n", [], id="nothing else happens"),
        pytest.param(writes(THEIRS, OURS), "4 foreign_append", THEIRS, [], id="a foreign line before ours"),
        pytest.param(writes(OURS, THEIRS), "done", LINE + b"\n" + THEIRS, [], id="one right after ours"),
        pytest.param(
            writes(slice(20), b"\n{}\n"), "6 append_left", LINE[:20] + b"\n{}\n", UNRESOLVED, id="a short write"
        ),
        pytest.param(writes(slice(20)), "6 disk_full", b"", [], id="a short write, and nobody else's"),
        pytest.param(writes(slice(0)), "6 disk_full", b"", [], id="a write of zero bytes"),
        pytest.param(other_bytes, "6 append_left", LINE.upper() + b"\n", UNRESOLVED, id="other bytes"),
        pytest.param(failing(errno.ENOSPC), "6 disk_full", b"", [], id="a full disk"),
        pytest.param(failing(errno.EDQUOT), "6 disk_full", b"", [], id="a full quota"),
        pytest.param(failing(errno.EIO), "6 write_failed", b"", [], id="a broken disk"),
        pytest.param(failing(errno.EPERM), "6 permission_denied", b"", [], id="no permission"),
        pytest.param(replaced, "4 session_changed", b"", [], id="the session is replaced"),
    ],
)
def test_an_append_is_complete_or_removed_or_reported(session, data, write, answer, added, left):
    before = session.read_bytes()
    assert refusal(lambda: append(data, session, write=write(session))) == answer
    assert session.read_bytes() == before + added
    assert records(data) == left


def test_a_line_is_written_by_exactly_one_write(session, data):
    before, payloads = session.stat().st_size, []

    def write(fd: int, payload: bytes) -> int:
        payloads.append(payload)
        return os.write(fd, payload)

    assert append(data, session, LINE * 2000, write) == (before, 2000 * len(LINE))
    assert payloads == [LINE * 2000 + b"\n"]


def test_a_write_whose_process_was_killed_is_detected_and_leaves_nothing(session, data, monkeypatch):
    before = session.read_bytes()
    monkeypatch.setattr(os, "setsid", lambda: os.kill(os.getpid(), signal.SIGKILL))
    answer = refusal(lambda: append(data, session, write=storage_append.write_apart))
    assert answer.startswith("6 ")
    assert session.read_bytes() == before


def test_a_line_is_written_whole_if_its_caller_is_killed_meanwhile(session):
    before = session.read_bytes()
    line = LINE * 5_000
    reading, writing = os.pipe()
    caller = os.fork()
    if caller == 0:
        os.close(reading)
        fd = os.open(session, os.O_WRONLY | os.O_APPEND)
        os.write(writing, b"x")
        storage_append.write_apart(fd, line)
        os._exit(0)
    os.close(writing)
    os.read(reading, 1)
    os.kill(caller, signal.SIGKILL)
    os.waitpid(caller, 0)
    with os.fdopen(reading, "rb") as rest:
        rest.read()  # ends when the last process that could write has ended
    assert session.read_bytes() in (before, before + line)


@pytest.mark.parametrize("length", [0, 10, files.CHUNK - 1, files.CHUNK, 2 * files.CHUNK + 1])
def test_a_complete_last_line_gets_its_newline_first(session, data, length):
    last = json.dumps({"id": "2", "text": "x" * length}).encode()
    append_as_agent(session, last)
    before = session.read_bytes()
    checked: list[bytes] = []

    def is_complete(line: bytes) -> bool:
        checked.append(line)
        return True

    appended = append(data, session, is_complete=is_complete)
    assert checked == [last]
    assert session.read_bytes() == before + b"\n" + LINE + b"\n"
    assert appended == (len(before) + 1, len(LINE))


def test_a_single_line_without_newline_is_checked_from_its_first_byte(session, data):
    session.write_bytes(HEADER[:-1])
    append(data, session, is_complete=lambda line: line == HEADER[:-1])
    assert session.read_bytes() == HEADER + LINE + b"\n"


def test_to_a_torn_last_line_nothing_is_appended_unless_it_is_confirmed(session, data):
    append_as_agent(session, b'{"id":"2","te')
    before = session.read_bytes()
    assert refusal(lambda: append(data, session)) == "4 torn_last_line"
    assert session.read_bytes() == before
    assert records(data) == []
    appended = append(data, session, after_torn_line=True)
    assert session.read_bytes() == before + b"\n" + LINE + b"\n"
    assert appended == (len(before) + 1, len(LINE))


@pytest.mark.parametrize("line", [b"", b"a\nb", b"a\n"])
def test_anything_but_one_line_is_a_programming_error(session, data, line):
    before = session.read_bytes()
    with pytest.raises(ValueError, match="no newline"):
        append(data, session, line)
    assert session.read_bytes() == before


def overwrite_later(path: Path) -> None:
    """A change that keeps the size, with another modification time than before."""
    before = path.stat().st_mtime_ns
    wait_until(lambda: overwrite_at(3)(path) or path.stat().st_mtime_ns != before)


@pytest.mark.parametrize(
    ("attack", "answer"),
    [
        (truncate, "4 session_changed"),
        (replace_by_a_copy, "4 session_changed"),
        (lambda path: append_as_agent(path, b"{}\n"), "4 session_changed"),
        (overwrite_later, "4 session_changed"),
        (Path.unlink, "2 no_such_file"),
    ],
)
def test_a_session_that_changed_after_the_check_is_not_written_to(session, data, attack, answer):
    judged = state_of(session)
    attack(session)
    before = content_of(session)
    with locks.session_lock(data, session, 0) as locked:
        act = partial(storage_append.append_lines, locked, [LINE], judged, never_complete)
        assert refusal(act) == answer
    assert content_of(session) == before
    assert records(data) == []


def test_a_session_that_changes_while_the_append_is_prepared_is_not_written_to(session, data):
    append_as_agent(session, b'{"id":"2"}')
    before = session.read_bytes()

    def slowly(_: bytes) -> bool:
        append_as_agent(session, b'\n{"id":"3"}')
        return True

    def write(fd: int, payload: bytes) -> int:
        raise AssertionError("nothing may be written")

    assert refusal(lambda: append(data, session, is_complete=slowly, write=write)) == "4 session_changed"
    assert session.read_bytes() == before + b'\n{"id":"3"}'
    assert records(data) == []


@pytest.mark.parametrize(
    ("first", "code", "words", "is_recorded"),
    [
        (b'{"id":"t1"}\n', "line_stays", "nevertheless, at byte {}", True),
        (b'{"id":"half', "append_left", "at byte {} were not cut off", False),
    ],
    ids=["a line of its own", "joined with a foreign one"],
)
def test_our_line_between_two_foreign_ones_stays_is_reported_and_recorded_if_it_is_separate(
    session, data, first, code, words, is_recorded
):
    before, last = session.read_bytes(), b'{"id":"t2"}\n'
    recorded: list[storage_append.Appended] = []
    offset = len(before) + len(first)
    with pytest.raises(SystemFailure, match=words.format(offset)) as caught:
        append(data, session, write=writes(first, OURS, last)(session), record=recorded.append)
    assert caught.value.code == code
    assert session.read_bytes() == before + first + LINE + b"\n" + last
    assert recorded == ([(offset, len(LINE))] if is_recorded else [])
    assert records(data) == ([] if is_recorded else UNRESOLVED)


def test_nothing_is_truncated_while_another_process_has_the_file_open(session, data):
    before = session.read_bytes()
    with session.open("ab") as agent:

        def overtaken(fd: int, payload: bytes) -> int:
            agent.write(THEIRS)
            agent.flush()
            return os.write(fd, payload)

        assert refusal(lambda: append(data, session, write=overtaken)) == "6 line_stays"
        agent.write(b'{"id":"later"}\n')
    assert session.read_bytes() == before + THEIRS + LINE + b'\n{"id":"later"}\n'


def test_opening_a_file_during_truncation_waits_and_loses_nothing(session, monkeypatch):
    before = session.read_bytes()
    append_as_agent(session, LINE)
    truncate_file = os.ftruncate
    late = threading.Thread(target=append_as_agent, args=(session, THEIRS))

    def truncated(fd: int, size: int) -> None:
        late.start()
        late.join(0.5)  # long enough to append, if nothing holds it back
        truncate_file(fd, size)

    monkeypatch.setattr(os, "ftruncate", truncated)
    with session.open("r+b", buffering=0) as file:
        assert truncation.cut_off(file.fileno(), len(before), LINE)
    late.join()
    assert session.read_bytes() == before + THEIRS


@pytest.mark.parametrize("purpose", ["redline-backup", "redline-restore"])
def test_the_next_lock_removes_drafts_of_a_killed_process_but_no_links_or_directories(session, data, purpose):
    draft = session.with_name(f".{session.name}.{purpose}")
    draft.write_bytes(b"unfinished")
    other = session.with_name(f".other.jsonl.{purpose}")
    other.write_bytes(b"another session's")
    recover(data, session)
    assert not draft.exists()
    draft.symlink_to(session)
    recover(data, session)
    assert draft.is_symlink()
    draft.unlink()
    draft.mkdir()
    recover(data, session)
    assert draft.is_dir()
    assert other.read_bytes() == b"another session's"


def test_an_unsettled_step_is_settled_by_a_later_lock(session, data):
    settled: list[locks.Recovery] = []

    def fail(_: locks.LockedSession) -> None:
        raise Killed

    crash(data, session, die_after(len(LINE) + 1), note="what it was for")
    with pytest.raises(Killed), locks.session_lock(data, session, 0, fail):
        pass
    for _ in range(2):
        with locks.session_lock(data, session, 0, lambda locked: settled.append(locked.recovery)):
            pass
    first, second = settled
    assert (first.kind, first.note) == (RecoveryKind.MADE, "what it was for")
    assert first.size == session.stat().st_size
    assert second.kind is RecoveryKind.NOT_NEEDED


@pytest.mark.parametrize(
    "room", [pytest.param(1_000, id="a part"), pytest.param(0, id="nothing"), pytest.param(-230_000, id="no record")]
)
def test_an_append_for_which_there_is_no_room_changes_nothing(session, data, room):
    session.write_bytes(HEADER * 10_000)
    before = session.read_bytes()
    act = partial(append, data, session, b"x" * 60_000)
    assert refusal_in_child(act, limit_file_size(len(before) + room)) == "6 disk_full"
    assert session.read_bytes() == before
    assert records(data) == [] or room < 0


def test_a_line_that_cannot_be_synced_is_removed_again(session, data, monkeypatch):
    before = session.read_bytes()
    sync = files.sync

    def fail_once(fd: int) -> None:
        monkeypatch.setattr(storage_append, "sync", sync)
        raise OSError(errno.EIO, "Input/output error")

    def write(fd: int, payload: bytes) -> int:
        monkeypatch.setattr(storage_append, "sync", fail_once)
        return os.write(fd, payload)

    assert refusal(lambda: append(data, session, write=write)) == "6 write_failed"
    assert files.sync is sync
    assert session.read_bytes() == before
    assert records(data) == []


def test_an_appended_line_is_reported_even_if_the_cleanup_fails(session, data):
    before = session.read_bytes()

    def write(fd: int, payload: bytes) -> int:
        record = next((data / "locks").glob("*.intent"))
        record.unlink()
        record.mkdir()
        return os.write(fd, payload)

    with pytest.raises(SystemFailure, match="The lines were appended") as caught:
        append(data, session, write=write)
    assert caught.value.code == "append_not_tidied"
    assert session.read_bytes() == before + LINE + b"\n"


def test_an_unwritable_session_is_permission_denied(public_dir):
    path = public_dir / "a.jsonl"
    path.write_bytes(HEADER)
    path.chmod(0o444)
    answer = refusal_in_child(lambda: append(public_dir / "data", path), become_nobody)
    assert answer == "6 permission_denied"
    assert path.read_bytes() == HEADER


def test_two_processes_append_and_every_line_is_whole(session, data):
    before = session.read_bytes()

    def append_all(name: bytes) -> None:
        for number in range(15):
            append(data, session, name * 5000 + b"%02d" % number)

    children = [start_child(lambda name=name: refusal(partial(append_all, name))) for name in (b"a", b"b")]
    assert [wait() for wait in children] == ["done", "done"]
    assert session.read_bytes().startswith(before)
    lines = session.read_bytes()[len(before) :].splitlines()
    for name in (b"a", b"b"):
        assert [line for line in lines if line[:1] == name] == [name * 5000 + b"%02d" % n for n in range(15)]
    assert len(lines) == 30


# Recovery


def content_of(session: Path) -> bytes | None:
    return session.read_bytes() if session.exists() else None


def die_after(part: int, then: bytes = b"") -> Callable[[int, bytes], int]:
    """Writes the first `part` bytes, then the bytes of another process, then dies."""

    def write(fd: int, payload: bytes) -> int:
        if part:
            os.write(fd, payload[:part])
        if then:
            os.write(fd, then)
        raise Killed

    return write


def crash(data: Path, session: Path, write: Callable[[int, bytes], int], **more: Any) -> None:
    with pytest.raises(Killed):
        append(data, session, write=write, **more)
    assert records(data) == [".intent"]


def recover(data: Path, session: Path) -> locks.Recovery:
    with locks.session_lock(data, session, 0) as locked:
        assert ".intent" not in records(data)
        return locked.recovery


def test_without_a_crash_there_is_nothing_to_recover(session, data):
    append(data, session)
    assert recover(data, session) == locks.Recovery(RecoveryKind.NOT_NEEDED)


@pytest.mark.parametrize(
    ("part", "then", "kind", "kept"),
    [
        (0, b"", RecoveryKind.NOT_MADE, b""),
        (len(LINE) + 1, b"", RecoveryKind.MADE, LINE + b"\n"),
        (len(LINE) + 1, b"{}\n", RecoveryKind.MADE, LINE + b"\n{}\n"),
        (1, b"", RecoveryKind.CUT_OFF, b""),
        (len(LINE), b"", RecoveryKind.CUT_OFF, b""),
        (20, b"\n{}\n", RecoveryKind.UNRESOLVED, LINE[:20] + b"\n{}\n"),
        (0, b'{"id":"theirs"}\n', RecoveryKind.UNRESOLVED, b'{"id":"theirs"}\n'),
        (0, b"\0" * (len(LINE) + 1), RecoveryKind.UNRESOLVED, b"\0" * (len(LINE) + 1)),
    ],
)
def test_the_next_lock_settles_an_append_that_was_interrupted(session, data, part, then, kind, kept):
    before = session.read_bytes()
    crash(data, session, die_after(part, then))
    recovery = recover(data, session)
    assert recovery.kind is kind
    assert session.read_bytes() == before + kept
    assert records(data) == ([".unresolved"] if kind is RecoveryKind.UNRESOLVED else [])
    assert (recovery.record is None) == (kind is not RecoveryKind.UNRESOLVED)
    assert recover(data, session).kind is RecoveryKind.NOT_NEEDED


@pytest.mark.parametrize("attack", [replace_by_a_copy, Path.unlink, lambda path: os.truncate(path, 5)])
def test_an_interrupted_append_to_another_file_is_left_alone(session, data, attack):
    crash(data, session, die_after(20))
    attack(session)
    left = content_of(session)
    assert recover(data, session).kind is RecoveryKind.UNRESOLVED
    assert content_of(session) == left


def test_the_kept_record_says_what_was_to_be_written(session, data):
    crash(data, session, die_after(20, b"\n{}\n"))
    record = recover(data, session).record
    assert record is not None
    kept = json.loads(record.read_bytes())
    assert kept["path"] == str(files.real_path(session))
    assert base64.b64decode(kept["payload"]) == LINE + b"\n"


def test_a_damaged_record_is_kept_and_the_session_left_alone(session, data):
    before = session.read_bytes()
    crash(data, session, die_after(0))
    next((data / "locks").glob("*.intent")).write_bytes(b'{"path":')
    assert recover(data, session).kind is RecoveryKind.UNRESOLVED
    assert records(data) == [".unresolved"]
    assert session.read_bytes() == before


def test_an_unfinished_record_announces_nothing(session, data):
    with locks.session_lock(data, session, 0) as locked:
        locked.intent.with_suffix(".draft").write_bytes(b'{"pa')
    assert recover(data, session).kind is RecoveryKind.NOT_NEEDED
    append(data, session)
    assert records(data) == []
