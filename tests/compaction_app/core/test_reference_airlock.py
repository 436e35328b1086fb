"""The reference airlock gives every answer of the conformance vectors, and the rules they leave open."""

from __future__ import annotations

from typing import Any

import pytest

from compaction_app.core.errors import Refusal
from compaction_app.core.patterns import compile_pattern
from compaction_app.core.transcript import Transcript, prepare
from devtools.conformance import case_lines
from sessions_app.agents.atomic.agent import ATOMIC
from sessions_app.sessionlog.session import ParserState
from sessions_app.sessionlog.tree import SessionTree

from . import reference_airlock
from .test_reference_airlock_agreement import entries_of
from .test_vectors import CASES, Case

FACTS = ("matches", "skipped", "deletedTargets", "stats", "error")


# --- the vectors --------------------------------------------------------------------------------------------


def transcript_of(case: Case) -> Transcript:
    """The texts of the vectors' entries are not in the vectors; that these are the right ones is tested there."""
    parser = ATOMIC.parser(ParserState(), [])
    recorded = [found for line in case_lines(case) for found in parser.read(line)]
    branch = SessionTree([found.entry for found in recorded]).branch(case["leafId"])
    texts = {found.entry.id: found.texts for found in recorded}
    transcript = prepare(branch, texts, case["settings"], ATOMIC.generations[-1].rules)
    assert transcript is not None
    return transcript


def test_every_request_is_answered_as_the_agent_answers_it() -> None:
    wrong = []
    for case in CASES:
        prepared = case["prepare"]
        for request in case.get("validate", []):
            recent = prepared["parameters"]["preserve_recent"]
            answer = reference_airlock.validate(request["request"], prepared["entries"], recent)
            answer.pop("target", None)
            if answer != {key: value for key, value in request.items() if key != "request"}:
                wrong.append((case["seed"], request))
    assert wrong == []


def test_every_deleting_step_comes_out_as_in_the_agent() -> None:
    for case in CASES:
        if "tools" not in case:
            continue
        recent = case["prepare"]["parameters"]["preserve_recent"]
        entries = entries_of(transcript_of(case))
        chosen: list[dict[str, Any]] = []
        for step in case["tools"]["steps"]:
            name, arguments = step["call"]["name"], step["call"]["arguments"]
            if name == "context_delete":
                outcome = reference_airlock.delete(chosen, arguments, entries, recent)
            elif name == "context_grep_delete":
                outcome = grep(chosen, arguments, entries, recent)
            else:
                continue
            facts = {key: step["details"][key] for key in FACTS if key in step["details"]}
            assert outcome == facts, (case["seed"], step["call"])
            chosen = outcome["deletedTargets"]
        assert chosen == case["tools"]["finalTargets"], case["seed"]


def grep(
    chosen: list[dict[str, Any]], arguments: dict[str, Any], entries: Any, recent: int
) -> dict[str, Any]:
    """A `context_grep_delete` call over the plan *chosen*."""
    regex, case_sensitive = arguments.get("regex", False), arguments.get("caseSensitive", False)
    pattern = compile_pattern(arguments["pattern"], regex=regex, case_sensitive=case_sensitive)
    if isinstance(pattern, Refusal):
        nothing = {"matches": [], "skipped": [], "error": pattern.code.value}
        return nothing | reference_airlock.unchanged(chosen, entries)
    return reference_airlock.grep_delete(
        chosen,
        pattern.found_in,
        entries,
        recent,
        target=arguments.get("target", "entry"),
        max_matches=arguments.get("maxMatches", 50),
        expected_match_count=arguments.get("expectedMatchCount"),
    )


# --- what the vectors leave open --------------------------------------------------------------------------


def entry_of(entry_id: str, role: str, *blocks: str, answers: str | None = None) -> dict[str, Any]:
    """A transcript entry of ten tokens a block; a block is written as its type, a call as `call:ID`."""
    content = []
    for index, block in enumerate(blocks):
        kind, _, call_id = block.partition(":")
        shape = {"blockIndex": index, "type": kind, "tokenEstimate": 10, "protected": False, "text": block}
        content.append({**shape, "type": "toolCall", "toolCallId": call_id} if call_id else shape)
    return {
        "entryId": entry_id,
        "entryType": "message",
        "role": role,
        "tokenEstimate": 10 * len(content) or 10,
        "protected": role == "user",
        "toolCallIds": [block["toolCallId"] for block in content if "toolCallId" in block],
        **({"toolResultFor": answers} if answers else {}),
        "text": f"{entry_id} {role}",
        "contentBlocks": content,
    }


