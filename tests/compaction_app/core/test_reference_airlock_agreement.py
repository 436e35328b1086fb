"""The airlock gives what the reference airlock gives, on many requests over sessions made to be difficult.

The sessions contain what is rare in real ones: call ids that several entries make, results that make calls
themselves, protected and recent partners, results and calls without an answer, and earlier compactions.
"""

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

from compaction_app.core.airlock import validate
from compaction_app.core.errors import Code, Refusal
from compaction_app.core.gates import GATES, Restraints
from compaction_app.core.store import DeletionStore
from compaction_app.core.tools import ToolCall, Workbench
from compaction_app.core.transcript import Transcript
from sessions_app.sessionlog.targets import Target
from tests.budget import FACTOR
from tests.compaction_app.core.strategies import Recorded, objects
from tests.factories import (
    assistant,
    bash,
    block,
    branch_and_texts,
    branch_summary,
    call,
    chain,
    compaction,
    custom,
    image,
    prepare,
    result,
    session_bytes,
    text,
    thinking,
    user,
    whole,
)

from . import reference_airlock

SESSIONS = 250 * FACTOR
REQUESTS, SEQUENCES, STEPS = 7, 2, 4
WORDS = "alpha beta gamma delta epsilon zeta eta theta".split()
JUNK: list[Any] = [
    "e1",
    {},
    {"kind": "file", "entryId": "e1"},
    {"kind": "entry", "entryId": "e1", "text": "x"},
    {"kind": "entry", "entryId": 3},
    {"kind": "entry", "entryId": "e99"},
    {"kind": "content_block", "entryId": "e1", "blockIndex": -1},
    {"kind": "content_block", "entryId": "e2", "blockIndex": 1.5},
    {"kind": "content_block", "entryId": "e2", "blockIndex": 9},
]


# ---- sessions --------------------------------------------------------------------------------------------


def words(rng: random.Random) -> str:
    return " ".join(rng.choices(WORDS, k=rng.choice([0, 1, 3, 9, 40])))


def by_assistant(rng: random.Random, calls: list[str]) -> Recorded:
    blocks = []
    for _ in range(rng.choice([0, 1, 1, 2, 2, 3, 4])):
        kind = rng.choices(["call", "text", "thinking", "redacted"], [6, 3, 1, 0.5])[0]
        said = words(rng)
        blocks.append(
            {
                "call": call(rng.choice(calls), words=said),
                "text": text(said),
                "thinking": thinking(said),
                "redacted": {"type": "redacted_thinking", "data": said},
            }[kind]
        )
    return assistant(*blocks, stopReason="error" if rng.random() < 0.06 else "stop")


def by_tool(rng: random.Random, calls: list[str]) -> Recorded:
    answer = result(rng.choice([*calls, *calls, "nowhere"]), error=rng.random() < 0.08)
    content: Any = [text(words(rng)) for _ in range(rng.choice([1, 1, 1, 2]))]
    if rng.random() < 0.15:
        content.append(image())
    if rng.random() < 0.2:
        # A result that makes a call as well: a pair in both directions.
        content.append(call(rng.choice(calls), words=words(rng)))
    if rng.random() < 0.1:
        content = words(rng)
    return {**answer, "content": content}


def other(rng: random.Random) -> Recorded:
    said = words(rng)
    return rng.choice(
        [
            *(user(said), custom(said), branch_summary(said)),
            {"role": "user", "content": [text(said), image()]},
            bash("make", said, rng.choice([0, 0, 1])),
            bash("make", said, excludeFromContext=True),
            {"type": "model_change", "provider": "p", "modelId": "m"},
        ]
    )


