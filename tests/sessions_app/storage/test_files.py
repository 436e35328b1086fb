"""Sessions on disk: reading returns what is there, and an append is complete or leaves no trace."""

import base64
import errno
import hashlib
import json
import os
import shutil
import signal
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final
from unittest.mock import Mock

import msgspec
import pytest
from hypothesis import example, given, strategies as st

from sessions_app.disk import discovery, files
from sessions_app.disk.files import GrowthKind
from sessions_app.storage import append as storage_append, locks
from sessions_app.storage.locks import RecoveryKind
from tests.files import append_as_agent, fingerprint_of, never_complete, place, state_of, unchanged
from tests.installation import refusal
from tests.processes import become_nobody, limit_file_size, refusal_in_child, start_child
from tests.wait import wait_until

HEADER = b'{"type":"session","id":"x"}\n'
CONTENT = HEADER + b'{"id":"1"}\n'
ROW = b"x" * 99 + b"\n"
LINE = b'{"type":"context_compaction","id":"0badcafe"}'


class Killed(BaseException):
    """Like SIGKILL: nothing may catch it and clean up."""


def append(
    data: Path,
    session: Path,
    line: bytes = LINE,
    write: Callable[[int, bytes], int] = os.write,
    is_complete: Callable[[bytes], bool] = never_complete,
    **more: Any,
) -> storage_append.Appended:
    with locks.session_lock(data, session, 5) as locked:
        return storage_append.append_lines(locked, [line], state_of(session), is_complete, write=write, **more)


def records(data: Path) -> list[str]:
    """The kinds of records beside the locks."""
    return sorted(path.suffix for path in (data / "locks").iterdir() if path.suffix != ".lock")


BACKUP: Final = "a.jsonl.2026-01-05T10-00-00-123Z.compact.bak"
TREES: Final[dict[str, tuple[list[str], list[str], dict[str, str]]]] = {
    "only the ending counts": (
        [
            *("b/2.jsonl", "a.jsonl", "b/1.jsonl", "b/c/.hidden.jsonl", "b/c/ü\n.jsonl"),
            *("b/x.json", BACKUP, ".a.jsonl.redline-restore", "c.jsonl~"),
        ],
        ["a.jsonl", "b/1.jsonl", "b/2.jsonl", "b/c/.hidden.jsonl", "b/c/ü\n.jsonl"],
        {},
    ),
    "a directory named like a session is searched and not listed, and a pipe is refused": (
        ["dir.jsonl/a.jsonl", "pipe.jsonl |"],
        ["dir.jsonl/a.jsonl"],
        {"pipe.jsonl": "is not a regular file"},
    ),
    "a link out of the root is refused": (
        ["../outside/secret.jsonl", "file.jsonl -> ../outside/secret.jsonl", "dir -> {root}/../outside", "up -> .."],
        [],
        dict.fromkeys(["dir", "file.jsonl", "up"], "leads out of the root"),
    ),
    "loops of links end, and no session is listed twice": (
        ["d/a.jsonl", "d/loop -> {root}", "alias -> d", "alias.jsonl -> d/a.jsonl", "self.jsonl -> self.jsonl"],
        ["d/a.jsonl"],
        dict.fromkeys(["alias", "alias.jsonl", "loop"], "is another name of") | {"self.jsonl": ""},
    ),
    "a link inside the root is a session unless it leads to a backup": (
        [
            *("data.txt", BACKUP, "gone.jsonl -> nowhere", "gone.txt -> nowhere", "other.txt -> data.txt"),
            *("fifo |", "pipe.jsonl -> fifo", "good.jsonl -> data.txt", f"bad.jsonl -> {BACKUP}"),
        ],
        ["data.txt"],
        {"bad.jsonl": "leads to a backup", "gone.jsonl": "does not exist", "pipe.jsonl": "is not a regular file"},
    ),
}
"""Files, links and pipes below a root; what is listed of them; and what is refused, with words of the reason."""


def plant(root: Path, entry: str) -> None:
    """Make a file; `name -> target` is a link, and `name |` a pipe."""
    name, _, target = entry.format(root=root).partition(" -> ")
    path = root / name.removesuffix(" |")
    path.parent.mkdir(parents=True, exist_ok=True)
    if target:
        path.symlink_to(target)
    elif name.endswith(" |"):
        os.mkfifo(path)
    else:
        path.touch()


