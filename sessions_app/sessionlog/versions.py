"""The version of a client that a session records."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, NamedTuple

_RELEASED: Final = re.compile(r"([0-9]{1,6})\.([0-9]{1,6})\.([0-9]{1,6})")


class RecordedVersion(NamedTuple):
    """The version of the client that a session's lines record."""

    numbers: tuple[int, ...]
    sentence: str
    """What the lines record, as in "Claude Code 2.1.330 continued it last"."""


@lru_cache(maxsize=16)
def released_version(name: str) -> tuple[int, ...]:
    """The numbers of a released version; none if it is not the name of one."""
    found = _RELEASED.fullmatch(name)
    return tuple(map(int, found.groups())) if found is not None else ()
