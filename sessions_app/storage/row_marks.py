"""EDGE: what became of a change of rows whose process was killed.

The change is one transaction: the database has all of it, or nothing. So one row that is as it was to be, or as it was,
decides, whatever the agent has done to the others since. A row that does not exist decides only if no other one does:
the agent may have deleted it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from .agent_database import opened_database, row_of
from .files import sha256_of


class RowMark(msgspec.Struct, frozen=True):
    """The digest of a row before and after a change; empty if the row does not exist."""

    table: str
    row_id: str
    before: str
    after: str


def digest_of_row(row: dict[str, Any] | None) -> str:
    """Identifies the content of a row; empty for none."""
    return "" if row is None else sha256_of(repr(sorted(row.items())).encode("utf-8", "surrogatepass"))


def was_made(database: Path, marks: Sequence[RowMark]) -> bool | None:
    """Whether a change was made; None if no row shows it any more. Raises what opening the database raises."""
    with opened_database(database, "An interrupted change was not settled.") as connection:
        digests = [_digest_in(connection, mark) for mark in marks]
    changed = [(mark, digest) for mark, digest in zip(marks, digests, strict=True) if mark.before != mark.after]
    by_certainty = sorted(changed, key=lambda found: not found[1])
    outcomes = ({mark.after: True, mark.before: False}.get(digest) for mark, digest in by_certainty)
    return next((outcome for outcome in outcomes if outcome is not None), None)


def _digest_in(connection: sqlite3.Connection, mark: RowMark) -> str:
    return digest_of_row(row_of(connection, mark.table, mark.row_id))
