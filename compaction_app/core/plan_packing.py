"""PURE: the largest part of a list of targets that the airlock accepts together, and the refusals of the others.

Targets that share a tool call with a pin are first judged alone, and omitted if the pin keeps them. Then the rest is
tried as a whole. If that is refused, the targets are judged one by one; targets that are accepted alone but not
together are added half by half. So one refusal never hides another, and an acceptable plan costs one judgement.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from typing import Final

from sessions_app.sessionlog.targets import Target

from .airlock import Airlock
from .errors import Code, Refusal
from .pairing import TargetPlan

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
        for suspects in (self._is_suspect, self._is_open):
            whole = self._whole(base, wanted)
            if whole is not None:
                return whole
            for target in filter(suspects, wanted):
                self._judge_alone(target)
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
        objects = [found for found in map(self.airlock.find, wanted) if found is not None]
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

    def _judge_alone(self, target: Target) -> None:
        judged = self.airlock.judge_targets([target])
        if isinstance(judged, Refusal):
            self.refusals[target] = judged

    def _is_suspect(self, target: Target) -> bool:
        return target not in self._vetted or target.entry_id in self._near

    def _is_open(self, target: Target) -> bool:
        return not self._is_suspect(target)

    def _near_pins(self, pins: Iterable[Target]) -> Iterable[str]:
        """Entries that share a tool call with a pinned object: refusals are most likely there."""
        transcript = self.airlock.transcript
        for pin in pins:
            found = self.airlock.find(pin)
            if found is None:
                continue
            yield pin.entry_id
            for call in transcript.pairs.touched_by[found.position]:
                for side in (call.owner, *call.results):
                    yield transcript.entries[side.position].entry_id
