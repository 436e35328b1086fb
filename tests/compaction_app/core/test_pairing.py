"""Calls and results stay together: what repair adds, and in which order it is written."""

from typing import Any

import pytest

from compaction_app.core.airlock import Airlock, ValidatedDeletion, validate
from compaction_app.core.errors import Refusal
from compaction_app.core.gates import Restraints
from compaction_app.core.transcript_entries import Object
from sessions_app.sessionlog.targets import Target
from tests.factories import assistant, block, call, compaction, deletions, named, result, text, transcript_of, user

Recorded = dict[str, Any]


def repaired(messages: list[Recorded], requested: str) -> str:
    judged = validate(deletions(requested), transcript_of(*messages))
    assert isinstance(judged, ValidatedDeletion), judged
    return named(*judged.targets)


TWO_CALLS = [
    user("go"),
    assistant(text("look"), call("c1"), call("c2")),
    result("c2", "two"),
    result("c1", "one"),
    assistant(text("done")),
]


@pytest.mark.parametrize(
    ("requested", "expected"),
    [
        # Calls in the order of their blocks, each with its results.
        ("e2", "e2 e4 e3"),
        ("e2[2]", "e2[2] e3"),
        ("e4", "e4 e2[1]"),
        # What is chosen keeps its place; repair appends.
        ("e3 e2[1]", "e3 e2[1] e4 e2[2]"),
        # The last block takes the others out, and the entry is appended.
        ("e2[0] e3 e4", "e3 e4 e2"),
        ("e2[0] e2[1] e2[2]", "e4 e3 e2"),
    ],
)
def test_a_call_and_its_results_go_together(requested, expected):
    assert repaired(TWO_CALLS, requested) == expected


def test_a_call_answered_twice_takes_both_results_in_transcript_order():
    messages = [user("go"), assistant(text("look"), call("c1")), result("c1", "a"), result("c1", "b")]
    assert repaired(messages, "e2[1]") == "e2[1] e3 e4"
    assert repaired(messages, "e4") == "e4 e2[1] e3"


def test_a_result_before_its_call_goes_with_it_too():
    messages = [user("go"), result("c1"), assistant(call("c1")), assistant(text("done"))]
    assert repaired(messages, "e3") == "e3 e2"


REPEATED = [
    user("go"),
    assistant(text("first"), call("c1")),
    assistant(text("between"), call("c2")),
    result("c2"),
    assistant(text("again"), call("c1")),
    result("c1"),
]


def test_the_last_entry_that_makes_a_call_owns_it():
    assert repaired(REPEATED, "e6") == "e6 e5[1]"


def test_the_earlier_call_with_a_repeated_id_is_deleted_without_its_result():
    assert repaired(REPEATED, "e2") == "e2"
    assert repaired(REPEATED, "e2[1]") == "e2[1]"


def test_a_repeated_call_keeps_the_place_of_its_first_maker():
    # c1 is repaired before c2, though the entry that owns it comes after.
    assert repaired(REPEATED, "e5 e3") == "e5 e3 e6 e4"


def test_repair_continues_until_nothing_changes():
    row = [
        user("go"),
        assistant(call("c1")),
        {**result("c1"), "content": [text("one"), call("c2")]},
        {**result("c2"), "content": [text("two"), call("c3")]},
        result("c3"),
        assistant(text("done")),
    ]
    assert repaired(row, "e2") == "e2 e3 e4 e5"
    assert repaired(row, "e4") == "e4 e3[1] e5"
    assert repaired(row, "e5") == "e5 e4[1]"


def test_what_a_later_call_brings_to_an_earlier_one_waits_for_the_next_pass():
    # c1 comes first, but is made by the entry that answers c2: its result comes after that of c3.
    messages = [
        user("go"),
        assistant(text("once"), call("c1")),
        assistant(call("c2"), call("c3")),
        {**result("c2"), "content": [text("two"), call("c1")]},
        result("c1"),
        result("c3"),
    ]
    assert repaired(messages, "e3") == "e3 e4 e6 e5"


def test_two_entries_that_answer_each_other_go_together():
    tied = [
        user("go"),
        {**result("c2"), "content": [text("one"), call("c1")]},
        {**result("c1"), "content": [text("two"), call("c2")]},
        assistant(text("done")),
    ]
    assert repaired(tied, "e3") == "e3 e2"
    assert repaired(tied, "e2[1]") == "e3 e2"


def test_an_entry_without_calls_is_not_completed_for_its_asker():
    judged = validate(deletions("e2[0] e2[1]"), transcript_of(user("go"), assistant(text("a"), text("b"))))
    assert isinstance(judged, Refusal)
    assert judged.code == "every_block"


def test_only_the_blocks_that_are_left_count_as_every_block():
    messages = [*TWO_CALLS, compaction(block("e2", 0))]
    assert repaired(messages, "e3 e4") == "e3 e4 e2"


def test_a_call_that_an_earlier_compaction_took_pairs_no_more():
    messages = [*TWO_CALLS, compaction(block("e2", 1))]
    assert repaired(messages, "e4") == "e4"


def test_repair_stops_at_the_first_partner_that_may_not_go():
    transcript = transcript_of(*TWO_CALLS)
    for pin, refused in ((Target("e4"), Target("e4")), (Target("e3", 0), Target("e3"))):
        judged = validate(deletions("e2"), transcript, Restraints(frozenset({pin})))
        assert isinstance(judged, Refusal)
        assert (judged.code, judged.target) == ("protected_pair", refused)


def test_a_copy_of_a_plan_leaves_the_plan_as_it_is():
    airlock = Airlock(transcript_of(*TWO_CALLS))
    plan = airlock.judge_request(deletions("e4"))
    assert not isinstance(plan, Refusal)
    before = (airlock.targets(plan), plan.tokens, plan.objects, plan.entries_gone)
    merged = airlock.merge(plan, [Object(1)])
    assert not isinstance(merged, Refusal)
    assert airlock.targets(merged) == (Target("e4"), Target("e2"), Target("e3"))
    assert (airlock.targets(plan), plan.tokens, plan.objects, plan.entries_gone) == before


def test_a_repair_looks_only_at_the_calls_that_it_touches():
    def visited(turns: int) -> int:
        messages = [user("go")]
        for turn in range(turns):
            messages += [assistant(text("look"), call(f"c{turn}")), result(f"c{turn}")]
        plan = Airlock(transcript_of(*messages)).judge_request(deletions("e3"))
        assert not isinstance(plan, Refusal)
        return plan.visited

    assert visited(10) == visited(1_000) < 20
