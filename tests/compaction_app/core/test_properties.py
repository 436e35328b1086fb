"""Properties of any request: on every session that can be recorded, and every deletion that is accepted.

Sessions are generated as JSON lines and read as a file is read. Orphans and dangling calls are recognised here by
the ids of what is kept, not by the code that prevents them.
"""

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import pytest
from hypothesis import assume, strategies as st

from compaction_app.core.airlock import ValidatedDeletion, validate
from compaction_app.core.embedded import EmbeddedPlanner
from compaction_app.core.gates import NO_RESTRAINTS
from compaction_app.core.loop import drive
from compaction_app.core.store import DeletionStore
from compaction_app.core.tools import TOOLS, ToolCall, Workbench
from compaction_app.core.transcript import Transcript
from sessions_app.agents.registry import READERS
from sessions_app.sessionlog.context import ActiveContext, keep
from sessions_app.sessionlog.diagnosis import new_violations, violations
from sessions_app.sessionlog.entries import DeletionControl, Entry, EntryKind, Target, request_of
from tests.compaction_app.core.strategies import (
    BLOCKS,
    CALL_IDS,
    MESSAGES,
    AcceptedDeletion,
    Recorded,
    accepted_deletions,
    accepts,
    given_often,
    objects,
)
from tests.factories import (
    assistant,
    branch_and_texts,
    call,
    chain,
    compaction,
    deletions,
    prepare,
    result,
    session_bytes,
    text,
    thinking,
    transcript_of,
    user,
)
from tests.paths import corpus_sessions


@dataclass(frozen=True)
class Kept:
    """An entry that stays, with the blocks of it that stay: `(index, call id)`."""

    entry_id: str
    role: str
    blocks: list[tuple[int, str | None]]
    result_for: str | None


def kept_of(transcript: Transcript, gone: Iterable[Target] = ()) -> list[Kept]:
    out, kept = set(gone), []
    for entry in transcript.entries:
        if Target(entry.entry_id) not in out:
            blocks = [one for one in entry.blocks if Target(entry.entry_id, one.index) not in out]
            calls = [(one.index, one.call_id) for one in blocks]
            kept.append(Kept(entry.entry_id, entry.role, calls, entry.result_for))
    return kept


def makers(kept: list[Kept]) -> dict[str, str]:
    """Which entry makes a call, the last one if several do."""
    return {call_id: one.entry_id for one in kept for _, call_id in one.blocks if call_id is not None}


def answered(kept: list[Kept]) -> set[str]:
    return {one.result_for for one in kept if one.result_for is not None}


@given_often(accepted_deletions())
def test_no_result_loses_its_call_and_no_call_its_answers(given_):
    before, after = kept_of(given_.transcript), kept_of(given_.transcript, given_.gone)
    lost = makers(before).keys() - makers(after).keys()
    assert not lost & answered(after)
    unanswered = answered(before) - answered(after)
    made, left = (
        Counter((call_id, one.entry_id) for one in kept for _, call_id in one.blocks) for kept in (before, after)
    )
    # Of several makers the last one was answered; the earlier ones never were. The answer goes with the first block of
    # a call that goes; another block of the same call may stay.
    whole = {pair for pair in left if left[pair] == made[pair]}
    assert not {pair for pair in whole if pair in makers(before).items() and pair[0] in unanswered}


@given_often(accepted_deletions())
def test_a_task_is_left_no_entry_is_left_empty_and_none_is_named_twice(given_):
    before = {one.entry_id: one for one in kept_of(given_.transcript)}
    kept = kept_of(given_.transcript, given_.gone)
    assert {one.role for one in kept} & {"user", "custom", "branchSummary"}
    assert all(one.blocks or not before[one.entry_id].blocks for one in kept)
    targets = given_.deletion.targets
    assert len(set(targets)) == len(targets)
    assert not any(Target(one.entry_id) in targets for one in targets if one.block_index is not None)


