"""PURE: a human's review of a plan: the proposals after all steps that were not undone.

    proposals (never changed) + steps, in order ──fold──▶ the status of each object ──airlock──▶ two plans

Decisions. The later step on the same content wins: pinning a block withdraws the approval of its entry, and approving
an entry unpins its blocks. Undo ignores the last step.

| step       | does                                                                                    |
|------------|-----------------------------------------------------------------------------------------|
| `approve`  | the object is deleted; if it was not proposed, it is added                              |
| `reject`   | the object is pinned: pair repair may not delete it either                              |
| `narrow`   | only these blocks of an entry are deleted; the others are pinned                        |
| `add`      | a human's own deletion, approved immediately                                            |
| `withdraw` | an addition or an approval is reverted                                                  |
| `reopen`   | the object is undecided again                                                           |

Plans. The `approved` plan consists of the approved objects, closed by pair repair: a commit would write it, in the
order of the proposals. The `planned` plan adds the undecided objects. Objects that the airlock refuses are omitted from
both, with their refusal, and hide no other refusal. `Fitting` finds the largest part that the airlock accepts: targets
that share a tool call with a pin are first judged alone, and omitted if the pin keeps them. Then the rest is tried as a
whole. If that is refused, the targets are judged one by one; targets that are accepted alone but not together are added
half by half. So an acceptable plan costs one judgement.

Leaders. The sides of a tool call that were proposed together are shown as one proposal: the first result *leads*, the
call and further results follow it. A step names leaders; pair repair adds the followers. A step on a follower alone may
decide it differently from its leader: then it leads itself.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from functools import cache, lru_cache
from typing import Any, Final, NamedTuple

import msgspec

from sessions_app.sessionlog.entries import Stats, Target, request_of

from .airlock import Airlock, ValidatedDeletion
from .gates import Code, Refusal, Restraints
from .loop import Origin
from .stats import measure, tokens_to_go
from .transcript import WHOLE, TargetPlan, Transcript, unanswered

_PINNED: Final = frozenset({Code.PROTECTED, Code.PROTECTED_PAIR})
"""The codes of refusals because of a kept object: they do not depend on other deletions."""


class Fitting:
    """Fits targets into a plan and records why each of the others was refused."""

    def __init__(
        self,
        airlock: Airlock,
        judge: Callable[[Iterable[Target]], TargetPlan | Refusal],
        pins: Iterable[Target],
        vetted: Container[Target],
    ) -> None:
        """`judge` is the airlock's judgement on many targets; `vetted` are targets that an airlock accepted before."""
        self.airlock = airlock
        self._judge = judge
        self.refusals: dict[Target, Refusal] = {}
        self.kept: list[Target] = []
        self.is_joint = False
        """Whether targets were refused, or tried, only because of others in the same plan."""
        self._vetted = vetted
        self._near = set(self._near_pins(pins))

    def add(self, plan: TargetPlan, base: Sequence[Target], wanted: Sequence[Target]) -> TargetPlan:
        """The plan with every target of `wanted` that fits; `base` are the targets of which `plan` consists."""
        if not wanted:
            return plan
        wanted = self._without_blocked(wanted)
        for is_suspect in (True, False):
            whole = self._whole(base, wanted)
            if whole is not None:
                return whole
            for target in wanted:
                if (target not in self._vetted or target.entry_id in self._near) is is_suspect:
                    judged = self.airlock.judge_targets([target])
                    if isinstance(judged, Refusal):
                        self.refusals[target] = judged
            wanted = [target for target in wanted if target not in self.refusals]
        whole = self._whole(base, wanted)
        if whole is not None:
            return whole
        self.is_joint = True
        return self._halve(plan, wanted)

    def _whole(self, base: Sequence[Target], wanted: Sequence[Target]) -> TargetPlan | None:
        entries = {target.entry_id for target in (*base, *wanted) if target.block_index is None}
        targets = [
            target
            for target in dict.fromkeys((*base, *wanted))
            if target.block_index is None or target.entry_id not in entries
        ]
        plan = self._judge(targets)
        if isinstance(plan, Refusal):
            return None
        self.kept = targets
        return plan

    def _halve(self, plan: TargetPlan, wanted: Sequence[Target]) -> TargetPlan:
        """Add one half after the other: each of `wanted` is accepted alone, but not all of them together."""
        if not wanted:
            return plan
        objects = [found for found in map(self.airlock.transcript.find, wanted) if found is not None]
        merged = self.airlock.merge(plan, objects)
        if not isinstance(merged, Refusal):
            self.kept = [*self.kept, *wanted]
            return merged
        if len(wanted) == 1:
            self.refusals[wanted[0]] = merged
            return plan
        middle = len(wanted) // 2
        return self._halve(self._halve(plan, wanted[:middle]), wanted[middle:])

    def _without_blocked(self, wanted: Sequence[Target]) -> Sequence[Target]:
        """The targets without those that a pin keeps: with them, the whole plan would always be refused."""
        for target in wanted:
            judged = self.airlock.judge_targets([target]) if target.entry_id in self._near else None
            if isinstance(judged, Refusal) and judged.code in _PINNED:
                self.refusals[target] = judged
        return [target for target in wanted if target not in self.refusals]

    def _near_pins(self, pins: Iterable[Target]) -> Iterable[str]:
        """Entries that share a tool call with a pinned object: refusals are most likely there."""
        transcript = self.airlock.transcript
        for pin in pins:
            found = transcript.find(pin)
            if found is None:
                continue
            yield pin.entry_id
            for call in transcript.pairs.touched_by[found.position]:
                for side in (call.owner, *call.results):
                    yield transcript.entries[side.position].entry_id


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
        """A copy with these decisions instead of all others, to which steps can be added."""
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
        if target.block_index is None and self.narrowed.pop(target.entry_id, None) is not None:
            self._forget(target)
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


