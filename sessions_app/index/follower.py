"""Keeping the index up to date while the server lives: everything is looked at once, then what changes.

The follower is a child of the server; what it has to tell browsers it announces. A change that nobody tells of (a
full queue, a network drive, a root that came later) is found by looking at everything again now and then: that
compares sizes and times, and opens nothing that is as it was. What changes goes before what waits, so that a live
session is not behind because years of others are being indexed.
"""

from __future__ import annotations

import stat
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from django.db.models import BooleanField, ExpressionWrapper, Q

from sessions_app.models import Session
from sessions_app.sessionlog.errors import RedlineError
from sessions_app.sessionlog.packing import SCHEMA
from sessions_app.storage.discovery import discover, fault_of_root
from sessions_app.storage.nofollow import stat_file
from sessions_app.storage.watcher import PathChanges, Watcher
from sessions_app.web.broadcast import SESSIONS, publish

from .context_window_lookup import refresh_windows
from .demo import offer_demo
from .index_store import lost_below, mark_missing
from .indexer import Indexed, batches, index_batch
from .roots import configured_roots, managed_root
from .scan import ReadSoFar

LOOK_SECONDS: Final = 60
"""Between two looks at everything; longer where a look itself takes long."""
ROOTS_SECONDS: Final = 2
"""Between two looks at whether roots came or went."""
TELL_SECONDS: Final = 0.25
SESSIONS_PER_FACT: Final = 10_000
"""Sessions in one announcement, which is one line."""


class Seen(NamedTuple):
    """What a look at a file tells without opening it."""

    size: int
    mtime_ns: int
    ctime_ns: int


class Known(NamedTuple):
    """What the index says of a file. One that is not settled is indexed again, whatever its size and time."""

    key: int
    size: int
    mtime_ns: int | None
    missing: bool
    settled: bool


class Announcer:
    """Tells browsers how far an indexing is, and which sessions are ready, at most every TELL_SECONDS."""

    def __init__(self) -> None:
        self._done = self._found = 0
        self._bytes = self._of_bytes = 0
        self._ready: list[int] = []
        self._next = 0.0
        # The server takes an indexing to go on from its start, until it is told that it is over.
        self._underway = True

    def more(self, sizes: Iterable[int]) -> None:
        """Files of these sizes are to be indexed as well; where that takes no time, nothing is told of it."""
        if self._done == self._found:
            self._done = self._found = 0
            self._bytes = self._of_bytes = 0
            self._next = time.monotonic() + TELL_SECONDS
        for size in sizes:
            self._found += 1
            self._of_bytes += size

    def reading(self, so_far: ReadSoFar) -> None:
        self._report(so_far.path, so_far.bytes)

    def ready(self, path: Path, key: int | None, size: int) -> None:
        """One more of them is indexed."""
        self._done += 1
        self._bytes += size
        if key is not None:
            self._ready.append(key)
        self._report(path, 0)

    def changed(self, keys: Iterable[int]) -> None:
        """Tell at once of sessions of which something else is known now."""
        found = [*self._ready, *keys]
        self._ready = []
        for start in range(0, len(found), SESSIONS_PER_FACT):
            publish(SESSIONS, sessions=found[start : start + SESSIONS_PER_FACT])

    def over(self) -> None:
        """The indexing is over."""
        self.changed(())
        if self._underway:
            self._underway = False
            publish(SESSIONS, indexing=None)

    def _report(self, path: Path, read: int) -> None:
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + TELL_SECONDS
        self._underway = True
        ready, self._ready = self._ready, []
        indexing = {
            "done": self._done,
            "found": self._found,
            "bytes": self._bytes + read,
            "of_bytes": self._of_bytes,
            "file": path.name,
        }
        publish(SESSIONS, sessions=ready, indexing=indexing)


