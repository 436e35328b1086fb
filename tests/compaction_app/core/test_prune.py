"""Promises of the prune planner: it deletes old tool results with their calls, or nothing.

The sums are counted anew here, over the entries of the transcript.
"""

from typing import Any

import pytest
from hypothesis import assume, strategies as st

from compaction_app.core.gates import NO_RESTRAINTS, Restraints
from compaction_app.core.groups import reason_title
from compaction_app.core.loop import Exhausted, Loop
from compaction_app.core.prune import DONE, PrunePlanner
from compaction_app.core.store import DeletionStore
from compaction_app.core.tools import Workbench
from compaction_app.core.transcript import Transcript
from sessions_app.sessionlog.entries import Target, request_of
from tests.compaction_app.core.strategies import MESSAGES, Recorded, given_often, objects
from tests.compaction_app.core.test_embedded import Run
from tests.compaction_app.core.test_pairing import Joined
from tests.factories import (
    assistant,
    branch_and_texts,
    call,
    chain,
    prepare,
    result,
    session_bytes,
    text,
    thinking,
    transcript_of,
    user,
)

SAFE, LEAST = 40_000, 20_000


class Pruned(Run):
    """A whole run of the planner, and why it ended."""

    def __init__(self, transcript: Transcript, restraints: Restraints = NO_RESTRAINTS) -> None:
        self.why = ""
        try:
            super().__init__(transcript, restraints, PrunePlanner(transcript))
        except Exhausted as done:
            self.why = str(done)
            self.events.append(self.loop.close())


def sized(tokens: int, call_id: str = "", **fields: Any) -> dict[str, Any]:
    """A result whose estimate is so many tokens."""
    return result(call_id, "x" * 4 * tokens, **fields)


def steps(*sizes: int) -> list[dict[str, Any]]:
    """A task, a call with a result of each size, and an end. The result of step n from 1 is `e{2n + 1}`."""
    found = [user("fix it")]
    for number, tokens in enumerate(sizes, 1):
        found += [assistant(call(f"c{number}", "bash")), sized(tokens, f"c{number}", name="bash")]
    return [*found, assistant(text("done"))]


def test_eight_outputs_as_an_agent_prunes_them():
    """Eight outputs of 11,363 tokens, of which OpenCode marks the five oldest."""
    pruned = Pruned(transcript_of(*steps(*[11_363] * 8)))
    assert pruned.gone == {f"e{number}" for number in range(2, 12)}


def test_old_results_go_with_their_calls_and_what_else_an_assistant_said_stays():
    recorded = steps(30_000, 39_000)
    recorded[1] = assistant(text("I look"), call("c1"))
    pruned = Pruned(transcript_of(*recorded))
    assert set(pruned.store.targets) == {Target("e3"), Target("e2", 1)}
    assert pruned.why in ("", DONE)


def test_each_reason_counts_the_newer_results_and_all_are_one_group():
    pruned = Pruned(transcript_of(*steps(12_000, 15_000, 39_000)))
    reasons = list(map(pruned.reason, ("e3", "e5")))
    beyond = "an output of bash beyond the newest 40,000 tokens of tool results, which are {} with it"
    assert reasons == [beyond.format("66,000"), beyond.format("54,000")]
    assert {reason_title(reason) for reason in reasons} == {"Older than the newest 40,000 tokens of tool results"}


@pytest.mark.parametrize(
    ("sizes", "gone"),
    [
        pytest.param((LEAST, SAFE), {"e2", "e3"}, id="enough"),
        pytest.param((LEAST - 1, SAFE), set(), id="one token less"),
        pytest.param((LEAST, SAFE - LEAST), set(), id="all are safe"),
        pytest.param((LEAST, SAFE - LEAST + 1), {"e2", "e3"}, id="beyond"),
        pytest.param((SAFE,), set(), id="just safe"),
        pytest.param((SAFE + 1,), {"e2", "e3"}, id="one too large"),
        pytest.param((), set(), id="none"),
    ],
)
def test_the_limits_are_exact(sizes, gone):
    pruned = Pruned(transcript_of(*steps(*sizes)))
    assert pruned.gone == gone
    if not gone:
        assert (pruned.targets, pruned.calls) == ((), [])
        assert "The least is 20,000, and the newest 40,000 are safe." in pruned.why


def test_long_messages_and_failed_results_stay_and_these_count_as_newer():
    words = "x" * 400_000
    pruned = Pruned(transcript_of(user("go"), assistant(text(words), thinking(words)), *steps(25_000, SAFE)))
    assert pruned.gone == {"e4", "e5"}
    recorded = steps(LEAST, LEAST, 30_000)
    recorded[4] = sized(LEAST, "c2", error=True)
    assert Pruned(transcript_of(*recorded)).gone == {"e2", "e3"}