JUDGED: Final = 8
"""The number of cached judgements on many targets: approving an object does not change the planned targets."""
MANUAL_ORIGIN: Final = Origin(call=0, tool="human", reason="added by hand", by_repair=False)
BY_PAIR: Final = Origin(call=0, tool="human", reason="", by_repair=True)
"""The origin of targets that a human's addition requires."""
_KEEPS: Final = frozenset({Code.PROTECTED, Code.PROTECTED_PAIR, Code.RECENT_CONTEXT, Code.THINKING})


class Proposed(NamedTuple):
    """A target that a planner proposed, in the order of its plan."""

    target: Target
    source: str
    origin: Origin


class ReviewStatus(StrEnum):
    """The status of an object in a review."""

    UNDECIDED = "undecided"
    APPROVED = "approved"
    REJECTED = "rejected"
    """A human keeps it: it is pinned."""
    GOES_WITH_PAIR = "goes_with_pair"
    """Not approved itself, but an approved object cannot be deleted without it."""
    KEPT_WITH_PAIR = "kept_with_pair"
    """It cannot be deleted, because the object that its refusal names is kept."""
    REFUSED = "refused"
    """A human wants it deleted, and the airlock refuses."""
    NARROWED = "narrowed"
    """Only some of its blocks are deleted."""


class ReviewItem(msgspec.Struct, frozen=True):
    """One object that was proposed, added or pinned. Position -1: it is not in the transcript."""

    target: Target
    position: int
    tokens: int
    standing: ReviewStatus
    source: str
    origin: Origin | None
    leader: Target | None = None
    """The object with which it is decided; None if it leads itself."""
    refusal: Refusal | None = None
    added: bool = False
    """A human's own deletion, which no planner proposed."""


class ApprovedPlan(NamedTuple):
    """The plan approved by decisions about some objects: as much as the airlock accepts."""

    order: Sequence[Target]
    """The objects, in the order of the review."""
    pins: tuple[Target, ...]
    requested: Sequence[Target]
    plan: TargetPlan
    fit: Fitting

    @property
    def is_separable(self) -> bool:
        """Whether the approval of an object does not depend on approvals in other parts."""
        refused = self.fit.refusals.values()
        return not self.fit.is_joint and all(one.code is not Code.LATEST_THINKING for one in refused)


@dataclass(frozen=True, slots=True)
class Review:
    """The proposals after the steps. Counts include leaders only."""

    items: Mapping[Target, ReviewItem]
    """The items in the order of the plan, then additions, then other pinned objects."""
    leading: Sequence[ReviewItem]
    """The items without a leader, in the same order."""
    followers: Mapping[Target, tuple[Target, ...]]
    approved: ValidatedDeletion | None
    """The plan that a commit would write; None if nothing is approved."""
    approved_stats: Stats
    planned_stats: Stats
    tokens_to_go: int
    """The tokens that the approved plan must still delete to reach the target."""
    pins: tuple[Target, ...]
    goes: frozenset[Target]
    """Everything in the approved plan."""
    would_go: frozenset[Target]
    """Everything in the planned plan."""
    unanswered: Mapping[Target, tuple[Target, ...]]
    """For each target that removes the answer of a call: the kept blocks with the same call id."""
    total: int
    undecided: int
    accepted: int
    refused: int
    decided: Decided = field(compare=False, repr=False)
    """The last decision about each object."""
    is_separable: bool = field(compare=False, repr=False)
    """Whether the approved plan is the sum of its parts."""

    def leads(self) -> Sequence[ReviewItem]:
        """The items that take decisions."""
        return self.leading


