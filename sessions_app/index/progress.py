"""The latest facts from the follower: the progress of both indexes, and the roots that cannot be read.

Kept in memory: a new follower sends them again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from sessions_app.sessionlog.text import plural


class ReadSoFar(NamedTuple):
    """The progress of reading one file, in bytes."""

    path: Path
    bytes: int

    def __str__(self) -> str:
        return f"{self.path.name}: {self.bytes >> 20} MB"


Report = Callable[[ReadSoFar], object]


@dataclass(slots=True)
class Indexing:
    """The progress of indexing. At the beginning, no files have been found."""

    done: int = 0
    found: int = 0
    bytes: int = 0
    of_bytes: int = 0
    file: str = ""
    """The file that is being read."""

    @property
    def percent(self) -> int:
        """By bytes, in whole percent, rounded down."""
        return 100 * self.bytes // self.of_bytes if self.of_bytes else 0


class TextProgress(NamedTuple):
    """How many sessions are searchable, of how many."""

    searchable: int
    sessions: int

    def __str__(self) -> str:
        return f"searchable: {self.searchable:,} of {plural(self.sessions, 'session')}"

    @property
    def percent(self) -> int:
        """In whole percent, rounded down."""
        return 100 * self.searchable // self.sessions if self.sessions else 0


@dataclass(slots=True)
class _State:
    indexing: Indexing | None = None
    texts: TextProgress | None = None
    faults: dict[str, str] = field(default_factory=dict)


_state = _State()


def begin() -> None:
    """Note that a follower is being started: until it reports otherwise, the index may be out of date."""
    _state.indexing = Indexing()


def end() -> None:
    """Note that the follower has ended."""
    _state.indexing = _state.texts = None


def remember(fact: dict[str, Any]) -> None:
    """Store facts from a follower: `indexing` and `texts` (the fields of Indexing and TextProgress, or None at the end)
    and `roots`."""
    if "indexing" in fact:
        announced = fact["indexing"]
        _state.indexing = Indexing(**announced) if announced is not None else None
    if "texts" in fact:
        _state.texts = TextProgress(**fact["texts"]) if fact["texts"] is not None else None
    if "roots" in fact:
        _state.faults = dict(fact["roots"])


def indexing() -> Indexing | None:
    """The progress of the current indexing, or None."""
    return _state.indexing


def texts() -> TextProgress | None:
    """The progress of the full-text index, or None if no pass is under way that takes long."""
    return _state.texts


def fault_of(root: str) -> str:
    """Why the root with this real path cannot be read; empty if it can, as far as is known."""
    return _state.faults.get(root, "")
