"""The airlock: every deletion passes it, whoever asks, and again inside the write lock.

    validate(request, transcript) -> ValidatedDeletion | Refusal

Targets are judged one after the other in the order of the request, and the first fault of the first faulty
target is the answer. Then the plan as a whole: repaired so that calls and results stay together, and judged
again. A refusal changes nothing. Only this module can make a `ValidatedDeletion`, and only a
`ValidatedDeletion` can be written.

Worked example. The transcript is user U, assistant A [text, call c1], result R (answers c1), assistant B,
and the last two entries are recent when `preserve_recent` is 1: B only. The request deletes R. Shape: R is
known. Recent: R is not B. Protected: R is no error. Pairs: R answers c1, so A's block 1 goes too; A keeps its
text. After repair: nothing recent, no orphan, nothing dangling. Survival: U and A remain, and U bears the
task. Stats: 3 of 8 objects go (R, its block, the call).

The table `GATES` lists the rules in their order; `TARGET_GATES` and `PLAN_GATES` are the rules themselves.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

import msgspec

from .errors import Code, Refusal
from .pairing import WHOLE, Object, Plan
from .parameters import Parameters
from .targets import Target
from .transcript import Transcript, TranscriptEntry


class Gate(NamedTuple):
    """One row of the table of gates."""

    name: str
    kind: str
    rule: str
    codes: tuple[Code, ...]


GATES: Final = (
    Gate(
        "shape",
        "refuses",
        "an object with a list of deletions; each holds only ids, of a known kind, and names a known entry",
        (
            Code.REQUEST_SHAPE,
            Code.UNSUPPORTED_KIND,
            Code.NOT_ID_ONLY,
            Code.INVALID_ENTRY_ID,
            Code.UNKNOWN_ENTRY,
            Code.INVALID_BLOCK_INDEX,
        ),
    ),
    Gate("recent", "refuses", "the last preserve_recent entries stay", (Code.RECENT_CONTEXT,)),
    Gate(
        "thinking",
        "refuses",
        "with thinking_guard all, no assistant that bears thinking is touched",
        (Code.THINKING,),
    ),
    Gate(
        "protected",
        "refuses",
        "protected entries stay, and so do their blocks and whatever a human pinned",
        (Code.PROTECTED,),
    ),
    Gate(
        "block",
        "refuses",
        "a block exists, and is not the only one of its entry",
        (Code.UNKNOWN_BLOCK, Code.ONLY_BLOCK),
    ),
    Gate("duplicate", "refuses", "no target is named twice", (Code.DUPLICATE_TARGET,)),
    Gate(
        "pairs",
        "repairs",
        "a call and its results go together; an entry goes when all blocks of a calling entry go",
        (Code.RECENT_CONTEXT, Code.PROTECTED_PAIR),
    ),
    Gate(
        "after repair",
        "refuses",
        "nothing recent; the last assistant keeps its thinking; no block beside its entry; not every block of an "
        "entry; no result orphaned and no call left dangling by this plan",
        (
            Code.RECENT_CONTEXT,
            Code.THINKING,
            Code.LATEST_THINKING,
            Code.OVERLAPPING_TARGET,
            Code.EVERY_BLOCK,
            Code.ORPHANED_RESULT,
            Code.DANGLING_CALL,
        ),
    ),
    Gate(
        "survival",
        "refuses",
        "something remains, and something that bears the task: user, custom, branch summary",
        (Code.NO_CONTEXT_LEFT, Code.NO_TASK_LEFT),
    ),
    Gate(
        "stats", "measures", "objects and tokens before, after and deleted, and the reduction in percent", ()
    ),
)

THINKING_GUARDS: Final = ("latest", "all")


class Restraints(msgspec.Struct, frozen=True):
    """What a run forbids beside the transcript's own protections."""

    pins: frozenset[Target] = frozenset()
    """Objects that a human keeps: repair may not take them either."""
    thinking_guard: str = "latest"
    """`latest`: the last assistant keeps its thinking. `all`: every assistant with thinking stays whole."""


NO_RESTRAINTS: Final = Restraints()


