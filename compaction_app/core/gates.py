"""The gates of the airlock: the table that lists them, and the rules themselves.

A gate judges one target, or the plan after repair, and returns a refusal or None. It changes nothing. A refusal is a
value, never an exception: a refused step changes nothing. `read_target` is the first gate: a target in a request is an
object with ids, and nothing else.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Final, NamedTuple

import msgspec

from sessions_app.sessionlog.entries import Protection, Role, Target
from sessions_app.sessionlog.text import plural

from .transcript import WHOLE, Object, TargetPlan, Transcript, TranscriptEntry


class Code(StrEnum):
    """Refusal codes, in the order of evaluation. Programs compare them; people read the message."""

    REQUEST_SHAPE = "request_shape"
    UNSUPPORTED_KIND = "unsupported_kind"
    NOT_ID_ONLY = "not_id_only"
    INVALID_ENTRY_ID = "invalid_entry_id"
    UNKNOWN_ENTRY = "unknown_entry"
    INVALID_BLOCK_INDEX = "invalid_block_index"
    RECENT_CONTEXT = "recent_context"
    THINKING = "thinking"
    NOT_EDITABLE = "not_editable"
    PROTECTED = "protected"
    UNKNOWN_BLOCK = "unknown_block"
    ONLY_BLOCK = "only_block"
    DUPLICATE_TARGET = "duplicate_target"
    PROTECTED_PAIR = "protected_pair"
    LATEST_THINKING = "latest_thinking"
    OVERLAPPING_TARGET = "overlapping_target"
    EVERY_BLOCK = "every_block"
    ORPHANED_RESULT = "orphaned_result"
    DANGLING_CALL = "dangling_call"
    NO_CONTEXT_LEFT = "no_context_left"
    NO_TASK_LEFT = "no_task_left"
    PATTERN_TOO_LONG = "pattern_too_long"
    INVALID_PATTERN = "invalid_pattern"
    INVALID_ARGUMENTS = "invalid_arguments"
    UNKNOWN_TOOL = "unknown_tool"


class Refusal(msgspec.Struct, frozen=True):
    """The refused object, the rule, and what to do instead."""

    code: Code
    message: str
    target: Target | None = None


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
    Gate("recent", "refuses", "the last preserve_recent entries are kept", (Code.RECENT_CONTEXT,)),
    Gate(
        "thinking",
        "refuses",
        "with thinking_guard all, no assistant that bears thinking is touched",
        (Code.THINKING,),
    ),
    Gate("writer", "refuses", "what the writer cannot delete is kept", (Code.NOT_EDITABLE,)),
    Gate(
        "protected",
        "refuses",
        "protected entries are kept, and so are their blocks and whatever a human or a hook pinned",
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
        "a call and its results are deleted together; a calling entry is deleted when all its blocks are; what an "
        "agent's rules join is deleted together; what is pinned keeps its answer",
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
        "something is kept, and something that bears the task: user, custom, a summary; also when nothing is deleted",
        (Code.NO_CONTEXT_LEFT, Code.NO_TASK_LEFT),
    ),
    Gate("stats", "measures", "objects and tokens before, after and deleted, and the reduction in percent", ()),
)

PINNED: Final = "a human or a hook decided to keep it"


class Restraints(msgspec.Struct, frozen=True):
    """The restraints of a run in addition to the transcript's own protections."""

    pins: frozenset[Target] = frozenset()
    """Objects pinned by a human or a hook: repair may not delete them either."""
    thinking_guard: str = "latest"
    """`latest`: the last assistant keeps its thinking. `all`: every assistant with thinking stays whole."""


NO_RESTRAINTS: Final = Restraints()


@dataclass(frozen=True)
class Judgement:
    """The facts on which a rule decides: the transcript, and the run's restraints."""

    transcript: Transcript
    restraints: Restraints = NO_RESTRAINTS

    @cached_property
    def pins(self) -> frozenset[Object]:
        found = map(self.transcript.find, self.restraints.pins)
        return frozenset(pin for pin in found if pin is not None)

    def entry(self, found: Object) -> TranscriptEntry:
        return self.transcript.entries[found.position]

    def target(self, found: Object) -> Target:
        """The object as a target, by its ids."""
        return self.transcript.target(found)

    def is_pinned(self, found: Object) -> bool:
        """Whether the object is pinned: an entry together with all its blocks, a block with its entry."""
        if found.position not in self._pinned_positions:
            return False
        return found.slot == WHOLE or found in self.pins or Object(found.position) in self.pins

    def has_pins(self, entry: TranscriptEntry) -> bool:
        """Whether an entry or one of its blocks is pinned."""
        return entry.position in self._pinned_positions

    @cached_property
    def _pinned_positions(self) -> frozenset[int]:
        return frozenset(pin.position for pin in self.pins)

    def may_go(self, found: Object) -> bool:
        """Whether repair may delete the object: it is neither recent nor protected nor pinned."""
        return not self.entry(found).is_protected and not self.is_pinned(found)


