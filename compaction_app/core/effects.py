"""PURE: the tokens that each unit of a review removes, which add up to the plan exactly, and the effect of a decision.

A unit is the object of one decision: a leading item of the review. Deciding it affects more than its own object: the
other sides of its tool calls, and the objects that its agent's rules join with it. Each block that a plan removes, or
entry without blocks, is one part, and counts for one unit only:

    named      a block or an entry that is an item counts for the item that leads it
    answered   a call that is not an item counts for the unit of its first result that is one
    joined     anything else counts for the unit to which it is joined: the other side of its call, the rest of its
               entry, or an entry deleted with it

The approved parts add up to the tokens that the approved plan removes from the estimate of the context, and with the
undecided ones to those of the planned one. What remains of an entry is estimated as a whole, so the parts of an entry
share the removed tokens. The agent counts differently: in the plan's statistics a block deleted without its entry has
its own estimate, rounded up. Parts also have that count, because it decides whether the target is reached.

`Consequences` computes how a possible decision would change the approved plan, and which other objects would be
approved or kept because of it, exactly as a review after the decision would. Reviewing a large plan for each number of
a page would be too slow, so only the parts of the transcript that the decision concerns are judged (see
`Transcript.parts`), each like the whole:

    decisions on a part ──▶ approved of it ──┐
           + the decision ──▶ approved of it ─┴─▶ what changes

A plan is not the sum of its parts if a refusal concerned the rest of the whole context. Then the whole is judged.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Final, NamedTuple
from weakref import WeakKeyDictionary

import msgspec

from sessions_app.sessionlog.context import ContextSize, apportion, steady_shares
from sessions_app.sessionlog.entries import Block, Target, blocks_by_entry

from .review_fold import ACCEPTED, Decided, Decisions, Kind, Review, Reviewer, ReviewItem, ReviewStatus, Step
from .token_map import block_shares, kind_of_piece
from .transcript import WHOLE, Object, Transcript, TranscriptEntry

_NO_BLOCKS: Final[frozenset[int]] = frozenset()
_Removed = Mapping[str, frozenset[int] | None]
"""The removed part of each entry, as `blocks_by_entry` returns it."""
_NOTHING: Final[_Removed] = {}
STAYING: Final = frozenset({ReviewStatus.REJECTED, ReviewStatus.KEPT_WITH_PAIR, ReviewStatus.REFUSED})
"""The statuses of units that remove nothing."""


class Cell(NamedTuple):
    """A block of the transcript, or an entry without blocks, with its tokens."""

    target: Target
    kind: str
    """One of `token_map.KINDS`."""
    tool: str
    """The tool of a call or a result; empty for anything else, and for a call without a result."""
    tokens: int
    """The tokens by which removing it reduces the estimate of the context."""
    counted: int
    """The tokens that the plan's statistics count for it."""
    names: tuple[Target, ...]
    """The items for which it may count, in this order: itself, the results of its call, its entry."""


class UnitSize(NamedTuple):
    """The tokens that a unit removes: from the estimate of the context, and as the plan's statistics count it."""

    tokens: int = 0
    counted: int = 0


class PlanPart(msgspec.Struct, frozen=True):
    """The contribution of a cell to a plan, and the unit for which it counts."""

    cell: Cell
    leader: Target
    is_approved: bool

    @property
    def is_own(self) -> bool:
        """Whether it belongs to the decided object, and is not merely deleted with it."""
        return self.leader in (self.cell.target, Target(self.cell.target.entry_id))


class KindSum(NamedTuple):
    """The tokens of one kind of content, or of one tool: struck, and kept."""

    name: str
    struck: int
    stays: int

    @property
    def before(self) -> int:
        return self.struck + self.stays


def plan_parts(transcript: Transcript, review: Review) -> list[PlanPart]:
    """The parts of the approved plan, then those that the undecided proposals add to it."""
    goes = blocks_by_entry(review.goes)
    approved = list(_cells(transcript, goes))
    added = list(_cells(transcript, blocks_by_entry(review.would_go), goes))
    leaders = _leaders(transcript, review, approved, {})
    all_leaders = _leaders(transcript, review, added, leaders)
    return [
        *(PlanPart(cell, leaders[cell.target], True) for cell in approved),
        *(PlanPart(cell, all_leaders[cell.target], False) for cell in added),
    ]


