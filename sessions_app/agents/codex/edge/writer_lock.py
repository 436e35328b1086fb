"""EDGE: Codex's own lock on a thread.

    <home>/sessions/2026/11/22/rollout-<time>-<thread>.jsonl
    <home>/thread-writer-locks/<thread>.lock                  locked by a client as long as it has the thread open

While Redline holds it, no client opens the thread; so it takes the lock only to write. Clients as old as 0.104 know no
lock: that it is free proves nothing.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from sessions_app.sessionlog.errors import Conflict
from sessions_app.storage.files import reported
from sessions_app.storage.held_locks import locked_among
from sessions_app.storage.nofollow import open_file, scan_directory, stat_file

from .directories import codex_home

LOCKS: Final = "thread-writer-locks"
_SUFFIX: Final = ".lock"
NOT_WRITTEN: Final = "Nothing was written."
_NAME: Final = re.compile(r"rollout-.+?-([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})(?:_[0-9a-f-]+)?\.jsonl\Z")


def thread_id_of(path: Path) -> str:
    """The id of a rollout's thread, from the name of its file; empty if it has another name."""
    found = _NAME.match(path.name)
    return found[1] if found is not None else ""


@contextmanager
def writer_lock(path: Path) -> Iterator[None]:
    """Hold the lock on a thread that is among Codex's own files. Raises Conflict `open_in_agent`, and SystemFailure."""
    lock = lock_of(path)
    if lock is None:
        yield
        return
    with reported(lock, NOT_WRITTEN):
        lock.parent.mkdir(mode=0o700, exist_ok=True)
        descriptor = _locked(lock)
    if descriptor is None:
        raise Conflict(
            "open_in_agent",
            f"{path} is open in Codex, which would not notice a change. {NOT_WRITTEN} Close the thread in Codex, or "
            "choose the writer fork.",
        )
    try:
        yield
    finally:
        os.close(descriptor)


def lock_of(path: Path) -> Path | None:
    """The file that a client locks while it has a thread open; None for a session that is not among Codex's files."""
    home, thread_id = codex_home(path), thread_id_of(path)
    return home / LOCKS / f"{thread_id}{_SUFFIX}" if home is not None and thread_id else None


def open_threads(root: Path) -> Iterator[str]:
    """The ids of the threads below a root that clients certainly have open."""
    directory = (codex_home(root / "thread") or root) / LOCKS
    try:
        with scan_directory(directory) as entries:
            locks = [directory / entry.name for entry in entries if entry.name.endswith(_SUFFIX)]
    except OSError:
        return  # no client has ever locked a thread there, or its locks cannot be seen
    yield from (lock.name.removesuffix(_SUFFIX) for lock in locked_among(locks) or ())


def _locked(lock: Path) -> int | None:
    """A descriptor that holds the lock; None if a client holds it. A client that ends removes the file."""
    while True:
        descriptor = open_file(lock, os.O_RDWR | os.O_CREAT)
        try:
            if not _try(descriptor):
                os.close(descriptor)
                return None
            held = os.fstat(descriptor)
            there = stat_file(lock)
            if (held.st_dev, held.st_ino) == (there.st_dev, there.st_ino):
                return descriptor
        except FileNotFoundError:
            pass  # it was removed at this moment
        except OSError:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _try(descriptor: int) -> bool:
    """Take the lock if no one else holds it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as fault:
        if fault.errno in (errno.EWOULDBLOCK, errno.EACCES):
            return False
        raise
    return True
