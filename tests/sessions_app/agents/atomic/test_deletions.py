"""Deletions as Atomic applies them: every recorded one, except those that replay safety reverts.

The writer records one line that the agent honours, with exactly what was approved.
"""

import json
from typing import Any

import pytest
from hypothesis import given, strategies as st

from sessions_app.agents.atomic.pure.format import (
    AtomicReader,
    ContextCompactionWriter,
    effective_filters,
    recorded_filters,
)
from sessions_app.sessionlog.entries import Deletion, DeletionControl, Stats, Target
from sessions_app.sessionlog.errors import BadInput
from tests.factories import (
    assistant,
    block,
    branch_of,
    call,
    chain,
    compaction,
    deletions,
    named,
    result,
    text,
    thinking,
    user,
    whole,
    write_facts,
)

ABC = assistant(text("a"), text("b"), text("c"))


def cut(words: str) -> dict[str, Any]:
    """A compaction with these targets, as in `e6 e7[1]`."""
    return compaction(*deletions(words)["deletions"])


def hidden(*messages: dict[str, Any]) -> str:
    """The hidden entries and blocks on the branch of these messages, with ids e1, e2, …, as `cut` names them."""
    filters = effective_filters(branch_of(chain(*messages)))
    blocks = [Target(entry_id, index) for entry_id, indexes in filters.blocks.items() for index in indexes]
    return " ".join(sorted(named(*map(Target, filters.entries), *blocks).split()))


def kept(*messages: dict[str, Any]) -> list[Any]:
    """The ids of the rebuilt messages; with the indexes of the remaining blocks if their content is a list."""
    context = AtomicReader().rebuild(branch_of(chain(*messages)))
    return [
        one.entry.id if one.blocks is None else (one.entry.id, [block.index for block in one.blocks])
        for one in context.messages
    ]


def test_all_deletions_of_context_compactions_on_the_branch_add_up_whatever_follows():
    assert hidden(user("x"), assistant(text("y"))) == ""
    assert hidden(user("x"), ABC, cut("e2[0] e1"), user("y"), cut("e2[2] e4 e2[0]")) == "e1 e2[0] e2[2] e4"
    assert hidden(cut("e2"), user("x")) == "e2"
    assert hidden(user("x"), {**cut("e1"), "type": "compaction"}) == ""
    for fields in ({}, *({"deletedTargets": targets} for targets in (None, 7, "e1", whole("e1"), []))):
        assert hidden(user("x"), {"type": "context_compaction", **fields}) == "", fields


def test_a_compaction_on_another_branch_hides_nothing_here():
    recorded = chain(user("a"), compaction(whole("e1")), user("b"))
    recorded[-1]["parentId"] = "e1"
    branch = branch_of(recorded)
    assert [entry.id for entry in branch] == ["e1", "e3"]
    assert not effective_filters(branch).entries


INVALID: list[Any] = [
    *(None, 7, "e1", [], {}, {"kind": "entry"}, {"entryId": "e1"}, {"kind": "entry", "entryId": 1}),
    *({"kind": "entry", "entryId": None}, {"kind": "all", "entryId": "e1"}, {"kind": None, "entryId": "e1"}),
    {"kind": "content_block", "entryId": "e1"},
    *(block("e1", one) for one in (None, "0", True, [0], 0.5)),
]


@pytest.mark.parametrize("target", INVALID, ids=str)
def test_an_invalid_deletion_is_skipped_and_its_neighbours_are_applied(target):
    broken = {"type": "context_compaction", "deletedTargets": [target, whole("e2")]}
    assert hidden(user("x"), user("y"), broken) == "e2"


def test_targets_keep_their_recorded_order():
    branch = branch_of(chain(user("x"), cut("e9 e1[2] e9")))
    assert branch[-1].control == DeletionControl((("e9", None), ("e1", 2), ("e9", None)), None, "")


REMAINING: dict[str, tuple[list[Any], list[Any]]] = {
    "the other blocks keep their recorded indexes": ([ABC, cut("e1[1]")], [("e1", [0, 2])]),
    "a message that loses its last block disappears": ([ABC, cut("e1[1]"), cut("e1[0] e1[2]"), user("x")], ["e4"]),
    "a message recorded with an empty list stays": ([assistant(), cut("e1[0]")], [("e1", [])]),
    "a block that does not exist hides nothing": ([ABC, cut("e1[-1] e1[3] e1[99]")], [("e1", [0, 1, 2])]),
    "a string has no blocks to hide": ([user("x"), cut("e1[0]")], ["e1"]),
}


@pytest.mark.parametrize("name", REMAINING)
def test_what_remains_of_a_message(name):
    messages, left = REMAINING[name]
    assert kept(*messages) == left


def test_only_remaining_blocks_count_in_the_estimate():
    said = assistant(text("a" * 8), text("b" * 40), text("c" * 4))
    context = AtomicReader().rebuild(branch_of(chain(said, cut("e1[1]"))))
    assert (context.messages[0].tokens, context.estimate) == (3, 3)


