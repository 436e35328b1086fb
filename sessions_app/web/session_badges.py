"""Badges that other apps show beside a session in the list, each with a link.

The list does not know the other apps: they register their badges when they are ready.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from django.utils.module_loading import import_string


class SessionBadge(NamedTuple):
    """A few words beside a session, and a link."""

    words: str
    address: str


Source = Callable[[Sequence[int]], Mapping[int, SessionBadge]]
"""Returns badges for some of the sessions with these keys, with one query."""


_sources: Final[list[str]] = []


def add_source(source: str) -> None:
    """Add the dotted path of a Source. It is imported when a page needs it: commands show no badges."""
    if source not in _sources:
        _sources.append(source)


def find_badges(keys: Sequence[int]) -> dict[int, list[SessionBadge]]:
    """The badges of the sessions with these keys; sessions without any are omitted."""
    found: dict[int, list[SessionBadge]] = {}
    for source in _sources if keys else ():
        badges: Source = import_string(source)
        for key, badge in badges(keys).items():
            found.setdefault(key, []).append(badge)
    return found