# ---- gates on a single target ---------------------------------------------------------------------------

TargetGate = Callable[[Judgement, TranscriptEntry, Target], Refusal | None]


def refuse_recent(judge: Judgement, entry: TranscriptEntry, target: Target) -> Refusal | None:
    if not entry.recent:
        return None
    count = judge.transcript.parameters.preserve_recent
    return refuse(
        Code.RECENT_CONTEXT,
        target,
        f"it is among the last {plural(count, 'entry')}, which {'is' if count == 1 else 'are'} kept",
        "Choose an older one.",
    )


def refuse_guarded_thinking(judge: Judgement, entry: TranscriptEntry, target: Target) -> Refusal | None:
    if judge.restraints.thinking_guard != "all" or entry.role != Role.ASSISTANT or not entry.bears_thinking:
        return None
    return refuse(
        Code.THINKING,
        target,
        "its assistant's thinking is guarded (thinking_guard is all)",
        "Choose an entry without thinking.",
    )


def refuse_not_editable(judge: Judgement, entry: TranscriptEntry, target: Target) -> Refusal | None:
    del judge
    if entry.protection is not Protection.NOT_EDITABLE:
        return None
    return refuse(Code.NOT_EDITABLE, target, entry.protection.sentence, "Choose another one.")


def refuse_protected(judge: Judgement, entry: TranscriptEntry, target: Target) -> Refusal | None:
    if entry.protection is not None:
        return refuse(Code.PROTECTED, target, entry.protection.sentence, "Choose an entry that is not protected.")
    if not judge.has_pins(entry):
        return None
    slot = WHOLE if target.block_index is None else entry.slot(target.block_index)
    # A missing block is pinned with its entry, not with its neighbours.
    whole = Object(entry.position)
    if whole in judge.pins if slot is None else judge.is_pinned(Object(entry.position, slot)):
        return refuse(Code.PROTECTED, target, PINNED, "Choose another one.")
    return None


def refuse_unfit_block(judge: Judgement, entry: TranscriptEntry, target: Target) -> Refusal | None:
    del judge
    if target.block_index is None:
        return None
    if entry.slot(target.block_index) is None:
        return refuse(Code.UNKNOWN_BLOCK, target, "the entry has no such block", "Read the entry to see its blocks.")
    if len(entry.blocks) == 1:
        return refuse(
            Code.ONLY_BLOCK,
            target,
            "it is the only block of its entry",
            "Delete the entry instead of the block.",
        )
    return None


TARGET_GATES: Final[list[TargetGate]] = [
    refuse_recent,
    refuse_guarded_thinking,
    refuse_not_editable,
    refuse_protected,
    refuse_unfit_block,
]


# ---- gates on the plan after repair ---------------------------------------------------------------------

PlanGate = Callable[[Judgement, TargetPlan], Refusal | None]


def refuse_recent_in_plan(judge: Judgement, plan: TargetPlan) -> Refusal | None:
    entries = judge.transcript.entries
    recent = [position for position in plan.touched_entries if entries[position].recent]
    return _first_refusal(refuse_recent, judge, recent)


def refuse_guarded_thinking_in_plan(judge: Judgement, plan: TargetPlan) -> Refusal | None:
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


def refuse_latest_thinking(judge: Judgement, plan: TargetPlan) -> Refusal | None:
    for found in judge.transcript.latest_thinking:
        if found in plan:
            return refuse(
                Code.LATEST_THINKING,
                judge.target(found),
                "providers require the thinking of the latest assistant message unchanged",
                "Earlier assistants may lose theirs.",
            )
    return None


def refuse_remaining_thinking(judge: Judgement, plan: TargetPlan) -> Refusal | None:
    """A deletion may make an earlier assistant message the latest one sent; its reply must then keep its thinking."""
    remaining = (entry for entry in judge.transcript.replayed if Object(entry.position) not in plan)
    latest = next(remaining, None)
    if latest is None:
        return None
    for entry in judge.transcript.thoughts_with(latest):
        whole = Object(entry.position)
        if whole in plan:
            return refuse(
                Code.LATEST_THINKING,
                judge.target(whole),
                f"{judge.target(Object(latest.position))} of the same reply would be the latest assistant message, and "
                "providers require its thinking unchanged",
                "Delete the whole reply, or keep a later one.",
            )
        if not plan.blocks_chosen(entry.position):
            continue
        for slot, block in enumerate(entry.blocks):
            if block.is_thinking and Object(entry.position, slot) in plan:
                return refuse(
                    Code.LATEST_THINKING,
                    judge.target(Object(entry.position, slot)),
                    "its message would be the latest assistant message, and providers require its thinking unchanged",
                    "Delete the whole entry, or keep a later assistant message.",
                )
    return None


