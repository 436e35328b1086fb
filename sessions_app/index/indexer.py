"""Bringing the index up to date: a grown file is read from where it ended, a rewritten one from its start.

Files are indexed a few at a time: one query finds their rows, and one transaction writes what was read of them. A
transaction is short, so that no other writer waits long, and a process that is killed loses one such batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from sessions_app.models import Session
from sessions_app.sessionlog.errors import RedlineError
from sessions_app.storage.discovery import Discovery, RefusedPath, discover
from sessions_app.storage.files import SessionReader, real_path, reported
from sessions_app.storage.nofollow import stat_file

from .context_window_lookup import ContextWindowLookup
from .index_store import (
    find_rows,
    keep_fault,
    known_paths,
    lost_below,
    mark_missing,
    only_indexer,
    require_name,
    write_read,
)
from .roots import configured_roots, root_for
from .scan import Report, Scan

FILES_AT_ONCE: Final = 32
BYTES_AT_ONCE: Final = 8_000_000
"""Files of a batch, and what they hold together; a larger file is a batch of its own."""
ENTRIES_AT_ONCE: Final = 4_000
"""Entries that wait to be written: some 20 ms of a transaction."""


@dataclass(slots=True)
class Indexed:
    """Sums over one indexing. `bytes` is what the files hold, `bytes_read` what had to be read of them."""

    files: int = 0
    entries: int = 0
    bytes: int = 0
    bytes_read: int = 0
    damaged: int = 0
    faults: list[RefusedPath] = field(default_factory=list)
    unlisted: list[RefusedPath] = field(default_factory=list)
    """Directories that could not be listed: what lies there is not known."""
    lookup: ContextWindowLookup = field(default_factory=ContextWindowLookup)


class Listed(NamedTuple):
    """What became of a file that a root lists. It has no `key` if there can be no row for it."""

    path: Path
    key: int | None
    fault: str = ""


def index_roots(*, rebuild: bool = False, report: Report = str) -> Indexed:
    """Index every configured root that is there."""
    total = Indexed()
    for root in configured_roots():
        path = Path(root.path)
        try:
            if _is_directory(path):
                _index_directory(path, total, rebuild, report)
            else:
                mark_missing(lost_below(path, known_paths(), set()))
        except RedlineError as fault:
            total.faults.append(RefusedPath(path, fault.message))
            total.unlisted.append(total.faults[-1])
    return total


def index_paths(paths: Iterable[Path], *, rebuild: bool = False, report: Report = str) -> Indexed:
    """Index files and directories that were named. Raises BadInput for a path that is neither."""
    configured_roots()
    total = Indexed()
    for path in map(real_path, paths):
        if _is_directory(path):
            root_for(path)
            _index_directory(path, total, rebuild, report)
        else:
            index_file(path, total, rebuild=rebuild, report=report)
    return total


def _is_directory(path: Path) -> bool:
    with reported(path, "It was not indexed."):
        return path.is_dir()


def index_file(
    path: Path, total: Indexed | None = None, *, rebuild: bool = False, report: Report = str
) -> Session:
    """Index the file at a real path and give its row.

    Raises what reading it raises; a file that was not known stays unknown.
    """
    require_name(path)
    with only_indexer(path):
        found = find_rows([path])
        session = found.rows[path]
        is_new = path in found.made
        try:
            scan = _read(session, path, total or Indexed(), report, is_new=is_new, anew=rebuild)
        except RedlineError as fault:
            if is_new:
                session.delete()
            else:
                keep_fault(session, fault)
            raise
        _write([scan])
    return session


def _index_directory(directory: Path, total: Indexed, rebuild: bool, report: Report) -> None:
    known = known_paths()
    found: Discovery = discover(directory)
    total.faults.extend(found.refused)
    total.unlisted.extend(found.unlisted)
    sizes = {path: _size_of(path) for path in found.paths}
    listed = [
        one for batch in batches(sizes) for one in index_batch(batch, total, rebuild=rebuild, report=report)
    ]
    seen = {one.key for one in listed if one.key is not None}
    mark_missing(lost_below(directory, known, seen, [refused.path for refused in found.refused]))


def _size_of(path: Path) -> int:
    """In bytes; 0 for what cannot be looked at, which its reading will report."""
    with suppress(OSError):
        return stat_file(path).st_size
    return 0


# ---- batches -----------------------------------------------------------------------------------------------


def batches(sizes: Mapping[Path, int]) -> Iterator[list[Path]]:
    """Files with their sizes in bytes, in their order, as many at a time as `index_batch` should have."""
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


def index_batch(
    paths: Sequence[Path], total: Indexed, *, rebuild: bool = False, report: Report = str
) -> list[Listed]:
    """Index files that roots list, by their real paths.

    One unreadable file must not hide the others: the reason is kept with its session, and in `total`.
    """
    listed = [Listed(path, None, fault) for path in paths if (fault := _unusable(path))]
    usable = [path for path in paths if path not in {one.path for one in listed}]
    try:
        with only_indexer(*usable):
            listed += _index_locked(usable, total, rebuild, report)
    except RedlineError as fault:
        listed += [Listed(path, None, fault.message) for path in usable]
    total.faults += [RefusedPath(one.path, one.fault) for one in listed if one.fault]
    return listed


def _unusable(path: Path) -> str:
    """Why a path cannot be kept in the database; empty if it can."""
    try:
        require_name(path)
    except RedlineError as fault:
        return fault.message
    return ""


def _index_locked(paths: Sequence[Path], total: Indexed, rebuild: bool, report: Report) -> list[Listed]:
    listed = []
    scans: list[Scan] = []
    found = find_rows(paths)
    for path, session in found.rows.items():
        try:
            scans.append(_read(session, path, total, report, is_new=path in found.made, anew=rebuild))
        except RedlineError as fault:
            keep_fault(session, fault)
            listed.append(Listed(path, session.pk, fault.message))
        else:
            listed.append(Listed(path, session.pk))
        if sum(len(scan.pending) for scan in scans) >= ENTRIES_AT_ONCE:
            _write(scans)
            scans.clear()
    _write(scans)
    return listed


def _read(session: Session, path: Path, total: Indexed, report: Report, *, is_new: bool, anew: bool) -> Scan:
    with SessionReader(path) as reader:
        try:
            scan = Scan(session, path, reader, total.lookup, is_new=is_new, anew=anew)
            scan.run(report)
        finally:
            total.bytes_read += reader.bytes_read
    total.files += 1
    total.entries += session.entry_count
    total.bytes += session.size
    total.damaged += session.damage_count
    return scan


def _write(scans: Iterable[Scan]) -> None:
    changed = [scan for scan in scans if scan.changed]
    if changed:
        write_read([(scan.session, scan.pending) for scan in changed])
