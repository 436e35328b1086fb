"""The parameters of a compaction: how much to keep, which entries are recent, what matters.

Users write them in settings files under `compaction`; a value out of range is replaced by the default.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Final, TypeGuard

import msgspec

from sessions_app.sessionlog.jsjson import MAX_SAFE_INTEGER, trim, utf16_length, utf16_slice

DEFAULT_RATIO: Final = 0.5
DEFAULT_PRESERVE_RECENT: Final = 2
AUTO_DETECTED: Final = "auto-detected"
QUERY_LENGTH: Final = 1000
"""The number of UTF-16 code units of a query that are used."""


class Parameters(msgspec.Struct, frozen=True):
    """Effective parameters of a run, under the names in the settings."""

    compression_ratio: float = DEFAULT_RATIO
    """The fraction of tokens to keep, between 0 and 1."""
    preserve_recent: int = DEFAULT_PRESERVE_RECENT
    """How many of the last compactable entries may not be deleted."""
    query: str = AUTO_DETECTED
    """The subject that the planner treats as important."""


def in_force(name: str, value: object) -> float | int | str | None:
    """The effective value of a parameter that a user gave; None if it cannot be used.

    `compression_ratio` is a number between 0 and 1, both excluded. `preserve_recent` is a finite number: it is rounded
    down, and limited to the range from 0 to MAX_SAFE_INTEGER. `query` is a text.
    """
    match name:
        case "compression_ratio":
            return float(value) if _is_number(value) and 0 < value < 1 else None
        case "preserve_recent":
            return min(max(0, math.floor(value)), MAX_SAFE_INTEGER) if _is_finite(value) else None
        case _:
            return value if isinstance(value, str) else None


def is_usable(name: str, value: object) -> bool:
    return in_force(name, value) is not None


def compression_ratio(value: object) -> float:
    """The effective value, otherwise the default."""
    found = in_force("compression_ratio", value)
    return found if isinstance(found, float) else DEFAULT_RATIO


def preserve_recent(value: object) -> int:
    """The effective value, otherwise the default."""
    found = in_force("preserve_recent", value)
    return found if isinstance(found, int) else DEFAULT_PRESERVE_RECENT


def query(value: object, user_texts: Iterable[str]) -> str:
    """The given query, otherwise the first of `user_texts` (the latest first) that is not blank; at most 1,000
    units."""
    given = trim(value) if isinstance(value, str) else ""
    if not given:
        given = next((text for text in map(trim, user_texts) if text), AUTO_DETECTED)
    length = utf16_length(given)
    if length <= QUERY_LENGTH:
        return given
    return f"{utf16_slice(given, 0, QUERY_LENGTH)} [{length - QUERY_LENGTH} more characters were cut]"


def effective(settings: Mapping[str, object], user_texts: Iterable[str]) -> Parameters:
    """The effective parameters of settings as the user wrote them; for `user_texts` see `query`."""
    return Parameters(
        compression_ratio(settings.get("compression_ratio")),
        preserve_recent(settings.get("preserve_recent")),
        query(settings.get("query"), user_texts),
    )


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_finite(value: object) -> TypeGuard[int | float]:
    """Whether the value is finite as a JavaScript number; an integer beyond the range of doubles is infinite there."""
    try:
        return _is_number(value) and math.isfinite(value)
    except OverflowError:
        return False
