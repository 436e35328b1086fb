"""References: the names, paths and numbers that an agent uses for things.

Two modules need them: the embedded planner, to see what later work still mentions, and the replay, to see what a
deletion would have cost.
"""

from __future__ import annotations

import re
from typing import Final

REFERENCE_LENGTH: Final = 5
_TOKEN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:[./:\-][A-Za-z0-9_]+)*", re.ASCII)
_DISTINCTIVE: Final = re.compile(r"[_./:\-0-9]|(?<=.)[A-Z]", re.ASCII)


def references(text: str) -> set[str]:
    """The references in a text: tokens of five characters or more that do not look like ordinary words.

    A token is a reference if it contains one of `_ . / : -`, a digit, or a capital after its first character.
    """
    return {
        token
        for token in set(_TOKEN.findall(text))
        if len(token) >= REFERENCE_LENGTH and _DISTINCTIVE.search(token)
    }
