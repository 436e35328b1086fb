"""EDGE: appending lines to a session, under its lock.

    state unchanged? → intent record → one write → synced, read back → recorded by the caller → intent record removed

Only bytes that are provably Redline's are ever cut off, and only while no other process has the file open.
"""

import errno
import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from sessions_app.disk.files import FileState, file_state, last_line_start, opened, pread, reported, sync
from sessions_app.disk.open_files import describe, writers_of
from sessions_app.sessionlog.errors import Conflict, RedlineError, SystemFailure
from sessions_app.sessionlog.text import plural

from .locks import NOTHING_WRITTEN, AppendIntent, LockedSession, cut_off

UNDECIDED: Final = "The next lock on the session finds out whether the line was appended: try again."


def write_apart(fd: int, data: bytes) -> int:
    """One `os.write` to an appending descriptor, in a separate process; returns the number of bytes written.

    The kernel ends a long write early when its process is killed. Another process in its own session therefore makes
    the write: if this process is killed, by hand or by a terminal, the line is still written whole. The lock is held
    until both have ended. Raises the OSError of the write.
    """
    size = os.fstat(fd).st_size
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setsid()
            os.write(writer, b"%d" % os.write(fd, data))
        except OSError as error:
            os.write(writer, b"%d" % -(error.errno or errno.EIO))
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    if not answer:
        # The child itself was killed; the file position, which both processes share, shows how much it wrote.
        return max(0, min(len(data), os.lseek(fd, 0, os.SEEK_CUR) - size))
    written = int(answer)
    if written < 0:
        raise OSError(-written, os.strerror(-written))
    return written


class Appended(NamedTuple):
    """The position of the lines: `length` bytes from `offset`, followed by the last one's newline."""

    offset: int
    length: int

    @property
    def end(self) -> int:
        """The offset of the byte after that newline."""
        return self.offset + self.length + 1


def append_lines(
    locked: LockedSession,
    lines: Sequence[bytes],
    expected: FileState,
    is_complete: Callable[[bytes], bool],
    *,
    after_torn_line: bool = False,
    note: str = "",
    record: Callable[[Appended], object] = lambda _: None,
    write: Callable[[int, bytes], int] = write_apart,
) -> Appended:
    """Append `lines` (each without newline) and their newlines in exactly one write, synced to disk on return.

    `expected` is the state that was judged. `is_complete` says whether a last line without newline is complete JSON; if
    it is, or with `after_torn_line`, the write starts with a newline. `record` is called when the lines are in the
    file; if this process is killed before it has finished, or it raises, the next lock holder receives `note`.
    `write` makes the write, so that a test can let it fail or be overtaken. Raises what `record` raises, and

    - Conflict `session_changed`, `torn_last_line`, or `foreign_append`: the session is unchanged, except for
      what others wrote
    - SystemFailure `disk_full`, `write_failed` or another of `os_failure`: likewise
    - SystemFailure `append_left`: an incomplete line of Redline's is in the file; the message says where and why
    - SystemFailure `line_stays`: the lines were appended and recorded, but under a conflict
    - SystemFailure `append_not_tidied`: they were appended and recorded, but the intent record could not be removed
    """
    if not lines or any(not line or b"\n" in line for line in lines):
        raise ValueError("a line has content and no newline")
    locked.require_held()
    path, intent = locked.path, locked.intent
    with opened(path, os.O_RDWR | os.O_APPEND, NOTHING_WRITTEN) as fd:
        with reported(path, NOTHING_WRITTEN):
            _require_state(fd, expected, path)
            joint = _joint(fd, expected.size, is_complete, path, after_torn_line=after_torn_line)
            payload = joint + b"\n".join(lines) + b"\n"
        announced = AppendIntent(expected.inode, expected.size, payload, path=os.fspath(path), note=note)
        locked.announce(announced, f"Nothing was written to {path}.")
        try:
            with reported(path, NOTHING_WRITTEN, code="write_failed"):
                _require_state(fd, expected, path)
                written = write(fd, payload)
        except RedlineError:
            with reported(intent, f"Nothing was written to {path}, but its intent record was kept."):
                locked.withdraw()
            raise
        with reported(path, UNDECIDED, code="write_failed"):
            landed = os.lseek(fd, 0, os.SEEK_CUR) - written
            fault = _find_fault(fd, path, landed, written, payload, expected)
            if fault is not None:
                fault = _take_back(locked, fd, landed, payload, written, fault)
    appended = Appended(landed + len(joint), len(payload) - len(joint) - 1)
    record(appended)
    locked.finish(f"The lines were appended to {path}")
    if fault is not None:
        raise fault
    return appended