class Follower:
    """Follows the configured roots. It may be killed at any point: the index survives that."""

    def __init__(self) -> None:
        self._watcher = Watcher()
        self._announcer = Announcer()
        self._total = Indexed()
        self._waiting: deque[dict[Path, Seen]] = deque()
        """Files that wait to be indexed, by batch."""
        self._refused: dict[Path, Seen] = {}
        """Files that could not be indexed, as they were then: until they change they are not tried again."""
        self._roots: list[Path] = []
        self._there: dict[Path, tuple[int, int]] = {}
        """Device and inode of the roots that are watched."""
        self._faults: dict[str, str] | None = None
        self._next_look = 0.0
        self._demo_offered = False

    def run(self) -> None:
        """Follow without end."""
        while True:
            self.step()

    def step(self) -> None:
        """Do the next thing: look at everything, or index what changed, or what waits, or wait a moment."""
        if not self._waiting and time.monotonic() >= self._next_look:
            self._look()
        changes = self._watcher.take(0 if self._waiting else ROOTS_SECONDS)
        if changes.files or changes.directories:
            self._follow(changes)
        elif self._waiting:
            self._index_next()
        elif _identities(self._roots) != self._there:
            self._next_look = 0.0

    def stop(self) -> None:
        self._watcher.stop()

    # ---- everything ------------------------------------------------------------------------------------------

    def _look(self) -> None:
        """Look at everything without opening a file: what is new or changed waits, what is gone is marked."""
        started = time.monotonic()
        self._total = Indexed()
        managed_root()
        self._roots = [Path(root.path) for root in configured_roots()]
        # Watched before it is looked at: what changes in between is told.
        there = _identities(self._roots)
        if there != self._there:
            self._watcher.watch(path for path in there if not there.keys() & set(path.parents))
            self._there = there
        known = _known()
        waiting: dict[Path, Seen] = {}
        faults: dict[str, str] = {}
        changed = refresh_windows(self._total.lookup)
        for root in self._roots:
            try:
                fault = fault_of_root(root)
                changed += [] if fault else self._look_below(root, known, waiting)
            except RedlineError as failure:
                fault = failure.message
            if fault:
                faults[str(root)] = fault
        if faults != self._faults:
            self._faults = faults
            publish(SESSIONS, roots=faults)
        self._announcer.changed(changed)
        self._wait_for(waiting)
        took = time.monotonic() - started
        self._next_look = time.monotonic() + max(LOOK_SECONDS, 20 * took)

    def _look_below(self, root: Path, known: dict[Path, Known], waiting: dict[Path, Seen]) -> list[int]:
        """What is new or changed below a root is added to `waiting`; gives the keys of what is gone."""
        if not root.is_dir():
            lost = lost_below(root, _there(known), set())
            mark_missing(lost)
            return lost
        found = discover(root)
        there = set()
        for path in found.paths:
            seen = _seen(path)
            row = known.get(path)
            if row is not None:
                there.add(row.key)
            if seen is None or self._refused.get(path) == seen:
                continue
            if row is None or not row.settled or (row.size, row.mtime_ns) != (seen.size, seen.mtime_ns):
                waiting[path] = seen
        lost = lost_below(root, _there(known), there, [refused.path for refused in found.refused])
        mark_missing(lost)
        return lost

    def _wait_for(self, files: dict[Path, Seen]) -> None:
        """Have files indexed in turn, those last written to first."""
        latest_first = dict(sorted(files.items(), key=lambda item: -item[1].mtime_ns))
        self._waiting = deque(_batches(latest_first))
        self._announcer.more(seen.size for seen in files.values())
        if not files:
            self._all_indexed()

    def _index_next(self) -> None:
        self._index(self._waiting.popleft())
        if not self._waiting:
            self._all_indexed()

    def _all_indexed(self) -> None:
        if not self._demo_offered:
            self._demo_offered = True
            demo = offer_demo()
            if demo is not None:
                seen = _seen(demo)
                if seen is not None:
                    self._wait_for({demo: seen})
                    return
        self._announcer.over()

    def _index(self, files: Mapping[Path, Seen]) -> None:
        for listed in index_batch(list(files), self._total, report=self._announcer.reading):
            path, seen = listed.path, files[listed.path]
            if listed.fault:
                self._refused[path] = seen
            else:
                self._refused.pop(path, None)
            self._announcer.ready(path, listed.key, seen.size)

    # ---- what changes ----------------------------------------------------------------------------------------

    def _follow(self, changes: PathChanges) -> None:
        """Index what was written to, and mark what is gone."""
        # What lies around sessions may have changed as well since the last look.
        self._total = Indexed()
        gone, files = set(), {}
        for path in {*changes.files, *_found_in(changes.directories)}:
            seen = _seen(path)
            if seen is not None:
                files[path] = seen
            elif path.is_file():
                # A link: what it is to the root is for a look at everything to say.
                self._next_look = min(self._next_look, time.monotonic() + ROOTS_SECONDS)
            else:
                gone.add(path)
        gone |= {path for path in changes.directories if not path.exists()}
        self._announcer.more(seen.size for seen in files.values())
        for batch in _batches(files):
            self._index(batch)
        lost = []
        if gone:
            lost = [key for key, path in _there(_known()) if gone & {path, *path.parents}]
            mark_missing(lost)
        self._announcer.changed(lost)
        if not self._waiting:
            self._announcer.over()


def _batches(files: Mapping[Path, Seen]) -> Iterator[dict[Path, Seen]]:
    for paths in batches({path: seen.size for path, seen in files.items()}):
        yield {path: files[path] for path in paths}


def _identities(roots: Iterable[Path]) -> dict[Path, tuple[int, int]]:
    """The roots that are there and can be looked at, each with what tells it from another of its name."""
    found = {}
    for root in roots:
        try:
            state = root.stat()
        except OSError:
            continue
        if stat.S_ISDIR(state.st_mode) and not fault_of_root(root):
            found[root] = (state.st_dev, state.st_ino)
    return found


def _seen(path: Path) -> Seen | None:
    """How a file looks; None if there is no regular file at this real path."""
    try:
        found = stat_file(path)
    except OSError:
        return None
    if not stat.S_ISREG(found.st_mode):
        return None
    return Seen(found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def _found_in(directories: Iterable[Path]) -> set[Path]:
    """The session files that lie in new directories."""
    found: set[Path] = set()
    for directory in directories:
        try:
            found.update(discover(directory).paths)
        except RedlineError:
            # It is gone again, or was no directory.
            continue
    return found


def _known() -> dict[Path, Known]:
    """What the index says of every session, by real path."""
    valid = Q(state__isnull=False, schema=SCHEMA, fault="", missing=False)
    rows = Session.objects.annotate(valid=ExpressionWrapper(valid, BooleanField())).values_list(
        *("root__path", "relative_path", "pk", "size", "mtime_ns", "missing", "valid"),
        *("read_as", "reader", "root__chosen_reader", "root__reader"),
    )
    known = {}
    for root, relative, key, size, mtime_ns, missing, is_valid, read_as, *readers in rows.iterator():
        chosen = next(filter(None, readers), read_as)
        settled = is_valid and read_as != "" and chosen == read_as
        known[Path(root, relative)] = Known(key, size, mtime_ns, missing, settled)
    return known


def _there(known: Mapping[Path, Known]) -> list[tuple[int, Path]]:
    """Keys and paths of the sessions that are not known to be gone."""
    return [(row.key, path) for path, row in known.items() if not row.missing]