USER, ASKS, R1, R2, ENDS = (
    {"kind": "entry", "entryId": entry_id} for entry_id in ("user", "asks", "r1", "r2", "ends")
)
TALK = [
    entry_of("user", "user"),
    entry_of("asks", "assistant", "thinking", "call:c1", "call:c2"),
    entry_of("r1", "toolResult", "text", answers="c1"),
    entry_of("r2", "toolResult", "text", "text", answers="c2"),
    entry_of("ends", "assistant", "text", "text"),
]


def block_of(entry_id: str, index: Any) -> dict[str, Any]:
    return {"kind": "content_block", "entryId": entry_id, "blockIndex": index}


def judged(*deletions: Any, entries: Any = TALK, preserve_recent: int = 0, **rules: Any) -> Any:
    """The refusal code, or the accepted targets."""
    answer = reference_airlock.validate({"deletions": list(deletions)}, entries, preserve_recent, **rules)
    return answer.get("rejected") or answer["accepted"]["deletedTargets"]


def test_a_pinned_entry_keeps_itself_its_blocks_and_the_other_side_of_its_pair() -> None:
    pinned = frozenset({("entry", "r1")})
    assert judged(R1, pinned=pinned) == "protected"
    assert judged(block_of("asks", 1), pinned=pinned) == "protected_pair"
    assert judged(ASKS, pinned=pinned) == "protected_pair"
    assert judged(block_of("ends", 0), pinned=frozenset({("entry", "ends")})) == "protected"
    assert judged(block_of("asks", 2), pinned=pinned) == [block_of("asks", 2), R2]


def test_a_pinned_block_keeps_its_entry_but_not_its_neighbours() -> None:
    pinned = frozenset({("content_block", "ends", 0), ("content_block", "asks", 1)})
    assert judged(block_of("ends", 0), pinned=pinned) == "protected"
    assert judged(ENDS, pinned=pinned) == "protected"
    assert judged(block_of("ends", 1), pinned=pinned) == [block_of("ends", 1)]
    assert judged(R1, pinned=pinned) == "protected_pair"
    assert judged(R2, pinned=frozenset({("content_block", "r2", 0)})) == "protected"
    assert judged(block_of("asks", 2), pinned=frozenset({("content_block", "r2", 0)})) == "protected_pair"


def test_a_recent_target_is_recent_before_it_is_pinned() -> None:
    assert judged(ENDS, preserve_recent=1, pinned=frozenset({("entry", "ends")})) == "recent_context"


def test_a_grep_skips_what_is_pinned() -> None:
    rules: dict[str, Any] = {"pinned": frozenset({("entry", "r1"), ("content_block", "ends", 1)})}
    outcome = reference_airlock.grep_delete([], lambda _: True, TALK, 0, target="content_block", **rules)
    skipped = [(skip["entryId"], skip.get("blockIndex"), skip["reason"]) for skip in outcome["skipped"]]
    assert skipped == [
        ("r1", 0, "protected_entry"),
        ("asks", 1, "protected_block"),
        ("ends", 1, "protected_block"),
    ]
    outcome = reference_airlock.grep_delete([], lambda text: "ends" in text, TALK, 0, **rules)
    assert outcome["skipped"] == [{"entryId": "ends", "target": "entry", "reason": "protected_entry"}]
    assert outcome["matches"] == outcome["deletedTargets"] == []


def test_the_guard_all_keeps_every_assistant_that_bears_thinking() -> None:
    assert judged(ASKS, thinking_guard="all") == "thinking"
    assert judged(block_of("asks", 2), thinking_guard="all") == "thinking"
    assert judged(block_of("asks", 9), thinking_guard="all") == "thinking"
    assert judged(R1, thinking_guard="all") == "thinking"
    assert judged(ASKS, preserve_recent=4, thinking_guard="all") == "recent_context"
    assert judged(ENDS, thinking_guard="all") == [ENDS]
    kept = reference_airlock.grep_delete([], lambda text: "r1" in text, TALK, 0, thinking_guard="all")
    assert kept["skipped"] == [{"entryId": "r1", "target": "entry", "reason": "protected_entry"}]


