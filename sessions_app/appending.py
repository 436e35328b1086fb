"""EDGE: the lock on a session, and the one line that is appended under it.

An append is announced in an intent record before it is made, so that whoever takes the lock after a crash can
finish the story: nothing was written, everything was, or a torn piece that is cut off again. Bytes that are
not provably ours are never cut off.
"""

from __future__ import annotations

import enum
import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import filelock
import msgspec

from .files import (
    CHUNK,
    FileState,
    file_state,
    opened,
    pread,
    reported,
    sha256_of,
    sync,
    sync_directory,
    write_all,
)
from .sessionlog.errors import Conflict, RedlineError, SystemFailure

NOTHING_WRITTEN = "Nothing was written."
UNDECIDED = "Whether the line was appended is settled when the session is next locked: try again."


# Locking and recovery ---------------------------------------------------------------------------------------


class _Intent(msgspec.Struct, frozen=True):
    """An append that is about to be made: `payload` at byte `before` of the file `inode`."""

    path: str
    inode: int
    before: int
    payload: bytes


class RecoveryKind(enum.Enum):
    NOT_NEEDED = "no append was left unfinished"
    NOT_WRITTEN = "an append was announced but never made; the session is as it was before"
    WRITTEN = "an append was made in full before its process died; the session has the line"
    CUT_OFF = "an append was torn when its process died; the torn piece was cut off again"
    UNRESOLVED = "an append was interrupted and the session went on otherwise; the session was left as it is"


class Recovery(NamedTuple):
    """What became of an append that a crash interrupted, and of what record of it was kept."""

    kind: RecoveryKind
    record: Path | None = None


@dataclass(slots=True)
class LockedSession:
    """The right to write to one session, while `session_lock` is held. `path` is its real path."""

    path: Path
    intent: Path
    recovery: Recovery
    held: bool = True

    def demand_held(self) -> None:
        """Raises RuntimeError after the lock was given back: writing then is a mistake of the caller."""
        if not self.held:
            raise RuntimeError(f"the lock on {self.path} was given back")


@contextmanager
def session_lock(data_dir: Path, path: Path, timeout: float) -> Iterator[LockedSession]:
    """Keeps every other Redline process from writing to the session at `path`, which need not exist.

    Waits at most `timeout` seconds (0: not at all), then raises Conflict `session_locked`. An append that a
    crash interrupted is settled first; what was found is in `recovery`. Agents know nothing of this lock.
    """
    if timeout < 0:
        raise ValueError("a lock is not waited for without end")
    locks = data_dir / "locks"
    key = sha256_of(os.fsencode(path))
    lock = filelock.FileLock(locks / f"{key}.lock", thread_local=False)
    with reported(locks, f"{path} was not locked and {NOTHING_WRITTEN.lower()}"):
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        locks.mkdir(mode=0o700, exist_ok=True)
        try:
            lock.acquire(timeout=timeout)
        except filelock.Timeout as busy:
            message = f"{path} is locked by another Redline process. {NOTHING_WRITTEN} Try again soon."
            raise Conflict("session_locked", message) from busy
    try:
        intent = locks / f"{key}.intent"
        with reported(path, "What an interrupted append left there was not settled."):
            locked = LockedSession(path, intent, _recover(path, intent))
        try:
            yield locked
        finally:
            locked.held = False
    finally:
        lock.release()


def _recover(path: Path, record: Path) -> Recovery:
    try:
        intent = msgspec.json.decode(record.read_bytes(), type=_Intent)
    except FileNotFoundError:
        return Recovery(RecoveryKind.NOT_NEEDED)
    except msgspec.DecodeError:
        return Recovery(RecoveryKind.UNRESOLVED, _set_aside(record))
    if file_state(path) is None:
        return Recovery(RecoveryKind.UNRESOLVED, _set_aside(record))
    with opened(path, os.O_RDONLY, NOTHING_WRITTEN) as fd:
        found = os.fstat(fd)
        after = pread(fd, intent.before, len(intent.payload))
    if found.st_ino != intent.inode or found.st_size < intent.before:
        kind = RecoveryKind.UNRESOLVED
    elif after == intent.payload:
        kind = RecoveryKind.WRITTEN
    elif not after:
        kind = RecoveryKind.NOT_WRITTEN
    elif intent.payload.startswith(after) and _cut_off_torn(path, intent.before, after):
        kind = RecoveryKind.CUT_OFF
    else:
        kind = RecoveryKind.UNRESOLVED
    if kind is RecoveryKind.UNRESOLVED:
        return Recovery(kind, _set_aside(record))
    _forget(record)
    return Recovery(kind)