THOUGHT = assistant(thinking("t"), text("a"), call("c1"), call("c2"))
TALK = (user("x"), THOUGHT, result("c1"), result("c2"), user("y"))
"""e2 has thinking and makes the calls that e3 and e4 answer."""
LATER = assistant(thinking("t"), text("z"))
REDACTED = assistant({"type": "redacted_thinking", "data": "x"}, text("a"))
SAFE: dict[str, tuple[list[Any], str]] = {
    **{f"block {at} of the latest thinking is not hidden": ([*TALK, cut(f"e2[{at}] e1")], "e1") for at in range(4)},
    "no block beside redacted thinking either": ([REDACTED, cut("e1[1]")], ""),
    "a block that does not exist counts as targeting it": ([*TALK, cut("e2[99] e3")], ""),
    "a compaction that targets it loses all its targets among the results": ([*TALK, cut("e2[2] e3 e4[0] e1")], "e1"),
    "an earlier one loses whole results but no blocks of them": ([*TALK, cut("e3 e4[0] e1"), cut("e2[2]")], "e1 e4[0]"),
    "a later one as well": ([*TALK, cut("e2[2]"), cut("e3 e4[0] e1")], "e1 e4[0]"),
    "results are deleted if no block of it is": ([*TALK, cut("e3 e4[0] e1")], "e1 e3 e4[0]"),
    "results of other calls stay deleted": ([assistant(call("c0")), result("c0"), *TALK[1:], cut("e3[0] e2")], "e2"),
    "earlier thinking may be deleted before a later one": ([*TALK, assistant(text("z")), cut("e2[0]")], "e2[0]"),
    "a deleted assistant is not the latest one": ([*TALK, LATER, cut("e6 e2[1] e3")], "e6"),
    "an assistant without thinking protects nothing": ([*TALK, ABC, cut("e6[0]")], "e6[0]"),
    "the latest thinking stays deleted if its whole entry is": ([*TALK, cut("e2 e3 e4")], "e2 e3 e4"),
    "a plan against it is reverted": ([*TALK, cut("e2[2] e3")], ""),
    "such a plan is reinstated by a later assistant": ([*TALK, cut("e2[2] e3"), assistant(text("z"))], "e2[2] e3"),
}


@pytest.mark.parametrize("name", SAFE)
def test_the_latest_thinking_can_be_replayed(name):
    messages, found = SAFE[name]
    assert hidden(*messages) == found


ids = st.sampled_from(["e1", "e2", "e3", "e4", "e5"])
chosen = st.builds(whole, ids) | st.builds(block, ids, st.integers(0, 4))
plans = st.lists(chosen, max_size=5).map(lambda one: compaction(*one))


@given(st.lists(plans, max_size=3))
def test_the_latest_thinking_is_replayed_whole_or_not_at_all_and_nothing_else_is_added(compactions):
    branch = branch_of(chain(*TALK, *compactions))
    effective, recorded = effective_filters(branch), recorded_filters(branch)
    assert "e2" not in effective.blocks or "e2" in effective.entries
    assert effective.entries <= recorded.entries
    assert recorded.entries - effective.entries <= {"e3", "e4"}
    for entry_id, indexes in effective.blocks.items():
        assert indexes <= recorded.blocks[entry_id]
    for entry_id in recorded.blocks.keys() - {"e2", "e3", "e4"}:
        assert effective.blocks[entry_id] == recorded.blocks[entry_id]


WRITER = ContextCompactionWriter()
MESSAGES = (user("go"), assistant(text("a"), call("c1")), result("c1"), user("on"))
TARGETS = (Target("e3"), Target("e2", 1))
STATS = Stats(6, 4, 2, 100, 50, 50.0)


def written() -> bytes:
    facts = write_facts(chain(*MESSAGES), ids=["e9"])
    (line,) = WRITER.write(branch_of(chain(*MESSAGES)), Deletion(TARGETS, ("e1", "e4"), STATS), facts).lines
    return line


def test_the_line_follows_the_leaf_and_names_what_was_approved_and_the_agent_reads_that():
    objects = {"objectsBefore": 6, "objectsAfter": 4, "objectsDeleted": 2}
    assert json.loads(written()) == {
        **cut("e3 e2[1]"),
        "id": "e9",
        "parentId": "e4",
        "timestamp": "2026-01-05T10:00:00.000Z",
        "promptVersion": 1,
        "protectedEntryIds": ["e1", "e4"],
        "stats": {**objects, "tokensBefore": 100, "tokensAfter": 50, "percentReduction": 50},
        "backupPath": "/sessions/a.jsonl.bak",
    }
    context = AtomicReader().rebuild(branch_of([*chain(*MESSAGES), written()]))
    assert [one.entry.id for one in context.messages] == ["e1", "e2", "e4"]
    assert [block.index for block in context.messages[1].blocks or ()] == [0]


def test_targets_that_the_agent_will_not_apply_are_known_before_the_write():
    branch = branch_of(chain(user("go"), assistant(thinking("hm"), text("I read it"), call("c1")), result("c1")))
    targets = (Target("e2", 1), Target("e2", 2), Target("e3"))
    assert WRITER.unapplied(branch, targets) == targets
    recorded = chain(user("go"), assistant(thinking("hm"), text("a")), assistant(text("b"), text("c")), user("on"))
    assert WRITER.unapplied(branch_of(recorded), [Target("e2", 0), Target("e3", 1)]) == ()


def test_a_plan_that_would_bring_back_what_was_deleted_before_is_refused():
    """Without e3, the latest answer is e2, whose thinking Atomic sends with everything beside it."""
    messages = chain(
        user("go"), assistant(thinking("hm"), text("old")), assistant(text("so")), user("on"), cut("e2[1]")
    )
    answer, both = (Target("e3"),), (Target("e2"), Target("e3"))
    with pytest.raises(BadInput, match="would send block 1 of entry e2 again") as refused:
        WRITER.write(branch_of(messages), Deletion(answer, (), STATS), write_facts(messages))
    assert refused.value.code == "brings_back"
    assert WRITER.write(branch_of(messages), Deletion(both, (), STATS), write_facts(messages)).lines