@pytest.mark.parametrize("pinned", ["e2", "e3"], ids=["call", "result"])
def test_what_a_human_pinned_stays_and_the_rest_is_counted_anew(pinned):
    restraints = Restraints(pins=frozenset([Target(pinned)]))
    assert Pruned(transcript_of(*steps(9_000, 25_000, SAFE)), restraints).gone == {"e4", "e5"}
    less = Pruned(transcript_of(*steps(25_000, 9_000, SAFE)), restraints)
    assert less.store.targets == ()
    assert "about 9,000 tokens" in less.why


def test_a_guard_of_all_thinking_is_learned_from_one_refusal():
    recorded = steps(*[5_000] * 20, SAFE)
    for place in range(1, 31, 2):
        recorded[place] = assistant(thinking("hm"), *recorded[place]["content"])
    pruned = Pruned(transcript_of(*recorded), Restraints(thinking_guard="all"))
    assert pruned.gone == {f"e{number}" for number in range(32, 42)}
    assert len(pruned.calls) == 2


def test_two_results_of_one_call_go_together_or_stay_together():
    first = [user("go"), assistant(call("c1")), sized(30_000, "c1")]
    second, newest = sized(5, "c1"), [assistant(call("c2")), sized(SAFE - 5, "c2")]
    assert Pruned(transcript_of(*first, *newest, second, assistant(text("done")))).store.targets == ()
    older = [*first, second, *newest, sized(5, "nowhere"), assistant(text("done"))]
    assert Pruned(transcript_of(*older)).gone == {"e2", "e3", "e4"}


@pytest.mark.parametrize(
    ("joined", "gone"),
    [((), {"e2", "e3"}), (("e6",), {"e2", "e3", "e6"}), (("e5",), set()), (("e4",), set()), (("e1",), set())],
    ids=["nothing", "a message", "a safe result", "the call of a safe result", "a protected entry"],
)
def test_what_rules_join_never_takes_a_safe_result_along(joined, gone):
    recorded = [*steps(LEAST, SAFE), assistant(text("really"))]
    assert Pruned(transcript_of(*recorded, rules=Joined({"e2": joined}))).gone == gone


def test_a_second_attempt_keeps_what_the_first_one_chose():
    transcript = transcript_of(*steps(9_000, 25_000, SAFE))
    pruned = Pruned(transcript)
    again = DeletionStore(transcript)
    assert again.delete(request_of([Target("e3")])) is None
    turn = PrunePlanner(transcript).next_turn(Loop(Workbench(again)).report)
    assert Workbench(again).call(turn.calls[0]).refusal is None
    assert set(again.targets) == set(pruned.store.targets)


SIZES = st.sampled_from([1, 900, 9_000, LEAST - 1, 21_000, SAFE])


@st.composite
def sized_messages(draw: st.DrawFn) -> list[Recorded]:
    """Any messages, with results of any size among them."""
    found: list[Recorded] = []
    for message in draw(st.lists(MESSAGES, min_size=3, max_size=14)):
        if message.get("role") == "toolResult" and draw(st.booleans()):
            message = {**message, "content": [text("x" * 4 * draw(SIZES))]}
        found.append(message)
    return found


@st.composite
def pruned_sessions(draw: st.DrawFn) -> Pruned:
    recorded = session_bytes(chain(user("fix it"), *draw(sized_messages())))
    transcript = prepare(*branch_and_texts(recorded), {"preserve_recent": draw(st.sampled_from([0, 0, 2]))})
    assume(transcript is not None)
    pins = frozenset(draw(st.lists(st.sampled_from(objects(transcript)), max_size=2)))
    return Pruned(transcript, Restraints(pins, draw(st.sampled_from(["latest", "latest", "all"]))))


@given_often(pruned_sessions())
def test_only_results_beyond_the_newest_go_and_only_if_they_are_enough_with_their_calls(pruned):
    entries, gone = pruned.store.transcript.entries, pruned.gone
    newer, tokens_gone = 0, 0
    for entry in reversed(entries):
        if entry.role == "toolResult":
            newer += entry.tokens
            if entry.entry_id in gone:
                assert newer > SAFE
                tokens_gone += entry.tokens
    assert tokens_gone >= LEAST if pruned.store.targets else tokens_gone == 0
    answered = {entry.result_for for entry in entries if entry.entry_id in gone}
    left = {entry.result_for for entry in entries if entry.entry_id not in gone and entry.result_for}
    gone_calls: set[str | None] = set()
    kept_calls: set[str | None] = set()
    for entry in entries:
        for block in entry.blocks:
            if entry.entry_id not in gone and Target(entry.entry_id, block.index) not in pruned.store.targets:
                kept_calls.add(block.call_id)
            elif entry.entry_id not in gone or entry.role != "toolResult":
                gone_calls.add(block.call_id)
    assert gone_calls <= answered - left
    assert not kept_calls & (answered - {None})
