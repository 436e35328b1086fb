"""The reference airlock: judgement and the two mutating tools, as slowly and as simply as their rules can be written.

It is the oracle that the fast implementation is compared with, so it shares nothing with it: no caches, no
incremental judgement, the whole plan validated again for every candidate of a grep.

Shapes. *entries* is the compactable transcript as the conformance vectors print it (`prepare.entries`); a
grep reads a `text` in every entry and content block as well. A deletion target comes and goes as the agent writes
it, `{"kind": "entry", "entryId"}` or `{"kind": "content_block", "entryId", "blockIndex"}`; in here it is a tuple,
`("entry", id)` or `("content_block", id, index)`, a plan is an insertion-ordered set of such tuples (the keys of a
dict), and *pinned* a set of them. Tokens are the transcript's own estimates. No argument is changed.

The order of judgement; the first fault is the one that is reported:

    each target    request_shape, unsupported_kind, not_id_only, invalid_entry_id, unknown_entry,
                   [invalid_block_index], recent_context, [thinking], protected,
                   [unknown_block, only_block], duplicate_target
    pair repair    recent_context or protected_pair, the first met
    the plan       recent_context, thinking or latest_thinking, overlapping_target, every_block,
                   orphaned_result, dangling_call, no_context_left, no_task_left

For example: an assistant makes call c1 in its block 1, and a later entry r answers it. To delete r is to
delete [entry r, block 1 of the assistant]; if that is its only block, [entry r, entry assistant].
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

Target = tuple[Any, ...]
Plan = dict[Target, None]
Entry = Mapping[str, Any]

KEYS_OF_KIND = {"entry": {"kind", "entryId"}, "content_block": {"kind", "entryId", "blockIndex"}}
THINKING_TYPES = ("thinking", "redacted_thinking")
TASK_ROLES = ("user", "custom", "branchSummary")
SKIPPED_BY_A_GREP = ("recent_context", "protected", "protected_pair", "latest_thinking", "thinking")


@dataclass(frozen=True)
class Transcript:
    """What a plan is judged against."""

    entries: Sequence[Entry]
    by_id: Mapping[str, Entry]
    recent_ids: Set[str]
    pinned: Set[Target]
    thinking_guard: str


@dataclass(frozen=True)
class Call:
    """A tool call id: the entry that makes it, its blocks with that id, the entries that answer it."""

    entry: Target
    blocks: list[Target]
    results: list[Target]


def read(
    entries: Sequence[Entry], preserve_recent: int, pinned: Set[Target] = frozenset(), guard: str = "latest"
) -> Transcript:
    """The transcript with its recent window, which is its last *preserve_recent* entries."""
    recent_ids = {entry["entryId"] for entry in entries[max(0, len(entries) - preserve_recent) :]}
    by_id = {entry["entryId"]: entry for entry in entries}
    return Transcript(entries, by_id, recent_ids, pinned, guard)


def validate(request: Any, transcript: Transcript) -> dict[str, Any]:
    """The airlock: `{"accepted": {deletedTargets, stats}}`, or `{"rejected": code}`, with the `target` if
    one of the request's is at fault alone. An empty list of deletions is a plan like any other.
    """
    if not isinstance(request, dict) or not isinstance(request.get("deletions"), list):
        return {"rejected": "request_shape"}
    plan: Plan = {}
    for deletion in request["deletions"]:
        fault = fault_of_shape(deletion, transcript) or fault_of_target(as_tuple(deletion), plan, transcript)
        if fault:
            return {"rejected": fault, "target": deletion}
        plan[as_tuple(deletion)] = None
    fault = repair_pairs(plan, transcript) or fault_of_plan(plan, transcript)
    if fault:
        return {"rejected": fault}
    targets = [as_dict(target) for target in plan]
    return {"accepted": {"deletedTargets": targets, "stats": measure(targets, transcript)}}


def fault_of_shape(deletion: Any, transcript: Transcript) -> str | None:
    """A target is an object that names what is to be deleted by ids only."""
    if not isinstance(deletion, dict):
        return "request_shape"
    kind, entry_id = deletion.get("kind"), deletion.get("entryId")
    if not isinstance(kind, str) or kind not in KEYS_OF_KIND:
        return "unsupported_kind"
    if not set(deletion) <= KEYS_OF_KIND[kind]:
        return "not_id_only"
    if not isinstance(entry_id, str) or entry_id == "":
        return "invalid_entry_id"
    if entry_id not in transcript.by_id:
        return "unknown_entry"
    if kind == "content_block" and not is_index(deletion.get("blockIndex")):
        return "invalid_block_index"
    return None


def is_index(value: Any) -> bool:
    """An integer of at least 0. JSON knows one kind of number, so 1.0 is one; true is none."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and value >= 0 and value % 1 == 0


