"""PURE: the definition of a reference and of its places, by each measure.

|                           | components                                   | substrings (the older measure)      |
|---------------------------|----------------------------------------------|-------------------------------------|
| arguments of a call       | decoded                                      | as JSON: `\\nfoo` is read as `nfoo`  |
| `foo_bar` stands in       | `foo_bar` and `src/foo_bar.py`               | also in `foo_bar_baz`, `my_foo_bar` |
| `well-known`              | is not a reference                           | is a reference                      |
| shown earlier, if it is   | among the components of the shown text       | the identical token                 |

A reference is a token of five characters or more with one of `_ . / : -`, a digit, or a capital after its first
character. Its components are separated by `. / : -`.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Hashable, Iterable, Iterator
from enum import StrEnum
from typing import Final, Generic, TypeVar

from compaction_app.core.mentions import decoded
from compaction_app.core.mentions import references as tokens

Place = TypeVar("Place", bound=Hashable)

_OUTSIDE: Final = r"(?<![A-Za-z0-9_])"
_END: Final = r"(?![A-Za-z0-9_])"
_BOUNDED: Final = re.compile(_OUTSIDE + r"[A-Za-z_][A-Za-z0-9_]*(?:[./:\-][A-Za-z0-9_]+)*", re.ASCII)
_SEPARATORS: Final = re.compile(r"[./:\-]")
_HYPHENATED: Final = re.compile(r"[A-Za-z][a-z]*(?:-[A-Za-z][a-z]*)+", re.ASCII)


class ReplayMeasure(StrEnum):
    """How references are recognised and found again."""

    COMPONENTS = "components"
    SUBSTRINGS = "substrings"

    def references(self, text: str) -> set[str]:
        if self is ReplayMeasure.SUBSTRINGS:
            return tokens(text)
        found = tokens("\n".join(set(_BOUNDED.findall(text))))
        return {name for name in found if not _HYPHENATED.fullmatch(name)}

    def call_text(self, tool: str, arguments: str) -> str:
        """The text of a call in which its references are found."""
        if self is ReplayMeasure.SUBSTRINGS:
            return f"{tool} {arguments}"
        return "\n".join([tool, *decoded(arguments)])


class NameIndex(Generic[Place]):
    """The references at each place."""

    def __init__(self, measure: ReplayMeasure, places: Iterable[tuple[Place, Iterable[str]]]) -> None:
        """`places` come in order, each with the references in its text."""
        self._is_bounded = measure is ReplayMeasure.COMPONENTS
        self._order: dict[Place, int] = {}
        self._places: dict[str, list[Place]] = {}
        for place, names in places:
            self._order[place] = len(self._order)
            for name in names:
                self._places.setdefault(name, []).append(place)
        self._names = list(self._places)
        self._with_component: dict[str, list[int]] = {}
        """The names that have a component: only these can contain a reference with it."""
        self._joined = ""
        self._starts: list[int] = []
        if self._is_bounded:
            for number, name in enumerate(self._names):
                for component in set(_SEPARATORS.split(name)):
                    self._with_component.setdefault(component, []).append(number)
        else:
            self._joined = "\n".join(self._names)
            start = 0
            for name in self._names:
                self._starts.append(start)
                start += len(name) + 1

    def same(self, reference: str) -> tuple[Place, ...]:
        """The places with the identical token, in order."""
        return tuple(self._places.get(reference, ()))

    def standing(self, reference: str) -> tuple[Place, ...]:
        """The places at which a reference occurs, in order: as a token or in one."""
        found: set[Place] = set()
        for number in self._having(reference) if self._is_bounded else self._containing(reference):
            found.update(self._places[self._names[number]])
        return tuple(sorted(found, key=self._order.__getitem__))

    def _having(self, reference: str) -> Iterator[int]:
        """The names in which a reference occurs as whole components."""
        components = set(_SEPARATORS.split(reference))
        rarest = min((self._with_component.get(one, []) for one in components), key=len)
        return (number for number in rarest if _is_part(reference, self._names[number]))

    def _containing(self, reference: str) -> Iterator[int]:
        """The names that contain a reference, one for each place at which they do."""
        at = self._joined.find(reference)
        while at >= 0:
            yield bisect.bisect_right(self._starts, at) - 1
            at = self._joined.find(reference, at + 1)


def _is_part(reference: str, name: str) -> bool:
    """Whether a reference is one or more whole components of a name."""
    at = name.find(reference)
    while at >= 0:
        if not (_is_inner(name, at - 1) or _is_inner(name, at + len(reference))):
            return True
        at = name.find(reference, at + 1)
    return False


def _is_inner(text: str, at: int) -> bool:
    """Whether a character belongs to a component."""
    return 0 <= at < len(text) and (text[at] == "_" or text[at].isalnum())