def unit_sizes(parts: Iterable[PlanPart]) -> dict[Target, UnitSize]:
    """The size of each unit, by the target that leads it."""
    tokens: defaultdict[Target, int] = defaultdict(int)
    counted: defaultdict[Target, int] = defaultdict(int)
    for part in parts:
        tokens[part.leader] += part.cell.tokens
        counted[part.leader] += part.cell.counted
    return {target: UnitSize(tokens[target], counted[target]) for target in tokens}


def in_measure(size: ContextSize, review: Review, estimates: Mapping[Target, int]) -> dict[Target, int]:
    """The estimates of units, converted to the measure of the context. The approved ones add up to the approved plan.

    A decision changes the numbers of few other units, and by one token at most.
    """
    by_status: defaultdict[bool | None, list[Target]] = defaultdict(list)
    for item in review.leads():
        is_approved = item.standing is not ReviewStatus.UNDECIDED
        by_status[None if item.standing in STAYING else is_approved].append(item.target)
    parts = {status: [estimates.get(target, 0) for target in targets] for status, targets in by_status.items()}
    # Units add up to the plans, which need no separate estimate.
    approved, undecided, staying = (sum(parts.get(status, ())) for status in (True, False, None))
    struck = _struck(size, approved)
    totals = {True: struck, False: _struck(size, approved + undecided) - struck, None: size.of(staying)}
    found: dict[Target, int] = {}
    for status, targets in by_status.items():
        found |= zip(targets, steady_shares(totals[status], parts[status], size.ratio), strict=True)
    return found


def struck_of(size: ContextSize, transcript: Transcript, plan: Collection[Target]) -> int:
    """The tokens that a plan deletes from a context, in the measure of the context."""
    return _struck(size, removed_estimate(transcript, plan))


def _struck(size: ContextSize, estimate: int) -> int:
    return size.tokens - size.without(estimate).tokens


def tokens_back(
    size: ContextSize, transcript: Transcript, plan: Collection[Target], unapplied: Collection[Target]
) -> int:
    """The tokens of a plan that are kept because some of its targets are not applied."""
    applied = [target for target in plan if target not in unapplied]
    return struck_of(size, transcript, plan) - struck_of(size, transcript, applied)


def struck_by_target(size: ContextSize, transcript: Transcript, plan: Collection[Target]) -> dict[Target, int]:
    """The tokens that a plan deletes with each of its targets. Their sum is the plan's total."""
    estimates = dict.fromkeys(plan, 0)
    for cell in _cells(transcript, blocks_by_entry(plan)):
        whole = Target(cell.target.entry_id)
        estimates[whole if whole in estimates else cell.target] += cell.tokens
    total = struck_of(size, transcript, plan)
    return dict(zip(estimates, apportion(total, list(estimates.values())), strict=True))


def full_effect(transcript: Transcript, reviewer: Reviewer, target: Target) -> int:
    """The estimated tokens removed by deleting one object with its pair, regardless of other decisions."""
    return removed_estimate(transcript, {target, *reviewer.goes_with(target)})


def removed_estimate(transcript: Transcript, plan: Collection[Target]) -> int:
    """The tokens that a plan removes from the estimate of the context."""
    blocks = blocks_by_entry(plan)
    entries = (entry for entry in map(transcript.entry, blocks) if entry is not None)
    return sum(entry.tokens - entry.tokens_without(blocks[entry.entry_id]) for entry in entries)


def sums_by_kind(transcript: Transcript, plan: Collection[Target]) -> list[KindSum]:
    """The sums of a plan by kind, the most struck first; they add up to the plan and to the transcript."""
    return _sums(transcript, plan, lambda cell: cell.kind)


def sums_by_tool(transcript: Transcript, plan: Collection[Target]) -> list[KindSum]:
    """The sums of a plan by tool; parts that belong to no tool have an empty name."""
    return _sums(transcript, plan, lambda cell: cell.tool)


