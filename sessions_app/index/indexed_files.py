"""The files of sessions as the index has them, without their entries."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from django.db.models import BooleanField, ExpressionWrapper, Q

from sessions_app.models import Session
from sessions_app.sessionlog.packing import SCHEMA


class IndexedFile(NamedTuple):
    """The state of a file in the index. If it is not settled, it is indexed again, whatever its size and time."""

    key: int
    size: int
    mtime_ns: int | None
    missing: bool
    settled: bool


def known_files() -> dict[Path, IndexedFile]:
    """The state of every session in the index, by real path."""
    valid = Q(state__isnull=False, schema=SCHEMA, fault="", missing=False)
    rows = Session.objects.annotate(valid=ExpressionWrapper(valid, BooleanField())).values_list(
        *("root__path", "relative_path", "pk", "size", "mtime_ns", "missing", "valid"),
        *("read_as", "reader", "root__chosen_reader", "root__reader"),
    )
    known = {}
    for root, relative, key, size, mtime_ns, missing, is_valid, read_as, *readers in rows.iterator():
        chosen = next(filter(None, readers), read_as)
        settled = is_valid and read_as != "" and chosen == read_as
        known[Path(root, relative)] = IndexedFile(key, size, mtime_ns, missing, settled)
    return known


def present_files(known: Mapping[Path, IndexedFile]) -> list[tuple[int, Path]]:
    """Keys and paths of the sessions that are not marked as missing."""
    return [(row.key, path) for path, row in known.items() if not row.missing]