def _require_state(fd: int, expected: FileState, path: Path) -> None:
    if FileState.of(os.fstat(fd)) != expected:
        message = f"{path} was written to after it was checked. {NOTHING_WRITTEN} Read it again."
        raise Conflict("session_changed", message)


def _joint(fd: int, size: int, is_complete: Callable[[bytes], bool], path: Path, *, after_torn_line: bool) -> bytes:
    """The bytes before the new line: nothing, or the newline that the last line lacks."""
    start = last_line_start(partial(pread, fd), size)
    if start == size:
        return b""
    if after_torn_line or is_complete(pread(fd, start, size - start)):
        return b"\n"
    what = f"{path} ends in a torn line, from byte {start} on"
    raise Conflict("torn_last_line", f"{what}. {NOTHING_WRITTEN} Let the agent finish it, or use --after-torn-line.")


def _find_fault(
    fd: int, path: Path, landed: int, written: int, payload: bytes, expected: FileState
) -> RedlineError | None:
    """The reason why the written bytes must not stay, or None. `_take_back` completes the message."""
    if written < len(payload):
        what = f"only {written:,} of {plural(len(payload), 'byte')} could be written"
        return SystemFailure("disk_full", f"{path}: {what}: the disk is full, or a limit is reached.")
    try:
        sync(fd)
    except OSError as error:
        what = f"the line could not be synced to disk ({error.strerror})"
        return SystemFailure("write_failed", f"{path}: {what}.")
    if landed != expected.size:
        return Conflict("foreign_append", f"{path}: another process wrote to it at the same moment.")
    if pread(fd, landed, written) != payload:
        return SystemFailure("write_failed", f"{path}: the bytes read back differ from those written.")
    there = file_state(path)
    if there is None or (there.device, there.inode) != (expected.device, expected.inode):
        return Conflict("session_changed", f"{path} was replaced while the line was written.")
    return None


def _take_back(
    locked: LockedSession, fd: int, start: int, payload: bytes, written: int, fault: RedlineError
) -> SystemFailure:
    """Cut off the written bytes and raise `fault`; returns the failure to report if a whole line stays.

    A line stays if others wrote after it, or have the file open and might: their bytes are never cut off.
    """
    mine = payload[:written]
    if not mine or cut_off(fd, start, mine):
        locked.withdraw()
        raise type(fault)(fault.code, f"{fault.message} It has no bytes of Redline's any more. Read it again.")
    writers = writers_of(FileState.of(os.fstat(fd)))
    why = f"{describe(writers)} has it open" if writers else "other bytes follow, or another process has it open"
    if mine == payload and _is_line(fd, start, payload, locked.path):
        stays = f"The line is in the file nevertheless, at byte {start}, and is kept, because {why}."
        look = "Check the session: its agent may have continued past the line."
        return SystemFailure("line_stays", f"{fault.message} {stays} {look}")
    kept = locked.set_aside()
    left = f"Redline's {plural(len(mine), 'byte')} at byte {start} were not cut off, because {why}."
    raise SystemFailure("append_left", f"{fault.message} {left} Check that line; {kept} has the complete one.")


def _is_line(fd: int, start: int, payload: bytes, path: Path) -> bool:
    """Whether the whole payload is in the session at `path`, as a separate line."""
    ours, there = os.fstat(fd), file_state(path)
    before = b"\n" if start == 0 or payload.startswith(b"\n") else pread(fd, start - 1, 1)
    is_same = there is not None and (there.device, there.inode) == (ours.st_dev, ours.st_ino)
    return is_same and before == b"\n" and pread(fd, start, len(payload)) == payload
