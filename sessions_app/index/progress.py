"""What the follower announced the serving process last: how far the index is, and which roots cannot be looked at.

Held in memory: a follower that starts tells it anew.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Indexing:
    """How far an indexing is. Where it has just begun, nothing is found yet."""

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


@dataclass(slots=True)
class _State:
    indexing: Indexing | None = None
    faults: dict[str, str] = field(default_factory=dict)


_state = _State()


def begin() -> None:
    """A follower is being started: until it says otherwise, the index may be behind."""
    _state.indexing = Indexing()


def end() -> None:
    """There is no follower any more."""
    _state.indexing = None


def remember(fact: dict[str, Any]) -> None:
    """Keep what a follower announced: `indexing` (the fields of Indexing, or None at the end) and `roots`."""
    if "indexing" in fact:
        announced = fact["indexing"]
        _state.indexing = Indexing(**announced) if announced is not None else None
    if "roots" in fact:
        _state.faults = dict(fact["roots"])


def indexing() -> Indexing | None:
    """How far the indexing is that goes on; None where none does."""
    return _state.indexing


def fault_of(root: str) -> str:
    """Why the root with this real path cannot be looked at; empty where it can, as far as is known."""
    return _state.faults.get(root, "")