class Stats(msgspec.Struct, frozen=True, rename="camel"):
    """What a plan changes, in objects (entries and blocks) and in estimated tokens."""

    objects_before: int
    objects_after: int
    objects_deleted: int
    tokens_before: int
    tokens_after: int
    percent_reduction: float

    def to_json(self) -> dict[str, int | float]:
        """The stats as they are recorded; a whole percentage is an integer, as JavaScript prints it."""
        recorded: dict[str, int | float] = msgspec.to_builtins(self)
        if self.percent_reduction.is_integer():
            recorded["percentReduction"] = int(self.percent_reduction)
        return recorded


def percent(part: float, whole: float) -> float:
    """`part` of `whole` in percent, to one decimal, halves up; 0 of nothing."""
    return math.floor(part / whole * 1000 + 0.5) / 10 if whole else 0.0


def measure(transcript: Transcript, plan: Plan) -> Stats:
    """The stats of a plan on a transcript."""
    return Stats(
        objects_before=transcript.objects,
        objects_after=transcript.objects - plan.objects,
        objects_deleted=plan.objects,
        tokens_before=transcript.tokens,
        tokens_after=transcript.tokens - plan.tokens,
        percent_reduction=percent(plan.tokens, transcript.tokens),
    )


_SEAL: Final = object()


class ValidatedDeletion:
    """A plan that passed every gate. Made by the airlock alone."""

    __slots__ = ("parameters", "protected_entry_ids", "stats", "targets")

    def __init__(
        self, seal: object, transcript: Transcript, targets: tuple[Target, ...], stats: Stats
    ) -> None:
        if seal is not _SEAL:
            raise TypeError("Only the airlock makes a ValidatedDeletion.")
        self.targets = targets
        self.stats = stats
        self.protected_entry_ids = transcript.protected_entry_ids
        self.parameters: Parameters = transcript.parameters

    @property
    def target_met(self) -> bool:
        """Whether the reduction that was asked for is reached."""
        return target_met(self.stats, self.parameters.compression_ratio)


def target_met(stats: Stats, compression_ratio: float) -> bool:
    """Whether at most ⌊before · ratio⌋ tokens remain."""
    return stats.tokens_after <= math.floor(stats.tokens_before * compression_ratio)


class Judgement(NamedTuple):
    """What a rule looks at: the transcript, the run's restraints, and what was chosen so far."""

    transcript: Transcript
    restraints: Restraints
    pins: frozenset[Object]

    def entry(self, found: Object) -> TranscriptEntry:
        return self.transcript.entries[found.position]

    def target(self, found: Object) -> Target:
        """The object under its ids."""
        entry = self.entry(found)
        return Target(entry.entry_id, None if found.slot == WHOLE else entry.blocks[found.slot].index)

    def is_pinned(self, found: Object) -> bool:
        """Whether a human keeps the object: an entry with all its blocks, a block with its entry."""
        if not self.pins:
            return False
        if found in self.pins or Object(found.position) in self.pins:
            return True
        blocks = self.entry(found).blocks if found.slot == WHOLE else ()
        return any(Object(found.position, slot) in self.pins for slot in range(len(blocks)))

    def may_go(self, found: Object) -> bool:
        """Whether repair may take the object."""
        return not self.entry(found).is_protected and not self.is_pinned(found)


# ---- gates on a single target ---------------------------------------------------------------------------

TargetGate = Callable[[Judgement, TranscriptEntry, Target], Refusal | None]


def refuse_recent(judge: Judgement, entry: TranscriptEntry, target: Target) -> Refusal | None:
    if not entry.recent:
        return None
    count = judge.transcript.parameters.preserve_recent
    return _refuse(
        Code.RECENT_CONTEXT,
        target,
        f"it is among the last {count} entries, which are kept",
        "Choose an older one.",
    )


def refuse_guarded_thinking(judge: Judgement, entry: TranscriptEntry, target: Target) -> Refusal | None:
    if judge.restraints.thinking_guard != "all" or entry.role != "assistant" or not entry.bears_thinking:
        return None
    return _refuse(
        Code.THINKING,
        target,
        "its assistant's thinking is guarded (thinking_guard is all)",
        "Choose an entry that bears no thinking.",
    )