def _announce(record: Path, intent: _Intent) -> None:
    """Writes the record so that it is there in full, on disk, or not at all."""
    draft = record.with_suffix(".draft")
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        write_all(fd, msgspec.json.encode(intent))
        sync(fd)
    finally:
        os.close(fd)
    draft.replace(record)
    sync_directory(record.parent)


def _forget(record: Path) -> None:
    record.unlink(missing_ok=True)
    sync_directory(record.parent)


def _set_aside(record: Path) -> Path:
    """Keeps the record of what could not be settled, under a name that no later one takes."""
    kept = record.with_name(f"{record.stem}.{sha256_of(record.read_bytes())[:16]}.unresolved")
    record.replace(kept)
    sync_directory(record.parent)
    return kept


# Appending --------------------------------------------------------------------------------------------------


def write_apart(fd: int, data: bytes) -> int:
    """One `os.write` to a descriptor that appends, made by a process of its own; gives the bytes written.

    The kernel ends a long write early when its process is killed. So the process that makes it is another one,
    in a session of its own: whoever is killed, by hand or by a terminal, the line is written whole. The lock is
    held until both have gone. Raises the OSError of the write.
    """
    size = os.fstat(fd).st_size
    reading, answering = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setsid()
            os.write(answering, b"%d" % os.write(fd, data))
        except OSError as error:
            os.write(answering, b"%d" % -(error.errno or errno.EIO))
        finally:
            os._exit(0)
    os.close(answering)
    with os.fdopen(reading, "rb") as answer:
        told = answer.read()
    os.waitpid(child, 0)
    if not told:
        # The child itself was killed; how far it came stands in the position that it shares with us.
        return max(0, min(len(data), os.lseek(fd, 0, os.SEEK_CUR) - size))
    written = int(told)
    if written < 0:
        raise OSError(-written, os.strerror(-written))
    return written


class Appended(NamedTuple):
    """Where the line is: `length` bytes from `offset`, followed by its newline."""

    offset: int
    length: int


def append_line(
    locked: LockedSession,
    line: bytes,
    expected: FileState,
    is_complete: Callable[[bytes], bool],
    *,
    write: Callable[[int, bytes], int] = write_apart,
) -> Appended:
    """Appends `line` (without newline) and a newline by exactly one write, on disk when this returns.

    `expected` is the state that was judged, `is_complete` tells whether a last line without newline is
    complete JSON (then the write begins with a newline). `write` is the one write, so that a test can have it
    fail or be overtaken. Raises

    - Conflict `session_changed`, `torn_last_line`, or `foreign_append`: the session is as it was, except for
      what others wrote
    - SystemFailure `disk_full`, `write_failed` or another of `os_failure`: likewise
    - SystemFailure `append_left`: bytes of ours are in the file, and the message says where and why
    - SystemFailure `append_not_tidied`: the line was appended, but the record of the append is still there
    """
    if not line or b"\n" in line:
        raise ValueError("a line has content and no newline")
    locked.demand_held()
    path, record = locked.path, locked.intent
    with opened(path, os.O_RDWR | os.O_APPEND, NOTHING_WRITTEN) as fd:
        with reported(path, NOTHING_WRITTEN):
            _demand_state(fd, expected, path)
            payload = _joint(fd, expected.size, is_complete, path) + line + b"\n"
        with reported(record, f"Nothing was written to {path}."):
            _announce(record, _Intent(os.fspath(path), expected.inode, expected.size, payload))
        try:
            with reported(path, NOTHING_WRITTEN, code="write_failed"):
                _demand_state(fd, expected, path)
                written = write(fd, payload)
        except RedlineError:
            with reported(record, f"Nothing was written to {path}, but this record of it remains."):
                _forget(record)
            raise
        with reported(path, UNDECIDED, code="write_failed"):
            landed = os.lseek(fd, 0, os.SEEK_CUR) - written
            failure = _find_fault(fd, path, landed, written, payload, expected)
            if failure is not None:
                _take_back(fd, landed, payload[:written], record, failure)
    try:
        _forget(record)
    except OSError as error:
        what = f"The line was appended to {path}, but {record} could not be removed ({error.strerror})."
        raise SystemFailure("append_not_tidied", f"{what} The next lock on the session does it.") from error
    return Appended(landed + len(payload) - len(line) - 1, len(line))


