"""PURE: the units that a plan deletes, given the worth of each (see `scoring`).

    take       units by their price, lowest first, until the required tokens are out, and usually more
    put back   units that still fit, the most worth per token first
    swap       each of the largest units the other way round, then take and put back again: kept if less worth is lost

By price alone, a large cheap unit would either be skipped, so that everything small and recent is deleted instead, or
be deleted with far more tokens than required. Worth is counted in whole numbers, so that a step can be undone exactly;
the effort is limited by the number of computed prices, so that the same transcript has the same plan on any machine.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from .scoring import Worth
from .transcript_entries import WHOLE

SWAPPED: Final = 30
"""The number of the largest units that are tried the other way round."""
SWAPPED_SHARE: Final = 0.005
"""The minimum share of all tokens that such a unit has."""
ROUNDS: Final = 3
EFFORT: Final = 2_000_000
"""The maximum number of prices computed for swaps."""
SCALE: Final = 1 << 40
"""Worth is counted in parts of this size."""


class Choice(NamedTuple):
    """Units to delete, in the order in which they are requested."""

    units: tuple[int, ...]
    instead_of: Mapping[int, int]
    """For each unit deleted only because of a swap: the largest unit that is kept because of it."""
    looked: int
    """The number of prices computed."""


def choose(worth: Worth, free: Sequence[int], to_go: int, tokens: int, effort: int = EFFORT) -> Choice:
    """Choose among the units that may be deleted; `tokens` are those of the whole transcript."""
    search = _Search(worth, free, to_go, effort)
    search.take()
    search.put_back()
    before = frozenset(search.out)
    search.swap(SWAPPED_SHARE * tokens)
    instead_of = {
        unit: other
        for unit, other in search.instead_of.items()
        if unit in search.out and unit not in before and other not in search.out
    }
    return Choice(tuple(search.out), instead_of, search.looked)


class _Search:
    """The units that are currently in or out, and the value or cost of changing each."""

    def __init__(self, worth: Worth, free: Sequence[int], to_go: int, effort: int) -> None:
        self._free = free
        self._missing = to_go
        """The tokens still to delete; negative if more than required are out."""
        self._effort = effort
        self.looked = 0
        self.out: dict[int, None] = {}
        self.instead_of: dict[int, int] = {}
        self._lost = 0
        """The total worth of the units that are out."""
        self._tokens = [unit.tokens for unit in worth.units]
        self._goes_last = {index: not worth.is_redundant(index) for index in free}
        """Of units with the same price, those are deleted last."""
        self._flipped: list[int] = []
        """The units taken out or put back since the last decision."""
        self._value = {index: round(worth.bonus(index) * SCALE) for index in free}
        """The worth lost with a unit that is in, or regained with one that is out."""
        self._held: dict[int, list[int]] = {}
        """The units with a reference, if several have it and all of them may be deleted."""
        self._need: dict[int, int] = {}
        self._left: dict[int, int] = {}
        """The number of units with a reference that are in."""
        self._sum: dict[int, int] = {}
        """The sum of their indexes: if only one is in, its index."""
        self._shared: dict[int, list[int]] = {index: [] for index in free}
        """The references that a unit shares."""
        self._parts: dict[int, list[int]] = {index: [] for index in free}
        """The entries to which a unit belongs, one for each block."""
        self._blocks: dict[int, int] = {}
        """The number of an entry's blocks that are in."""
        self._rounding: dict[int, int] = {}
        """The reduction in deleted tokens if all blocks of an entry are deleted."""
        self._read(worth)
        self._read_parts(worth)

    def _read(self, worth: Worth) -> None:
        holders: dict[int, list[int]] = {}
        for index in self._free:
            for number in worth.units[index].references:
                holders.setdefault(number, []).append(index)
        for number, units in holders.items():
            if worth.copies(number) > len(units):
                # A kept unit has it too.
                continue
            need = round(worth.need(number, units) * SCALE)
            if len(units) == 1:
                self._value[units[0]] += need
                continue
            self._held[number], self._need[number] = units, need
            self._left[number], self._sum[number] = len(units), sum(units)
            for index in units:
                self._shared[index].append(number)

    def _read_parts(self, worth: Worth) -> None:
        for index in self._free:
            for position, slot in worth.units[index].objects:
                if slot != WHOLE and worth.rounding(position):
                    self._parts[index].append(position)
                    self._blocks[position] = worth.blocks(position)
                    self._rounding[position] = worth.rounding(position)

    # ---- steps ------------------------------------------------------------------------------------------

    def take(self, staying: int = -1) -> None:
        """Take out units by their price, except this one, until the required tokens are out.

        Prices only rise as others are taken out: if the cheapest unit by its old price is still the cheapest by its new
        one, it is the cheapest of all.
        """
        if self._missing <= 0:
            return
        value, tokens, goes_last = self._value, self._tokens, self._goes_last
        heap = [
            (value[index] / tokens[index], goes_last[index], index)
            for index in self._free
            if index not in self.out and index != staying
        ]
        self.looked += len(heap)
        heapq.heapify(heap)
        while heap and self._missing > 0:
            price, last, index = heap[0]
            now = value[index] / tokens[index]
            if now > price:
                heapq.heapreplace(heap, (now, last, index))
                continue
            heapq.heappop(heap)
            self._flip(index)

    def put_back(self, gone: int = -1) -> None:
        """Put back whatever still fits, except this one, the most worth per token first.

        The worth that a unit regains only falls as others are put back.
        """
        value, tokens = self._value, self._tokens
        heap = [
            (-value[index] / tokens[index], -index)
            for index in self.out
            if tokens[index] <= -self._missing and index != gone
        ]
        self.looked += len(heap)
        heapq.heapify(heap)
        while heap:
            price, negative = heap[0]
            index = -negative
            now = -value[index] / tokens[index]
            if tokens[index] > -self._missing:
                heapq.heappop(heap)
            elif now > price:
                heapq.heapreplace(heap, (now, negative))
            else:
                heapq.heappop(heap)
                self._flip(index)

    def swap(self, least: float) -> None:
        """Try the largest units, of at least this many tokens, the other way round."""
        if self._missing > 0:
            return
        large = [index for index in self._free if self._tokens[index] >= least]
        large.sort(key=lambda index: (-self._tokens[index], index))
        for _ in range(ROUNDS):
            improved = False
            for index in large[:SWAPPED]:
                if self.looked > self._effort:
                    return
                improved |= self._try(index)
            if not improved:
                return

    def _try(self, index: int) -> bool:
        """Whether less worth is lost with this unit the other way round; undone if not."""
        lost = self._lost
        self._flipped.clear()
        self._flip(index)
        self.take(index)
        self.put_back(index)
        if self._missing <= 0 and self._lost < lost:
            self._note()
            return True
        for flipped in reversed(self._flipped[:]):
            self._flip(flipped)
        return False

    def _note(self) -> None:
        """Record the units that were kept instead of those that a swap took out."""
        changed = {index for index, count in Counter(self._flipped).items() if count % 2}
        came_back = [index for index in changed if index not in self.out]
        if came_back:
            largest = max(came_back, key=lambda index: (self._tokens[index], index))
            self.instead_of.update(dict.fromkeys(sorted(changed.difference(came_back)), largest))

    def _flip(self, index: int) -> None:
        """Take a unit out if it is in, and put it back if it is out."""
        self._flipped.append(index)
        if index in self.out:
            del self.out[index]
            self._missing += self._tokens[index]
            for position in self._parts[index]:
                if not self._blocks[position]:
                    self._missing -= self._rounding[position]
                self._blocks[position] += 1
            self._lost -= self._value[index]
            self._gain(index)
        else:
            self.out[index] = None
            self._missing -= self._tokens[index]
            for position in self._parts[index]:
                self._blocks[position] -= 1
                if not self._blocks[position]:
                    self._missing += self._rounding[position]
            self._lost += self._value[index]
            self._lose(index)

    def _lose(self, index: int) -> None:
        """Change the worth of other units with the same references, now that this one is out."""
        value, need = self._value, self._need
        for number in self._shared[index]:
            self._left[number] -= 1
            self._sum[number] -= index
            if self._left[number] == 1:
                value[self._sum[number]] += need[number]
            elif self._left[number] == 0:
                for other in self._held[number]:
                    if other != index:
                        value[other] += need[number]

    def _gain(self, index: int) -> None:
        """The reverse, now that this one is back."""
        value, need = self._value, self._need
        for number in self._shared[index]:
            if self._left[number] == 1:
                value[self._sum[number]] -= need[number]
            elif self._left[number] == 0:
                for other in self._held[number]:
                    if other != index:
                        value[other] -= need[number]
            self._left[number] += 1
            self._sum[number] += index