class Reviewer:
    """One plan on one transcript, which can be reviewed after any steps."""

    def __init__(self, transcript: Transcript, proposed: Sequence[Proposed], thinking_guard: str = "latest") -> None:
        self.transcript = transcript
        self._guard = thinking_guard
        self._free = Airlock(transcript, Restraints(thinking_guard=thinking_guard))
        self.proposed = {one.target: one for one in proposed}
        self.leaders = self._leaders()
        self._followers: dict[Target, list[Target]] = {}
        for follower, leader in self.leaders.items():
            self._followers.setdefault(leader, []).append(follower)
        self._judged = lru_cache(JUDGED)(self._judge)
        self._deleted = lru_cache(JUDGED)(self.targets)
        self._described = cache(self._describe)
        self.goes_with = cache(self._goes_with)
        """The objects of the same tool calls, which are deleted or kept with a target; no decision changes them."""
        self._grouped = lru_cache(JUDGED)(self._group)
        self._proposed_in: dict[int, list[Target]] = {}
        for target in self.proposed:
            part = self.part_of(target)
            if part is not None:
                self._proposed_in.setdefault(part, []).append(target)
        self.memory: dict[Hashable, Any] = {}
        """Cached judgements on parts of the transcript (`effects`): decisions on other parts do not change them."""
        self._made = cache(self._make)
        """The items, cached by the decisions about them: each decision changes few."""

    def part_of(self, target: Target) -> int | None:
        """The part of the transcript that contains a target; None if the transcript lacks its entry."""
        entry = self.transcript.entry(target.entry_id)
        return self.transcript.parts[entry.position] if entry is not None else None

    def _goes_with(self, target: Target) -> tuple[Target, ...]:
        plan = self._free.judge_targets([target])
        together = () if isinstance(plan, Refusal) else self._free.targets(plan)
        return tuple(one for one in together if one.entry_id != target.entry_id)

    def review(self, steps: Iterable[Step]) -> Review:
        """The review after these steps. No step raises: an impossible one is refused."""
        word = Decided(self.transcript, self.proposed, self._followers)
        for step in steps:
            word.take(step)
        order, pins, requested, approved, fit = taken = self.approved(word)
        place = {target: number for number, target in enumerate(order)}
        narrowed = {Target(entry_id) for entry_id in word.narrowed}
        decided = {*requested, *word.pinned, *narrowed}
        undecided = [target for target in order if target not in decided]
        is_separable = taken.is_separable
        kept = list(fit.kept)
        goes = self._deleted(approved)
        going = _covered(order, goes)
        planned = fit.add(approved, kept, [target for target in undecided if target not in going])
        would_go = self._deleted(planned)
        planned_to_go = _covered(order, would_go)
        validated = self._validated(fit.airlock, approved, place)
        approved_stats, planned_stats = measure(self.transcript, approved), measure(self.transcript, planned)
        found = {target: self._found(target, word, fit.refusals.get(target), going, planned_to_go) for target in order}
        leaders, followers = self._grouped(
            tuple(word.inside()), self._apart({target: status for target, (status, _) in found.items()})
        )
        items = {
            target: self._made(target, status, leaders.get(target), refusal, target in word.added)
            for target, (status, refusal) in found.items()
        }
        leading = [item for item in items.values() if item.leader is None]
        return Review(
            items=items,
            leading=leading,
            followers=followers,
            approved=validated,
            approved_stats=approved_stats,
            planned_stats=planned_stats,
            tokens_to_go=tokens_to_go(approved_stats, self.transcript.parameters.compression_ratio),
            pins=pins,
            goes=goes,
            would_go=would_go,
            unanswered=unanswered(self.transcript, would_go),
            total=len(leading),
            undecided=sum(item.standing is ReviewStatus.UNDECIDED for item in leading),
            accepted=sum(item.standing in ACCEPTED for item in leading),
            refused=sum(item.standing is ReviewStatus.REFUSED for item in items.values()),
            decided=word,
            is_separable=is_separable,
        )

    def approved(self, word: Decided, part: int | None = None) -> ApprovedPlan:
        """The plan approved by decisions about everything, or about one part of the transcript (see
        `Transcript.parts`)."""
        order = self._order(word, self.proposed if part is None else self._proposed_in.get(part, ()))
        pins = tuple(target for target in word.pinned if self.transcript.find(target) is not None)
        airlock = Airlock(self.transcript, Restraints(frozenset(pins), self._guard))
        place = {target: number for number, target in enumerate(order)}

        def in_order(targets: Iterable[Target]) -> TargetPlan | Refusal:
            # In the order of the review, the judgement is found in the cache after most decisions.
            return self._judged(airlock.restraints.pins, tuple(sorted(targets, key=place.__getitem__)))

        fit = Fitting(airlock, in_order if part is None else airlock.judge_targets, pins, self.proposed)
        # Targets proposed with an approved result are approved with it. Repair would find them, but it might find more:
        # all blocks with the call's id, if one of them was proposed. An entry with other calls is left to repair: it is
        # deleted with the last of them.
        requested = [
            target
            for target in order
            if target in word.approved
            or (
                self.leaders.get(target) in word.approved
                and target not in word.pinned
                and not self._has_other_calls(target)
            )
        ]
        return ApprovedPlan(order, pins, requested, fit.add(airlock.empty_plan(), [], requested), fit)

    def accepted(self, word: Decided, order: Sequence[Target], goes: Collection[Target]) -> frozenset[Target]:
        """The leaders that a plan deletes, or that were narrowed."""
        inside = frozenset(word.inside())
        going = _covered(order, goes)
        accepted = {
            target
            for target in order
            if target not in inside
            and self._described(target)[1] is not None
            and _standing(target, word, None, going, ()) in ACCEPTED
        }
        return frozenset(
            target
            for target in accepted
            if self.leaders.get(target) not in accepted
            and not (target in self.leaders and self._has_other_calls(target))
        )

    def _judge(self, pins: frozenset[Target], targets: tuple[Target, ...]) -> TargetPlan | Refusal:
        return Airlock(self.transcript, Restraints(pins, self._guard)).judge_targets(targets)

    def targets(self, plan: TargetPlan) -> frozenset[Target]:
        return frozenset(self._free.targets(plan))

    def _has_other_calls(self, target: Target) -> bool:
        entry = self.transcript.entry(target.entry_id)
        return entry is not None and target.block_index is None and len(set(entry.call_ids)) > 1

    # ---- the reviewed objects ---------------------------------------------------------------------------

    def _order(self, word: Decided, proposed: Iterable[Target]) -> list[Target]:
        """Every object of a review: as planned, then additions, then other pinned objects."""
        order: dict[Target, None] = {}
        for target in proposed:
            order[target] = None
            if target.block_index is None:
                for block in word.narrowed.get(target.entry_id, ()):
                    order[block] = None
        order.update(word.added)
        inside = {block.entry_id for block in word.inside()}
        order.update((pin, None) for pin in word.pinned if pin.block_index is None or pin.entry_id not in inside)
        return list(order)

    def _leaders(self) -> dict[Target, Target]:
        """For each object that is decided with another side of its tool call: the first result of that call."""
        leaders: dict[Target, Target] = {}
        answers = {
            call.id: [target for target in map(self.transcript.target, call.results) if target in self.proposed]
            for call in self.transcript.pairs.calls
        }
        answered = {call_id for call_id, proposed in answers.items() if proposed}
        for call in self.transcript.pairs.calls:
            proposed = answers[call.id]
            if not proposed:
                continue
            owner = self.transcript.entries[call.owner.position]
            sides = [self.transcript.target(found) for found in call.blocks]
            if all(block.call_id in answered for block in owner.blocks):
                sides.append(Target(owner.entry_id))
            for target in [*sides, *proposed[1:]]:
                if target in self.proposed and target != proposed[0]:
                    leaders.setdefault(target, proposed[0])
        return {target: leader for target, leader in leaders.items() if leader not in leaders}

    def _apart(self, standings: Mapping[Target, ReviewStatus]) -> frozenset[Target]:
        """The followers that lead themselves: a step on one side of a call alone may decide it differently."""
        return frozenset(
            follower
            for follower, leader in self.leaders.items()
            if _fate(standings[follower]) is not _fate(standings[leader]) and not self._has_other_calls(follower)
        )

    def _group(
        self, inside: Iterable[Target], apart: Container[Target]
    ) -> tuple[Mapping[Target, Target], Mapping[Target, tuple[Target, ...]]]:
        """The leader of each follower, and the followers of each leader, with the blocks of narrowed proposals."""
        leaders = {follower: leader for follower, leader in self.leaders.items() if follower not in apart}
        for block in inside:
            whole = Target(block.entry_id)
            leaders[block] = leaders.get(whole, whole)
        groups: dict[Target, list[Target]] = {}
        for follower, leader in leaders.items():
            groups.setdefault(leader, []).append(follower)
        return leaders, {leader: tuple(group) for leader, group in groups.items()}

    def _found(
        self,
        target: Target,
        word: Decided,
        refusal: Refusal | None,
        going: Container[Target],
        planned_to_go: Container[Target],
    ) -> tuple[ReviewStatus, Refusal | None]:
        """The status of an object, and why it is kept although something wants it deleted."""
        if self._described(target)[1] is None:
            return ReviewStatus.REFUSED, refusal or self._unknown(target)
        status = _standing(target, word, refusal, going, planned_to_go)
        return status, refusal if status in (ReviewStatus.REFUSED, ReviewStatus.KEPT_WITH_PAIR) else None

    def _make(
        self,
        target: Target,
        standing: ReviewStatus,
        leader: Target | None,
        refusal: Refusal | None,
        is_added: bool,
    ) -> ReviewItem:
        position, tokens = self._described(target)
        known = self.proposed.get(target)
        return ReviewItem(
            target=target,
            position=position,
            tokens=tokens or 0,
            standing=standing,
            source=known.source if known is not None else "human",
            origin=known.origin if known is not None else MANUAL_ORIGIN if is_added else None,
            leader=leader,
            refusal=refusal,
            added=known is None and is_added,
        )

    def _describe(self, target: Target) -> tuple[int, int | None]:
        """The position of a target's entry, or -1, and its tokens, or None: the transcript may not have it."""
        entry, found = self.transcript.entry(target.entry_id), self.transcript.find(target)
        if entry is None or found is None:
            return (entry.position if entry is not None else -1), None
        return entry.position, entry.tokens if found.slot == WHOLE else entry.blocks[found.slot].tokens

    def _unknown(self, target: Target) -> Refusal:
        refused = self._free.judge_request(request_of([target]))
        if not isinstance(refused, Refusal):
            raise AssertionError(f"{target} is not in the transcript and was not refused")
        return refused

    def _validated(self, airlock: Airlock, plan: TargetPlan, place: Mapping[Target, int]) -> ValidatedDeletion | None:
        """The closed plan in the order of the review, validated again by its ids alone."""
        if not plan:
            return None
        targets = sorted(airlock.targets(plan), key=lambda target: place.get(target, len(place)))
        validated = airlock.validate(request_of(targets))
        if isinstance(validated, Refusal):
            raise RuntimeError(f"The review made a plan that the airlock refuses: {validated.message}")
        return validated