def refuse_protected(judge: Judgement, entry: TranscriptEntry, target: Target) -> Refusal | None:
    if entry.protection is not None:
        return _refuse(
            Code.PROTECTED, target, entry.protection.sentence, "Choose an entry that is not protected."
        )
    slot = WHOLE if target.block_index is None else entry.slot(target.block_index)
    if slot is not None and judge.is_pinned(Object(entry.position, slot)):
        return _refuse(Code.PROTECTED, target, "a human decided to keep it", "Leave it where it is.")
    return None


def refuse_unfit_block(judge: Judgement, entry: TranscriptEntry, target: Target) -> Refusal | None:
    del judge
    if target.block_index is None:
        return None
    if entry.slot(target.block_index) is None:
        return _refuse(
            Code.UNKNOWN_BLOCK, target, "the entry has no such block", "Read the entry to see its blocks."
        )
    if len(entry.blocks) == 1:
        return _refuse(
            Code.ONLY_BLOCK,
            target,
            "it is the only block of its entry",
            "Delete the entry instead of the block.",
        )
    return None


TARGET_GATES: Final[list[TargetGate]] = [
    refuse_recent,
    refuse_guarded_thinking,
    refuse_protected,
    refuse_unfit_block,
]


# ---- gates on the plan after repair ---------------------------------------------------------------------

PlanGate = Callable[[Judgement, Plan], Refusal | None]


def refuse_recent_in_plan(judge: Judgement, plan: Plan) -> Refusal | None:
    entries = judge.transcript.entries
    recent = [position for position in plan.touched_entries if entries[position].recent]
    return _first_refusal(refuse_recent, judge, recent)


def refuse_guarded_thinking_in_plan(judge: Judgement, plan: Plan) -> Refusal | None:
    if judge.restraints.thinking_guard != "all":
        return None
    return _first_refusal(refuse_guarded_thinking, judge, plan.touched_entries)


def _first_refusal(gate: TargetGate, judge: Judgement, positions: Iterable[int]) -> Refusal | None:
    for position in sorted(positions):
        entry = judge.transcript.entries[position]
        refusal = gate(judge, entry, Target(entry.entry_id))
        if refusal is not None:
            return refusal
    return None


def refuse_latest_thinking(judge: Judgement, plan: Plan) -> Refusal | None:
    for found in judge.transcript.latest_thinking:
        if found in plan:
            return _refuse(
                Code.LATEST_THINKING,
                judge.target(found),
                "providers require the thinking of the latest assistant message unchanged",
                "Earlier assistants may lose theirs.",
            )
    return None


def refuse_overlap(judge: Judgement, plan: Plan) -> Refusal | None:
    for position in sorted(filter(plan.blocks_chosen, plan.touched_entries)):
        found = Object(position)
        if found in plan:
            return _refuse(
                Code.OVERLAPPING_TARGET,
                judge.target(found),
                "the request names a block of it as well",
                "Name the entry alone.",
            )
    return None


def refuse_every_block(judge: Judgement, plan: Plan) -> Refusal | None:
    for position in sorted(filter(plan.is_complete, plan.touched_entries)):
        found = Object(position)
        if found not in plan:
            return _refuse(
                Code.EVERY_BLOCK,
                judge.target(found),
                "every one of its blocks would go",
                "Delete the entry instead, or keep a block.",
            )
    return None


def refuse_orphaned_result(judge: Judgement, plan: Plan) -> Refusal | None:
    for call in plan.touched_calls.values():
        left = next((result for result in call.results if result not in plan), None)
        if left is not None and (call.owner in plan or all(block in plan for block in call.blocks)):
            return _refuse(
                Code.ORPHANED_RESULT,
                judge.target(call.owner),
                f"the result {judge.entry(left).entry_id} would answer a call that is gone",
                "Delete the result as well.",
            )
    return None


def refuse_dangling_call(judge: Judgement, plan: Plan) -> Refusal | None:
    for call in plan.touched_calls.values():
        if call.owner in plan:
            continue
        left = next((block for block in call.blocks if block not in plan), None)
        gone = next((result for result in call.results if result in plan), None)
        if left is not None and gone is not None:
            return _refuse(
                Code.DANGLING_CALL,
                judge.target(gone),
                f"{judge.target(left)} makes the same call and would be left without an answer",
                "Delete every block of the call.",
            )
    return None


def refuse_nothing_left(judge: Judgement, plan: Plan) -> Refusal | None:
    if plan.entries_gone < len(judge.transcript):
        return None
    return Refusal(
        Code.NO_CONTEXT_LEFT, "Cannot delete every entry: something has to remain. Keep some of them."
    )


