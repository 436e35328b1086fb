"""The files of sessions as the index has them, without their entries, and whether they have changed since."""

from __future__ import annotations

import stat
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from django.db.models import BooleanField, ExpressionWrapper, Q

from sessions_app.models import Session
from sessions_app.sessionlog.packing import SCHEMA
from sessions_app.storage.documents import DOCUMENT_SUFFIX
from sessions_app.storage.nofollow import stat_file


class SeenFile(NamedTuple):
    """The state of a file, without opening it."""

    size: int
    mtime_ns: int
    ctime_ns: int


class IndexedFile(NamedTuple):
    """The state of a file in the index. If it is not settled, it is indexed again, whatever its size and time."""

    key: int
    size: int
    mtime_ns: int | None
    missing: bool
    settled: bool
    entries: int
    damaged: int

    def is_still(self, seen: SeenFile) -> bool:
        """Whether the file, as seen, is the one that was indexed."""
        return self.settled and (self.size, self.mtime_ns) == (seen.size, seen.mtime_ns)


def known_files() -> dict[Path, IndexedFile]:
    """The state of every session in the index, by real path."""
    valid = Q(state__isnull=False, schema=SCHEMA, fault="", missing=False)
    rows = Session.objects.annotate(valid=ExpressionWrapper(valid, BooleanField())).values_list(
        *("root__path", "relative_path", "pk", "size", "mtime_ns", "missing", "entry_count", "damage_count"),
        *("valid", "read_as", "reader", "root__chosen_reader", "root__reader"),
    )
    known = {}
    for root, relative, key, size, mtime_ns, missing, entries, damaged, *rest in rows.iterator():
        is_valid, read_as, *readers = rest
        chosen = next(filter(None, readers), read_as)
        settled = is_valid and read_as != "" and chosen == read_as
        known[Path(root, relative)] = IndexedFile(key, size, mtime_ns, missing, settled, entries, damaged)
    return known


def present_files(known: Mapping[Path, IndexedFile]) -> list[tuple[int, Path]]:
    """Keys and paths of the sessions that are not marked as missing."""
    return [(row.key, path) for path, row in known.items() if not row.missing]


def seen_file(path: Path) -> SeenFile | None:
    """The state of a file; None if there is no regular file at this real path."""
    try:
        found = stat_file(path)
    except OSError:
        return None
    if not stat.S_ISREG(found.st_mode):
        return None
    return SeenFile(found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def seen_session(path: Path, row: IndexedFile | None, changed_ns: int | None) -> SeenFile | None:
    """The state of a session, to compare with the index. For rendered lines the index has their own size, so only the
    time is compared. `changed_ns` is the time that a database or a document records for it."""
    size = row.size if row is not None else 0
    if changed_ns is not None:
        return SeenFile(size, changed_ns, 0)
    seen = seen_file(path)
    return seen._replace(size=size) if seen is not None and path.suffix == DOCUMENT_SUFFIX else seen
