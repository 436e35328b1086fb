"""EDGE: changes below directories, as they happen. Missed changes are found by the follower's full scans.

The system reports changes if it can (inotify, FSEvents); if it has run out of watches, the directories are compared
every POLL_MILLISECONDS instead.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

import watchfiles
from watchfiles import Change
from watchfiles._rust_notify import WatchfilesRustInternalError

from sessions_app.sessionlog.errors import Conflict

from .files import SESSION_SUFFIX, real_path

DEBOUNCE_MILLISECONDS: Final = 200
"""Changes within this time are reported together."""
POLL_MILLISECONDS: Final = 1_000
STOP_SECONDS: Final = 5

_log = logging.getLogger("redline")


class PathChanges(NamedTuple):
    """Changed paths."""

    files: frozenset[Path]
    """Session files that are new, were written to, or were removed."""
    directories: frozenset[Path]
    """New directories, and all other removed paths, because they may have been directories."""


class Watcher:
    """Watches directories in a separate thread."""

    def __init__(self) -> None:
        self._changes: queue.SimpleQueue[PathChanges] = queue.SimpleQueue()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def watch(self, directories: Iterable[Path]) -> None:
        """Watch these existing directories instead of the previous ones. Their paths are real ones."""
        self.stop()
        paths = list(directories)
        if not paths:
            return
        self._stop = threading.Event()
        self._thread = threading.Thread(
            target=self._run, args=(paths, self._stop), name="watcher", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        if self._thread is not None:
            self._stop.set()
            self._thread.join(STOP_SECONDS)
            self._thread = None

    def take(self, seconds: float) -> PathChanges:
        """The changes since the last call; waits for one at most this long."""
        files: set[Path] = set()
        directories: set[Path] = set()
        try:
            changes = self._changes.get(timeout=seconds) if seconds > 0 else self._changes.get_nowait()
            while True:
                files |= changes.files
                directories |= changes.directories
                changes = self._changes.get_nowait()
        except queue.Empty:
            return PathChanges(frozenset(files), frozenset(directories))

    def _run(self, paths: list[Path], stop: threading.Event) -> None:
        for polling in (None, True):
            try:
                found = watchfiles.watch(
                    *paths,
                    watch_filter=_matters,
                    debounce=DEBOUNCE_MILLISECONDS,
                    stop_event=stop,
                    raise_interrupt=False,
                    force_polling=polling,
                    poll_delay_ms=POLL_MILLISECONDS,
                    ignore_permission_denied=True,
                )
                for changes in found:
                    self._report(changes)
            except (OSError, WatchfilesRustInternalError) as fault:
                _log.warning("cannot watch for changes%s: %s", " by polling" if polling else "", fault)
                continue
            return

    def _report(self, changes: set[tuple[Change, str]]) -> None:
        paths = {path for _, name in changes if _is_in_place(path := Path(name))}
        files = frozenset(path for path in paths if path.name.endswith(SESSION_SUFFIX))
        self._changes.put(PathChanges(files, frozenset(paths - files)))


def _matters(change: Change, path: str) -> bool:
    """Whether a change may concern sessions. A new directory may contain files that are not reported separately."""
    if path.endswith(SESSION_SUFFIX) or change is Change.deleted:
        return True
    return change is Change.added and Path(path).is_dir()


def _is_in_place(path: Path) -> bool:
    """Whether no part of a path is a link: linked directories are watched, but their files are not the root's."""
    try:
        return real_path(path.parent) == path.parent
    except Conflict:
        return False
