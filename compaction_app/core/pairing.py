"""Tool calls and the results that answer them, and the repair that keeps both sides together.

Providers reject a conversation that contains a call without a result, or a result without a call. So a plan that
deletes one side is repaired to delete the other:

    block of a call, or its entry  ──▶  every result of the call
    result                         ──▶  every block of the call
    every block of a calling entry ──▶  the entry instead
    entry                          ──▶  its companions, by its agent's rules

until nothing changes. Two blocks of one entry may have the same call id: deleting either deletes the results, and the
other block stays, as in the agent; only a pinned block keeps its answer. If several entries make the same call id, the
last one owns it, in the place of the first. The order in which repair adds targets is part of the format: targets are
recorded in it.

A repair visits only the calls that its targets touch. `Pairs` is made once per transcript; `TargetPlan` is one set of
targets, closed step by step, with a count of the visited objects.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from .transcript_entries import WHOLE, Object, TranscriptEntry


class ToolPair(NamedTuple):
    """One call id: the entry that owns it, its blocks there, and the results that answer it."""

    order: int
    id: str
    owner: Object
    blocks: tuple[Object, ...]
    results: tuple[Object, ...]
    repeats: tuple[Object, ...] = ()
    """Blocks of earlier entries with the same id. Repair ignores them, as the agent does."""

    @property
    def objects(self) -> tuple[Object, ...]:
        """All objects with the id: the blocks in the order of the transcript, then the results."""
        return (*self.repeats, *self.blocks, *self.results)


class Pairs:
    """The calls of entries and their results, in the order in which repair visits them."""

    def __init__(self, entries: Sequence[TranscriptEntry]) -> None:
        self.wholes: tuple[Object, ...] = tuple(Object(position) for position in range(len(entries)))
        """Every entry as an object, created once: they are needed far more often than entries."""
        owners: dict[str, int] = {}
        results: dict[str, list[Object]] = {}
        for position, entry in enumerate(entries):
            for call_id in entry.call_ids:
                owners[call_id] = position
            if entry.result_for is not None:
                results.setdefault(entry.result_for, []).append(self.wholes[position])
        blocks: dict[str, list[Object]] = {}
        repeats: dict[str, list[Object]] = {}
        for position, entry in enumerate(entries):
            for slot, block in enumerate(entry.blocks if entry.call_ids else ()):
                if block.call_id is not None:
                    side = blocks if owners[block.call_id] == position else repeats
                    side.setdefault(block.call_id, []).append(Object(position, slot))
        self.calls: tuple[ToolPair, ...] = tuple(
            ToolPair(
                order,
                call_id,
                self.wholes[owner],
                tuple(blocks[call_id]),
                tuple(results.get(call_id, ())),
                tuple(repeats.get(call_id, ())),
            )
            for order, (call_id, owner) in enumerate(owners.items())
        )
        self.shared: tuple[ToolPair, ...] = tuple(
            call for call in self.calls if call.results and len(call.blocks) + len(call.repeats) > 1
        )
        """Answered calls whose id several blocks carry; only damaged sessions have them."""
        self._by_id: dict[str, ToolPair] = {call.id: call for call in self.calls}
        touched: dict[int, list[ToolPair]] = {}
        for call in self.calls:
            touched.setdefault(call.owner.position, []).append(call)
        for call in self.calls:
            for result in call.results:
                touched.setdefault(result.position, []).append(call)
        self.touched_by: tuple[tuple[ToolPair, ...], ...] = tuple(
            tuple(touched.get(position, ())) for position in range(len(entries))
        )
        """For each entry by position: the calls that repair visits when the whole entry is deleted."""

    def call(self, call_id: str) -> ToolPair | None:
        return self._by_id.get(call_id)

    def made_in(self, entry: TranscriptEntry, slot: int) -> ToolPair | None:
        """The call that a block makes, if its entry owns it."""
        call_id = entry.blocks[slot].call_id
        call = self._by_id.get(call_id) if call_id is not None else None
        return call if call is not None and call.owner.position == entry.position else None

    def of_block(self, entry: TranscriptEntry, slot: int) -> ToolPair | None:
        """The call whose id a block carries, regardless of the entry that owns that call; None if it makes none."""
        call_id = entry.blocks[slot].call_id
        return self._by_id[call_id] if call_id is not None else None

    def answered_by(self, entry: TranscriptEntry) -> ToolPair | None:
        """The call that an entry answers; None if it answers none, or a call that does not exist."""
        return self._by_id.get(entry.result_for) if entry.result_for is not None else None


def parts_of(entries: Sequence[TranscriptEntry], pairs: Pairs) -> Sequence[int]:
    """For each entry by position: the first entry connected with it by steps of repair in either direction.

    The entries of different parts are never deleted because of each other.
    """
    first = list(range(len(entries)))

    def find(position: int) -> int:
        while first[position] != position:
            first[position] = position = first[first[position]]
        return position

    def join(one: int, other: int) -> None:
        low, high = sorted((find(one), find(other)))
        first[high] = low

    for call in pairs.calls:
        for found in call.objects:
            join(call.owner.position, found.position)
    for position, entry in enumerate(entries):
        for companion in entry.companions:
            join(position, companion)
    return [find(position) for position in range(len(entries))]


MayGo = Callable[[Object], bool]


class TargetPlan:
    """Deletion targets in the order in which they were chosen, with their sums.

    A plan with a `base` contains the additions to that closed plan, which is only read.
    """

    def __init__(self, entries: Sequence[TranscriptEntry], pairs: Pairs, base: TargetPlan | None = None) -> None:
        self._entries = entries
        self._pairs = pairs
        self._base = base
        self._base_chosen: Mapping[Object, None] = base.chosen if base is not None else {}
        self._wholes = pairs.wholes
        self.chosen: dict[Object, None] = {}
        self.tokens = 0
        """The sum of the targets' own estimates."""
        self.objects = 0
        """Deleted objects: an entry counts itself and its remaining blocks."""
        self.entries_gone = 0
        self.tasks_gone = 0
        self.visited = 0
        """The number of visited objects: the cost of a step."""
        self.touched_calls: dict[int, ToolPair] = {}
        self.touched_entries: set[int] = set()
        self._block_counts: dict[int, int] = {}
        self._pending: list[int] = []
        self._next_pass: set[int] = set()
        self._passed = -1
        self._answering = -1
        self._filling: set[int] = set()
        self._accompanied: list[int] = []
        self.lacks_companion = False
        """Whether the last repair failed because of a companion."""

    def __contains__(self, found: Object) -> bool:
        return found in self.chosen or found in self._base_chosen

    def __len__(self) -> int:
        return len(self.chosen)

    def is_complete(self, position: int) -> bool:
        """Whether every block of an entry is chosen individually."""
        count = self.blocks_chosen(position)
        return count > 0 and count == len(self._entries[position].blocks)

    def blocks_chosen(self, position: int) -> int:
        """The number of an entry's blocks that are chosen individually."""
        count = self._block_counts.get(position, 0)
        return count if self._base is None else count + self._base.blocks_chosen(position)

    def add(self, found: Object) -> None:
        """Choose an object; no other target is removed for it. A repeat changes nothing."""
        self.visited += 1
        if found in self.chosen or found in self._base_chosen:
            return
        position, slot = found
        entry = self._entries[position]
        self._count(found, 1)
        self.chosen[found] = None
        self.touched_entries.add(position)
        if slot == WHOLE:
            for call in self._pairs.touched_by[position]:
                self._touch(call)
            if entry.companions:
                self._accompanied.append(position)
            return
        self._block_counts[position] = self._block_counts.get(position, 0) + 1
        if entry.call_ids:
            self._filling.add(position)
        call_made = self._pairs.made_in(entry, slot)
        if call_made is not None:
            self._touch(call_made)

    def add_entry(self, position: int) -> None:
        """Choose an entry and remove its block targets."""
        if self._block_counts.pop(position, 0):
            for slot in range(len(self._entries[position].blocks)):
                self.visited += 1
                block = Object(position, slot)
                if block in self.chosen:
                    del self.chosen[block]
                    self._count(block, -1)
        self.add(self._wholes[position])

    def _count(self, found: Object, sign: int) -> None:
        position, slot = found
        entry = self._entries[position]
        if slot == WHOLE:
            self.tokens += sign * entry.tokens
            self.objects += sign * entry.objects
            self.entries_gone += sign
            self.tasks_gone += sign * entry.bears_task
        else:
            self.tokens += sign * entry.blocks[slot].tokens
            self.objects += sign

    def _touch(self, call: ToolPair) -> None:
        self.touched_calls[call.order] = call
        if call.order == self._answering:
            # Its own results add nothing to a deleted call.
            return
        if call.order > self._passed:
            heapq.heappush(self._pending, call.order)
        else:
            self._next_pass.add(call.order)

    def repair(self, may_go: MayGo) -> Object | None:
        """Close the plan under pairing. Returns the first object that repair needs but may not delete."""
        while self._pending or self._filling or self._accompanied:
            refused = self._repair_companions(may_go) or self._repair_calls(may_go)
            if refused is not None:
                return refused
            for position in sorted(self._filling):
                if self.is_complete(position) and self._wholes[position] not in self:
                    self.add_entry(position)
            self._filling.clear()
            self._pending = sorted(self._next_pass)
            self._next_pass.clear()
            self._passed = -1
        return None

    def _repair_companions(self, may_go: MayGo) -> Object | None:
        while self._accompanied:
            for position in self._entries[self._accompanied.pop()].companions:
                companion = self._wholes[position]
                if companion in self:
                    continue
                if not may_go(companion):
                    self.lacks_companion = True
                    return companion
                self.add_entry(position)
        return None

    def _repair_calls(self, may_go: MayGo) -> Object | None:
        while self._pending:
            order = heapq.heappop(self._pending)
            if order == self._passed:
                continue
            self._passed = order
            refused = self._repair_call(self._pairs.calls[order], may_go)
            if refused is not None:
                return refused
        self._passed = len(self._pairs.calls)
        return None

    def _repair_call(self, call: ToolPair, may_go: MayGo) -> Object | None:
        _, _, owner, blocks, results, _ = call
        chosen, base = self.chosen, self._base_chosen
        self.visited += len(blocks) + len(results)
        if owner in chosen or owner in base or any(block in chosen or block in base for block in blocks):
            pinned = self._pinned_block(call, may_go)
            if pinned is not None:
                return pinned
            self._answering = call.order
            for result in results:
                if result not in chosen and result not in base and not may_go(result):
                    return result
                self.add_entry(result.position)
            self._answering = -1
        elif any(result in chosen or result in base for result in results):
            for block in blocks:
                if owner in chosen:
                    break
                if not may_go(block):
                    return block
                self.add(block)
                if self.is_complete(owner.position):
                    self.add_entry(owner.position)
        return None

    def _pinned_block(self, call: ToolPair, may_go: MayGo) -> Object | None:
        """A pinned block that needs the results of a call whose other block was chosen; None if there is none."""
        if len(call.blocks) == 1 or not call.results or call.owner in self:
            return None
        return next((block for block in call.blocks if block not in self and not may_go(block)), None)

    def copy(self) -> TargetPlan:
        """An independent plan with the same targets in the same order, with nothing touched or visited."""
        plan = TargetPlan(self._entries, self._pairs, self._base)
        plan.chosen = self.chosen.copy()
        plan._block_counts = self._block_counts.copy()
        plan.tokens, plan.objects = self.tokens, self.objects
        plan.entries_gone, plan.tasks_gone = self.entries_gone, self.tasks_gone
        return plan