def _demand_state(fd: int, expected: FileState, path: Path) -> None:
    if FileState.of(os.fstat(fd)) != expected:
        message = f"{path} was written to after it was judged. {NOTHING_WRITTEN} Read it again."
        raise Conflict("session_changed", message)


def _joint(fd: int, size: int, is_complete: Callable[[bytes], bool], path: Path) -> bytes:
    """What must come before a new line: nothing, or the newline that the last complete line lacks."""
    start = size
    while start > 0:
        step = min(CHUNK, start)
        cut = pread(fd, start - step, step).rfind(b"\n") + 1
        start -= step - cut
        if cut:
            break
    if start == size:
        return b""
    if is_complete(pread(fd, start, size - start)):
        return b"\n"
    what = f"{path} ends in a torn line, from byte {start} on"
    raise Conflict("torn_last_line", f"{what}. {NOTHING_WRITTEN} Let the agent finish it, or repair it.")


def _find_fault(
    fd: int, path: Path, landed: int, written: int, payload: bytes, expected: FileState
) -> RedlineError | None:
    """Why what was written may not stay, or None. The message is completed by `_take_back`."""
    if written < len(payload):
        what = f"only {written} of {len(payload)} bytes could be written: the disk or a limit is full"
        return SystemFailure("disk_full", f"{path}: {what}.")
    try:
        sync(fd)
    except OSError as error:
        what = f"the line could not be brought to disk ({error.strerror})"
        return SystemFailure("write_failed", f"{path}: {what}.")
    if landed != expected.size:
        return Conflict("foreign_append", f"{path}: another process wrote to it at the very same moment.")
    if pread(fd, landed, written) != payload:
        return SystemFailure("write_failed", f"{path}: what was read back is not what was written.")
    there = file_state(path)
    if there is None or (there.device, there.inode) != (expected.device, expected.inode):
        return Conflict("session_changed", f"{path} was replaced while the line was written.")
    return None


def _take_back(fd: int, start: int, mine: bytes, record: Path, failure: RedlineError) -> None:
    """Cuts off what was written and raises `failure`; where others wrote after it, leaves it and says so."""
    if not mine or _cut_off(fd, start, mine):
        _forget(record)
        raise type(failure)(failure.code, f"{failure.message} Nothing of ours remains in it. Read it again.")
    kept = _set_aside(record)
    left = f"Our {len(mine)} bytes at byte {start} were not cut off, because the file goes on otherwise."
    raise SystemFailure(
        "append_left", f"{failure.message} {left} Look at that line; {kept} has what was meant."
    )


def _cut_off(fd: int, start: int, mine: bytes) -> bool:
    """Truncates the file to `start` if it ends exactly with `mine` there; whether it did."""
    if pread(fd, start, len(mine)) != mine or os.fstat(fd).st_size != start + len(mine):
        return False
    os.ftruncate(fd, start)
    sync(fd)
    return True


def _cut_off_torn(path: Path, start: int, mine: bytes) -> bool:
    with opened(path, os.O_RDWR, NOTHING_WRITTEN) as fd:
        return _cut_off(fd, start, mine)