def session(rng: random.Random) -> list[Recorded]:
    calls = [f"c{number}" for number in range(1, rng.randint(2, 7))]
    has_task = rng.random() < 0.75
    recorded: list[Recorded] = [user(words(rng))] if has_task else []
    for place in range(rng.randint(3, 18)):
        kind = rng.choices(["assistant", "tool", "other", "compaction"], [9, 9, 3 * has_task, 0.6])[0]
        if kind == "assistant":
            recorded.append(by_assistant(rng, calls))
        elif kind == "tool":
            recorded.append(by_tool(rng, calls))
        elif kind == "other":
            recorded.append(other(rng))
        else:
            ids = [f"e{rng.randint(1, place + 1)}" for _ in range(rng.randint(1, 3))]
            targets = [whole(one) if rng.random() < 0.4 else block(one, rng.randint(0, 2)) for one in ids]
            recorded.append(compaction(*targets))
    return recorded


def prepared(rng: random.Random) -> Transcript:
    while True:
        branch, texts = branch_and_texts(session_bytes(chain(*session(rng))))
        settings = {"preserve_recent": rng.choice([0, 0, 0, 1, 2, 4]), "compression_ratio": 0.01}
        transcript = prepare(branch, texts, settings)
        if transcript is not None:
            return transcript


def entries_of(transcript: Transcript) -> list[Recorded]:
    """The transcript in the shape that the reference airlock takes."""
    return [
        {
            "entryId": entry.entry_id,
            "role": entry.role,
            "tokenEstimate": entry.tokens,
            "protected": entry.is_protected,
            "toolCallIds": list(entry.call_ids),
            "toolResultFor": entry.result_for,
            "text": transcript.text(entry),
            "contentBlocks": [
                {
                    "blockIndex": found.index,
                    "type": found.type,
                    "tokenEstimate": found.tokens,
                    "text": transcript.block_text(entry, found),
                    **({} if found.call_id is None else {"toolCallId": found.call_id}),
                }
                for found in entry.blocks
            ],
        }
        for entry in transcript.entries
    ]


# ---- requests --------------------------------------------------------------------------------------------