def fault_of_target(target: Target, earlier: Plan, transcript: Transcript) -> str | None:
    """What forbids a well-formed target alone, given the targets *earlier* in the request."""
    entry = transcript.by_id[target[1]]
    if target[1] in transcript.recent_ids:
        return "recent_context"
    if transcript.thinking_guard == "all" and bears_thinking(entry):
        return "thinking"
    if is_protected(target, transcript):
        return "protected"
    if target[0] == "content_block" and target not in blocks_of(entry):
        return "unknown_block"
    if target[0] == "content_block" and len(blocks_of(entry)) == 1:
        return "only_block"
    return "duplicate_target" if target in earlier else None


def is_protected(target: Target, transcript: Transcript) -> bool:
    """A protected or pinned entry stays with its blocks; a pinned block stays, and so does its entry."""
    if keeps_entry(target[1], transcript) or target in transcript.pinned:
        return True
    return target[0] == "entry" and any(pin[1] == target[1] for pin in transcript.pinned)


def keeps_entry(entry_id: str, transcript: Transcript) -> bool:
    """Whether the entry as such is protected or pinned (a recent one is protected, too)."""
    return transcript.by_id[entry_id]["protected"] or ("entry", entry_id) in transcript.pinned


def bears_thinking(entry: Entry) -> bool:
    """An assistant with a thinking block, redacted or not, among those still in the transcript."""
    types = [block["type"] for block in entry["contentBlocks"]]
    return entry["role"] == "assistant" and any(type_ in THINKING_TYPES for type_ in types)


def calls_of(entries: Sequence[Entry]) -> list[Call]:
    """Every call id, in the place of its first maker, owned by its last maker."""
    calls: dict[str, Call] = {}
    for maker in entries:
        for call_id in maker["toolCallIds"]:
            named = [block for block in maker["contentBlocks"] if block.get("toolCallId") == call_id]
            blocks = [("content_block", maker["entryId"], block["blockIndex"]) for block in named]
            calls[call_id] = Call(("entry", maker["entryId"]), blocks, [])
    for entry in entries:
        if entry.get("toolResultFor") in calls:
            calls[entry["toolResultFor"]].results.append(("entry", entry["entryId"]))
    return list(calls.values())


def repair_pairs(plan: Plan, transcript: Transcript) -> str | None:
    """Let calls and results go together, by adding to *plan* until a pass changes nothing.

    A pass: (1) each call: if its entry or one of its blocks is chosen, all its results go, as entries;
    else if one of its results is chosen as an entry, all its blocks go. (2) Each entry that makes calls,
    has all its blocks chosen and is not chosen itself, goes as an entry. Returns the code of the first addition
    that may not be made.
    """
    calls = calls_of(transcript.entries)
    while True:
        before = list(plan)
        for call in calls:
            needed: list[Target] = []
            if call.entry in plan or any(block in plan for block in call.blocks):
                needed = call.results
                if needs_its_answer(call, plan, transcript):
                    return "protected_pair"
            elif any(result in plan for result in call.results):
                needed = call.blocks
            for target in needed:
                if target[1] in transcript.recent_ids:
                    return "recent_context"
                if is_protected(target, transcript):
                    return "protected_pair"
                add(target, plan, transcript)
        for entry in transcript.entries:
            is_chosen = ("entry", entry["entryId"]) in plan
            if entry["toolCallIds"] and not is_chosen and all_blocks_chosen(entry, plan):
                add(("entry", entry["entryId"]), plan, transcript)
        if list(plan) == before:
            return None


def needs_its_answer(call: Call, plan: Plan, transcript: Transcript) -> bool:
    """Whether a pinned block of an answered call stays: then the answer stays with it."""
    staying = [block for block in call.blocks if call.entry not in plan and block not in plan]
    return call.results != [] and any(is_protected(block, transcript) for block in staying)


def add(target: Target, plan: Plan, transcript: Transcript) -> None:
    """Add a target to *plan*; the last missing block of an entry adds the entry instead.

    Adding an entry takes its blocks out, even if the entry is chosen already (it keeps its place): a
    result that was requested both as an entry and as a block is not an overlap once its call needs it.
    """
    entry = transcript.by_id[target[1]]
    plan[target] = None
    if target[0] == "entry" or all_blocks_chosen(entry, plan):
        for block in blocks_of(entry):
            plan.pop(block, None)
        plan[("entry", target[1])] = None


def all_blocks_chosen(entry: Entry, plan: Plan) -> bool:
    """Whether the entry has blocks, and each of them is chosen as a block."""
    blocks = blocks_of(entry)
    return blocks != [] and all(block in plan for block in blocks)


