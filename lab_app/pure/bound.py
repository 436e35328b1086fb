"""PURE: the minimum loss of a plan of a given size, found by a plan that knows the future.

No plan under the same rules can do much better. The choice of the kept units is a problem without a fast exact solution
(maximum coverage with a budget), so two greedy choices are made and the better one is improved by swaps; the result may
be a little above the true bound.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from compaction_app.core.embedded import Unit, units_of
from compaction_app.core.transcript import WHOLE, Object

from .measure import Loss, Needs

SWAPS: Final = 40
"""The maximum number of units that are tried the other way round."""


def bound(needs: Needs, share: float) -> Loss:
    """The loss of the best plan found that deletes this share of the prefix's tokens and knows the needed
    references."""
    search = _Search(needs, share)
    kept = search.best()
    gone = {
        found for index, unit in enumerate(search.units) if unit.may_go and index not in kept for found in unit.objects
    }
    return needs.loss_if(lambda found: found not in gone and Object(found.position) not in gone)


class _Search:
    def __init__(self, needs: Needs, share: float) -> None:
        prefix = needs.cut.prefix
        self.units: list[Unit] = list(units_of(prefix))
        held: dict[Object, set[int]] = {}
        for index, unit in enumerate(self.units):
            for found in unit.objects:
                held.setdefault(found, set()).add(index)
        self._covers: dict[int, set[int]] = {}
        """The needed references of each deletable unit that has any, without those that other units certainly keep."""
        for number, need in enumerate(needs.needs):
            units = {
                index
                for place in need.places
                for index in held.get(place, ()) or held.get(Object(place.position, WHOLE), ())
            }
            if all(self.units[index].may_go for index in units):
                for index in units:
                    self._covers.setdefault(index, set()).add(number)
        sure = sum(unit.tokens for unit in self.units if not unit.may_go)
        self._room = int(prefix.tokens * (1 - share)) - sure
        """The tokens of deletable units that may be kept."""

    def best(self) -> set[int]:
        """The kept units with needed references."""
        kept = max((self._fill(()), self._empty()), key=self._value)
        for index in sorted(self._covers, key=lambda index: (-self.units[index].tokens, index))[:SWAPS]:
            other = self._fill(kept - {index}, without=index) if index in kept else self._fill((index,))
            if self._value(other) > self._value(kept):
                kept = other
        return kept

    def _value(self, kept: Iterable[int]) -> int:
        return len(set[int]().union(*(self._covers[index] for index in kept)))

    def _fill(self, start: Iterable[int], without: int = -1) -> set[int]:
        """Keep the units that add the most references per token, as long as there is room."""
        kept = set(start)
        room = self._room - sum(self.units[index].tokens for index in kept)
        if room < 0:
            return set()
        covered = set[int]().union(*(self._covers[index] for index in kept))
        waiting = set(self._covers) - kept - {without}
        while True:
            worth = [
                (len(self._covers[index] - covered) / self.units[index].tokens, -index)
                for index in waiting
                if self.units[index].tokens <= room
            ]
            most, negative = max(worth, default=(0.0, 0))
            if not most:
                return kept
            waiting.remove(-negative)
            kept.add(-negative)
            covered |= self._covers[-negative]
            room -= self.units[-negative].tokens

    def _empty(self) -> set[int]:
        """Delete the units that lose the fewest references per token, until the rest fits; then fill the remaining
        room."""
        kept = set(self._covers)
        copies: dict[int, int] = {}
        for index in kept:
            for number in self._covers[index]:
                copies[number] = copies.get(number, 0) + 1
        room = self._room - sum(self.units[index].tokens for index in kept)
        while room < 0 and kept:
            _, index = min(
                (
                    sum(copies[number] == 1 for number in self._covers[index]) / self.units[index].tokens,
                    index,
                )
                for index in kept
            )
            kept.remove(index)
            room += self.units[index].tokens
            for number in self._covers[index]:
                copies[number] -= 1
        return self._fill(kept)