@given_often(accepted_deletions())
def test_nothing_goes_that_is_recent_or_protected_or_that_a_human_keeps(given_):
    count = given_.transcript.parameters.preserve_recent
    ids = [entry.entry_id for entry in given_.transcript.entries]
    recent = set(ids[len(ids) - count :])
    messages = {one["id"]: one.get("message", one) for one in given_.recorded}
    for target in given_.gone:
        message = messages[target.entry_id]
        assert target.entry_id not in recent
        assert message.get("role") in ("assistant", "toolResult", "bashExecution")
        assert message.get("stopReason") != "error"
        assert not message.get("isError")
        assert not message.get("exitCode")
    for pin in given_.restraints.pins:
        assert pin not in given_.gone
        assert Target(pin.entry_id) not in given_.gone
        if pin.block_index is None:
            assert pin.entry_id not in {target.entry_id for target in given_.gone}


@given_often(accepted_deletions())
def test_guarded_thinking_stays(given_):
    if given_.restraints.thinking_guard == "all":
        said = [one for one in given_.recorded if one.get("message", {}).get("role") == "assistant"]
        bearing = {one["id"] for one in said if any(part["type"] == "thinking" for part in one["message"]["content"])}
        held = {entry.entry_id for entry in given_.transcript.entries if entry.bears_thinking}
        assert not held & bearing & {target.entry_id for target in given_.gone}
        return
    last = next((one for one in reversed(given_.transcript.entries) if one.role == "assistant"), None)
    if last is not None and any(found.type == "thinking" for found in last.blocks):
        kept = next(one for one in kept_of(given_.transcript, given_.gone) if one.entry_id == last.entry_id)
        thoughts = {found.index for found in last.blocks if found.type == "thinking"}
        assert thoughts <= {index for index, _ in kept.blocks}


@given_often(accepted_deletions())
def test_it_is_accepted_again_as_it_is_and_its_stats_add_up(given_):
    again = validate(request_of(given_.deletion.targets), given_.transcript, given_.restraints)
    assert (again.targets, again.stats) == (given_.deletion.targets, given_.deletion.stats)
    before, after = kept_of(given_.transcript), kept_of(given_.transcript, given_.gone)
    tokens = {Target(entry.entry_id): entry.tokens for entry in given_.transcript.entries}
    for entry in given_.transcript.entries:
        tokens |= {Target(entry.entry_id, found.index): found.tokens for found in entry.blocks}
    stats = given_.deletion.stats
    assert stats.objects_before == sum(1 + len(one.blocks) for one in before)
    assert stats.objects_after == sum(1 + len(one.blocks) for one in after)
    assert stats.objects_before - stats.objects_after == stats.objects_deleted
    assert stats.tokens_before == sum(entry.tokens for entry in given_.transcript.entries)
    assert stats.tokens_before - stats.tokens_after == sum(tokens[target] for target in given_.gone)


Rebuilt = dict[str, list[tuple[int, str]] | str]


def rebuilt(recorded: list[Recorded]) -> Rebuilt:
    """The active context as the agent rebuilds it: entry by entry, each block with its text."""
    branch, texts = branch_and_texts(session_bytes(recorded))
    return {
        one.entry.id: texts[one.entry.id].joined(None)
        if one.blocks is None
        else [(found.index, texts[one.entry.id].block(found.index)) for found in one.blocks]
        for one in READERS["atomic-0.8"].rebuild(branch).messages
    }


def compacted(recorded: list[Recorded], deletion: ValidatedDeletion) -> list[Recorded]:
    """The session with the deletion appended, as a commit appends it."""
    entry = compaction(*(target.to_json() for target in deletion.targets))
    return [*recorded, {**entry, "id": "new", "parentId": recorded[-1]["id"], "timestamp": "t"}]


def without(context: Rebuilt, gone: set[Target]) -> Rebuilt:
    left: Rebuilt = {}
    for entry_id, content in context.items():
        if Target(entry_id) in gone:
            continue
        if isinstance(content, str):
            left[entry_id] = content
            continue
        blocks = [found for found in content if Target(entry_id, found[0]) not in gone]
        if blocks or not content:
            left[entry_id] = blocks
    return left


