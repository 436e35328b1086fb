"""Keeps the index up to date while the server runs: a full scan first, then changes.

The follower is a child of the server and publishes facts for browsers. Changes that are not reported (a full queue, a
network drive, a root that appears later) are found by repeated full scans, which compare sizes and times and open no
unchanged file. A changed database does not say which of its sessions changed: they are listed, at most every
LISTING_SECONDS. Changes take precedence over the backlog, so that a live session does not have to wait until years of
others have been indexed.
"""

import stat
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Final

from sessions_app.agents.registry import keeps_database
from sessions_app.disk.discovery import discover, fault_of_root
from sessions_app.disk.watcher import PathChanges, Watcher, databases_in
from sessions_app.server.broadcast import SESSIONS, publish
from sessions_app.sessionlog.errors import RedlineError

from . import index_store
from .context_window_lookup import refresh_windows
from .demo_session import offer_demo
from .indexer import IndexTotals, ReadOptions, batches, index_batch
from .progress import Indexing, ReadSoFar
from .roots import configured_roots, discover_in, managed_root, record_unread

SCAN_SECONDS: Final = 60
"""Seconds between two full scans; longer if a scan itself takes long."""
ROOTS_SECONDS: Final = 2
"""Seconds between two checks whether roots appeared or disappeared."""
LISTING_SECONDS: Final = 1
"""Seconds between two listings of changed databases; longer if the listing itself takes long."""
PUBLISH_SECONDS: Final = 0.25
SESSIONS_PER_FACT: Final = 10_000
"""The maximum number of sessions in one fact, which is one line."""


class Announcer:
    """Publishes the progress of indexing, and the sessions that are ready, at most every PUBLISH_SECONDS."""

    def __init__(self) -> None:
        self._so_far = Indexing()
        self._ready: list[int] = []
        self._next = 0.0
        # The server assumes that indexing is in progress from the start, until the follower reports its end.
        self._underway = True

    def add(self, sizes: Iterable[int]) -> None:
        """Add files of these sizes to the backlog; if they are indexed quickly, nothing is published."""
        if self._so_far.done == self._so_far.found:
            self._so_far = Indexing()
            self._next = time.monotonic() + PUBLISH_SECONDS
        for size in sizes:
            self._so_far.found += 1
            self._so_far.of_bytes += size

    def report_read(self, so_far: ReadSoFar) -> None:
        self._report(so_far.path, so_far.bytes)

    def count_indexed(self, path: Path, key: int | None, size: int) -> None:
        """Count one file as indexed."""
        self._so_far.done += 1
        self._so_far.bytes += size
        if key is not None:
            self._ready.append(key)
        self._report(path, 0)

    def publish_changed(self, keys: Iterable[int]) -> None:
        """Publish sessions whose rows have changed, without waiting."""
        found = [*self._ready, *keys]
        self._ready = []
        for start in range(0, len(found), SESSIONS_PER_FACT):
            publish(SESSIONS, sessions=found[start : start + SESSIONS_PER_FACT])

    def finish(self) -> None:
        """Publish the end of indexing."""
        self.publish_changed(())
        if self._underway:
            self._underway = False
            publish(SESSIONS, indexing=None)

    def _report(self, path: Path, read: int) -> None:
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + PUBLISH_SECONDS
        self._underway = True
        ready, self._ready = self._ready, []
        indexing = replace(self._so_far, bytes=self._so_far.bytes + read, file=path.name)
        publish(SESSIONS, sessions=ready, indexing=asdict(indexing))


