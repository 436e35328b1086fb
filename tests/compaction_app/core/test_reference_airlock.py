"""The reference airlock gives every answer of the conformance vectors, and the airlock gives what it gives.

The two are compared on many requests over sessions that contain what is rare in real ones: call ids that several
entries make, results that make calls themselves, protected and recent partners, results and calls without an answer,
and earlier compactions.
"""

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

from compaction_app.core.airlock import validate
from compaction_app.core.gates import GATES, Code, Refusal, Restraints
from compaction_app.core.patterns import compile_pattern
from compaction_app.core.store import DeletionStore
from compaction_app.core.tools import ToolCall, Workbench
from compaction_app.core.transcript import Transcript
from devtools.pure.conformance import case_lines
from sessions_app.agents.atomic.agent import ATOMIC
from sessions_app.sessionlog.entries import Target
from sessions_app.sessionlog.session import ParserState
from sessions_app.sessionlog.tree import SessionTree
from tests import factories
from tests.budget import FACTOR
from tests.compaction_app.core.strategies import Recorded, objects

from . import reference_airlock
from .test_vectors import CASES, Case

FACTS = ("matches", "skipped", "deletedTargets", "stats", "error")


def transcript_of(case: Case) -> Transcript:
    """The texts of the vectors' entries are not in the vectors; that these are the right ones is tested there."""
    parser = ATOMIC.format.parser(ParserState(), [])
    recorded = [found for line in case_lines(case) for found in parser.read(line)]
    branch = SessionTree([found.entry for found in recorded]).branch(case["leafId"])
    texts = {found.entry.id: found.texts for found in recorded}
    transcript = factories.prepare(branch, texts, case["settings"])
    assert transcript is not None
    return transcript


def recent_in(case: Case) -> int:
    return int(case["prepare"]["parameters"]["preserve_recent"])


def test_every_request_is_answered_as_the_agent_answers_it():
    wrong = []
    for case in CASES:
        for request in case.get("validate", []):
            transcript = reference_airlock.read(case["prepare"]["entries"], recent_in(case))
            answer = reference_airlock.validate(request["request"], transcript)
            answer.pop("target", None)
            if answer != {key: value for key, value in request.items() if key != "request"}:
                wrong.append((case["seed"], request))
    assert wrong == []


def test_every_deleting_step_comes_out_as_in_the_agent():
    for case in CASES:
        if "tools" not in case:
            continue
        transcript = reference_airlock.read(entries_of(transcript_of(case)), recent_in(case))
        chosen: list[Recorded] = []
        for step in case["tools"]["steps"]:
            name, arguments = step["call"]["name"], step["call"]["arguments"]
            if name == "context_delete":
                outcome = reference_airlock.delete(chosen, arguments, transcript)
            elif name == "context_grep_delete":
                outcome = grep(chosen, arguments, transcript)
            else:
                continue
            facts = {key: step["details"][key] for key in FACTS if key in step["details"]}
            assert outcome == facts, (case["seed"], step["call"])
            chosen = outcome["deletedTargets"]
        assert chosen == case["tools"]["finalTargets"], case["seed"]


def grep(chosen: list[Recorded], arguments: Recorded, transcript: reference_airlock.Transcript) -> Recorded:
    """A `context_grep_delete` call over the plan *chosen*."""
    regex, case_sensitive = arguments.get("regex", False), arguments.get("caseSensitive", False)
    pattern = compile_pattern(arguments["pattern"], regex=regex, case_sensitive=case_sensitive)
    if isinstance(pattern, Refusal):
        nothing = {"matches": [], "skipped": [], "error": pattern.code.value}
        return nothing | reference_airlock.unchanged(chosen, transcript)
    return reference_airlock.grep_delete(chosen, pattern.found_in, arguments, transcript)


SESSIONS = 250 * FACTOR
REQUESTS, SEQUENCES, STEPS = 7, 2, 4
WORDS = "alpha beta gamma delta epsilon zeta eta theta".split()
JUNK: list[Any] = [
    *(
        "e1",
        {},
        {"kind": "file", "entryId": "e1"},
        {**factories.whole("e1"), "text": "x"},
        {"kind": "entry", "entryId": 3},
    ),
    *(factories.whole("e99"), factories.block("e1", -1), factories.block("e2", 1.5), factories.block("e2", 9)),
]


def words(rng: random.Random) -> str:
    return " ".join(rng.choices(WORDS, k=rng.choice([0, 1, 3, 9, 40])))


def by_assistant(rng: random.Random, calls: list[str]) -> Recorded:
    blocks = []
    for _ in range(rng.choice([0, 1, 1, 2, 2, 3, 4])):
        kind = rng.choices(range(4), [6, 3, 1, 0.5])[0]
        said = words(rng)
        called, redacted = factories.call(rng.choice(calls), words=said), {"type": "redacted_thinking", "data": said}
        blocks.append((called, factories.text(said), factories.thinking(said), redacted)[kind])
    return factories.assistant(*blocks, stopReason="error" if rng.random() < 0.06 else "stop")