def fault_of_plan(plan: Plan, transcript: Transcript) -> str | None:
    """The first fault of a repaired plan as a whole."""
    entries = transcript.entries
    if any(target[1] in transcript.recent_ids for target in plan):
        return "recent_context"
    if thinking_fault := fault_of_thinking(plan, transcript):
        return thinking_fault
    if any(target[0] == "content_block" and ("entry", target[1]) in plan for target in plan):
        return "overlapping_target"
    if any(all_blocks_chosen(entry, plan) for entry in entries):
        return "every_block"
    if pair_fault := fault_of_pairs(plan, entries):
        return pair_fault
    remaining = [entry for entry in entries if ("entry", entry["entryId"]) not in plan]
    if not remaining:
        return "no_context_left"
    return None if any(entry["role"] in TASK_ROLES for entry in remaining) else "no_task_left"


def fault_of_thinking(plan: Plan, transcript: Transcript) -> str | None:
    """`latest`: if the last assistant bears thinking, it stays, and so do its thinking blocks (its other
    blocks may go). `all`: no assistant that bears thinking is touched.
    """
    if transcript.thinking_guard == "all":
        touched = any(bears_thinking(transcript.by_id[target[1]]) for target in plan)
        return "thinking" if touched else None
    assistants = [entry for entry in transcript.entries if entry["role"] == "assistant"]
    if not assistants or not bears_thinking(assistants[-1]):
        return None
    latest_id = assistants[-1]["entryId"]
    thinking = [block for block in assistants[-1]["contentBlocks"] if block["type"] in THINKING_TYPES]
    kept = [("content_block", latest_id, block["blockIndex"]) for block in thinking]
    return "latest_thinking" if any(target in plan for target in [("entry", latest_id), *kept]) else None


def fault_of_pairs(plan: Plan, entries: Sequence[Entry]) -> str | None:
    """No result stays whose call this plan takes, and no call of whose results it takes any.

    A call goes with the first of its blocks; another block with its id may stay. A call that had no result
    before is not dangling, nor is the earlier maker of a repeated id. Orphans are looked for before dangling
    calls.
    """
    codes = set()
    for call in calls_of(entries):
        call_goes = call.entry in plan or any(block in plan for block in call.blocks)
        if call_goes and any(result not in plan for result in call.results):
            return "orphaned_result"
        if not call_goes and any(result in plan for result in call.results):
            codes.add("dangling_call")
    return next(iter(codes), None)


def measure(targets: Iterable[Mapping[str, Any]], transcript: Transcript) -> dict[str, Any]:
    """The stats of a plan: objects (entries plus their blocks), tokens, percent to one decimal, halves up."""
    objects_before = sum(1 + len(entry["contentBlocks"]) for entry in transcript.entries)
    tokens_before = sum(entry["tokenEstimate"] for entry in transcript.entries)
    objects_deleted = tokens_deleted = 0
    for target in targets:
        entry = transcript.by_id[target["entryId"]]
        blocks = {block["blockIndex"]: block for block in entry["contentBlocks"]}
        if target["kind"] == "entry":
            objects_deleted += 1 + len(blocks)
            tokens_deleted += entry["tokenEstimate"]
        else:
            objects_deleted += 1
            tokens_deleted += blocks[target["blockIndex"]]["tokenEstimate"]
    share = tokens_deleted / tokens_before if tokens_before else 0.0
    return {
        "objectsBefore": objects_before,
        "objectsAfter": objects_before - objects_deleted,
        "objectsDeleted": objects_deleted,
        "tokensBefore": tokens_before,
        "tokensAfter": tokens_before - tokens_deleted,
        "percentReduction": math.floor(share * 1000 + 0.5) / 10,
    }


