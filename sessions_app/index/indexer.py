"""Updates the index: a file that has grown is read from where it ended, a rewritten one from its start.

Files are indexed in batches: one query finds their rows, and one transaction writes the results. Transactions are
short, so that other writers do not wait long, and a killed process loses one batch at most.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol

from django.db import connections

from sessions_app.disk.discovery import RefusedPath
from sessions_app.disk.files import real_path, reported
from sessions_app.models import Session
from sessions_app.server.children import in_two_processes, may_fork
from sessions_app.sessionlog.errors import RedlineError

from .context_window_lookup import ContextWindowLookup, refresh_windows
from .index_store import (
    IndexedFile,
    find_rows,
    known_files,
    known_paths,
    mark_missing,
    missing_below,
    only_indexer,
    record_fault,
    require_name,
    seen_session,
    write_read,
)
from .progress import Report
from .roots import configured_roots, discover_in, record_unread, root_for
from .scan import ReadTexts, Scan

FILES_AT_ONCE: Final = 32
BYTES_AT_ONCE: Final = 8_000_000
"""The limits of a batch: number of files, and their total size; a larger file is a batch on its own."""
BYTES_FOR_TWO: Final = 16_000_000
"""The total size from which two processes index faster than one."""
ENTRIES_AT_ONCE: Final = 4_000
"""The maximum number of unwritten entries: some 20 ms of a transaction."""


@dataclass(slots=True)
class IndexTotals:
    """Totals of one indexing run. `bytes` is the size of the files, `bytes_read` the part that had to be read."""

    files: int = 0
    entries: int = 0
    bytes: int = 0
    bytes_read: int = 0
    damaged: int = 0
    faults: list[RefusedPath] = field(default_factory=list)
    unlisted: list[RefusedPath] = field(default_factory=list)
    """Directories that could not be listed: their sessions are unknown."""
    unread: list[RefusedPath] = field(default_factory=list)
    """Directories with sessions that are not read yet, and which."""
    lookup: ContextWindowLookup = field(default_factory=ContextWindowLookup)

    def count(self, entries: int, size: int, damaged: int) -> None:
        """Count one session."""
        self.files += 1
        self.entries += entries
        self.bytes += size
        self.damaged += damaged

    def add(self, other: IndexTotals) -> None:
        """Add what another process has indexed."""
        self.files += other.files
        self.entries += other.entries
        self.bytes += other.bytes
        self.bytes_read += other.bytes_read
        self.damaged += other.damaged
        self.faults += other.faults


class IndexResult(NamedTuple):
    """The result for one file in a root. `key` is None if it cannot have a row."""

    path: Path
    key: int | None
    fault: str = ""


class TextSink(Protocol):
    """Receives the texts of sessions that are read from their start."""

    def begin(self, session: Session) -> ReadTexts: ...


OpenTexts = Callable[[], AbstractContextManager[TextSink | None]]
"""Opens a sink; each process that indexes opens its own."""


class ReadOptions(NamedTuple):
    """How files are read: whether from their start in any case, and what receives the progress and the texts."""

    rebuild: bool = False
    report: Report = str
    texts: TextSink | None = None


def index_roots(*, rebuild: bool = False, report: Report = str, texts: OpenTexts = nullcontext) -> IndexTotals:
    """Index every configured root that exists. Files with the size and the time of the index are not opened."""
    total = IndexTotals()
    refresh_windows(total.lookup)
    known = {} if rebuild else known_files()
    for root in configured_roots():
        path = Path(root.path)
        try:
            if _is_directory(path):
                _index_directory(path, total, ReadOptions(rebuild, report), texts, known)
            else:
                mark_missing(missing_below(path, known_paths(), set()))
        except RedlineError as fault:
            total.faults.append(RefusedPath(path, fault.message))
            total.unlisted.append(total.faults[-1])
    return total


def index_paths(
    paths: Iterable[Path], *, rebuild: bool = False, report: Report = str, texts: OpenTexts = nullcontext
) -> IndexTotals:
    """Index the given files and directories, whatever their sizes and times. Raises BadInput if a path is neither."""
    configured_roots()
    total = IndexTotals()
    for path in map(real_path, paths):
        if _is_directory(path):
            root_for(path)
            _index_directory(path, total, ReadOptions(rebuild, report), texts)
        else:
            with texts() as sink:
                index_file(path, total, rebuild=rebuild, report=report, texts=sink)
    return total


def _is_directory(path: Path) -> bool:
    with reported(path, "It was not indexed."):
        return path.is_dir()


def index_file(
    path: Path,
    total: IndexTotals | None = None,
    *,
    rebuild: bool = False,
    report: Report = str,
    texts: TextSink | None = None,
) -> Session:
    """Index the file at a real path and return its row.

    Raises the errors of reading it; an unknown file then stays unknown.
    """
    require_name(path)
    with only_indexer(path):
        found = find_rows([path])
        session = found.rows[path]
        is_new = path in found.made
        try:
            scan = _read(session, path, total or IndexTotals(), ReadOptions(rebuild, report, texts), is_new=is_new)
        except RedlineError as fault:
            if is_new:
                session.delete()
            else:
                record_fault(session, fault)
            raise
        _write([scan])
    return session


def _index_directory(
    directory: Path,
    total: IndexTotals,
    options: ReadOptions,
    texts: OpenTexts,
    indexed: Mapping[Path, IndexedFile] = MappingProxyType({}),
) -> None:
    """Index the sessions below a directory, except those whose state equals that in `indexed`."""
    known = known_paths()
    found = discover_in(directory, root_for(directory)[0].agent)
    record_unread(directory, found.unread)
    total.unread += [RefusedPath(directory, found.unread)] if found.unread else []
    total.faults.extend(found.refused)
    total.unlisted.extend(found.unlisted)
    sizes, there = {}, set()
    for path in found.paths:
        row = indexed.get(path)
        seen = seen_session(path, row, found.changed_ns.get(path))
        if row is not None and seen is not None and row.is_still(seen):
            there.add(row.key)
            total.count(row.entries, row.size, row.damaged)
        else:
            # Reading will report a file that cannot be inspected.
            sizes[path] = seen.size if seen is not None else 0
    there |= _index_files(sizes, total, options, texts)
    mark_missing(missing_below(directory, known, there, [refused.path for refused in found.refused]))


def _index_files(sizes: Mapping[Path, int], total: IndexTotals, options: ReadOptions, texts: OpenTexts) -> set[int]:
    """Index files with these sizes, many of them with two processes; returns the keys of their rows."""
    index = partial(_index_part, lookup=total.lookup, texts=texts)
    if sum(sizes.values()) < BYTES_FOR_TWO or not may_fork():
        found, counted = index((sizes, options))
    else:
        connections.close_all()
        mine, other = _halves(sizes)
        silent = options._replace(report=str)
        (found, counted), (others, counted_there) = in_two_processes(index, (mine, options), (other, silent))
        found |= others
        counted.add(counted_there)
    total.add(counted)
    return found


def _halves(sizes: Mapping[Path, int]) -> tuple[dict[Path, int], dict[Path, int]]:
    """The files in two parts, each of about half of their bytes."""
    parts: tuple[dict[Path, int], dict[Path, int]] = ({}, {})
    balance = 0
    for path, size in sorted(sizes.items(), key=lambda item: -item[1]):
        parts[balance > 0][path] = size
        balance += -size if balance > 0 else size
    return parts


def _index_part(
    part: tuple[Mapping[Path, int], ReadOptions], lookup: ContextWindowLookup, texts: OpenTexts
) -> tuple[set[int], IndexTotals]:
    sizes, options = part
    total, found = IndexTotals(lookup=lookup), set()
    with texts() as sink:
        for batch in batches(sizes):
            listed = index_batch(batch, total, options._replace(texts=sink))
            found |= {one.key for one in listed if one.key is not None}
    return found, total


# ---- batches -----------------------------------------------------------------------------------------------


def batches(sizes: Mapping[Path, int]) -> Iterator[list[Path]]:
    """Batches of files for `index_batch`, in order. `sizes` are in bytes."""
    batch: list[Path] = []
    held = 0
    for path, size in sizes.items():
        if batch and (len(batch) == FILES_AT_ONCE or held + size > BYTES_AT_ONCE):
            yield batch
            batch, held = [], 0
        batch.append(path)
        held += size
    if batch:
        yield batch


def index_batch(paths: Sequence[Path], total: IndexTotals, options: ReadOptions) -> list[IndexResult]:
    """Index files of roots, by their real paths.

    An unreadable file does not affect the others: the reason is recorded with its session and in `total`.
    """
    listed = [IndexResult(path, None, fault) for path in paths if (fault := _unusable(path))]
    usable = [path for path in paths if path not in {one.path for one in listed}]
    try:
        with only_indexer(*usable):
            listed += _index_locked(usable, total, options)
    except RedlineError as fault:
        listed += [IndexResult(path, None, fault.message) for path in usable]
    total.faults += [RefusedPath(one.path, one.fault) for one in listed if one.fault]
    return listed


def _unusable(path: Path) -> str:
    """Why a path cannot be stored in the database; empty if it can."""
    try:
        require_name(path)
    except RedlineError as fault:
        return fault.message
    return ""


def _index_locked(paths: Sequence[Path], total: IndexTotals, options: ReadOptions) -> list[IndexResult]:
    listed = []
    scans: list[Scan] = []
    found = find_rows(paths)
    for path, session in found.rows.items():
        try:
            scans.append(_read(session, path, total, options, is_new=path in found.made))
        except RedlineError as fault:
            record_fault(session, fault)
            listed.append(IndexResult(path, session.pk, fault.message))
        else:
            listed.append(IndexResult(path, session.pk))
        if sum(len(scan.pending) for scan in scans) >= ENTRIES_AT_ONCE:
            _write(scans)
            scans.clear()
    _write(scans)
    return listed


def _read(session: Session, path: Path, total: IndexTotals, options: ReadOptions, *, is_new: bool) -> Scan:
    begin = options.texts.begin if options.texts is not None else None
    with session.agent.store.open(path) as reader:
        try:
            scan = Scan(session, path, reader, total.lookup, is_new=is_new, from_start=options.rebuild, texts=begin)
            scan.run(options.report)
        finally:
            total.bytes_read += reader.bytes_read
    total.count(session.entry_count, session.size, session.damage_count)
    return scan


def _write(scans: Iterable[Scan]) -> None:
    changed = [scan for scan in scans if scan.changed]
    if changed:
        first_keys = write_read([(scan.session, scan.pending) for scan in changed])
        for scan, first_key in zip(changed, first_keys, strict=True):
            scan.stored(first_key)