def refuse_no_task_left(judge: Judgement, plan: Plan) -> Refusal | None:
    if plan.tasks_gone < judge.transcript.tasks:
        return None
    return Refusal(
        Code.NO_TASK_LEFT,
        "Cannot delete these: no entry that bears the task would remain (user, custom, branch summary). "
        "Only a context that tells the model what to do can be compacted.",
    )


SKIPPING_GATES: Final[list[PlanGate]] = [
    refuse_recent_in_plan,
    refuse_guarded_thinking_in_plan,
    refuse_latest_thinking,
]
"""The plan gates whose refusal makes a bulk deletion pass over a match instead of failing."""

PLAN_GATES: Final[list[PlanGate]] = [
    *SKIPPING_GATES,
    refuse_overlap,
    refuse_every_block,
    refuse_orphaned_result,
    refuse_dangling_call,
    refuse_nothing_left,
    refuse_no_task_left,
]


def _refuse(code: Code, target: Target, why: str, instead: str) -> Refusal:
    return Refusal(code, f"Cannot delete {target}: {why}. {instead}", target)


# ---- the shape of a target ------------------------------------------------------------------------------

_KEYS: Final = {"entry": {"kind", "entryId"}, "content_block": {"kind", "entryId", "blockIndex"}}
UNUSABLE_INDEX: Final = -1


def read_target(raw: object) -> Target | Refusal:
    """One target of a request, if it has the shape of one. An index that is none becomes UNUSABLE_INDEX."""
    if not isinstance(raw, dict):
        return Refusal(
            Code.REQUEST_SHAPE, "A deletion is an object with kind and entryId. Nothing was deleted."
        )
    kind = raw.get("kind")
    if not isinstance(kind, str) or kind not in _KEYS:
        return Refusal(
            Code.UNSUPPORTED_KIND,
            'The kind of a deletion is "entry" or "content_block". Nothing was deleted.',
        )
    if not raw.keys() <= _KEYS[kind]:
        return Refusal(
            Code.NOT_ID_ONLY,
            f"A deletion of kind {kind} holds ids only: {', '.join(sorted(_KEYS[kind]))}. Nothing was deleted. "
            "Send no text and no other field.",
        )
    entry_id = raw.get("entryId")
    if not isinstance(entry_id, str) or not entry_id:
        return Refusal(Code.INVALID_ENTRY_ID, "The entryId of a deletion is a text that is not empty.")
    if kind == "entry":
        return Target(entry_id)
    index = raw.get("blockIndex")
    if isinstance(index, float) and index.is_integer():
        index = int(index)
    if isinstance(index, bool) or not isinstance(index, int):
        index = UNUSABLE_INDEX
    return Target(entry_id, index)


# ---- the airlock ------------------------------------------------------------------------------------------