@pytest.mark.parametrize("name", TREES)
def test_sessions_are_listed_once_and_sorted_and_other_paths_refused_with_a_reason(tmp_path, name):
    entries, listed, refused = TREES[name]
    root = tmp_path / "root"
    for entry in entries:
        plant(root, entry)
    found = discovery.discover(root)
    assert (found.paths, found.unlisted) == (tuple(root / one for one in listed), ())
    assert [path.name for path, _ in found.refused] == list(refused)
    assert all(refused[path.name] in reason for path, reason in found.refused)


def test_a_root_that_became_a_symlink_is_refused(tmp_path):
    place(tmp_path / "real" / "a.jsonl", b"")
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
    plant(root, "out -> ..")
    assert refusal(lambda: discovery.resolve_inside(root, path)) == "2 outside_root"


def test_a_name_inside_the_root_is_resolved(tmp_path):
    (tmp_path / "link").symlink_to("real")
    expected = files.real_path(tmp_path) / "real" / "a.jsonl"
    assert discovery.resolve_inside(tmp_path, "link/a.jsonl") == expected


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


def test_a_missing_file_is_bad_input_and_an_unreadable_one_permission_denied(tmp_path, session, public_dir):
    gone, closed = tmp_path / "gone.jsonl", public_dir / "a.jsonl"
    assert files.file_state(gone) is None
    assert refusal(lambda: files.file_state(tmp_path)) == "2 not_a_file"
    assert refusal(lambda: open_only(gone), str(gone), " was not read") == "2 no_such_file"
    assert refusal(lambda: open_only(session / "below.jsonl")) == "2 no_such_file"
    closed.touch(mode=0)
    assert refusal_in_child(lambda: open_only(closed), become_nobody) == "6 permission_denied"


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


def test_a_wrong_offset_is_a_programming_error_and_one_past_the_end_a_conflict(session):
    with files.SessionReader(session) as reader:
        end = read_until_end(reader, 0)
        fingerprint = reader.fingerprint(end, None)
        for wrong, previous in ((end - 1, None), (end + 1, None), (1, None), (end, fingerprint)):
            with pytest.raises(ValueError, match="can fingerprint up to"):
                reader.fingerprint(wrong, previous)
        for act in (lambda: reader.chunks(-1), lambda: reader.chunks(0, 4095), lambda: reader.read_at(-1, 1)):
            with pytest.raises(ValueError, match="cannot read"):
                act()
        beyond = session.stat().st_size + 1
        assert refusal(lambda: list(reader.chunks(beyond))) == "4 session_rewritten"
        assert refusal(lambda: reader.read_at(beyond, 1)) == "4 session_rewritten"


def test_growth_reads_only_the_new_bytes_and_the_edges(tmp_path):
    path = place(tmp_path / "large.jsonl", ROW * 100_000)
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


def replace_by_another(path: Path) -> None:
    replace_by_a_copy(path)
    overwrite_at(path.stat().st_size // 2)(path)


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
        (replace_by_another, "it was replaced by another file"),
        (truncate, "it shrank from 20,000 to 19,999 bytes"),
        (overwrite_at(4095), "its beginning changed"),
        (overwrite_at(-4096), "the bytes before 20,000 changed"),
    ],
)
def test_a_rewritten_session_is_recognised(tmp_path, attack, reason):
    path = place(tmp_path / "a.jsonl", ROW * 200)
    before = fingerprint_of(path)
    attack(path)
    with files.SessionReader(path) as reader:
        assert reader.growth(before) == (GrowthKind.REWRITTEN, reason)


def test_a_copy_in_the_place_of_a_session_is_the_same_session_and_is_compared_once(tmp_path):
    path = place(tmp_path / "a.jsonl", ROW * 200)
    before = fingerprint_of(path)
    replace_by_a_copy(path)
    append_as_agent(path, ROW)
    for reads in (20_000 + 8192, 8192):
        with files.SessionReader(path) as reader:
            assert reader.growth(before) == (GrowthKind.GROWN, "")
            assert reader.bytes_read == reads
    truncate(path)
    os.truncate(path, before.size - 1)
    with files.SessionReader(path) as reader:
        assert reader.growth(before) == (GrowthKind.REWRITTEN, "it was replaced by another file")