def test_the_guard_latest_looks_at_the_last_assistant_only() -> None:
    assert judged(ASKS) == [ASKS, R1, R2]
    assert judged(ASKS, entries=TALK[:4]) == "latest_thinking"
    assert judged(block_of("asks", 0), entries=TALK[:4]) == "latest_thinking"
    assert judged(block_of("asks", 1), entries=TALK[:4]) == [block_of("asks", 1), R1]


def test_one_of_two_blocks_of_a_call_may_stay_unless_it_is_pinned() -> None:
    asks = entry_of("asks", "assistant", "text", "call:c1", "call:c1")
    entries = [TALK[0], asks, TALK[2]]
    assert judged(block_of("asks", 1), entries=entries) == [block_of("asks", 1), R1]
    pinned = {("content_block", "asks", 2)}
    request = {"deletions": [block_of("asks", 1)]}
    assert reference_airlock.validate(request, entries, 0, pinned)["rejected"] == "protected_pair"
    assert judged(R1, entries=entries) == [R1, block_of("asks", 1), block_of("asks", 2)]


def test_an_unrepaired_plan_is_refused_for_what_it_breaks() -> None:
    call, result = ("content_block", "asks", 1), ("entry", "r1")
    assert reference_airlock.fault_of_pairs({call: None}, TALK) == "orphaned_result"
    assert reference_airlock.fault_of_pairs({result: None}, TALK) == "dangling_call"
    assert (
        reference_airlock.fault_of_pairs({result: None, ("content_block", "asks", 2): None}, TALK)
        == "orphaned_result"
    )
    assert reference_airlock.fault_of_pairs({result: None, call: None}, TALK) is None


def test_what_was_broken_before_can_still_be_compacted() -> None:
    orphan = entry_of("r1", "toolResult", "text", answers="nowhere")
    assert judged(R1, entries=[TALK[0], orphan, TALK[4]]) == [R1]
    assert judged(ENDS, entries=[*TALK[:2], TALK[4]]) == [ENDS]


def test_something_must_remain() -> None:
    assert judged(ENDS, entries=TALK[4:]) == "no_context_left"
    assert judged(ENDS, entries=[TALK[4], entry_of("last", "assistant", "text")]) == "no_task_left"
    assert judged(entries=TALK[4:]) == "no_task_left"
    assert judged(entries=TALK) == []


@pytest.mark.parametrize(
    ("deletion", "code"),
    [
        ([], "request_shape"),
        ({}, "unsupported_kind"),
        ({"kind": ["entry"], "entryId": "ends"}, "unsupported_kind"),
        ({"kind": "entry", "entryId": None, "why": "long"}, "not_id_only"),
        ({"kind": "content_block"}, "invalid_entry_id"),
        (block_of("nowhere", -1), "unknown_entry"),
        (block_of("user", True), "invalid_block_index"),
        (block_of("user", 0), "protected"),
        (block_of("ends", 2), "unknown_block"),
        (block_of("r1", 1), "unknown_block"),
        (block_of("r1", 0), "only_block"),
    ],
)
def test_the_first_fault_of_a_target_is_reported(deletion: Any, code: str) -> None:
    assert judged(ENDS, deletion, R1, R1) == code


def test_merging_keeps_places_and_drops_repeats() -> None:
    current = [block_of("ends", 0), R1, block_of("asks", 0)]
    assert reference_airlock.merge(current, [R1, block_of("r1", 0), block_of("asks", 0)]) == current
    assert reference_airlock.merge(current, [ENDS, block_of("ends", 1)]) == [R1, block_of("asks", 0), ENDS]


def test_a_refused_step_changes_nothing() -> None:
    current = [block_of("ends", 0)]
    for refused in (
        reference_airlock.delete(current, {"deletions": [R1, USER]}, TALK, 0),
        reference_airlock.delete(current, {"deletions": [block_of("ends", 1)]}, TALK, 0),
        reference_airlock.grep_delete(current, lambda text: text == "text", TALK, 0, target="content_block"),
    ):
        assert refused["error"] in ("protected", "every_block")
        assert refused["deletedTargets"] == current == [block_of("ends", 0)]
        assert refused["stats"]["tokensAfter"] == refused["stats"]["tokensBefore"] - 10