def _sums(transcript: Transcript, plan: Collection[Target], name: Callable[[Cell], str]) -> list[KindSum]:
    struck: Counter[str] = Counter()
    stays: Counter[str] = Counter()
    gone = blocks_by_entry(plan)
    for cell in _cells(transcript, gone):
        struck[name(cell)] += cell.tokens
    everything: _Removed = {entry.entry_id: None for entry in transcript.entries}
    for cell in _cells(transcript, everything, gone):
        stays[name(cell)] += cell.tokens
    names = sorted({*struck, *stays}, key=lambda name: (-struck[name], -stays[name], name))
    return [KindSum(name, struck[name], stays[name]) for name in names]


# ---- cells -------------------------------------------------------------------------------------------------

_CellKey = tuple[int, frozenset[int], frozenset[int] | None]
_made_cells: Final[WeakKeyDictionary[Transcript, dict[_CellKey, tuple[Cell, ...]]]] = WeakKeyDictionary()
"""The cells of entries, kept as long as their transcript is used: a decision changes few of them."""


def _cells(transcript: Transcript, removed: _Removed, gone: _Removed = _NOTHING) -> Iterator[Cell]:
    """The cells removed besides those already gone, in the order of the transcript."""
    made = _made_cells.setdefault(transcript, {})
    for entry in transcript.entries:
        if entry.entry_id not in removed:
            continue
        before = gone.get(entry.entry_id, _NO_BLOCKS)
        if before is None:
            continue
        key = entry.position, before, removed[entry.entry_id]
        cells = made.get(key)
        if cells is None:
            cells = made[key] = tuple(_cells_of(transcript, entry, before, removed[entry.entry_id]))
        yield from cells


def _cells_of(
    transcript: Transcript, entry: TranscriptEntry, before: frozenset[int], indexes: frozenset[int] | None
) -> Iterator[Cell]:
    """The cells removed with an entry: with these of its blocks, or with all that remain (None)."""
    blocks = [block for block in entry.blocks if block.index not in before]
    if indexes is not None:
        blocks = [block for block in blocks if block.index in indexes]
        counts = {block.index: block.tokens for block in blocks}
    else:
        left = entry.tokens - sum(block.tokens for block in entry.blocks if block.index in before)
        counts = block_shares(left, blocks)
    after = None if indexes is None else {*before, *indexes}
    tokens = entry.tokens_without(before) - entry.tokens_without(after)
    if not blocks and indexes is None:
        yield _cell(transcript, entry, None, tokens, entry.tokens)
    shares = block_shares(tokens, blocks)
    for block in blocks:
        yield _cell(transcript, entry, block, shares[block.index], counts[block.index])


def _cell(transcript: Transcript, entry: TranscriptEntry, block: Block | None, tokens: int, counted: int) -> Cell:
    target = Target(entry.entry_id, block.index if block is not None else None)
    kind = kind_of_piece(entry.role, entry.tool_name, block.type if block is not None else "")
    tool = entry.tool_name
    if block is not None and block.call_id is not None:
        call = transcript.pairs.call(block.call_id)
        answers = call.results if call is not None else ()
        tool = next((transcript.entries[result.position].tool_name for result in answers), "")
    return Cell(target, kind, tool, tokens, counted, _names(transcript, entry, target))


# ---- units -------------------------------------------------------------------------------------------------


def _leaders(
    transcript: Transcript, review: Review, cells: Sequence[Cell], known: Mapping[Target, Target]
) -> dict[Target, Target]:
    """The unit of each cell, in addition to the known ones. A cell that is joined with no unit is a unit itself."""
    leaders: dict[Target, Target] = dict(known)
    pending: list[Target] = []
    for cell in cells:
        item = next((review.items[one] for one in cell.names if one in review.items), None)
        if item is not None:
            leaders[cell.target] = item.leader or item.target
        else:
            pending.append(cell.target)
    accompanied = _accompanied(transcript) if pending else {}
    while pending:
        joined = {target: _joined(transcript, target, leaders, accompanied) for target in pending}
        found = {target: leader for target, leader in joined.items() if leader is not None}
        leaders |= found or {target: target for target in pending}
        pending = [target for target in pending if target not in leaders]
    return leaders


def _names(transcript: Transcript, entry: TranscriptEntry, target: Target) -> tuple[Target, ...]:
    """The items for which a cell may count: an item, a call whose result is one, or a block whose entry is one."""
    slot = entry.slot(target.block_index) if target.block_index is not None else None
    call = transcript.pairs.made_in(entry, slot) if slot is not None else None
    results = call.results if call is not None else ()
    answers = (Target(transcript.entries[one.position].entry_id) for one in results)
    return tuple(dict.fromkeys((target, *answers, Target(target.entry_id))))


