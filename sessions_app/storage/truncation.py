"""EDGE: removing bytes that Redline appended, without any risk to bytes of other processes.

Between a check of a file's end and its truncation another process could append, and its bytes would be cut off too. On
Linux the kernel prevents this: a write lease is granted only while no other process has the file open, and blocks
others that open it until it is released. On other systems, and while another process has the file open, nothing is cut.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from .files import pread, sync

if sys.platform == "linux":
    import fcntl

LEASE_ATTEMPTS: Final = 20
LEASE_PAUSE: Final = 0.02
"""Seconds between two attempts: Redline's own readers have a session open for moments."""
_REFUSALS: Final = frozenset({errno.EAGAIN, errno.EACCES, errno.EPERM, errno.EINVAL, errno.ENOTSUP})
"""Errors for a refused lease: the file is open elsewhere or another user's, or the file system has no leases."""


def cut_off(fd: int, start: int, mine: bytes) -> bool:
    """Truncate the file to `start` if it ends exactly with `mine` there; returns whether it did.

    `fd` is writable, and the only descriptor of the file in this process. Raises OSError.
    """
    if not _ends_with(fd, start, mine):
        return False
    with _alone(fd) as alone:
        if not alone or not _ends_with(fd, start, mine):
            return False
        os.ftruncate(fd, start)
    sync(fd)
    return True


def _ends_with(fd: int, start: int, mine: bytes) -> bool:
    return os.fstat(fd).st_size == start + len(mine) and pread(fd, start, len(mine)) == mine


@contextmanager
def _alone(fd: int) -> Iterator[bool]:
    """Whether no other process has the file open. Inside the block, others that open it have to wait."""
    if sys.platform != "linux":
        yield False
        return
    # A break of the lease is signalled by SIGIO, which by default ends the process; SIGURG is ignored. The signal is
    # not needed: the lease is released long before the kernel would revoke it (45 seconds).
    fcntl.fcntl(fd, fcntl.F_SETSIG, signal.SIGURG)
    granted = _lease(fd)
    try:
        yield granted
    finally:
        if granted:
            fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)


if sys.platform == "linux":

    def _lease(fd: int) -> bool:
        for attempt in range(LEASE_ATTEMPTS):
            try:
                fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
            except OSError as refused:
                if refused.errno not in _REFUSALS:
                    raise
                if refused.errno != errno.EAGAIN:
                    return False
            else:
                return True
            if attempt + 1 < LEASE_ATTEMPTS:
                time.sleep(LEASE_PAUSE)
        return False