def by_tool(rng: random.Random, calls: list[str]) -> Recorded:
    answer = factories.result(rng.choice([*calls, *calls, "nowhere"]), error=rng.random() < 0.08)
    content: Any = [factories.text(words(rng)) for _ in range(rng.choice([1, 1, 1, 2]))]
    if rng.random() < 0.15:
        content.append(factories.image())
    if rng.random() < 0.2:
        # A result that makes a call as well: a pair in both directions.
        content.append(factories.call(rng.choice(calls), words=words(rng)))
    if rng.random() < 0.1:
        content = words(rng)
    return {**answer, "content": content}


def other(rng: random.Random) -> Recorded:
    said = words(rng)
    return rng.choice(
        [
            *(factories.user(said), factories.custom(said), factories.branch_summary(said)),
            {"role": "user", "content": [factories.text(said), factories.image()]},
            factories.bash("make", said, rng.choice([0, 0, 1])),
            factories.bash("make", said, excludeFromContext=True),
            {"type": "model_change", "provider": "p", "modelId": "m"},
        ]
    )


def session(rng: random.Random) -> list[Recorded]:
    calls = [f"c{number}" for number in range(1, rng.randint(2, 7))]
    has_task = rng.random() < 0.75
    recorded: list[Recorded] = [factories.user(words(rng))] if has_task else []
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
            targets = [
                factories.whole(one) if rng.random() < 0.4 else factories.block(one, rng.randint(0, 2)) for one in ids
            ]
            recorded.append(factories.compaction(*targets))
    return recorded


def prepared(rng: random.Random) -> Transcript:
    while True:
        branch, texts = factories.branch_and_texts(factories.session_bytes(factories.chain(*session(rng))))
        settings = {"preserve_recent": rng.choice([0, 0, 0, 1, 2, 4]), "compression_ratio": 0.01}
        transcript = factories.prepare(branch, texts, settings)
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


class Situation:
    """One generated transcript with what restrains its deletions, for both ways."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        self.transcript = prepared(rng)
        self.objects = objects(self.transcript)
        pins = rng.sample(self.objects, k=min(rng.choice([0, 0, 0, 0, 1, 2]), len(self.transcript.entries)))
        guard = rng.choice(["latest", "latest", "all"])
        self.restraints = Restraints(frozenset(pins), guard)
        recent = self.transcript.parameters.preserve_recent
        pinned = {reference_airlock.as_tuple(pin.to_json()) for pin in pins}
        self.reference = reference_airlock.read(entries_of(self.transcript), recent, pinned, guard)

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
        return not entry.is_protected and (target.block_index is None or len(entry.blocks) > 1)


def situations(first_seed: int) -> Iterator[Situation]:
    return map(Situation, range(first_seed, first_seed + SESSIONS))


def test_every_request_is_judged_alike():
    seen: Counter[str] = Counter()
    for situation in situations(0):
        for _ in range(REQUESTS):
            request = situation.request()
            ours = validate(request, situation.transcript, situation.restraints)
            theirs = reference_airlock.validate(request, situation.reference)
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
    assert seen["repaired"] >= SESSIONS // 3
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
                tool, found, expected = step(situation, workbench, chosen)
                assert found.get("error") == expected.get("error")
                assert found["stats"] == expected["stats"]
                seen.update([tool, *(skip["reason"] for skip in found.get("skipped", ()))])
                seen["refused"] += "error" in expected
                seen[f"{tool} deletes"] += expected["deletedTargets"] != chosen
                chosen = expected["deletedTargets"]
                assert [target.to_json() for target in store.targets] == chosen
            assert not chosen or store.validated().targets == store.targets
    assert seen["context_delete"] >= 2 * SESSIONS
    assert seen["context_grep_delete"] >= SESSIONS
    for outcome in ("context_delete deletes", "context_grep_delete deletes", "refused"):
        assert seen[outcome] >= SESSIONS // 2, outcome
    skips = ["protected_entry", "protected_block", "already_deleted", "max_matches_exceeded"]
    for reason in (*skips, "expected_match_count_mismatch"):
        assert seen[reason] >= SESSIONS // 20, reason


def step_by_ids(situation: Situation, workbench: Workbench, chosen: list[Recorded]) -> tuple[str, Any, Recorded]:
    request = situation.request()
    arguments = request if isinstance(request, dict) else {"deletions": request}
    found = workbench.call(ToolCall("context_delete", arguments)).details
    return "context_delete", found, reference_airlock.delete(chosen, arguments, situation.reference)


def bulk_step(situation: Situation, workbench: Workbench, chosen: list[Recorded]) -> tuple[str, Any, Recorded]:
    arguments = situation.grep()
    found = workbench.call(ToolCall("context_grep_delete", arguments)).details
    expected = reference_airlock.grep_delete(
        chosen, lambda searched: arguments["pattern"] in searched.lower(), arguments, situation.reference
    )
    assert found["matches"] == expected["matches"], (arguments, chosen)
    assert found["skipped"] == expected["skipped"], (arguments, chosen)
    return "context_grep_delete", found, expected