def _joined(
    transcript: Transcript,
    target: Target,
    leaders: Mapping[Target, Target],
    accompanied: Mapping[int, Sequence[int]],
) -> Target | None:
    """The unit of the first object that is joined with a target and has a unit."""
    for found in _neighbours(transcript, target, accompanied):
        entry = transcript.entries[found.position]
        indexes: list[int | None] = [None, *(block.index for block in entry.blocks)]
        if found.slot != WHOLE:
            indexes = [entry.blocks[found.slot].index]
        for index in indexes:
            leader = leaders.get(Target(entry.entry_id, index))
            if leader is not None:
                return leader
    return None


def _neighbours(transcript: Transcript, target: Target, accompanied: Mapping[int, Sequence[int]]) -> Iterator[Object]:
    """The other sides of a target's call, the rest of its entry, and the entries deleted with it."""
    entry = transcript.entry(target.entry_id)
    if entry is None:
        return
    slot = entry.slot(target.block_index) if target.block_index is not None else None
    call = transcript.pairs.of_block(entry, slot) if slot is not None else None
    call = call or transcript.pairs.answered_by(entry)
    yield from call.objects if call is not None else ()
    yield Object(entry.position)
    yield from map(Object, entry.companions)
    yield from map(Object, accompanied.get(entry.position, ()))


def _accompanied(transcript: Transcript) -> Mapping[int, Sequence[int]]:
    """For each companion: the entries with which it is deleted."""
    joined: defaultdict[int, list[int]] = defaultdict(list)
    for entry in transcript.entries:
        for position in entry.companions:
            joined[position].append(entry.position)
    return joined


KEPT: Final = 1 << 16
"""The number of cached judgements on parts for each reviewer."""
_UNDECIDED: Final = Decisions()


def first_decision(item: ReviewItem) -> Kind | None:
    """The decision to which the number beside a proposal refers: to approve it, or to reverse its approval; None if
    neither would change the plan.
    """
    if item.standing in (ReviewStatus.UNDECIDED, ReviewStatus.REJECTED):
        return Kind.APPROVE
    if item.standing not in ACCEPTED:
        return None
    return Kind.WITHDRAW if item.added and item.standing is ReviewStatus.APPROVED else Kind.REJECT


class DecisionEffect(NamedTuple):
    """The change that a decision makes to the approved plan."""

    tokens: int = 0
    """The additional tokens that the plan removes from the estimate of the context; negative if tokens come back."""
    counted: int = 0
    """The same, as the plan's statistics count it."""
    went: frozenset[Target] = frozenset()
    """Other proposals that are approved with it."""
    came_back: frozenset[Target] = frozenset()
    """Other proposals that are no longer approved."""

    @property
    def others(self) -> frozenset[Target]:
        """The proposals that it affects besides those that it names."""
        return self.went | self.came_back


class _Plan(NamedTuple):
    """The approved plan, of a part or of the whole."""

    goes: frozenset[Target]
    accepted: frozenset[Target]
    tokens: int
    counted: int
    entries: int
    tasks: int
    is_separable: bool


class _Change(NamedTuple):
    """The change of the approved plan by a decision."""

    consequence: DecisionEffect
    entries: int
    tasks: int
    after: _Plan


