"""EDGE: the one line that is appended to a session, under its lock.

    the state that was judged? → announced → one write → on disk, read back → recorded by the caller → withdrawn

Bytes that are not provably ours are never cut off, and ours only while no other process has the file open.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from sessions_app.sessionlog.errors import Conflict, RedlineError, SystemFailure

from .files import CHUNK, FileState, file_state, opened, pread, reported, sync
from .locks import NOTHING_WRITTEN, AppendIntent, LockedSession
from .open_files import describe, writers_of
from .truncation import cut_off

UNDECIDED: Final = "Whether the line was appended is settled when the session is next locked: try again."


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
        answered = answer.read()
    os.waitpid(child, 0)
    if not answered:
        # The child itself was killed; how far it came stands in the position that it shares with us.
        return max(0, min(len(data), os.lseek(fd, 0, os.SEEK_CUR) - size))
    written = int(answered)
    if written < 0:
        raise OSError(-written, os.strerror(-written))
    return written


class Appended(NamedTuple):
    """Where the line is: `length` bytes from `offset`, followed by its newline."""

    offset: int
    length: int

    @property
    def end(self) -> int:
        """The offset of the byte after its newline."""
        return self.offset + self.length + 1


def _record_nothing(appended: Appended) -> None:
    del appended


def append_line(
    locked: LockedSession,
    line: bytes,
    expected: FileState,
    is_complete: Callable[[bytes], bool],
    *,
    after_torn_line: bool = False,
    note: str = "",
    record: Callable[[Appended], object] = _record_nothing,
    write: Callable[[int, bytes], int] = write_apart,
) -> Appended:
    """Appends `line` (without newline) and a newline by exactly one write, on disk when this returns.

    `expected` is the state that was judged, `is_complete` tells whether a last line without newline is complete JSON:
    then, and after a torn one with `after_torn_line`, the write begins with a newline. `record` is called when the
    line is there; where this process is killed before that is done, or it raises, whoever takes the lock next is given
    `note`. `write` is the one write, so that a test can have it fail or be overtaken. Raises what `record` raises, and

    - Conflict `session_changed`, `torn_last_line`, or `foreign_append`: the session is as it was, except for
      what others wrote
    - SystemFailure `disk_full`, `write_failed` or another of `os_failure`: likewise
    - SystemFailure `append_left`: a torn piece of ours is in the file, and the message says where and why
    - SystemFailure `line_stays`: the line was appended and recorded, but not as it was meant
    - SystemFailure `append_not_tidied`: the line was appended and recorded, but its intent record is still there
    """
    if not line or b"\n" in line:
        raise ValueError("a line has content and no newline")
    locked.require_held()
    path, intent = locked.path, locked.intent
    with opened(path, os.O_RDWR | os.O_APPEND, NOTHING_WRITTEN) as fd:
        with reported(path, NOTHING_WRITTEN):
            _require_state(fd, expected, path)
            joint = _joint(fd, expected.size, is_complete, path, after_torn_line=after_torn_line)
            payload = joint + line + b"\n"
        with reported(intent, f"Nothing was written to {path}."):
            locked.announce(AppendIntent(os.fspath(path), expected.inode, expected.size, payload, note))
        try:
            with reported(path, NOTHING_WRITTEN, code="write_failed"):
                _require_state(fd, expected, path)
                written = write(fd, payload)
        except RedlineError:
            with reported(intent, f"Nothing was written to {path}, but this record of it remains."):
                locked.withdraw()
            raise
        with reported(path, UNDECIDED, code="write_failed"):
            landed = os.lseek(fd, 0, os.SEEK_CUR) - written
            fault = _find_fault(fd, path, landed, written, payload, expected)
            if fault is not None:
                fault = _take_back(locked, fd, landed, payload, written, fault)
    appended = Appended(landed + len(payload) - len(line) - 1, len(line))
    record(appended)
    try:
        locked.withdraw()
    except OSError as error:
        what = f"The line was appended to {path}, but {intent} could not be removed ({error.strerror})."
        raise SystemFailure("append_not_tidied", f"{what} The next lock on the session does it.") from error
    if fault is not None:
        raise fault
    return appended


def _require_state(fd: int, expected: FileState, path: Path) -> None:
    if FileState.of(os.fstat(fd)) != expected:
        message = f"{path} was written to after it was judged. {NOTHING_WRITTEN} Read it again."
        raise Conflict("session_changed", message)


def last_line_start(fd: int, size: int) -> int:
    """Where the last line of the first `size` bytes begins; `size` where they end with a newline."""
    start = size
    while start > 0:
        step = min(CHUNK, start)
        cut = pread(fd, start - step, step).rfind(b"\n") + 1
        start -= step - cut
        if cut:
            break
    return start


def _joint(
    fd: int, size: int, is_complete: Callable[[bytes], bool], path: Path, *, after_torn_line: bool
) -> bytes:
    """What must come before a new line: nothing, or the newline that the last line lacks."""
    start = last_line_start(fd, size)
    if start == size:
        return b""
    if after_torn_line or is_complete(pread(fd, start, size - start)):
        return b"\n"
    what = f"{path} ends in a torn line, from byte {start} on"
    raise Conflict(
        "torn_last_line", f"{what}. {NOTHING_WRITTEN} Let the agent finish it, or say --after-torn-line."
    )


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


def _take_back(
    locked: LockedSession, fd: int, start: int, payload: bytes, written: int, fault: RedlineError
) -> SystemFailure:
    """Cuts off what was written and raises `fault`; gives what is to be said of a whole line that stays.

    A line stays where others wrote after it, or have the file open and might: what they write is never cut off.
    """
    mine = payload[:written]
    if not mine or cut_off(fd, start, mine):
        locked.withdraw()
        raise type(fault)(fault.code, f"{fault.message} Nothing of ours remains in it. Read it again.")
    writers = writers_of(FileState.of(os.fstat(fd)))
    why = f"{describe(writers)} has it open" if writers else "it continues otherwise, or is open elsewhere"
    if mine == payload and _is_line(fd, start, payload, locked.path):
        stays = f"The line is at byte {start} all the same, and stays, because {why}."
        look = "Look at the session: its agent may have continued past it."
        return SystemFailure("line_stays", f"{fault.message} {stays} {look}")
    kept = locked.set_aside()
    left = f"Our {len(mine)} bytes at byte {start} were not cut off, because {why}."
    raise SystemFailure(
        "append_left", f"{fault.message} {left} Look at that line; {kept} has what was meant."
    )


def _is_line(fd: int, start: int, payload: bytes, path: Path) -> bool:
    """Whether all of the payload is in the session at `path`, as a line of its own."""
    ours, there = os.fstat(fd), file_state(path)
    before = b"\n" if start == 0 or payload.startswith(b"\n") else pread(fd, start - 1, 1)
    is_same = there is not None and (there.device, there.inode) == (ours.st_dev, ours.st_ino)
    return is_same and before == b"\n" and pread(fd, start, len(payload)) == payload