class Follower:
    """Follows the configured roots. It may be killed at any point without damage to the index.

    `background` is called whenever there is nothing to index; it does one step of other work, and returns whether more
    of it is ready.
    """

    def __init__(self, background: Callable[[], bool] = bool) -> None:
        self._background = background
        self._has_background = False
        self._watcher = Watcher()
        self._announcer = Announcer()
        self._total = IndexTotals()
        self._waiting: deque[dict[Path, index_store.SeenFile]] = deque()
        """Files to be indexed, by batch."""
        self._refused: dict[Path, index_store.SeenFile] = {}
        """Files that could not be indexed, with their state: they are not tried again until they change."""
        self._roots: dict[Path, str] = {}
        """The configured roots, with the agents whose sessions they have."""
        self._there: dict[Path, tuple[int, int]] = {}
        """Device and inode of the watched roots."""
        self._faults: dict[str, str] | None = None
        self._next_scan = 0.0
        self._unlisted: set[Path] = set()
        """Roots with databases that have changed since their sessions were listed."""
        self._listed: dict[Path, frozenset[tuple[str, int, int]]] = {}
        """The state of their databases when their sessions were listed last."""
        self._next_listing = 0.0
        self._demo_offered = False

    def run(self) -> None:
        """Follow forever."""
        while True:
            self.step()

    def step(self) -> None:
        """Do one thing: scan everything, index changes or part of the backlog, or wait a moment."""
        if not self._waiting and time.monotonic() >= self._next_scan:
            self._scan_roots()
        is_busy = self._waiting or self._has_background
        changes = self._watcher.take(0 if is_busy else self._idle_seconds())
        self._unlisted |= {root for root in changes.databases if databases_in(root) != self._listed.get(root)}
        if changes.files or changes.directories:
            self._follow(changes)
        elif self._unlisted and time.monotonic() >= self._next_listing:
            self._list_databases()
        elif self._waiting:
            self._index(self._waiting.popleft())
            if not self._waiting:
                self._all_indexed()
        elif _identities(self._roots) != self._there:
            self._next_scan = 0.0
        else:
            self._has_background = self._background()

    def stop(self) -> None:
        self._watcher.stop()

    def _idle_seconds(self) -> float:
        """How long to wait for changes, in seconds."""
        if not self._unlisted:
            return ROOTS_SECONDS
        return max(0.0, min(ROOTS_SECONDS, self._next_listing - time.monotonic()))

    # ---- full scans ------------------------------------------------------------------------------------------

    def _scan_roots(self) -> None:
        """Scan all roots without opening files: queue new and changed files, mark missing ones."""
        started = time.monotonic()
        self._total = IndexTotals()
        managed_root()
        self._roots = {Path(root.path): root.agent for root in configured_roots()}
        # Watching starts before the scan, so that changes in between are reported.
        there = _identities(self._roots)
        if there != self._there:
            with_databases = {path for path in there if keeps_database(self._roots[path])}
            others = there.keys() - with_databases
            self._watcher.watch([path for path in others if not others & set(path.parents)], with_databases)
            self._there = there
        known = index_store.known_files()
        waiting: dict[Path, index_store.SeenFile] = {}
        faults: dict[str, str] = {}
        changed = refresh_windows(self._total.lookup)
        for root in self._roots:
            try:
                fault = fault_of_root(root)
                changed += [] if fault else self._scan_root(root, known, waiting)
            except RedlineError as failure:
                fault = failure.message
            if fault:
                faults[str(root)] = fault
        if faults != self._faults:
            self._faults = faults
            publish(SESSIONS, roots=faults)
        self._announcer.publish_changed(changed)
        self._wait_for(waiting)
        took = time.monotonic() - started
        self._next_scan = time.monotonic() + max(SCAN_SECONDS, 20 * took)

    def _scan_root(
        self, root: Path, known: dict[Path, index_store.IndexedFile], waiting: dict[Path, index_store.SeenFile]
    ) -> list[int]:
        """Add new and changed files below a root to `waiting`; returns the keys of missing sessions."""
        if not root.is_dir():
            return index_store.mark_missing_below(root, index_store.present_files(known), set())
        if keeps_database(self._roots[root]):
            self._listed[root] = databases_in(root)
        found = discover_in(root, self._roots[root])
        record_unread(root, found.unread)
        there = set()
        for path in found.paths:
            row = known.get(path)
            seen = index_store.seen_session(path, row, found.changed_ns.get(path))
            if row is not None:
                there.add(row.key)
            if seen is None or self._refused.get(path) == seen:
                continue
            if row is None or not row.is_still(seen):
                waiting[path] = seen
        return index_store.mark_missing_below(
            root, index_store.present_files(known), there, [refused.path for refused in found.refused]
        )

    def _wait_for(self, files: dict[Path, index_store.SeenFile]) -> None:
        """Queue files, the most recently written first."""
        latest_first = dict(sorted(files.items(), key=lambda item: -item[1].mtime_ns))
        self._waiting = deque(_batches(latest_first))
        self._announcer.add(seen.size for seen in files.values())
        if not files:
            self._all_indexed()

    def _all_indexed(self) -> None:
        if not self._demo_offered:
            self._demo_offered = True
            demo = offer_demo()
            if demo is not None and (seen := index_store.seen_file(demo)) is not None:
                self._wait_for({demo: seen})
                return
        self._announcer.finish()

    def _index(self, files: Mapping[Path, index_store.SeenFile]) -> None:
        for listed in index_batch(list(files), self._total, ReadOptions(report=self._announcer.report_read)):
            path, seen = listed.path, files[listed.path]
            if listed.fault:
                self._refused[path] = seen
            else:
                self._refused.pop(path, None)
            self._announcer.count_indexed(path, listed.key, seen.size)

    # ---- changes ---------------------------------------------------------------------------------------------

    def _follow(self, changes: PathChanges) -> None:
        """Index changed files, and mark missing ones."""
        # Settings beside the sessions may have changed as well since the last scan.
        self._total = IndexTotals()
        gone, files = set(), {}
        for path in {*changes.files, *_found_in(changes.directories)}:
            seen = index_store.seen_file(path)
            if seen is not None:
                files[path] = seen
            elif path.is_file():
                # A link: the next full scan decides whether it belongs to the root.
                self._next_scan = min(self._next_scan, time.monotonic() + ROOTS_SECONDS)
            else:
                gone.add(path)
        gone |= {path for path in changes.directories if not path.exists()}
        self._index_changed(files)
        lost = []
        if gone:
            lost = [
                key
                for key, path in index_store.present_files(index_store.known_files())
                if gone & {path, *path.parents}
            ]
            index_store.mark_missing(lost)
        self._announce_changed(lost)

    def _list_databases(self) -> None:
        """Index the sessions that have changed in the changed databases, and mark missing ones."""
        started = time.monotonic()
        self._total = IndexTotals()
        roots, self._unlisted = self._unlisted & self._there.keys(), set()
        known = index_store.known_files()
        found: dict[Path, index_store.SeenFile] = {}
        lost = []
        for root in roots:
            with suppress(RedlineError):  # the next full scan reports it
                lost += self._scan_root(root, known, found)
        queued = {path for batch in self._waiting for path in batch}
        self._index_changed({path: seen for path, seen in found.items() if path not in queued})
        self._announce_changed(lost)
        took = time.monotonic() - started
        self._next_listing = time.monotonic() + max(LISTING_SECONDS, 20 * took)

    def _index_changed(self, files: Mapping[Path, index_store.SeenFile]) -> None:
        self._announcer.add(seen.size for seen in files.values())
        for batch in _batches(files):
            self._index(batch)

    def _announce_changed(self, lost: Iterable[int]) -> None:
        self._announcer.publish_changed(lost)
        if not self._waiting:
            self._announcer.finish()


def _batches(files: Mapping[Path, index_store.SeenFile]) -> Iterator[dict[Path, index_store.SeenFile]]:
    for paths in batches({path: seen.size for path, seen in files.items()}):
        yield {path: files[path] for path in paths}


def _identities(roots: Iterable[Path]) -> dict[Path, tuple[int, int]]:
    """The roots that exist and can be read, with their identity."""
    found = {}
    for root in roots:
        try:
            state = root.stat()
        except OSError:
            continue
        if stat.S_ISDIR(state.st_mode) and not fault_of_root(root):
            found[root] = (state.st_dev, state.st_ino)
    return found


def _found_in(directories: Iterable[Path]) -> set[Path]:
    """The session files in new directories."""
    found: set[Path] = set()
    for directory in directories:
        try:
            found.update(discover(directory).paths)
        except RedlineError:
            # It has been removed again, or was not a directory.
            continue
    return found