def refuse_overlap(judge: Judgement, plan: TargetPlan) -> Refusal | None:
    for position in sorted(filter(plan.blocks_chosen, plan.touched_entries)):
        found = Object(position)
        if found in plan:
            return refuse(
                Code.OVERLAPPING_TARGET,
                judge.target(found),
                "the request names a block of it as well",
                "Name the entry alone.",
            )
    return None


def refuse_every_block(judge: Judgement, plan: TargetPlan) -> Refusal | None:
    for position in sorted(filter(plan.is_complete, plan.touched_entries)):
        found = Object(position)
        if found not in plan:
            return refuse(
                Code.EVERY_BLOCK,
                judge.target(found),
                "every one of its blocks would go",
                "Delete the entry instead, or keep a block.",
            )
    return None


def refuse_orphaned_result(judge: Judgement, plan: TargetPlan) -> Refusal | None:
    for call in plan.touched_calls.values():
        left = next((result for result in call.results if result not in plan), None)
        if left is not None and (call.owner in plan or any(block in plan for block in call.blocks)):
            return refuse(
                Code.ORPHANED_RESULT,
                judge.target(call.owner),
                f"the result {judge.entry(left).entry_id} would answer a call that is deleted",
                "Delete the result as well.",
            )
    return None


def refuse_dangling_call(judge: Judgement, plan: TargetPlan) -> Refusal | None:
    """A call is deleted with the first of its blocks. Another block with the same id may remain, as in the agent:
    `unanswered` names such blocks so that you can be warned."""
    for call in plan.touched_calls.values():
        if call.owner in plan or any(block in plan for block in call.blocks):
            continue
        gone = next((result for result in call.results if result in plan), None)
        if gone is not None:
            return refuse(
                Code.DANGLING_CALL,
                judge.target(gone),
                f"{judge.target(call.blocks[0])} makes the call and would be left without an answer",
                "Delete the call as well.",
            )
    return None


def refuse_nothing_left(judge: Judgement, plan: TargetPlan) -> Refusal | None:
    if plan.entries_gone < len(judge.transcript):
        return None
    return Refusal(Code.NO_CONTEXT_LEFT, "Cannot delete every entry: something has to be kept. Keep some of them.")


def refuse_no_task_left(judge: Judgement, plan: TargetPlan) -> Refusal | None:
    if plan.tasks_gone < judge.transcript.tasks:
        return None
    return Refusal(
        Code.NO_TASK_LEFT,
        "No entry that bears the task would be kept (user, custom, a summary). Nothing was deleted. "
        "Only a context that says what the model is to do can be compacted.",
    )


SKIPPING_GATES: Final[list[PlanGate]] = [
    refuse_recent_in_plan,
    refuse_guarded_thinking_in_plan,
    refuse_latest_thinking,
    refuse_remaining_thinking,
]
"""The plan gates whose refusal makes a bulk deletion skip a match instead of failing."""

PLAN_GATES: Final[list[PlanGate]] = [
    *SKIPPING_GATES,
    refuse_overlap,
    refuse_every_block,
    refuse_orphaned_result,
    refuse_dangling_call,
    refuse_nothing_left,
    refuse_no_task_left,
]


def refuse(code: Code, target: Target, why: str, instead: str) -> Refusal:
    return Refusal(code, f"Cannot delete {target}: {why}. {instead}", target)


_KEYS: Final = {"entry": {"kind", "entryId"}, "content_block": {"kind", "entryId", "blockIndex"}}
UNUSABLE_INDEX: Final = -1


def read_target(raw: object, number: int) -> Target | Refusal:
    """One target of a request, whose `number` counts from 1; a malformed index becomes UNUSABLE_INDEX."""
    place = f"Deletion {number} of the request"
    if not isinstance(raw, dict):
        return Refusal(
            Code.REQUEST_SHAPE,
            f"{place} is not an object. Nothing was deleted. Send an object with kind and entryId.",
        )
    kind = raw.get("kind")
    if not isinstance(kind, str) or kind not in _KEYS:
        return Refusal(
            Code.UNSUPPORTED_KIND,
            f'{place} has an unknown kind. Nothing was deleted. Use "entry" or "content_block".',
        )
    if not raw.keys() <= _KEYS[kind]:
        return Refusal(
            Code.NOT_ID_ONLY,
            f"{place} contains more than ids. Nothing was deleted. "
            f"With kind {kind}, send {', '.join(sorted(_KEYS[kind]))}: no text and no other field.",
        )
    entry_id = raw.get("entryId")
    if not isinstance(entry_id, str) or not entry_id:
        return Refusal(
            Code.INVALID_ENTRY_ID,
            f"{place} has an entryId that is empty or not a string. Nothing was deleted. "
            "Use an id that a tool has returned.",
        )
    if kind == "entry":
        return Target(entry_id)
    index = raw.get("blockIndex")
    if isinstance(index, float) and index.is_integer():
        index = int(index)
    if isinstance(index, bool) or not isinstance(index, int):
        index = UNUSABLE_INDEX
    return Target(entry_id, index)