class Consequences:
    """The consequences of decisions on one review."""

    def __init__(self, reviewer: Reviewer, review: Review) -> None:
        self._reviewer = reviewer
        self._review = review
        self._transcript = reviewer.transcript
        self._wholes: dict[Step, DecisionEffect] = {}
        self.judged = 0
        """The number of entries judged again: the cost of the answers."""

    def of(self, kind: Kind, targets: Iterable[Target]) -> DecisionEffect:
        """The effect of this decision. Objects that are not in the transcript change nothing."""
        step = Step(kind, tuple(targets))
        if self._review.is_separable:
            changes = self._parts(step)
            if all(change.after.is_separable for change in changes.values()) and self._may_remain(changes):
                parts = (change.consequence for change in changes.values())
                tokens, counted, went, came_back = zip(DecisionEffect(), *parts, strict=True)
                return DecisionEffect(
                    sum(tokens), sum(counted), frozenset().union(*went), frozenset().union(*came_back)
                )
        if step not in self._wholes:
            word = self._review.decided.with_only(self._review.decided.value)
            word.take(step)
            self._wholes[step] = _change(self._before, self._plan(word, None), step).consequence
        return self._wholes[step]

    # ---- parts ------------------------------------------------------------------------------------------

    def _parts(self, step: Step) -> dict[int, _Change]:
        """The changes of a step, for each part that it concerns."""
        targets: dict[int, list[Target]] = {}
        for target in step.targets:
            part = self._reviewer.part_of(target)
            if part is not None:
                targets.setdefault(part, []).append(target)
        return {part: self._part(part, Step(step.kind, tuple(own))) for part, own in targets.items()}

    def _part(self, part: int, step: Step) -> _Change:
        decisions, memory = self._decisions.get(part, _UNDECIDED), self._reviewer.memory
        key = part, decisions, step
        if key not in memory:
            if len(memory) > KEPT:
                memory.clear()
            word = self._review.decided.with_only(decisions)
            before = self._part_plan(part, word)
            word.take(step)
            memory[key] = _change(before, self._part_plan(part, word), step)
        found: _Change = memory[key]
        return found

    def _part_plan(self, part: int, word: Decided) -> _Plan:
        key, memory = (part, word.value), self._reviewer.memory
        if key not in memory:
            memory[key] = self._plan(word, part)
        found: _Plan = memory[key]
        return found

    @cached_property
    def _decisions(self) -> Mapping[int, Decisions]:
        return self._review.decided.by_part(self._reviewer.part_of)

    def _may_remain(self, changes: Mapping[int, _Change]) -> bool:
        """Whether the airlock accepts the rest of the whole context: see the gates that check it."""
        entries = self._gone[0] + sum(change.entries for change in changes.values())
        tasks = self._gone[1] + sum(change.tasks for change in changes.values())
        if entries >= len(self._transcript) or tasks >= self._transcript.tasks:
            return entries == 0
        latest = next((one for one in self._transcript.replayed if not self._goes(changes, Target(one.entry_id))), None)
        thoughts = self._transcript.thoughts_with(latest) if latest is not None else ()
        named = (
            target
            for entry in thoughts
            for target in (
                Target(entry.entry_id),
                *(Target(entry.entry_id, block.index) for block in entry.blocks if block.is_thinking),
            )
        )
        return not any(self._goes(changes, target) for target in named)

    def _goes(self, changes: Mapping[int, _Change], target: Target) -> bool:
        part = self._reviewer.part_of(target)
        change = changes.get(part) if part is not None else None
        return target in (change.after.goes if change is not None else self._review.goes)

    @cached_property
    def _gone(self) -> tuple[int, int]:
        """The number of entries deleted as a whole in the approved plan, and of those among them that bear the task."""
        found = [self._transcript.entry(target.entry_id) for target in self._review.goes if target.block_index is None]
        return len(found), sum(entry is not None and entry.bears_task for entry in found)

    # ---- the whole --------------------------------------------------------------------------------------

    @cached_property
    def _before(self) -> _Plan:
        return self._plan(self._review.decided, None)

    def _plan(self, word: Decided, part: int | None) -> _Plan:
        reviewer = self._reviewer
        found = reviewer.approved(word, part)
        goes = reviewer.targets(found.plan)
        self.judged += len(found.order)
        return _Plan(
            goes,
            reviewer.accepted(word, found.order, goes),
            removed_estimate(self._transcript, goes),
            found.plan.tokens,
            found.plan.entries_gone,
            found.plan.tasks_gone,
            found.is_separable,
        )


def _change(before: _Plan, after: _Plan, step: Step) -> _Change:
    own = {*step.targets, *(Target(target.entry_id) for target in step.targets if step.kind is Kind.NARROW)}
    consequence = DecisionEffect(
        after.tokens - before.tokens,
        after.counted - before.counted,
        after.accepted - before.accepted - own,
        before.accepted - after.accepted - own,
    )
    return _Change(consequence, after.entries - before.entries, after.tasks - before.tasks, after)