def merge(
    current_targets: Iterable[Mapping[str, Any]], incoming_targets: Iterable[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """The current targets, then the incoming ones. An entry takes its blocks out, and keeps its place if it
    is there; a block of a chosen entry, or a repeat, is dropped.
    """
    plan: Plan = {as_tuple(target): None for target in current_targets}
    for target in map(as_tuple, incoming_targets):
        if target[0] == "entry":
            plan = {chosen: None for chosen in plan if chosen[0] == "entry" or chosen[1] != target[1]}
        if ("entry", target[1]) not in plan:
            plan[target] = None
    return [as_dict(target) for target in plan]


def delete(current_targets: Sequence[Mapping[str, Any]], request: Any, transcript: Transcript) -> dict[str, Any]:
    """`context_delete`: `{deletedTargets, stats}` after the call, and `error`, a code, if it was refused.

    The request must be valid alone and in full; what it was repaired to is merged with the current targets,
    and the whole must be valid too. A refusal leaves the current targets as they are.
    """
    answer = validate(request, transcript)
    if "accepted" in answer:
        merged = {"deletions": merge(current_targets, answer["accepted"]["deletedTargets"])}
        answer = validate(merged, transcript)
    if "accepted" in answer:
        return dict(answer["accepted"])
    return {**unchanged(current_targets, transcript), "error": answer["rejected"]}


def grep_delete(
    current_targets: Sequence[Mapping[str, Any]],
    matches: Callable[[str], bool],
    arguments: Mapping[str, Any],
    transcript: Transcript,
) -> dict[str, Any]:
    """`context_grep_delete` with its *arguments*, once its pattern is a predicate on text: `{matches, skipped,
    deletedTargets, stats}` after the call, and `error`, a code, if all the matches together were refused.

    What is already deleted, and what is recent or in a protected or pinned entry, is skipped first; then what
    may not go when merged alone with the current targets. A count other than the expected one deletes nothing.
    """

    def judge(found: Iterable[Target]) -> dict[str, Any]:
        return validate({"deletions": merge(current_targets, map(as_dict, found))}, transcript)

    chosen = [as_tuple(current) for current in current_targets]
    candidates: list[Target] = []
    skipped: list[dict[str, Any]] = []
    for found in find(matches, arguments.get("target", "entry"), transcript):
        if found in chosen or ("entry", found[1]) in chosen:
            skipped.append({**as_match(found), "reason": "already_deleted"})
        elif found[1] in transcript.recent_ids or keeps_entry(found[1], transcript):
            skipped.append({**as_match(found), "reason": "protected_entry"})
        else:
            candidates.append(found)
    survivors = []
    for candidate in candidates:
        if judge([candidate]).get("rejected") in SKIPPED_BY_A_GREP:
            reason = "protected_entry" if candidate[0] == "entry" else "protected_block"
            skipped.append({**as_match(candidate), "reason": reason})
        else:
            survivors.append(candidate)

    after = unchanged(current_targets, transcript)
    if arguments.get("expectedMatchCount") not in (None, len(survivors)):
        skipped.append({"reason": "expected_match_count_mismatch"})
    elif len(survivors) > arguments.get("maxMatches", 50):
        skipped.append({"reason": "max_matches_exceeded"})
    elif survivors:
        answer = judge(survivors)
        after = answer["accepted"] if "accepted" in answer else {**after, "error": answer["rejected"]}
    return {"matches": [as_match(survivor) for survivor in survivors], "skipped": skipped, **after}


def find(matches: Callable[[str], bool], target: str, transcript: Transcript) -> list[Target]:
    """What a grep finds, in transcript order: entries, or content blocks.

    The only block of an entry is found as the entry, unless that entry is protected without being
    recent. (One that is recent *and* a user's is found as the entry.)
    """
    if target == "entry":
        return [("entry", entry["entryId"]) for entry in transcript.entries if matches(entry["text"])]
    found: list[Target] = []
    for entry in transcript.entries:
        entry_id = entry["entryId"]
        stays_a_block = keeps_entry(entry_id, transcript) and entry_id not in transcript.recent_ids
        as_entry = len(entry["contentBlocks"]) == 1 and not stays_a_block
        for block in entry["contentBlocks"]:
            if matches(block["text"]):
                block_target = ("content_block", entry_id, block["blockIndex"])
                found.append(("entry", entry_id) if as_entry else block_target)
    return found


def unchanged(current_targets: Sequence[Mapping[str, Any]], transcript: Transcript) -> dict[str, Any]:
    """The result of a call that changed nothing: the current targets and their stats."""
    return {"deletedTargets": list(current_targets), "stats": measure(current_targets, transcript)}


def blocks_of(entry: Entry) -> list[Target]:
    """The content blocks that an entry still has, as targets."""
    return [("content_block", entry["entryId"], block["blockIndex"]) for block in entry["contentBlocks"]]


def as_tuple(target: Mapping[str, Any]) -> Target:
    """A well-formed target as it is compared in here."""
    whole = target["kind"] == "entry"
    ids = [target["entryId"]] if whole else [target["entryId"], int(target["blockIndex"])]
    return (target["kind"], *ids)


def as_dict(target: Target) -> dict[str, Any]:
    """A target as the agent writes it."""
    return dict(zip(("kind", "entryId", "blockIndex"), target, strict=False))


def as_match(target: Target) -> dict[str, Any]:
    """A target as a grep reports it."""
    return dict(zip(("target", "entryId", "blockIndex"), target, strict=False))
