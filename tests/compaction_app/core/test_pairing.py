"""Calls and results stay together: what repair adds, and in which order it is written."""

from __future__ import annotations

from typing import Any

import pytest

from compaction_app.core.airlock import Airlock, ValidatedDeletion, validate
from compaction_app.core.errors import Refusal
from compaction_app.core.gates import Restraints
from compaction_app.core.transcript_entries import Object
from sessions_app.sessionlog.targets import Target
from tests.factories import assistant, block, call, compaction, result, text, transcript_of, user, whole

Recorded = dict[str, Any]


def repaired(messages: list[Recorded], *targets: Recorded, **settings: object) -> list[Recorded]:
    judged = validate({"deletions": list(targets)}, transcript_of(*messages, **settings))
    assert isinstance(judged, ValidatedDeletion), judged
    return [target.to_json() for target in judged.targets]


TWO_CALLS = [
    user("go"),
    assistant(text("look"), call("c1"), call("c2")),
    result("c2", "two"),
    result("c1", "one"),
    assistant(text("done")),
]


@pytest.mark.parametrize(
    ("targets", "expected"),
    [
        # Calls in the order of their blocks, each with its results.
        ([whole("e2")], [whole("e2"), whole("e4"), whole("e3")]),
        ([block("e2", 2)], [block("e2", 2), whole("e3")]),
        ([whole("e4")], [whole("e4"), block("e2", 1)]),
        # What is chosen keeps its place; repair appends.
        ([whole("e3"), block("e2", 1)], [whole("e3"), block("e2", 1), whole("e4"), block("e2", 2)]),
        # The last block takes the others out, and the entry is appended.
        ([block("e2", 0), whole("e3"), whole("e4")], [whole("e3"), whole("e4"), whole("e2")]),
        ([block("e2", 0), block("e2", 1), block("e2", 2)], [whole("e4"), whole("e3"), whole("e2")]),
    ],
)
def test_a_call_and_its_results_go_together(targets: list[Recorded], expected: list[Recorded]) -> None:
    assert repaired(TWO_CALLS, *targets) == expected


def test_a_call_answered_twice_takes_both_results_in_transcript_order() -> None:
    messages = [user("go"), assistant(text("look"), call("c1")), result("c1", "a"), result("c1", "b")]
    assert repaired(messages, block("e2", 1)) == [block("e2", 1), whole("e3"), whole("e4")]
    assert repaired(messages, whole("e4")) == [whole("e4"), block("e2", 1), whole("e3")]


def test_a_result_before_its_call_goes_with_it_too() -> None:
    messages = [user("go"), result("c1"), assistant(call("c1")), assistant(text("done"))]
    assert repaired(messages, whole("e3")) == [whole("e3"), whole("e2")]


REPEATED = [
    user("go"),
    assistant(text("first"), call("c1")),
    assistant(text("between"), call("c2")),
    result("c2"),
    assistant(text("again"), call("c1")),
    result("c1"),
]


def test_the_last_entry_that_makes_a_call_owns_it() -> None:
    assert repaired(REPEATED, whole("e6")) == [whole("e6"), block("e5", 1)]


def test_the_earlier_call_with_a_repeated_id_is_deleted_without_its_result() -> None:
    assert repaired(REPEATED, whole("e2")) == [whole("e2")]
    assert repaired(REPEATED, block("e2", 1)) == [block("e2", 1)]


def test_a_repeated_call_keeps_the_place_of_its_first_maker() -> None:
    # c1 is repaired before c2, though the entry that owns it comes after.
    assert repaired(REPEATED, whole("e5"), whole("e3")) == [
        whole("e5"),
        whole("e3"),
        whole("e6"),
        whole("e4"),
    ]


def test_repair_continues_until_nothing_changes() -> None:
    row = [
        user("go"),
        assistant(call("c1")),
        {**result("c1"), "content": [text("one"), call("c2")]},
        {**result("c2"), "content": [text("two"), call("c3")]},
        result("c3"),
        assistant(text("done")),
    ]
    assert repaired(row, whole("e2")) == [whole("e2"), whole("e3"), whole("e4"), whole("e5")]
    assert repaired(row, whole("e4")) == [whole("e4"), block("e3", 1), whole("e5")]
    assert repaired(row, whole("e5")) == [whole("e5"), block("e4", 1)]


def test_what_a_later_call_brings_to_an_earlier_one_waits_for_the_next_pass() -> None:
    # c1 comes first, but is made by the entry that answers c2: its result comes after that of c3.
    messages = [
        user("go"),
        assistant(text("once"), call("c1")),
        assistant(call("c2"), call("c3")),
        {**result("c2"), "content": [text("two"), call("c1")]},
        result("c1"),
        result("c3"),
    ]
    assert repaired(messages, whole("e3")) == [whole("e3"), whole("e4"), whole("e6"), whole("e5")]


def test_two_entries_that_answer_each_other_go_together() -> None:
    tied = [
        user("go"),
        {**result("c2"), "content": [text("one"), call("c1")]},
        {**result("c1"), "content": [text("two"), call("c2")]},
        assistant(text("done")),
    ]
    assert repaired(tied, whole("e3")) == [whole("e3"), whole("e2")]
    assert repaired(tied, block("e2", 1)) == [whole("e3"), whole("e2")]


def test_an_entry_without_calls_is_not_completed_for_its_asker() -> None:
    judged = validate(
        {"deletions": [block("e2", 0), block("e2", 1)]},
        transcript_of(user("go"), assistant(text("a"), text("b"))),
    )
    assert isinstance(judged, Refusal)
    assert judged.code == "every_block"


def test_only_the_blocks_that_are_left_count_as_every_block() -> None:
    messages = [*TWO_CALLS, compaction(block("e2", 0))]
    assert repaired(messages, whole("e3"), whole("e4")) == [whole("e3"), whole("e4"), whole("e2")]


def test_a_call_that_an_earlier_compaction_took_pairs_no_more() -> None:
    messages = [*TWO_CALLS, compaction(block("e2", 1))]
    assert repaired(messages, whole("e4")) == [whole("e4")]


def test_repair_stops_at_the_first_partner_that_may_not_go() -> None:
    transcript = transcript_of(*TWO_CALLS)
    for pin, refused in ((Target("e4"), Target("e4")), (Target("e3", 0), Target("e3"))):
        judged = validate({"deletions": [whole("e2")]}, transcript, Restraints(frozenset({pin})))
        assert isinstance(judged, Refusal)
        assert (judged.code, judged.target) == ("protected_pair", refused)


def test_a_copy_of_a_plan_leaves_the_plan_as_it_is() -> None:
    airlock = Airlock(transcript_of(*TWO_CALLS))
    plan = airlock.judge_request({"deletions": [whole("e4")]})
    assert not isinstance(plan, Refusal)
    before = (airlock.targets(plan), plan.tokens, plan.objects, plan.entries_gone)
    merged = airlock.merge(plan, [Object(1)])
    assert not isinstance(merged, Refusal)
    assert airlock.targets(merged) == (Target("e4"), Target("e2"), Target("e3"))
    assert (airlock.targets(plan), plan.tokens, plan.objects, plan.entries_gone) == before


def test_a_repair_looks_only_at_the_calls_that_it_touches() -> None:
    def visited(turns: int) -> int:
        messages = [user("go")]
        for turn in range(turns):
            messages += [assistant(text("look"), call(f"c{turn}")), result(f"c{turn}")]
        plan = Airlock(transcript_of(*messages)).judge_request({"deletions": [whole("e3")]})
        assert not isinstance(plan, Refusal)
        return plan.visited

    assert visited(10) == visited(1_000) < 20
