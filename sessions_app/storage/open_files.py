"""EDGE: the processes that have a file open for writing. Agents take no lock, so there is no other sign of them.

Only Linux shows them, and only those that this user may inspect: an empty result proves nothing. A process that appends
line by line, as the known agents do, has the file open only for moments.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from .files import FileState

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
