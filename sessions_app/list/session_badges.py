"""What other parts of Redline have to say of a session in the list, as a mark with an address.

The list knows nothing of them: they put themselves in here when their app is ready.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from django.utils.module_loading import import_string


class SessionBadge(NamedTuple):
    """A few words beside a session, and where they lead."""

    words: str
    address: str


Source = Callable[[Sequence[int]], Mapping[int, SessionBadge]]
"""Gives a mark for some of the sessions with these keys, by one query."""

_sources: Final[list[str]] = []


def add_source(source: str) -> None:
    """Add the dotted path of a Source. It is imported when a page needs it: commands show no marks."""
    if source not in _sources:
        _sources.append(source)


def marks_of(keys: Sequence[int]) -> dict[int, list[SessionBadge]]:
    """The marks of the sessions with these keys; those that have none are left out."""
    found: dict[int, list[SessionBadge]] = {}
    for source in _sources if keys else ():
        marks: Source = import_string(source)
        for key, mark in marks(keys).items():
            found.setdefault(key, []).append(mark)
    return found