class Situation:
    """One generated transcript with what restrains its deletions, for both ways."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        self.transcript = prepared(rng)
        self.entries = entries_of(self.transcript)
        self.objects = objects(self.transcript)
        pins = rng.sample(self.objects, k=min(rng.choice([0, 0, 0, 0, 1, 2]), len(self.entries)))
        guard = rng.choice(["latest", "latest", "all"])
        self.restraints = Restraints(frozenset(pins), guard)
        self.rules: Recorded = {
            "entries": self.entries,
            "preserve_recent": self.transcript.parameters.preserve_recent,
            "pinned": {reference_airlock.as_tuple(pin.to_json()) for pin in pins},
            "thinking_guard": guard,
        }

    def request(self) -> Any:
        rng = self.rng
        if rng.random() < 0.01:
            return rng.choice([None, [], {}, {"deletions": {}}])
        free = [target for target in self.objects if self.is_free(target) or rng.random() < 0.02]
        if rng.random() < 0.1:
            return {"deletions": [target.to_json() for target in free if target.block_index is None]}
        chosen: list[Any] = [rng.choice(free).to_json() for _ in range(rng.choice([0, 1, 1, 1, 1, 2, 2, 3, 4])) if free]
        if rng.random() < 0.06:
            chosen.insert(rng.randint(0, len(chosen)), rng.choice(JUNK))
        return {"deletions": chosen}

    def grep(self) -> Recorded:
        rng = self.rng
        arguments: Recorded = {"pattern": rng.choice([*WORDS, "call", "image"])}
        if rng.random() < 0.8:
            arguments["target"] = rng.choice(["entry", "content_block", "content_block"])
        if rng.random() < 0.2:
            arguments["maxMatches"] = rng.randint(1, 4)
        if rng.random() < 0.2:
            arguments["expectedMatchCount"] = rng.randint(0, 3)
        return arguments

    def is_free(self, target: Target) -> bool:
        """Whether a target alone has no fault."""
        entry = self.transcript.entry(target.entry_id)
        assert entry is not None
        return not entry.is_protected and (target.block_index is None or len(entry.blocks) > 1)


def situations(first_seed: int) -> Iterator[Situation]:
    return map(Situation, range(first_seed, first_seed + SESSIONS))


def test_every_request_is_judged_alike():
    seen: Counter[str] = Counter()
    for situation in situations(0):
        for _ in range(REQUESTS):
            request = situation.request()
            ours = validate(request, situation.transcript, situation.restraints)
            theirs = reference_airlock.validate(request, **situation.rules)
            if isinstance(ours, Refusal):
                assert ours.code == theirs.get("rejected"), request
                seen[ours.code] += 1
                continue
            assert [target.to_json() for target in ours.targets] == theirs["accepted"]["deletedTargets"]
            assert ours.stats.to_json() == theirs["accepted"]["stats"]
            seen["accepted"] += 1
            seen["repaired"] += len(ours.targets) > len(request["deletions"])
    assert sum(seen.values()) - seen["repaired"] >= 5 * SESSIONS
    assert seen["accepted"] >= SESSIONS
    assert seen["repaired"] >= SESSIONS // 2
    covered = {code for code in Code if seen[code]}
    assert covered == {code for gate in GATES for code in gate.codes} - {
        Code.ORPHANED_RESULT,
        Code.DANGLING_CALL,
        # The reference knows no writers.
        Code.NOT_EDITABLE,
    }


def test_every_deletion_and_bulk_deletion_comes_out_alike():
    seen: Counter[str] = Counter()
    for situation in situations(10_000):
        for _ in range(SEQUENCES):
            store = DeletionStore(situation.transcript, situation.restraints)
            workbench = Workbench(store)
            chosen: list[Recorded] = []
            for _ in range(STEPS):
                step = bulk_step if situation.rng.random() < 0.45 else step_by_ids
                chosen = step(situation, workbench, chosen, seen)
                assert [target.to_json() for target in store.targets] == chosen
            assert not chosen or store.validated().targets == store.targets
    assert seen["context_delete"] >= 2 * SESSIONS
    assert seen["context_grep_delete"] >= SESSIONS
    for outcome in ("deleted by ids", "deleted in bulk", "refused"):
        assert seen[outcome] >= SESSIONS // 2, outcome
    skips = ["protected_entry", "protected_block", "already_deleted", "max_matches_exceeded"]
    for reason in (*skips, "expected_match_count_mismatch"):
        assert seen[reason] >= SESSIONS // 20, reason


def step_by_ids(
    situation: Situation, workbench: Workbench, chosen: list[Recorded], seen: Counter[str]
) -> list[Recorded]:
    request = situation.request()
    arguments = request if isinstance(request, dict) else {"deletions": request}
    found = workbench.call(ToolCall("context_delete", arguments)).details
    expected = reference_airlock.delete(chosen, arguments, **situation.rules)
    return agreed("deleted by ids", "context_delete", found, expected, chosen, seen)


def bulk_step(situation: Situation, workbench: Workbench, chosen: list[Recorded], seen: Counter[str]) -> list[Recorded]:
    arguments = situation.grep()
    found = workbench.call(ToolCall("context_grep_delete", arguments)).details
    expected = reference_airlock.grep_delete(
        chosen,
        lambda searched: arguments["pattern"] in searched.lower(),
        target=arguments.get("target", "entry"),
        max_matches=arguments.get("maxMatches", 50),
        expected_match_count=arguments.get("expectedMatchCount"),
        **situation.rules,
    )
    assert found["matches"] == expected["matches"], (arguments, chosen)
    assert found["skipped"] == expected["skipped"], (arguments, chosen)
    seen.update(skip["reason"] for skip in found["skipped"])
    return agreed("deleted in bulk", "context_grep_delete", found, expected, chosen, seen)


def agreed(
    what: str, tool: str, found: Any, expected: Recorded, chosen: list[Recorded], seen: Counter[str]
) -> list[Recorded]:
    assert found.get("error") == expected.get("error")
    assert found["stats"] == expected["stats"]
    after: list[Recorded] = expected["deletedTargets"]
    seen[tool] += 1
    seen["refused"] += "error" in expected
    seen[what] += after != chosen
    return after
