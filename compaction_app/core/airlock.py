"""The airlock: every deletion passes it, whatever its source, and again inside the write lock.

    validate(request, transcript) -> ValidatedDeletion | Refusal

Targets are judged one after the other in the order of the request, and the first fault of the first faulty
target is the answer. Then the plan as a whole: repaired so that calls and results stay together, and judged
again. A refusal changes nothing. Only this module can make a `ValidatedDeletion`, and only a
`ValidatedDeletion` can be written.

Worked example. The transcript is user U, assistant A [text, call c1], result R (answers c1), assistant B, and the last
two entries are recent when `preserve_recent` is 1: B only. The request deletes R. Shape: R is known. Recent: R is not
B. Protected: R is not an error. Pairs: R answers c1, so A's block 1 is also deleted; A keeps its text. After repair:
nothing recent, no orphan, nothing dangling. Survival: U and A remain, and U bears the task. Stats: 3 of 8 objects are
deleted (R, its block, the call).

The rules, and the table that lists them in their order, are in `gates`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import InitVar, dataclass
from typing import Final

from sessions_app.sessionlog.entries import Stats, Target

from . import gates
from .parameters import Parameters
from .stats import measure, target_met
from .transcript import WHOLE, Object, TargetPlan, Transcript, TranscriptEntry

_SEAL: Final = object()
_PAIRED: Final = (
    "Cannot delete one side of a tool call",
    "belongs to the same tool call",
    "Keep both sides, or choose another pair.",
)
_JOINED: Final = (
    "Cannot delete some of what belongs together",
    "would have to be deleted as well",
    "Keep reasoning and what follows it, or choose an earlier turn.",
)


@dataclass(frozen=True, slots=True)
class ValidatedDeletion:
    """A plan that passed every gate. Made by the airlock alone, and never changed."""

    seal: InitVar[object]
    targets: tuple[Target, ...]
    stats: Stats
    protected_entry_ids: tuple[str, ...]
    parameters: Parameters

    def __post_init__(self, seal: object) -> None:
        if seal is not _SEAL:
            raise TypeError("Only the airlock makes a ValidatedDeletion.")

    @property
    def target_met(self) -> bool:
        """Whether the required reduction is reached."""
        return target_met(self.stats, self.parameters.compression_ratio)


class Airlock(gates.Judgement):
    """Judges deletions on one transcript under one set of restraints."""

    def empty_plan(self, base: TargetPlan | None = None) -> TargetPlan:
        return TargetPlan(self.transcript.entries, self.transcript.pairs, base)

    def judge_request(self, request: object) -> TargetPlan | gates.Refusal:
        """The request as a separate plan, repaired and judged in full; or its first fault."""
        if not isinstance(request, dict) or not isinstance(request.get("deletions"), list):
            return gates.Refusal(
                gates.Code.REQUEST_SHAPE,
                'The request is not an object with a list "deletions". Nothing was deleted. '
                'Send {"deletions": [{"kind": "entry", "entryId": "…"}]}.',
            )
        return self.judge_targets(gates.read_target(raw, number) for number, raw in enumerate(request["deletions"], 1))

    def judge_targets(self, targets: Iterable[Target | gates.Refusal]) -> TargetPlan | gates.Refusal:
        """The same judgement on targets in the order of a request; a refusal among them is a fault of the request."""
        plan = self.empty_plan()
        for target in targets:
            found = self._judge_target(target, plan) if isinstance(target, Target) else target
            if isinstance(found, gates.Refusal):
                return found
            plan.add(found)
        return self._close(plan, gates.PLAN_GATES) or plan

    def merge(self, chosen: TargetPlan, incoming: Iterable[Object]) -> TargetPlan | gates.Refusal:
        """A new plan of `chosen` and `incoming`, judged as a whole; `chosen` is not changed.

        An entry replaces its blocks and keeps its position if it was already chosen; a block of a chosen entry, or a
        repeat, is dropped.
        """
        merged = chosen.copy()
        for found in incoming:
            if found.slot == WHOLE:
                merged.add_entry(found.position)
            elif Object(found.position) not in merged:
                merged.add(found)
        return self._close(merged, gates.PLAN_GATES) or merged

    def passes_over(self, chosen: TargetPlan, candidate: Object) -> tuple[bool, int]:
        """Whether a bulk deletion skips this match, given what is chosen; and the number of objects visited.

        The match alone may be deleted. It is skipped if merging it alone would be refused for recency, a protected
        pair, or guarded thinking. Any other fault is left to the judgement of the whole plan.
        """
        plan = self.empty_plan(chosen)
        plan.add(candidate)
        return self._close(plan, gates.SKIPPING_GATES) is not None, plan.visited

    def is_kept(self, entry: TranscriptEntry) -> bool:
        """Whether an entry is protected or pinned, regardless of recency."""
        return entry.protection is not None or Object(entry.position) in self.pins

    def targets(self, plan: TargetPlan) -> tuple[Target, ...]:
        """The plan's targets, in the order in which they are recorded."""
        return tuple(map(self.transcript.target, plan.chosen))

    def validate(self, request: object) -> ValidatedDeletion | gates.Refusal:
        """The judgement on a request as a whole."""
        plan = self.judge_request(request)
        if isinstance(plan, gates.Refusal):
            return plan
        return ValidatedDeletion(
            _SEAL,
            self.targets(plan),
            measure(self.transcript, plan),
            self.transcript.protected_entry_ids,
            self.transcript.parameters,
        )

    def _judge_target(self, target: Target, plan: TargetPlan) -> Object | gates.Refusal:
        entry = self.transcript.entry(target.entry_id)
        if entry is None:
            return gates.refuse(
                gates.Code.UNKNOWN_ENTRY,
                target,
                "the transcript has no such entry",
                "Use an id that a tool has returned.",
            )
        if target.block_index is not None and target.block_index < 0:
            return gates.refuse(
                gates.Code.INVALID_BLOCK_INDEX,
                target,
                "blockIndex is not a whole number from 0 up",
                "Read the entry first.",
            )
        for gate in gates.TARGET_GATES:
            refusal = gate(self, entry, target)
            if refusal is not None:
                return refusal
        found = self.transcript.find(target)
        if found is None:
            raise AssertionError(f"{target} passed every gate and is not in the transcript")
        if found in plan:
            return gates.refuse(gates.Code.DUPLICATE_TARGET, target, "the request names it twice", "Name it once.")
        return found

    def _close(self, plan: TargetPlan, gates: Sequence[gates.PlanGate]) -> gates.Refusal | None:
        refused = plan.repair(self.may_go)
        if refused is not None:
            return self._refuse_part(refused, *(_JOINED if plan.lacks_companion else _PAIRED))
        return next(filter(None, (gate(self, plan) for gate in gates)), None)

    def _refuse_part(self, refused: Object, what: str, bond: str, instead: str) -> gates.Refusal:
        """The refusal of a plan that repair cannot complete, because this object must be kept."""
        entry, target = self.entry(refused), self.target(refused)
        if entry.recent:
            why = f"{target} {bond} and is among the last entries, which are kept"
            return gates.Refusal(gates.Code.RECENT_CONTEXT, f"{what}: {why}. {instead}", target)
        reason = entry.protection.sentence if entry.protection is not None else gates.PINNED
        why = f"{target} {bond} and is kept, because {reason}"
        return gates.Refusal(gates.Code.PROTECTED_PAIR, f"{what}: {why}. {instead}", target)


def validate(
    request: object, transcript: Transcript, restraints: gates.Restraints = gates.NO_RESTRAINTS
) -> ValidatedDeletion | gates.Refusal:
    """Judge one request on a transcript. There is no other way to obtain a deletion that can be written."""
    return Airlock(transcript, restraints).validate(request)
