"""PURE: a human's decisions about each object, from the steps in their order.

| step       | does                                                                                    |
|------------|-----------------------------------------------------------------------------------------|
| `approve`  | the object is deleted; if it was not proposed, it is added                              |
| `reject`   | the object is pinned: pair repair may not delete it either                              |
| `narrow`   | only these blocks of an entry are deleted; the others are pinned                        |
| `add`      | a human's own deletion, approved immediately                                            |
| `withdraw` | an addition or an approval is reverted                                                  |
| `reopen`   | the object is undecided again                                                           |

The later step on the same content wins: pinning a block withdraws the approval of its entry, and approving an entry
unpins its blocks. Undo ignores the last step.

The same steps show when each object was approved, and with how many others.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, NamedTuple

from sessions_app.sessionlog.targets import Target

from .transcript import Transcript


class Kind(StrEnum):
    """The kinds of steps."""

    APPROVE = "approve"
    REJECT = "reject"
    REOPEN = "reopen"
    NARROW = "narrow"
    ADD = "add"
    WITHDRAW = "withdraw"


class Step(NamedTuple):
    """One decision; a bulk decision is one step with many targets."""

    kind: Kind
    targets: tuple[Target, ...]


class Decisions(NamedTuple):
    """The last decisions about some objects, as a value."""

    approved: tuple[Target, ...] = ()
    pinned: tuple[Target, ...] = ()
    added: tuple[Target, ...] = ()
    narrowed: tuple[tuple[str, tuple[Target, ...]], ...] = ()


@dataclass(slots=True)
class Decided:
    """The last decision about each object. Each step changes it; whether it is possible is left to the airlock."""

    transcript: Transcript
    proposed: Container[Target]
    followers: Mapping[Target, Sequence[Target]]
    """The targets that are decided together with a leader."""
    approved: dict[Target, None] = field(default_factory=dict)
    pinned: dict[Target, None] = field(default_factory=dict)
    added: dict[Target, None] = field(default_factory=dict)
    narrowed: dict[str, tuple[Target, ...]] = field(default_factory=dict)

    @property
    def value(self) -> Decisions:
        """The current decisions."""
        return Decisions(tuple(self.approved), tuple(self.pinned), tuple(self.added), tuple(self.narrowed.items()))

    def with_only(self, decisions: Decisions) -> Decided:
        """These decisions instead of all others, to which steps can be added."""
        approved, pinned, added = map(dict.fromkeys, (decisions.approved, decisions.pinned, decisions.added))
        narrowed = dict(decisions.narrowed)
        return Decided(self.transcript, self.proposed, self.followers, approved, pinned, added, narrowed)

    def by_part(self, part_of: Callable[[Target], int | None]) -> dict[int, Decisions]:
        """The decisions on each part of a transcript, without those on objects that the transcript lacks."""
        named = (
            *((target, 0, target) for target in self.approved),
            *((target, 1, target) for target in self.pinned),
            *((target, 2, target) for target in self.added),
            *((Target(entry_id), 3, (entry_id, blocks)) for entry_id, blocks in self.narrowed.items()),
        )
        found: dict[int, tuple[list[Any], ...]] = {}
        for target, place, decision in named:
            part = part_of(target)
            if part is not None:
                found.setdefault(part, ([], [], [], []))[place].append(decision)
        return {part: Decisions(*map(tuple, lists)) for part, lists in found.items()}

    def take(self, step: Step) -> None:
        if step.kind is not Kind.NARROW:
            for target in step.targets:
                self._decide(step.kind, target)
            return
        chosen: dict[str, dict[Target, None]] = {}
        for target in step.targets:
            if target.block_index is not None:
                chosen.setdefault(target.entry_id, {})[target] = None
        for entry_id, blocks in chosen.items():
            self._narrow(entry_id, tuple(sorted(blocks)))

    def inside(self) -> Iterable[Target]:
        """The blocks of narrowed proposals: they are decided with the entry from which they were narrowed."""
        for entry_id, blocks in self.narrowed.items():
            if Target(entry_id) in self.proposed:
                yield from blocks

    def _decide(self, kind: Kind, target: Target) -> None:
        self._apply(kind, target)
        for one in (target, *self.followers.get(target, ())):
            self._end_narrowing(one.entry_id, keeps_pins=kind is Kind.REJECT)

    def _apply(self, kind: Kind, target: Target) -> None:
        if kind is Kind.WITHDRAW and target in self.proposed:
            self.approved.pop(target, None)
            return
        for follower in self.followers.get(target, ()):
            self.approved.pop(follower, None)
            self.pinned.pop(follower, None)
        self.approved.pop(target, None)
        self.pinned.pop(target, None)
        if target.block_index is None:
            self._widen(target.entry_id)
        if kind is Kind.WITHDRAW:
            self.added.pop(target, None)
        elif kind is Kind.REJECT:
            for one in self._overlapping(target):
                self.approved.pop(one, None)
                if one != target:
                    self.added.pop(one, None)
            self.pinned[target] = None
        elif kind in (Kind.APPROVE, Kind.ADD):
            for one in self._overlapping(target):
                self.pinned.pop(one, None)
            if target not in self.proposed:
                self.added[target] = None
            self.approved[target] = None

    def _end_narrowing(self, entry_id: str, *, keeps_pins: bool) -> None:
        """End a narrowing of which no block is deleted any more: its entry is a proposal like any other."""
        blocks = self.narrowed.get(entry_id)
        if blocks is None or not self.approved.keys().isdisjoint(blocks):
            return
        del self.narrowed[entry_id]
        for block in blocks:
            self.added.pop(block, None)
        if not keeps_pins:
            for one in self._overlapping(Target(entry_id)):
                self.pinned.pop(one, None)

    def _narrow(self, entry_id: str, blocks: tuple[Target, ...]) -> None:
        entry = self.transcript.entry(entry_id)
        whole = Target(entry_id)
        own = {Target(entry_id, block.index) for block in entry.blocks} if entry is not None else set()
        if own and own <= set(blocks):
            self._decide(Kind.APPROVE, whole)
            return
        self._decide(Kind.REOPEN, whole)
        self._forget(whole)
        self.narrowed[entry_id] = blocks
        for block in blocks:
            self.approved[block] = None
            if block not in self.proposed:
                self.added[block] = None
        self._pin(sorted(own - set(blocks)))

    def _pin(self, targets: Iterable[Target]) -> None:
        self.pinned.update(dict.fromkeys(targets))

    def _widen(self, entry_id: str) -> None:
        """Undo a narrowing: the blocks of the entry are undecided again."""
        if self.narrowed.pop(entry_id, None) is not None:
            self._forget(Target(entry_id))

    def _forget(self, whole: Target) -> None:
        """Make an entry and its blocks undecided."""
        for one in self._overlapping(whole):
            self.approved.pop(one, None)
            self.pinned.pop(one, None)
            self.added.pop(one, None)

    def _overlapping(self, target: Target) -> list[Target]:
        """The target, and the targets that share content with it: the blocks of an entry, the entry of a block."""
        if target.block_index is not None:
            return [target, Target(target.entry_id)]
        entry = self.transcript.entry(target.entry_id)
        blocks = entry.blocks if entry is not None else ()
        return [target, *(Target(target.entry_id, block.index) for block in blocks)]


_APPROVING: Final = frozenset({Kind.APPROVE, Kind.ADD, Kind.NARROW})


class Approval(NamedTuple):
    """The decision by which an object was approved."""

    at: datetime
    together: int
    """The number of objects that it approved: more than one means a bulk decision."""

    @property
    def is_bulk(self) -> bool:
        return self.together > 1


def approvals(steps: Iterable[tuple[Step, datetime]]) -> dict[Target, Approval]:
    """The last approval of each object that no later step withdraws. Narrowing approves the entry."""
    found: dict[Target, Approval] = {}
    for step, at in steps:
        targets = step.targets
        if step.kind is Kind.NARROW:
            targets = tuple(dict.fromkeys(Target(target.entry_id) for target in targets))
        for target in targets:
            if step.kind in _APPROVING:
                found[target] = Approval(at, len(targets))
            else:
                found.pop(target, None)
    return found