@pytest.mark.parametrize(
    "attack",
    [
        *(truncate, replace_by_a_copy, Path.unlink, overwrite_at(-5), lambda path: os.truncate(path, 10)),
        pytest.param(lambda path: path.write_bytes(ROW.upper() * 40_000), id="rewrite-all"),
        pytest.param(lambda path: path.write_bytes(ROW * 40 + b"x" * 96 + ROW.upper() * 40_000), id="rewrite-the-rest"),
        pytest.param(lambda path: path.write_bytes(b"y" * 50 + path.read_bytes()[50:]), id="rewrite-the-first-bytes"),
    ],
)
def test_a_session_that_changes_during_reading_gives_no_fingerprint(tmp_path, attack):
    path = place(tmp_path / "a.jsonl", ROW * 30_000)

    def index() -> None:
        with files.SessionReader(path) as reader:
            at = 0
            for chunk in reader.chunks(0):
                at += len(chunk)
                if at == len(ROW) * 30_000:
                    attack(path)
            reader.fingerprint(at, None)

    assert refusal(index) == "4 session_rewritten"


@pytest.mark.parametrize("left", [0, files.CHUNK - 1, files.CHUNK, files.CHUNK + 1])
def test_a_session_that_shrinks_during_reading_is_a_conflict(tmp_path, left):
    path = place(tmp_path / "a.jsonl", ROW * 30_000)

    def read() -> None:
        with files.SessionReader(path) as reader:
            for _ in reader.chunks(0):
                os.truncate(path, left)

    assert refusal(read) == "4 session_rewritten"


def test_a_fingerprint_keeps_the_old_head_when_lines_are_added(tmp_path):
    path = place(tmp_path / "a.jsonl", ROW * 100)
    before = fingerprint_of(path)
    overwrite_at(0)(path)
    append_as_agent(path, b"more\n")
    with files.SessionReader(path) as reader:
        end = read_until_end(reader, before.size)
        assert refusal(lambda: reader.fingerprint(end, before)) == "4 session_rewritten"


def test_a_session_that_grows_during_reading_is_read_to_its_new_end_and_a_text_that_is_gone_never_shortened(session):
    with files.SessionReader(session) as reader:
        chunks = reader.chunks(0)
        first = next(chunks)
        append_as_agent(session, b'{"id":"2"}\n{"torn')
        assert first + b"".join(chunks) == session.read_bytes() == CONTENT + b'{"id":"2"}\n{"torn'
        indexed = CONTENT + b'{"id":"2"}\n'
        fingerprint = reader.fingerprint(len(indexed), None)
        assert fingerprint.segments == ((len(indexed), hashlib.sha256(indexed).hexdigest()),)
        assert reader.read_at(2, 4) == HEADER[2:6]
        os.truncate(session, 5)
        assert refusal(lambda: reader.read_at(2, 4)) == "4 session_rewritten"


def lock(data: Path, session: Path, seconds: float = 0.05, **more: Any) -> locks.LockedSession:
    with locks.session_lock(data, session, seconds, **more) as locked:
        return locked


def test_a_busy_lock_is_a_conflict_in_another_process_and_in_this_one_until_it_is_released(session, data):
    act = partial(lock, data, session)
    with locks.session_lock(data, session, 0):
        assert refusal_in_child(act) == "4 session_locked"
        assert refusal(act) == "4 session_locked"
    assert refusal_in_child(act) == "done"
    with pytest.raises(Killed), locks.session_lock(data, session, 0):
        raise Killed
    assert refusal_in_child(partial(append, data, session)) == "done"
    with unchanged(session), pytest.raises(RuntimeError, match="was released"):
        storage_append.append_lines(lock(data, session), [LINE], state_of(session), never_complete)


def test_a_symlink_is_locked_as_the_session_it_leads_to_and_no_other_session(session, data):
    alias = session.with_name("alias.jsonl")
    alias.symlink_to(session)
    with locks.session_lock(data, files.real_path(alias), 0):
        assert refusal_in_child(partial(lock, data, session)) == "4 session_locked"
        lock(data, session.with_name("b.jsonl"))
    with pytest.raises(ValueError, match="not negative"):
        lock(data, session, -1)


def test_a_session_or_a_data_directory_that_cannot_be_written_is_permission_denied(public_dir, session):
    path = place(public_dir / "a.jsonl", HEADER)
    path.chmod(0o444)
    (public_dir / "closed").mkdir(mode=0o500)
    for data, written in ((public_dir / "data", path), (public_dir / "closed", session)):
        assert refusal_in_child(partial(append, data, written), become_nobody) == "6 permission_denied"
    assert path.read_bytes() == HEADER


OURS: Final = slice(None)
THEIRS: Final = b'{"id":"theirs"}\n'
TAIL: Final = b"\n{}\n"
UNRESOLVED: Final = [".unresolved"]