class Airlock:
    """Judges deletions on one transcript under one set of restraints."""

    def __init__(self, transcript: Transcript, restraints: Restraints = NO_RESTRAINTS) -> None:
        self.transcript = transcript
        self.restraints = restraints
        pins = (self.find(target) for target in restraints.pins)
        self._judge = Judgement(transcript, restraints, frozenset(pin for pin in pins if pin is not None))

    def empty_plan(self, base: Plan | None = None) -> Plan:
        return Plan(self.transcript.entries, self.transcript.pairs, base)

    def find(self, target: Target) -> Object | None:
        """The object that a target names; None where the transcript does not have it."""
        entry = self.transcript.entry(target.entry_id)
        if entry is None:
            return None
        if target.block_index is None:
            return Object(entry.position)
        slot = entry.slot(target.block_index)
        return None if slot is None else Object(entry.position, slot)

    def judge_request(self, request: object) -> Plan | Refusal:
        """The request as a plan of its own, repaired and judged in full; or the first fault."""
        if not isinstance(request, dict) or not isinstance(request.get("deletions"), list):
            return Refusal(
                Code.REQUEST_SHAPE,
                'The request is not an object with a list "deletions". Nothing was deleted. '
                'Send {"deletions": [{"kind": "entry", "entryId": "…"}]}.',
            )
        plan = self.empty_plan()
        for raw in request["deletions"]:
            found = self._judge_target(raw, plan)
            if isinstance(found, Refusal):
                return found
            plan.add(found)
        return self._close(plan, PLAN_GATES) or plan

    def merge(self, chosen: Plan, incoming: Iterable[Object]) -> Plan | Refusal:
        """A new plan with what was chosen and what comes in, judged as a whole; `chosen` is left as it is.

        An entry takes its blocks out and keeps its place if it is there; a block of a chosen entry, or a
        repeat, is dropped.
        """
        merged = chosen.copy()
        for found in incoming:
            if found.slot == WHOLE:
                merged.add_entry(found.position)
            elif Object(found.position) not in merged:
                merged.add(found)
        return self._close(merged, PLAN_GATES) or merged

    def passes_over(self, chosen: Plan, candidate: Object) -> tuple[bool, int]:
        """Whether a bulk deletion leaves this match out, given what is chosen; and the objects visited for it.

        It does where the match, merged alone, would be refused for recency, protection, a protected pair or
        guarded thinking. Any other fault is left for the whole to be judged.
        """
        if not self._judge.may_go(candidate):
            return True, 1
        plan = self.empty_plan(chosen)
        plan.add(candidate)
        return self._close(plan, SKIPPING_GATES) is not None, plan.visited

    def is_kept(self, entry: TranscriptEntry) -> bool:
        """Whether an entry is protected by itself or pinned, recency aside."""
        return entry.protection is not None or Object(entry.position) in self._judge.pins

    def target(self, found: Object) -> Target:
        return self._judge.target(found)

    def targets(self, plan: Plan) -> tuple[Target, ...]:
        """The plan's targets, in the order in which they are recorded."""
        return tuple(map(self._judge.target, plan.chosen))

    def validate(self, request: object) -> ValidatedDeletion | Refusal:
        """The judgement on a request as a whole."""
        plan = self.judge_request(request)
        if isinstance(plan, Refusal):
            return plan
        return ValidatedDeletion(_SEAL, self.transcript, self.targets(plan), measure(self.transcript, plan))

    def _judge_target(self, raw: object, plan: Plan) -> Object | Refusal:
        target = read_target(raw)
        if isinstance(target, Refusal):
            return target
        entry = self.transcript.entry(target.entry_id)
        if entry is None:
            return _refuse(
                Code.UNKNOWN_ENTRY,
                target,
                "the transcript has no such entry",
                "Use an id that a tool has returned.",
            )
        if target.block_index is not None and target.block_index < 0:
            return _refuse(
                Code.INVALID_BLOCK_INDEX,
                target,
                "blockIndex is no whole number from 0 up",
                "Read the entry first.",
            )
        for gate in TARGET_GATES:
            refusal = gate(self._judge, entry, target)
            if refusal is not None:
                return refusal
        found = self.find(target)
        if found is None:
            raise AssertionError(f"{target} passed every gate and is not in the transcript")
        if found in plan:
            return _refuse(Code.DUPLICATE_TARGET, target, "the request names it twice", "Name it once.")
        return found

    def _close(self, plan: Plan, gates: list[PlanGate]) -> Refusal | None:
        refused = plan.repair(self._judge.may_go)
        if refused is not None:
            return self._refuse_pair(refused)
        return next(filter(None, (gate(self._judge, plan) for gate in gates)), None)

    def _refuse_pair(self, refused: Object) -> Refusal:
        entry = self._judge.entry(refused)
        target = self._judge.target(refused)
        instead = "Leave both sides, or choose another pair."
        if entry.recent:
            why = f"{target} belongs to the same tool call and is among the last entries, which are kept"
            return Refusal(
                Code.RECENT_CONTEXT, f"Cannot delete one side of a tool call: {why}. {instead}", target
            )
        reason = entry.protection.sentence if entry.protection is not None else "a human decided to keep it"
        why = f"{target} belongs to the same tool call and stays, because {reason}"
        return Refusal(
            Code.PROTECTED_PAIR, f"Cannot delete one side of a tool call: {why}. {instead}", target
        )


def validate(
    request: object, transcript: Transcript, restraints: Restraints = NO_RESTRAINTS
) -> ValidatedDeletion | Refusal:
    """Judge one request on a transcript. The only way to a deletion that can be written."""
    return Airlock(transcript, restraints).validate(request)
