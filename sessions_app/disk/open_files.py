"""EDGE: the processes that have a file open for writing, or hold a lock on it. Agents take no lock on a session, so
there is no other sign of them.

Only Linux shows them, and only those that this user may inspect: an empty result proves nothing. A process that appends
line by line, as the known agents do, has the file open only for moments. Locks are listed to every user; they are found
without taking one, which would hold it for a moment in which its owner would be refused.
"""

import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from .files import FileState, open_file

SHOWS_WRITERS: Final = sys.platform == "linux"
"""Whether this system shows which processes have a file open."""
_PROCESSES: Final = Path("/proc")
_WRITING: Final = os.O_WRONLY | os.O_RDWR


class Writer(NamedTuple):
    """A process that has a file open for writing. `name` is chosen by the process: untrusted text."""

    pid: int
    name: str

    def __str__(self) -> str:
        return f"{self.name} (process {self.pid})"


def writers_of(state: FileState) -> tuple[Writer, ...]:
    """The other processes that have this file open for writing, by process id. Empty except on Linux."""
    if not SHOWS_WRITERS:
        return ()
    return tuple(sorted(_writers(state.device, state.inode)))


def _writers(device: int, inode: int) -> Iterator[Writer]:
    own = os.getpid()
    for process in _PROCESSES.iterdir():
        if not process.name.isdigit() or int(process.name) == own:
            continue
        try:
            if any(_is_writing(process, fd, device, inode) for fd in (process / "fd").iterdir()):
                name = (process / "comm").read_text("utf-8", "replace").strip()
                yield Writer(int(process.name), name)
        except OSError:  # it has ended, or belongs to another user
            continue


def _is_writing(process: Path, fd: Path, device: int, inode: int) -> bool:
    try:
        # The link's text first: for pipes and sockets it is not a path, and a device may block a stat.
        if not fd.readlink().is_absolute():
            return False
        found = fd.stat()
        if (found.st_dev, found.st_ino) != (device, inode):
            return False
        flags = (process / "fdinfo" / fd.name).read_text().partition("flags:")[2].split()[0]
    except FileNotFoundError:  # closed meanwhile
        return False
    return bool(int(flags, 8) & _WRITING)


def describe(writers: tuple[Writer, ...]) -> str:
    """The processes as text, such as `node (process 4711) and vim (process 4712)`."""
    return " and ".join(map(str, writers))


# ---- locks -----------------------------------------------------------------------------------------------

_SYSTEM: Final = Path("/proc")


def is_locked(path: Path) -> bool | None:
    """Whether a process holds an exclusive `flock` on a file; False if it is gone, None if the system does not say."""
    found = locked_among([path])
    return None if found is None else path in found


def locked_among(paths: Iterable[Path]) -> set[Path] | None:
    """The files among these on which a process holds an exclusive `flock`; None if the system does not report locks."""
    if sys.platform != "linux":
        return None
    try:
        places = {path: place for path in paths if (place := _place_of(path)) is not None}
        if not places:
            return set()
        # As in "3: FLOCK  ADVISORY  WRITE 14635 fe:00:2335508 0 EOF"; those who wait have an arrow after the number.
        locks = [line.split() for line in (_SYSTEM / "locks").read_text().splitlines()]
    except OSError:
        return None
    held = {lock[5] for lock in locks if lock[1] == "FLOCK" and lock[3] == "WRITE"}
    return {path for path, place in places.items() if place in held}


def _place_of(path: Path) -> str | None:
    """The device and inode of a file as in the system's list: on some file systems, the mount's differ from the file's.
    None if the file is gone. Raises OSError."""
    try:
        descriptor = open_file(path, os.O_PATH)
    except OSError:
        return None
    try:
        words = (_SYSTEM / "self" / "fdinfo" / str(descriptor)).read_text().split()
        facts = dict(zip(words[::2], words[1::2], strict=False))
        inode = facts.get("ino:", str(os.fstat(descriptor).st_ino))
    finally:
        os.close(descriptor)
    for line in (_SYSTEM / "self" / "mountinfo").read_text().splitlines():
        mount, _, device, *_ = line.split(" ")
        if mount == facts.get("mnt_id:"):
            major, minor = map(int, device.split(":"))
            return f"{major:02x}:{minor:02x}:{inode}"
    raise FileNotFoundError(f"{path} is on no mount")