def writes(*pieces: bytes | slice) -> Callable[[Path, int, bytes], int]:
    """A write of these slices of our payload, and of bytes of another process before, between and after them."""

    def write(session: Path, fd: int, payload: bytes) -> int:
        written = 0
        for piece in pieces:
            if isinstance(piece, slice):
                written += os.write(fd, payload[piece])
            else:
                append_as_agent(session, piece)
        return written

    return write


def failing(number: int) -> Callable[[Path, int, bytes], int]:
    def write(session: Path, fd: int, payload: bytes) -> int:
        raise OSError(number, os.strerror(number))

    return write


def replaced(session: Path, fd: int, payload: bytes) -> int:
    replace_by_a_copy(session)
    return os.write(fd, payload)


def other_bytes(_: Path, fd: int, payload: bytes) -> int:
    return os.write(fd, payload.upper())


@pytest.mark.parametrize(
    ("write", "answer", "added", "left"),
    [
        pytest.param(writes(OURS), "done", LINE + b"\n", [], id="nothing else happens"),
        pytest.param(writes(THEIRS, OURS), "4 foreign_append", THEIRS, [], id="a foreign line before ours"),
        pytest.param(writes(OURS, THEIRS), "done", LINE + b"\n" + THEIRS, [], id="one right after ours"),
        pytest.param(writes(slice(20), TAIL), "6 append_left", LINE[:20] + TAIL, UNRESOLVED, id="a short write"),
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
    assert refusal(lambda: append(data, session, write=partial(write, session))) == answer
    assert session.read_bytes() == CONTENT + added
    assert records(data) == left


def test_a_line_is_written_by_exactly_one_write(session, data):
    write = Mock(wraps=os.write)
    assert append(data, session, LINE * 2000, write) == (len(CONTENT), 2000 * len(LINE))
    assert [call.args[1] for call in write.mock_calls] == [LINE * 2000 + b"\n"]


def test_a_write_whose_process_was_killed_is_detected_and_leaves_nothing(session, data, monkeypatch):
    monkeypatch.setattr(os, "setsid", lambda: os.kill(os.getpid(), signal.SIGKILL))
    assert refusal(lambda: append(data, session, write=storage_append.write_apart)).startswith("6 ")
    assert session.read_bytes() == CONTENT


def test_a_line_is_written_whole_if_its_caller_is_killed_meanwhile(session):
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
    assert session.read_bytes() in (CONTENT, CONTENT + line)


@pytest.mark.parametrize("length", [0, 10, files.CHUNK - 1, files.CHUNK, 2 * files.CHUNK + 1])
def test_a_complete_last_line_gets_its_newline_first(session, data, length):
    last = json.dumps({"id": "2", "text": "x" * length}).encode()
    append_as_agent(session, last)
    is_complete = Mock(return_value=True)
    appended = append(data, session, is_complete=is_complete)
    is_complete.assert_called_once_with(last)
    assert session.read_bytes() == CONTENT + last + b"\n" + LINE + b"\n"
    assert appended == (len(CONTENT + last) + 1, len(LINE))


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
    with pytest.raises(ValueError, match="no newline"):
        append(data, session, line)
    assert session.read_bytes() == CONTENT


def overwrite_later(path: Path) -> None:
    """A change that keeps the size, with another modification time than before."""
    before = path.stat().st_mtime_ns
    wait_until(lambda: overwrite_at(3)(path) or path.stat().st_mtime_ns != before)


@pytest.mark.parametrize(
    ("attack", "answer"),
    [
        *((attack, "4 session_changed") for attack in (truncate, replace_by_a_copy, overwrite_later)),
        (lambda path: append_as_agent(path, b"{}\n"), "4 session_changed"),
        (Path.unlink, "2 no_such_file"),
    ],
)
def test_a_session_that_changed_after_the_check_is_not_written_to(session, data, attack, answer):
    judged = state_of(session)
    attack(session)
    before = content_of(session)
    with locks.session_lock(data, session, 0) as locked:
        assert refusal(lambda: storage_append.append_lines(locked, [LINE], judged, never_complete)) == answer
    assert content_of(session) == before
    assert records(data) == []


def test_a_session_that_changes_while_the_append_is_prepared_is_not_written_to(session, data):
    append_as_agent(session, b'{"id":"2"}')

    def slowly(_: bytes) -> bool:
        append_as_agent(session, b'\n{"id":"3"}')
        return True

    never = Mock(side_effect=AssertionError("nothing may be written"))
    assert refusal(lambda: append(data, session, is_complete=slowly, write=never)) == "4 session_changed"
    assert session.read_bytes() == CONTENT + b'{"id":"2"}\n{"id":"3"}'
    assert records(data) == []


@pytest.mark.parametrize(
    ("first", "code", "words", "is_recorded"),
    [
        (b'{"id":"t1"}\n', "line_stays", "nevertheless, at byte {}", True),
        (b'{"id":"half', "append_left", "at byte {} were not cut off", False),
    ],
    ids=["a line of its own", "joined with a foreign one"],
)
def test_our_line_between_foreign_ones_stays_recorded_if_separate(session, data, first, code, words, is_recorded):
    last, offset = b'{"id":"t2"}\n', len(CONTENT + first)
    recorded: list[storage_append.Appended] = []
    act = partial(append, data, session, write=partial(writes(first, OURS, last), session), record=recorded.append)
    assert refusal(act, words.format(offset)) == f"6 {code}"
    assert session.read_bytes() == CONTENT + first + LINE + b"\n" + last
    assert recorded == ([(offset, len(LINE))] if is_recorded else [])
    assert records(data) == ([] if is_recorded else UNRESOLVED)


def test_nothing_is_truncated_while_another_process_has_the_file_open(session, data):
    with session.open("ab") as agent:

        def overtaken(fd: int, payload: bytes) -> int:
            agent.write(THEIRS)
            agent.flush()
            return os.write(fd, payload)

        assert refusal(lambda: append(data, session, write=overtaken)) == "6 line_stays"
        agent.write(b'{"id":"later"}\n')
    assert session.read_bytes() == CONTENT + THEIRS + LINE + b'\n{"id":"later"}\n'


def test_opening_a_file_during_truncation_waits_and_loses_nothing(session, monkeypatch):
    append_as_agent(session, LINE)
    truncate_file = os.ftruncate
    late = threading.Thread(target=append_as_agent, args=(session, THEIRS))

    def truncated(fd: int, size: int) -> None:
        late.start()
        late.join(0.5)  # long enough to append, if nothing holds it back
        truncate_file(fd, size)

    monkeypatch.setattr(os, "ftruncate", truncated)
    with session.open("r+b", buffering=0) as file:
        assert locks.cut_off(file.fileno(), len(CONTENT), LINE)
    late.join()
    assert session.read_bytes() == CONTENT + THEIRS


@pytest.mark.parametrize("purpose", ["redline-backup", "redline-restore"])
def test_the_next_lock_removes_drafts_of_a_killed_process_but_no_links_or_directories(session, data, purpose):
    draft = place(session.with_name(f".{session.name}.{purpose}"), b"unfinished")
    other = place(session.with_name(f".other.jsonl.{purpose}"), b"another session's")
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
    crash(data, session, die_after(len(LINE) + 1), note="what it was for")
    with pytest.raises(Killed):
        lock(data, session, settle=Mock(side_effect=Killed))
    for _ in range(2):
        lock(data, session, settle=lambda locked: settled.append(locked.recovery))
    first, second = settled
    assert (first.kind, first.note) == (RecoveryKind.MADE, "what it was for")
    assert first.size == session.stat().st_size
    assert second.kind is RecoveryKind.NOT_NEEDED


@pytest.mark.parametrize("room", [1_000, 0, -230_000], ids=["a part", "nothing", "no record"])
def test_an_append_for_which_there_is_no_room_changes_nothing(session, data, room):
    session.write_bytes(HEADER * 10_000)
    before = session.read_bytes()
    act = partial(append, data, session, b"x" * 60_000)
    assert refusal_in_child(act, limit_file_size(len(before) + room)) == "6 disk_full"
    assert session.read_bytes() == before
    assert records(data) == [] or room < 0


def test_a_line_that_cannot_be_synced_is_removed_again(session, data, monkeypatch):
    sync = files.sync

    def fail_once(fd: int) -> None:
        monkeypatch.setattr(storage_append, "sync", sync)
        raise OSError(errno.EIO, "Input/output error")

    def write(fd: int, payload: bytes) -> int:
        monkeypatch.setattr(storage_append, "sync", fail_once)
        return os.write(fd, payload)

    assert refusal(lambda: append(data, session, write=write)) == "6 write_failed"
    assert files.sync is sync
    assert session.read_bytes() == CONTENT
    assert records(data) == []


def test_an_appended_line_is_reported_even_if_the_cleanup_fails(session, data):
    def write(fd: int, payload: bytes) -> int:
        record = next((data / "locks").glob("*.intent"))
        record.unlink()
        record.mkdir()
        return os.write(fd, payload)

    assert refusal(lambda: append(data, session, write=write), "The lines were appended") == "6 append_not_tidied"
    assert session.read_bytes() == CONTENT + LINE + b"\n"


def test_two_processes_append_and_every_line_is_whole(session, data):
    def lines_of(name: bytes) -> list[bytes]:
        return [name * 5000 + b"%02d" % number for number in range(15)]

    def append_all(name: bytes) -> None:
        for line in lines_of(name):
            append(data, session, line)

    children = [start_child(lambda name=name: refusal(partial(append_all, name))) for name in (b"a", b"b")]
    assert [wait() for wait in children] == ["done", "done"]
    assert session.read_bytes().startswith(CONTENT)
    lines = session.read_bytes()[len(CONTENT) :].splitlines()
    for name in (b"a", b"b"):
        assert [line for line in lines if line[:1] == name] == lines_of(name)
    assert len(lines) == 30


def content_of(session: Path) -> bytes | None:
    return session.read_bytes() if session.exists() else None


def die_after(part: int, then: bytes = b"") -> Callable[[int, bytes], int]:
    """Writes the first `part` bytes, then the bytes of another process, then dies."""

    def write(fd: int, payload: bytes) -> int:
        os.write(fd, payload[:part] + then)
        raise Killed

    return write


def crash(data: Path, session: Path, write: Callable[[int, bytes], int], **more: Any) -> None:
    with pytest.raises(Killed):
        append(data, session, write=write, **more)
    assert records(data) == [".intent"]


def recover(data: Path, session: Path) -> locks.Recovery:
    recovery = lock(data, session).recovery
    assert ".intent" not in records(data)
    return recovery


@pytest.mark.parametrize(
    ("part", "then", "kind", "kept"),
    [
        (0, b"", RecoveryKind.NOT_MADE, b""),
        (len(LINE) + 1, b"", RecoveryKind.MADE, LINE + b"\n"),
        (len(LINE) + 1, b"{}\n", RecoveryKind.MADE, LINE + b"\n{}\n"),
        (1, b"", RecoveryKind.CUT_OFF, b""),
        (len(LINE), b"", RecoveryKind.CUT_OFF, b""),
        (20, TAIL, RecoveryKind.UNRESOLVED, LINE[:20] + TAIL),
        (0, THEIRS, RecoveryKind.UNRESOLVED, THEIRS),
        (0, b"\0" * (len(LINE) + 1), RecoveryKind.UNRESOLVED, b"\0" * (len(LINE) + 1)),
    ],
)
def test_the_next_lock_settles_an_append_that_was_interrupted(session, data, part, then, kind, kept):
    crash(data, session, die_after(part, then))
    recovery = recover(data, session)
    assert recovery.kind is kind
    assert session.read_bytes() == CONTENT + kept
    assert records(data) == (UNRESOLVED if kind is RecoveryKind.UNRESOLVED else [])
    assert (recovery.record is None) == (kind is not RecoveryKind.UNRESOLVED)
    if recovery.record is not None:
        record = json.loads(recovery.record.read_bytes())
        assert record["path"] == str(files.real_path(session))
        assert base64.b64decode(record["payload"]) == LINE + b"\n"
    assert recover(data, session).kind is RecoveryKind.NOT_NEEDED


@pytest.mark.parametrize("attack", [replace_by_a_copy, Path.unlink, lambda path: os.truncate(path, 5)])
def test_an_interrupted_append_to_another_file_is_left_alone(session, data, attack):
    crash(data, session, die_after(20))
    attack(session)
    left = content_of(session)
    assert recover(data, session).kind is RecoveryKind.UNRESOLVED
    assert content_of(session) == left


def test_a_damaged_record_is_kept_and_the_session_left_alone(session, data):
    crash(data, session, die_after(0))
    next((data / "locks").glob("*.intent")).write_bytes(b'{"path":')
    assert recover(data, session).kind is RecoveryKind.UNRESOLVED
    assert records(data) == UNRESOLVED
    assert session.read_bytes() == CONTENT


def test_an_unfinished_record_announces_nothing(session, data):
    with locks.session_lock(data, session, 0) as locked:
        locked.intent.with_suffix(".draft").write_bytes(b'{"pa')
    assert recover(data, session).kind is RecoveryKind.NOT_NEEDED
    append(data, session)
    assert records(data) == []
    assert recover(data, session) == locks.Recovery(RecoveryKind.NOT_NEEDED)