ACCEPTED: Final = frozenset({ReviewStatus.APPROVED, ReviewStatus.GOES_WITH_PAIR, ReviewStatus.NARROWED})


def _fate(status: ReviewStatus) -> bool | None:
    """Whether an object is deleted; None if undecided."""
    return None if status is ReviewStatus.UNDECIDED else status in ACCEPTED


def _standing(
    target: Target,
    word: Decided,
    refusal: Refusal | None,
    going: Container[Target],
    planned_to_go: Container[Target],
) -> ReviewStatus:
    if target in word.pinned:
        return ReviewStatus.REJECTED
    if target.block_index is None and target.entry_id in word.narrowed:
        return ReviewStatus.NARROWED
    if target in going:
        return ReviewStatus.APPROVED if target in word.approved else ReviewStatus.GOES_WITH_PAIR
    if target in planned_to_go:
        return ReviewStatus.UNDECIDED
    if target not in word.approved and refusal is not None and refusal.code in _KEEPS:
        return ReviewStatus.KEPT_WITH_PAIR
    return ReviewStatus.REFUSED


def _covered(objects: Iterable[Target], plan: Collection[Target]) -> set[Target]:
    """The objects that a plan deletes: alone, or with their entries."""
    entries = {target.entry_id for target in plan if target.block_index is None}
    return {target for target in objects if target in plan or target.entry_id in entries}