def returned(given_: AcceptedDeletion) -> set[str]:
    """The entries that replay safety may bring back, whole or in part: the latest assistant that bears
    thinking and had blocks deleted, and the results of its calls. By the recorded session alone.
    """
    session = compacted(given_.recorded, given_.deletion)
    targets = [target for one in session for target in one.get("deletedTargets", ())]
    whole_ids = {target["entryId"] for target in targets if target["kind"] == "entry"}
    cut_ids = {target["entryId"] for target in targets if target["kind"] == "content_block"}
    messages = {one["id"]: one["message"] for one in session if "message" in one}
    assistants = [one for one in messages if messages[one]["role"] == "assistant" and one not in whole_ids]
    latest = assistants[-1] if assistants else ""
    if latest not in cut_ids or not any(part["type"] == "thinking" for part in messages[latest]["content"]):
        return set()
    calls = {part["id"] for part in messages[latest]["content"] if part["type"] == "toolCall"}
    return {latest} | {entry_id for entry_id, one in messages.items() if one.get("toolCallId") in calls}


@given_often(accepted_deletions())
def test_survivors_are_rebuilt_as_they_were_and_nothing_else_is(given_):
    before = rebuilt(given_.recorded)
    after = rebuilt(compacted(given_.recorded, given_.deletion))
    expected = without(before, given_.gone)
    exempt = returned(given_)
    others = after.keys() - exempt
    assert {key: after[key] for key in others} == {key: expected[key] for key in expected.keys() - exempt}
    for entry_id in expected.keys() & exempt:
        content = expected[entry_id]
        assert entry_id in after
        assert isinstance(content, str) or set(content) <= set(after[entry_id])
    assert [key for key in after if key in expected] == list(expected), "in the same order"


@given_often(accepted_deletions())
def test_the_line_that_is_appended_leaves_every_byte_before_it(given_):
    data, longer = session_bytes(given_.recorded), session_bytes(compacted(given_.recorded, given_.deletion))
    assert longer.startswith(data)
    branch, texts = branch_and_texts(longer, leaf=given_.recorded[-1]["id"])
    before = [(one.id, given_.texts[one.id]) for one in given_.branch]
    assert [(one.id, texts[one.id]) for one in branch] == before


SHIELDED = [user("go"), assistant(thinking("hm"), text("a note"), call("c1")), result("c1")]


@pytest.mark.parametrize(
    ("messages", "asked_for", "comes_back"),
    [
        # The airlock accepts the deletion of other blocks, as the agent's own does; the agent then ignores it.
        (SHIELDED, "e2[1]", {"e2"}),
        (SHIELDED, "e3", {"e2", "e3"}),
        # The last assistant goes, and one that has lost a block becomes the last.
        ([*SHIELDED, assistant(text("done"))], "e2[2] e4", {"e2", "e3"}),
        ([*SHIELDED, assistant(text("done"))], "e2[2]", set()),
    ],
)
def test_what_replay_safety_brings_back(messages, asked_for, comes_back):
    """A limit of the format, recorded here: what is written is not all that goes."""
    recorded = chain(*messages)
    deletion = validate(deletions(asked_for), transcript_of(*messages))
    expected = without(rebuilt(recorded), set(deletion.targets))
    after = rebuilt(compacted(recorded, deletion))
    assert {key for key in after if after[key] != expected.get(key)} == comes_back


CALLING_RESULTS = st.builds(
    lambda answers, blocks: {**result(answers), "content": blocks}, CALL_IDS, st.lists(BLOCKS, min_size=1, max_size=3)
)
"""Results that make calls, as only a damaged session has them."""
DAMAGED = st.lists(st.one_of(MESSAGES, MESSAGES, CALLING_RESULTS), min_size=3, max_size=14)


