"""Tool calls and the results that answer them, and the repair that keeps both sides together.

Providers refuse a conversation with a call that nobody answered, or an answer that nobody asked for. So a
plan that takes one side is repaired to take the other:

    block of a call, or its entry  ──▶  every result of the call
    result                         ──▶  every block of the call
    every block of a calling entry ──▶  the entry instead

until nothing changes. Of several entries that make the same call id the last one owns it, in the place of
the first. The order in which repair adds is part of the format: targets are recorded in it.

A repair visits only the calls that its targets touch. `Pairs` is made once per transcript; `Plan` is one set
of targets, closed step by step, counting what it visits.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from .transcript import TranscriptEntry

WHOLE: Final = -1


class Object(NamedTuple):
    """An entry (slot WHOLE) or one of its blocks, by position in the transcript and slot in `blocks`."""

    position: int
    slot: int = WHOLE


class Call(NamedTuple):
    """One call id: the entry that owns it, its blocks there, and the results that answer it, by position."""

    order: int
    id: str
    owner: int
    blocks: tuple[Object, ...]
    results: tuple[int, ...]


class Pairs:
    """Which entries make and answer which calls, in the order in which repair visits them."""

    def __init__(self, entries: Sequence[TranscriptEntry]) -> None:
        owners: dict[str, int] = {}
        results: dict[str, list[int]] = {}
        for entry in entries:
            for call_id in entry.call_ids:
                owners[call_id] = entry.position
            if entry.result_for is not None:
                results.setdefault(entry.result_for, []).append(entry.position)
        blocks: dict[str, list[Object]] = {}
        for position in dict.fromkeys(owners.values()):
            for slot, block in enumerate(entries[position].blocks):
                if block.call_id is not None and owners[block.call_id] == position:
                    blocks.setdefault(block.call_id, []).append(Object(position, slot))
        self.calls: tuple[Call, ...] = tuple(
            Call(order, call_id, owner, tuple(blocks[call_id]), tuple(results.get(call_id, ())))
            for order, (call_id, owner) in enumerate(owners.items())
        )
        self._by_id: dict[str, Call] = {call.id: call for call in self.calls}
        self._owned: dict[int, list[Call]] = {}
        for call in self.calls:
            self._owned.setdefault(call.owner, []).append(call)

    def made_by(self, entry: TranscriptEntry) -> Sequence[Call]:
        """The calls that an entry owns; a repeated id belongs to the last entry that makes it."""
        return self._owned.get(entry.position, ())

    def call(self, call_id: str) -> Call | None:
        return self._by_id.get(call_id)

    def made_in(self, entry: TranscriptEntry, slot: int) -> Call | None:
        """The call that a block makes, where its entry owns it."""
        call_id = entry.blocks[slot].call_id
        call = self._by_id.get(call_id) if call_id is not None else None
        return call if call is not None and call.owner == entry.position else None

    def answered_by(self, entry: TranscriptEntry) -> Call | None:
        """The call that an entry answers; None where it answers none, or one that nobody makes."""
        return self._by_id.get(entry.result_for) if entry.result_for is not None else None


MayGo = Callable[[Object], bool]


class Plan:
    """Deletion targets in the order in which they were chosen, with sums over them.

    A plan with a `base` holds what would come on top of that closed plan, which is only read.
    """

    def __init__(self, entries: Sequence[TranscriptEntry], pairs: Pairs, base: Plan | None = None) -> None:
        self._entries = entries
        self._pairs = pairs
        self._base = base
        self.chosen: dict[Object, None] = {}
        self.tokens = 0
        """The targets' own estimates, added up."""
        self.objects = 0
        """Deleted objects: an entry counts itself and the blocks that were left of it."""
        self.entries_gone = 0
        self.tasks_gone = 0
        self.visited = 0
        """How many objects were looked at: what a step costs."""
        self.touched_calls: dict[int, Call] = {}
        self.touched_entries: set[int] = set()
        self._block_counts: dict[int, int] = {}
        self._pending: list[int] = []
        self._next_pass: set[int] = set()
        self._passed = -1
        self._filling: set[int] = set()

    def __contains__(self, found: Object) -> bool:
        return found in self.chosen or (self._base is not None and found in self._base.chosen)

    def __len__(self) -> int:
        return len(self.chosen)

    def is_complete(self, position: int) -> bool:
        """Whether every block of an entry is chosen one by one."""
        blocks = self._entries[position].blocks
        return bool(blocks) and self.blocks_chosen(position) == len(blocks)

    def blocks_chosen(self, position: int) -> int:
        """How many blocks of an entry are chosen one by one."""
        count = self._block_counts.get(position, 0)
        return count if self._base is None else count + self._base.blocks_chosen(position)

    def add(self, found: Object) -> None:
        """Choose an object; nothing else is taken out for it. A repeat changes nothing."""
        self.visited += 1
        if found in self:
            return
        entry = self._entries[found.position]
        self._count(found, 1)
        self.chosen[found] = None
        self.touched_entries.add(found.position)
        if found.slot == WHOLE:
            for call in self._pairs.made_by(entry):
                self._touch(call)
            answered = self._pairs.answered_by(entry)
            if answered is not None:
                self._touch(answered)
            return
        self._block_counts[found.position] = self._block_counts.get(found.position, 0) + 1
        if entry.call_ids:
            self._filling.add(found.position)
        call_made = self._pairs.made_in(entry, found.slot)
        if call_made is not None:
            self._touch(call_made)

    def add_entry(self, position: int) -> None:
        """Choose an entry and take its block targets out."""
        if self._block_counts.pop(position, 0):
            for slot in range(len(self._entries[position].blocks)):
                self.visited += 1
                block = Object(position, slot)
                if block in self.chosen:
                    del self.chosen[block]
                    self._count(block, -1)
        self.add(Object(position))

    def _count(self, found: Object, sign: int) -> None:
        entry = self._entries[found.position]
        if found.slot == WHOLE:
            self.tokens += sign * entry.tokens
            self.objects += sign * entry.objects
            self.entries_gone += sign
            self.tasks_gone += sign * entry.bears_task
        else:
            self.tokens += sign * entry.blocks[found.slot].tokens
            self.objects += sign

    def _touch(self, call: Call) -> None:
        self.touched_calls[call.order] = call
        if call.order > self._passed:
            heapq.heappush(self._pending, call.order)
        else:
            self._next_pass.add(call.order)

    def repair(self, may_go: MayGo) -> Object | None:
        """Close the plan under pairing. Gives the first object that repair would need and that may not go."""
        while self._pending or self._filling:
            refused = self._repair_calls(may_go)
            if refused is not None:
                return refused
            for position in sorted(self._filling):
                if self.is_complete(position) and Object(position) not in self:
                    self.add_entry(position)
            self._filling.clear()
            self._pending = sorted(self._next_pass)
            self._next_pass.clear()
            self._passed = -1
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

    def _repair_call(self, call: Call, may_go: MayGo) -> Object | None:
        self.visited += len(call.blocks) + len(call.results)
        if Object(call.owner) in self or any(block in self for block in call.blocks):
            for position in call.results:
                result = Object(position)
                if result not in self and not may_go(result):
                    return result
                self.add_entry(position)
        elif any(Object(position) in self for position in call.results):
            for block in call.blocks:
                if Object(call.owner) in self:
                    break
                if not may_go(block):
                    return block
                self.add(block)
                if self.is_complete(call.owner):
                    self.add_entry(call.owner)
        return None

    def copy(self) -> Plan:
        """An independent plan with the same targets in the same order, nothing touched or visited."""
        plan = Plan(self._entries, self._pairs, self._base)
        plan.chosen = self.chosen.copy()
        plan._block_counts = self._block_counts.copy()
        plan.tokens, plan.objects = self.tokens, self.objects
        plan.entries_gone, plan.tasks_gone = self.entries_gone, self.tasks_gone
        return plan
