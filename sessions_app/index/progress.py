"""The latest facts from the follower: the progress of both indexes, and the roots that cannot be read.

Kept in memory: a new follower sends them again.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

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
        """The percentage of bytes read, rounded down."""
        return 100 * self.bytes // self.of_bytes if self.of_bytes else 0


class TextProgress(NamedTuple):
    """The number of searchable sessions, and of all sessions."""

    searchable: int
    sessions: int

    def __str__(self) -> str:
        return f"searchable: {self.searchable:,} of {plural(self.sessions, 'session')}"

    @property
    def percent(self) -> int:
        """The percentage of sessions that are searchable, rounded down."""
        return 100 * self.searchable // self.sessions if self.sessions else 0


@dataclass(slots=True)
class FollowerFacts:
    """The latest facts."""

    indexing: Indexing | None = None
    """The progress of the current indexing, or None."""
    texts: TextProgress | None = None
    """The progress of the full-text index, or None if no pass is under way that takes long."""
    faults: dict[str, str] = field(default_factory=dict)
    """Why roots cannot be read, by their real paths; the others can, as far as is known."""


latest: Final = FollowerFacts()


def begin() -> None:
    """Note that a follower is being started: until it reports otherwise, the index may be out of date."""
    latest.indexing = Indexing()


def end() -> None:
    """Note that the follower has ended."""
    latest.indexing = latest.texts = None


def remember(fact: dict[str, Any]) -> None:
    """Store facts from a follower: `indexing` and `texts` (the fields of Indexing and TextProgress, or None at the end)
    and `roots`."""
    if "indexing" in fact:
        announced = fact["indexing"]
        latest.indexing = Indexing(**announced) if announced is not None else None
    if "texts" in fact:
        latest.texts = TextProgress(**fact["texts"]) if fact["texts"] is not None else None
    if "roots" in fact:
        latest.faults = dict(fact["roots"])
