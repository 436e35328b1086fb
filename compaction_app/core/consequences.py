"""PURE: the change of the approved plan by a possible decision, with all its consequences.

A decision about an object affects more than the object: the other sides of its tool calls, the objects that its agent's
rules join with it, and those approved or kept because of it. The answer is that of the review after the decision.
Reviewing a large plan for each number of a page would be too slow, so only the parts of the transcript that the
decision concerns are judged (see `Transcript.parts`), each like the whole:

    decisions on a part ──▶ approved of it ──┐
           + the decision ──▶ approved of it ─┴─▶ what changes

A plan is not the sum of its parts if a refusal concerned the rest of the whole context. Then the whole is judged.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import cached_property
from typing import Final, NamedTuple
from weakref import WeakKeyDictionary

from sessions_app.sessionlog.targets import Target

from .decisions import Decided, Decisions, Kind, Step
from .effects import removed_estimate
from .review_fold import ACCEPTED, Review, Reviewer, ReviewItem, ReviewStatus

KEPT: Final = 1 << 16
"""The number of cached judgements on parts for each reviewer."""
_UNDECIDED: Final = Decisions()


def first_decision(item: ReviewItem) -> Kind | None:
    """The decision to which the number of a proposal refers: its approval, or the reversal of that; None if neither
    would change the plan."""
    if item.standing in (ReviewStatus.UNDECIDED, ReviewStatus.REJECTED):
        return Kind.APPROVE
    if item.standing not in ACCEPTED:
        return None
    return Kind.WITHDRAW if item.added and item.standing is ReviewStatus.APPROVED else Kind.REJECT


class DecisionEffect(NamedTuple):
    """The change of the approved plan by a decision."""

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
        """Proposals that it includes besides those that it names."""
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


class _Memory:
    """Cached judgements on parts: decisions on other parts do not change them."""

    def __init__(self) -> None:
        self.plans: dict[tuple[int, Decisions], _Plan] = {}
        self.changes: dict[tuple[int, Decisions, Step], _Change] = {}

    def limit(self) -> None:
        if len(self.plans) + len(self.changes) > KEPT:
            self.plans.clear()
            self.changes.clear()


_memories: Final[WeakKeyDictionary[Reviewer, _Memory]] = WeakKeyDictionary()
"""Kept as long as their reviewers are used."""


class Consequences:
    """The consequences of decisions on one review."""

    def __init__(self, reviewer: Reviewer, review: Review) -> None:
        self._reviewer = reviewer
        self._review = review
        self._transcript = reviewer.transcript
        self._memory = _memories.setdefault(reviewer, _Memory())
        self._wholes: dict[Step, DecisionEffect] = {}
        self.judged = 0
        """The number of entries judged again: the cost of the answers."""

    def of(self, kind: Kind, targets: Iterable[Target]) -> DecisionEffect:
        """The effect of this decision. Objects that the transcript lacks change nothing."""
        step = Step(kind, tuple(targets))
        if self._review.is_separable:
            changes = self._parts(step)
            if all(change.after.is_separable for change in changes.values()) and self._may_remain(changes):
                return _sum(change.consequence for change in changes.values())
        if step not in self._wholes:
            self._wholes[step] = self._whole(step)
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
        decisions = self._decisions.get(part, _UNDECIDED)
        key = part, decisions, step
        found = self._memory.changes.get(key)
        if found is None:
            self._memory.limit()
            word = self._review.decided.with_only(decisions)
            before = self._part_plan(part, word)
            word.take(step)
            found = self._memory.changes[key] = _change(before, self._part_plan(part, word), step)
        return found

    def _part_plan(self, part: int, word: Decided) -> _Plan:
        key = part, word.value
        found = self._memory.plans.get(key)
        if found is None:
            found = self._memory.plans[key] = self._plan(word, part)
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

    def _whole(self, step: Step) -> DecisionEffect:
        word = self._review.decided.with_only(self._review.decided.value)
        word.take(step)
        return _change(self._before, self._plan(word, None), step).consequence

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


def _sum(parts: Iterable[DecisionEffect]) -> DecisionEffect:
    tokens = counted = 0
    went: list[Collection[Target]] = []
    came_back: list[Collection[Target]] = []
    for part in parts:
        tokens += part.tokens
        counted += part.counted
        went.append(part.went)
        came_back.append(part.came_back)
    return DecisionEffect(tokens, counted, frozenset().union(*went), frozenset().union(*came_back))
