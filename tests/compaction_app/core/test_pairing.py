"""What is deleted together: calls with their results, and what an agent's rules join."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from compaction_app.core.airlock import Airlock, ValidatedDeletion, validate
from compaction_app.core.gates import Code, Refusal, Restraints
from compaction_app.core.transcript import Object, Transcript
from sessions_app.agents.atomic.agent import ATOMIC
from sessions_app.sessionlog.context import Message
from sessions_app.sessionlog.entries import Target
from tests.factories import (
    assistant,
    block,
    call,
    compaction,
    deletions,
    named,
    result,
    targets,
    text,
    transcript_of,
    user,
)

Recorded = dict[str, Any]


Companions = Mapping[str, tuple[str, ...]]


class Joined:
    """The rules of an agent that joins entries."""

    def __init__(self, companions: Companions) -> None:
        self._companions = companions
        rules = ATOMIC.format.generations[-1].rules
        self.compactable, self.protection, self.replays = rules.compactable, rules.protection, rules.replays

    def companions(self, messages: Sequence[Message]) -> Companions:
        del messages
        return self._companions


def repaired(messages: list[Recorded], requested: str, companions: Companions | None = None) -> str:
    """What goes with what is requested, in a transcript in which nothing is recent."""
    judged = validate(deletions(requested), transcript_of(*messages, rules=Joined(companions or {})))
    assert isinstance(judged, ValidatedDeletion), judged
    return named(*judged.targets)


def refused(found: Transcript, requested: str, *pins: Target) -> Refusal:
    judged = validate(deletions(requested), found, Restraints(frozenset(pins)))
    assert isinstance(judged, Refusal)
    return judged


TWO_CALLS = [
    user("go"),
    assistant(text("look"), call("c1"), call("c2")),
    result("c2", "two"),
    result("c1", "one"),
    assistant(text("done")),
]
ANSWERED_TWICE = [user("go"), assistant(text("look"), call("c1")), result("c1", "a"), result("c1", "b")]
REPEATED = [
    user("go"),
    assistant(text("first"), call("c1")),
    assistant(text("between"), call("c2")),
    result("c2"),
    assistant(text("again"), call("c1")),
    result("c1"),
]


def calling_result(answered: str, called: str) -> Recorded:
    return {**result(answered), "content": [text("one"), call(called)]}


ROW = [user("go"), assistant(call("c1")), calling_result("c1", "c2"), calling_result("c2", "c3"), result("c3")]
LATER = [
    user("go"),
    assistant(text("once"), call("c1")),
    assistant(call("c2"), call("c3")),
    calling_result("c2", "c1"),
    result("c1"),
    result("c3"),
]
TIED = [user("go"), calling_result("c2", "c1"), calling_result("c1", "c2"), assistant(text("done"))]


@pytest.mark.parametrize(
    ("messages", "requested", "expected"),
    [
        # Calls in the order of their blocks, each with its results.
        (TWO_CALLS, "e2", "e2 e4 e3"),
        (TWO_CALLS, "e2[2]", "e2[2] e3"),
        (TWO_CALLS, "e4", "e4 e2[1]"),
        # What is chosen keeps its place; repair appends.
        (TWO_CALLS, "e3 e2[1]", "e3 e2[1] e4 e2[2]"),
        # The last block takes the others out, and the entry is appended.
        (TWO_CALLS, "e2[0] e3 e4", "e3 e4 e2"),
        (TWO_CALLS, "e2[0] e2[1] e2[2]", "e4 e3 e2"),
        # Only the blocks that an earlier compaction left count, and are paired.
        ([*TWO_CALLS, compaction(block("e2", 0))], "e3 e4", "e3 e4 e2"),
        ([*TWO_CALLS, compaction(block("e2", 1))], "e4", "e4"),
        # Both results, in the order of the transcript; a result before its call goes with it too.
        (ANSWERED_TWICE, "e2[1]", "e2[1] e3 e4"),
        (ANSWERED_TWICE, "e4", "e4 e2[1] e3"),
        ([user("go"), result("c1"), assistant(call("c1")), assistant(text("done"))], "e3", "e3 e2"),
        # The last entry that makes a call owns it; the earlier one is deleted without the result.
        (REPEATED, "e6", "e6 e5[1]"),
        (REPEATED, "e2", "e2"),
        (REPEATED, "e2[1]", "e2[1]"),
        # A call keeps the place of its first maker: c1 is repaired before c2, though e5 owns it.
        (REPEATED, "e5 e3", "e5 e3 e6 e4"),
        # Repair continues until nothing changes.
        (ROW, "e2", "e2 e3 e4 e5"),
        (ROW, "e4", "e4 e3[1] e5"),
        (ROW, "e5", "e5 e4[1]"),
        # c1 comes first, but is made by the entry that answers c2: its result comes after that of c3.
        (LATER, "e3", "e3 e4 e6 e5"),
        # Two entries that answer each other.
        (TIED, "e3", "e3 e2"),
        (TIED, "e2[1]", "e3 e2"),
    ],
)
def test_a_call_and_its_results_go_together(messages, requested, expected):
    assert repaired(messages, requested) == expected


def test_an_entry_without_calls_is_not_completed_for_its_asker():
    found = transcript_of(user("go"), assistant(text("a"), text("b")))
    assert refused(found, "e2[0] e2[1]").code == "every_block"


def test_repair_stops_at_the_first_partner_that_may_not_go_and_names_it():
    for pin, partner in ((Target("e4"), Target("e4")), (Target("e3", 0), Target("e3"))):
        judged = refused(transcript_of(*TWO_CALLS), "e2", pin)
        assert (judged.code, judged.target) == ("protected_pair", partner)
    judged = refused(joined_talk({"e2": ("e7",)}), "e2")
    assert (judged.code, judged.target) == (Code.PROTECTED_PAIR, Target("e7"))
    stays = "entry e7 would have to be deleted as well and is kept, because it contains what the user said"
    assert stays in judged.message


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


TALK = [
    user("go"),
    assistant(text("a")),
    assistant(text("b"), text("b2")),
    assistant(call("c1")),
    result("c1"),
    assistant(text("d")),
    user("on"),
]


def joined_talk(companions: Companions, **settings: object) -> Transcript:
    return transcript_of(*TALK, rules=Joined(companions), **settings)


@pytest.mark.parametrize(
    ("companions", "requested", "gone"),
    [
        pytest.param({"e2": ("e3", "e4"), "e3": ("e6",)}, "e2", "e2 e3 e4 e6 e5", id="companions and theirs"),
        pytest.param({"e2": ("e3",)}, "e3", "e3", id="the companion alone"),
        pytest.param({"e2": ("e3",), "e3": ("e2",)}, "e3", "e3 e2", id="joined in both directions"),
        pytest.param({"e2": ("e4",)}, "e2", "e2 e4 e5", id="a companion with the results of its calls"),
        pytest.param({"e4": ("e6",)}, "e5", "e5 e4 e6", id="companions of the other side of a pair"),
        pytest.param({"e3": ("e2",)}, "e3[0]", "e3[0]", id="a block has none"),
        pytest.param({"e2": ("e3",)}, "e3[0] e2", "e2 e3", id="the blocks of a companion are named with it"),
    ],
)
def test_companions_go_with_an_entry(companions, requested, gone):
    assert repaired(TALK, requested, companions) == gone


@pytest.mark.parametrize(
    ("companions", "recent", "pins", "code"),
    [
        ({"e2": ("e6",)}, 2, "", Code.RECENT_CONTEXT),
        ({"e2": ("e3",)}, 0, "e3", Code.PROTECTED_PAIR),
        ({"e2": ("e3",), "e3": ("e1",)}, 0, "", Code.PROTECTED_PAIR),
    ],
)
def test_nothing_goes_if_a_companion_stays(companions, recent, pins, code):
    assert refused(joined_talk(companions, preserve_recent=recent), "e2", *targets(pins)).code == code


def test_a_plan_that_is_closed_already_is_the_same_again():
    companions = {"e2": ("e3", "e4"), "e3": ("e6",)}
    closed = repaired(TALK, "e2", companions)
    assert sorted(repaired(TALK, closed, companions).split()) == sorted(closed.split())
