"""EDGE: changes below directories, as they happen. Missed changes are found by the follower's full scans.

The system reports changes if it can (inotify, FSEvents); if it has run out of watches, the directories are compared
every POLL_MILLISECONDS instead.
"""

import logging
import queue
import threading
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

import watchfiles
from watchfiles import Change
from watchfiles._rust_notify import WatchfilesRustInternalError

from sessions_app.sessionlog.errors import Conflict

from .files import SESSION_SUFFIX, real_path, scan_directory

DEBOUNCE_MILLISECONDS: Final = 200
"""Changes within this time are reported together."""
POLL_MILLISECONDS: Final = 1_000
STOP_SECONDS: Final = 5
DATABASE_SUFFIX: Final = ".db"

_log = logging.getLogger("redline")


class PathChanges(NamedTuple):
    """Changed paths."""

    files: frozenset[Path]
    """Session files that are new, were written to, or were removed."""
    directories: frozenset[Path]
    """New directories, and all other removed paths, because they may have been directories."""
    databases: frozenset[Path] = frozenset()
    """Directories with databases that are new, were read or written to, or were removed."""


class Watcher:
    """Watches directories in a separate thread."""

    def __init__(self) -> None:
        self._changes: queue.SimpleQueue[PathChanges] = queue.SimpleQueue()
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []

    def watch(self, directories: Iterable[Path], with_databases: Iterable[Path] = ()) -> None:
        """Watch these existing directories instead of the previous ones. Their paths are real ones.

        Of those `with_databases`, only the databases directly in them are watched.
        """
        self.stop()
        self._stop = threading.Event()
        for paths, is_recursive in ((list(directories), True), (list(with_databases), False)):
            if paths:
                args = (paths, is_recursive, self._stop)
                thread = threading.Thread(target=self._run, args=args, name="watcher", daemon=True)
                thread.start()
                self._threads.append(thread)

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(STOP_SECONDS)
        self._threads = []

    def take(self, seconds: float) -> PathChanges:
        """The changes since the last call; waits for one at most this long."""
        found = PathChanges(frozenset(), frozenset())
        with suppress(queue.Empty):
            changes = self._changes.get(timeout=seconds) if seconds > 0 else self._changes.get_nowait()
            while True:
                found = PathChanges(*(old | new for old, new in zip(found, changes, strict=True)))
                changes = self._changes.get_nowait()
        return found

    def _run(self, paths: list[Path], is_recursive: bool, stop: threading.Event) -> None:
        for polling in (None, True):
            try:
                found = watchfiles.watch(
                    *paths,
                    watch_filter=_matters if is_recursive else lambda _, path: _is_database(path),
                    debounce=DEBOUNCE_MILLISECONDS,
                    stop_event=stop,
                    raise_interrupt=False,
                    force_polling=polling,
                    poll_delay_ms=POLL_MILLISECONDS,
                    recursive=is_recursive,
                    ignore_permission_denied=True,
                )
                for changes in found:
                    paths_changed = {path for _, name in changes if _is_in_place(path := Path(name))}
                    self._changes.put(_changes_of(paths_changed, is_recursive))
            except (OSError, WatchfilesRustInternalError) as fault:
                _log.warning("cannot watch for changes%s: %s", " by polling" if polling else "", fault)
                continue
            return


def _changes_of(paths: set[Path], is_recursive: bool) -> PathChanges:
    if not is_recursive:
        return PathChanges(frozenset(), frozenset(), frozenset(path.parent for path in paths))
    files = frozenset(path for path in paths if path.name.endswith(SESSION_SUFFIX))
    return PathChanges(files, frozenset(paths - files))


def _matters(change: Change, path: str) -> bool:
    """Whether a change may concern sessions. A new directory may contain files that are not reported separately."""
    if path.endswith(SESSION_SUFFIX) or change is Change.deleted:
        return True
    return change is Change.added and Path(path).is_dir()


def databases_in(directory: Path) -> frozenset[tuple[str, int, int]]:
    """Name, size and time of the databases directly in a directory; nothing if it cannot be listed.

    The system also reports databases that were only read: a reader opens the log for writing.
    """
    try:
        with scan_directory(directory) as entries:
            states = [(entry.name, entry.stat(follow_symlinks=False)) for entry in entries if _is_database(entry.name)]
    except OSError:
        return frozenset()
    return frozenset((name, state.st_size, state.st_mtime_ns) for name, state in states)


def _is_database(name: str) -> bool:
    """Whether a file is a database, or its write-ahead log, which has the latest changes."""
    return name.endswith((DATABASE_SUFFIX, f"{DATABASE_SUFFIX}-wal"))


def _is_in_place(path: Path) -> bool:
    """Whether no part of a path is a link: linked directories are watched, but their files are not the root's."""
    try:
        return real_path(path.parent) == path.parent
    except Conflict:
        return False
