"""EDGE: whether a process holds a lock on a file, found without taking one.

Trying a lock would hold it for a moment, in which its owner would be refused. Linux lists held locks to every user;
other systems do not.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from .nofollow import open_file

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
