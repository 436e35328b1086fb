"""The filters: every recorded deletion is applied, except those that replay safety reverts."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessions_app.agents.atomic.filters import effective_filters, recorded_filters
from sessions_app.agents.atomic.reader import AtomicReader
from sessions_app.sessionlog.controls import DeletionControl
from tests.factories import (
    assistant,
    block,
    branch_of,
    call,
    chain,
    compaction,
    result,
    text,
    thinking,
    user,
    whole,
)


def hidden(*messages: dict[str, Any]) -> tuple[set[str], dict[str, set[int]]]:
    """The hidden entries and blocks on the branch of these messages, with ids e1, e2, …"""
    filters = effective_filters(branch_of(chain(*messages)))
    return set(filters.entries), {entry_id: set(indexes) for entry_id, indexes in filters.blocks.items()}


def kept(*messages: dict[str, Any]) -> list[Any]:
    """The ids of the rebuilt messages; with the indexes of the remaining blocks if their content is a list."""
    context = AtomicReader().rebuild(branch_of(chain(*messages)))
    return [
        one.entry.id if one.blocks is None else (one.entry.id, [block.index for block in one.blocks])
        for one in context.messages
    ]


# ---- adding up ----------------------------------------------------------------------------------------------


def test_a_branch_without_compaction_hides_nothing() -> None:
    assert hidden(user("x"), assistant(text("y"))) == (set(), {})


def test_all_deletions_on_the_branch_add_up() -> None:
    assert hidden(
        user("x"),
        assistant(text("a"), text("b"), text("c")),
        compaction(block("e2", 0), whole("e1")),
        user("y"),
        compaction(block("e2", 2), whole("e4"), block("e2", 0)),
    ) == ({"e1", "e4"}, {"e2": {0, 2}})


def test_a_compaction_on_another_branch_hides_nothing_here() -> None:
    recorded = chain(user("a"), compaction(whole("e1")), user("b"))
    recorded[-1]["parentId"] = "e1"
    branch = branch_of(recorded)
    assert [entry.id for entry in branch] == ["e1", "e3"]
    assert not effective_filters(branch).entries


def test_a_compaction_hides_entries_before_and_after_it() -> None:
    assert hidden(compaction(whole("e2")), user("x"))[0] == {"e2"}


def test_only_a_context_compaction_deletes() -> None:
    other = {**compaction(whole("e1")), "type": "compaction"}
    assert hidden(user("x"), other) == (set(), {})


@pytest.mark.parametrize(
    "target",
    [
        *(None, 7, "e1", [], {}, {"kind": "entry"}, {"entryId": "e1"}, {"kind": "entry", "entryId": 1}),
        *(
            {"kind": "entry", "entryId": None},
            {"kind": "all", "entryId": "e1"},
            {"kind": None, "entryId": "e1"},
        ),
        {"kind": "content_block", "entryId": "e1"},
        *(
            {"kind": "content_block", "entryId": "e1", "blockIndex": one}
            for one in (None, "0", True, [0], 0.5)
        ),
    ],
    ids=str,
)
def test_an_invalid_deletion_is_skipped_and_its_neighbours_are_applied(target: object) -> None:
    broken = {"type": "context_compaction", "deletedTargets": [target, whole("e2")]}
    assert hidden(user("x"), user("y"), broken) == ({"e2"}, {})


@pytest.mark.parametrize("targets", [None, 7, "e1", {"kind": "entry", "entryId": "e1"}, []])
def test_a_compaction_without_a_list_of_deletions_deletes_nothing(targets: object) -> None:
    assert hidden(user("x"), {"type": "context_compaction", "deletedTargets": targets}) == (set(), {})
    assert hidden(user("x"), {"type": "context_compaction"}) == (set(), {})


def test_targets_keep_their_recorded_order() -> None:
    branch = branch_of(chain(user("x"), compaction(whole("e9"), block("e1", 2), whole("e9"))))
    control = branch[-1].control
    assert isinstance(control, DeletionControl)
    assert control.targets == (("e9", None), ("e1", 2), ("e9", None))


# ---- remaining blocks ---------------------------------------------------------------------------------------


def test_the_other_blocks_keep_their_recorded_indexes() -> None:
    said = assistant(text("a"), text("b"), text("c"))
    assert kept(user("x"), said, compaction(block("e2", 1))) == ["e1", ("e2", [0, 2])]


def test_a_message_that_loses_its_last_block_disappears() -> None:
    said = assistant(text("a"), text("b"))
    assert kept(user("x"), said, compaction(block("e2", 1)), compaction(block("e2", 0))) == ["e1"]


def test_a_message_recorded_with_an_empty_list_stays() -> None:
    assert kept(user("x"), assistant(), compaction(block("e2", 0))) == ["e1", ("e2", [])]


@pytest.mark.parametrize("index", [-1, 2, 99])
def test_a_block_that_does_not_exist_hides_nothing(index: int) -> None:
    assert kept(assistant(text("a"), text("b")), compaction(block("e1", index))) == [("e1", [0, 1])]


def test_a_string_has_no_blocks_to_hide() -> None:
    assert kept(user("x"), compaction(block("e1", 0))) == ["e1"]


def test_only_remaining_blocks_count_in_the_estimate() -> None:
    said = assistant(text("a" * 8), text("b" * 40), text("c" * 4))
    context = AtomicReader().rebuild(branch_of(chain(said, compaction(block("e1", 1)))))
    assert (context.messages[0].tokens, context.estimate) == (3, 3)


# ---- replay safety ------------------------------------------------------------------------------------------

THOUGHT = assistant(thinking("t"), text("a"), call("c1"), call("c2"))
TALK = (user("x"), THOUGHT, result("c1"), result("c2"), user("y"))
"""e2 has thinking and makes the calls that e3 and e4 answer."""


def test_no_block_of_the_latest_thinking_is_hidden_whatever_its_kind() -> None:
    for index in range(4):
        assert hidden(*TALK, compaction(block("e2", index), whole("e1"))) == ({"e1"}, {})
    redacted = assistant({"type": "redacted_thinking", "data": "x"}, text("a"))
    assert hidden(redacted, compaction(block("e1", 1))) == (set(), {})


def test_a_block_that_does_not_exist_counts_as_targeting_the_latest_thinking() -> None:
    assert hidden(*TALK, compaction(block("e2", 99), whole("e3"))) == (set(), {})


def test_a_compaction_that_targets_it_loses_all_its_targets_among_the_results() -> None:
    assert hidden(*TALK, compaction(block("e2", 2), whole("e3"), block("e4", 0), whole("e1"))) == ({"e1"}, {})


def test_any_other_compaction_loses_whole_results_but_keeps_its_blocks_of_them() -> None:
    other = compaction(whole("e3"), block("e4", 0), whole("e1"))
    assert hidden(*TALK, other, compaction(block("e2", 2))) == ({"e1"}, {"e4": {0}})
    assert hidden(*TALK, compaction(block("e2", 2)), other) == ({"e1"}, {"e4": {0}})


def test_results_are_deleted_if_no_block_of_the_latest_thinking_is() -> None:
    assert hidden(*TALK, compaction(whole("e3"), block("e4", 0))) == ({"e3"}, {"e4": {0}})


def test_results_of_other_calls_are_not_restored() -> None:
    earlier = (assistant(call("c0")), result("c0"))
    assert hidden(*earlier, *TALK[1:], compaction(block("e3", 0), whole("e2"))) == ({"e2"}, {})


def test_earlier_thinking_may_be_deleted_once_there_is_a_later_assistant() -> None:
    assert hidden(*TALK, assistant(text("z")), compaction(block("e2", 0))) == (set(), {"e2": {0}})


def test_a_deleted_assistant_is_not_the_latest_one() -> None:
    later = assistant(thinking("t"), text("z"))
    assert hidden(*TALK, later, compaction(whole("e6"), block("e2", 1), whole("e3"))) == ({"e6"}, {})


def test_an_assistant_without_thinking_protects_nothing() -> None:
    assert hidden(*TALK, assistant(text("a"), text("b")), compaction(block("e6", 0))) == (set(), {"e6": {0}})


def test_the_latest_thinking_stays_deleted_if_its_whole_entry_is() -> None:
    assert hidden(*TALK, compaction(whole("e2"), whole("e3"), whole("e4"))) == ({"e2", "e3", "e4"}, {})


def test_a_later_assistant_can_reinstate_deletions() -> None:
    plan = compaction(block("e2", 2), whole("e3"))
    assert hidden(*TALK, plan) == (set(), {})
    assert hidden(*TALK, plan, assistant(text("z"))) == ({"e3"}, {"e2": {2}})


ids = st.sampled_from(["e1", "e2", "e3", "e4", "e5"])
plans = st.lists(st.builds(whole, ids) | st.builds(block, ids, st.integers(0, 4)), max_size=5).map(
    lambda one: compaction(*one)
)


@given(st.lists(plans, max_size=3))
def test_the_latest_thinking_is_replayed_whole_or_not_at_all_and_nothing_else_is_added(
    compactions: list[dict[str, Any]],
) -> None:
    branch = branch_of(chain(*TALK, *compactions))
    effective, recorded = effective_filters(branch), recorded_filters(branch)
    assert "e2" not in effective.blocks or "e2" in effective.entries
    assert effective.entries <= recorded.entries
    assert recorded.entries - effective.entries <= {"e3", "e4"}
    for entry_id, indexes in effective.blocks.items():
        assert indexes <= recorded.blocks[entry_id]
    for entry_id in recorded.blocks.keys() - {"e2", "e3", "e4"}:
        assert effective.blocks[entry_id] == recorded.blocks[entry_id]