@given_often(DAMAGED, st.sampled_from([0.05, 0.3, 0.6]))
def test_the_embedded_planner_leaves_no_call_without_answer(messages, ratio):
    """Any blocks with one call id, in one entry or in several; repair itself does not handle all of them."""
    branch, texts = branch_and_texts(session_bytes(chain(user("fix it"), *messages)))
    transcript = prepare(branch, texts, {"preserve_recent": 0, "compression_ratio": ratio})
    assume(transcript is not None)
    workbench = Workbench(DeletionStore(transcript))
    for _ in drive(EmbeddedPlanner(transcript), workbench):
        pass
    before, after = kept_of(transcript), kept_of(transcript, workbench.store.targets)
    assert not {call_id for one in after for _, call_id in one.blocks} & (answered(before) - answered(after))


KEYS = st.sampled_from(["deletions", "kind", "entryId", "blockIndex", "pattern", "x"])
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.sampled_from(["", "e2", "entry", "kind"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=8,
)


@given_often(st.sampled_from([*TOOLS, "rm"]), ANYTHING)
def test_no_arguments_make_a_tool_raise(name, arguments):
    messages = user("go"), assistant(text("a"), text("b")), assistant(text("c"))
    workbench = Workbench(DeletionStore(transcript_of(*messages)))
    result_ = workbench.call(ToolCall(name, arguments))
    assert workbench.call_count == result_.details["callCount"] == 1
    assert (result_.refusal is not None) == ("error" in result_.details)
    assert workbench.store.validated().targets == workbench.store.targets


SESSIONS, PLANS = 6, 10
"""How many real sessions, and random plans for each."""


def test_an_accepted_plan_adds_no_violation(tmp_path):
    judged = 0
    for path in corpus_sessions(tmp_path)[::4][:SESSIONS]:
        branch, texts = branch_and_texts(path.read_bytes())
        for targets in random_plans(prepare(branch, texts, {})):
            judged += 1
            native = READERS["atomic-0.8"]
            after = native.rebuild([*branch, compaction_of(branch, targets)])
            assert new_violations(violations(native.rebuild(branch)), violations(after)) == ()
            for reader in (READERS["pi"], native):
                before = reader.rebuild(branch)
                assert new_violations(violations(before), violations(taken_out(before, targets))) == ()
    assert judged >= PLANS


def random_plans(transcript: Transcript) -> Iterator[Sequence[Target]]:
    """Plans of all sizes that the airlock accepts."""
    chance = random.Random(4)
    free = [target for target in objects(transcript) if accepts(transcript, NO_RESTRAINTS, target)]
    for _ in range(PLANS):
        chosen = chance.sample(free, max(1, int(len(free) ** chance.random())))
        wholes = {target.entry_id for target in chosen if target.block_index is None}
        targets = [target for target in chosen if target.block_index is None or target.entry_id not in wholes]
        judged = validate(request_of(targets), transcript)
        if isinstance(judged, ValidatedDeletion):
            yield judged.targets


def compaction_of(branch: Sequence[Entry], targets: Sequence[Target]) -> Entry:
    """The entry with which Atomic 0.8 records a deletion."""
    control = DeletionControl(tuple(targets), None, "")
    return Entry(10**9, 0, 0, "added", branch[-1].id, "context_compaction", EntryKind.DELETION, control=control)


def taken_out(context: ActiveContext, targets: Sequence[Target]) -> ActiveContext:
    """A context from which targets were taken out, as in a copy of the session."""
    wholes = {target.entry_id for target in targets if target.block_index is None}
    hidden: dict[str, set[int]] = {}
    for target in targets:
        if target.block_index is not None:
            hidden.setdefault(target.entry_id, set()).add(target.block_index)
    remaining = [
        keep(message.entry, frozenset(hidden[message.entry.id])) if message.entry.id in hidden else message
        for message in context.messages
        if message.entry.id not in wholes
    ]
    return replace(context, messages=tuple(message for message in remaining if message is not None))
