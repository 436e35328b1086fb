"""The way of an undo, and the entries that come back together."""

from collections.abc import Mapping

import pytest

from compaction_app.core.undo_ways import UndoWay, choose_way, with_pairs
from sessions_app.agents.pi.reader import PiReader
from sessions_app.sessionlog.targets import Target
from tests.factories import assistant, branch_of, call, chain, result, text, user

A = {"can_move": True, "can_edit": False, "can_plan": True}
"""An agent that honours no later edits."""
PI = {"can_move": True, "can_edit": True, "can_plan": True}
BOUNDARIES = {"can_move": False, "can_edit": True, "can_plan": True}
"""An agent whose later lines bring entries back, but which cannot continue from an earlier entry."""


@pytest.mark.parametrize(
    ("facts", "is_last", "is_whole", "way"),
    [
        (A, True, True, UndoWay.LEAF),
        (A, False, True, UndoWay.FORK),
        (A, True, False, UndoWay.SMALLER),
        (A, False, False, UndoWay.FORK),
        (A | {"can_plan": False}, True, False, UndoWay.FORK),
        (A | {"can_plan": False}, True, True, UndoWay.LEAF),
        (BOUNDARIES, True, True, UndoWay.EDITS),
        (PI, True, True, UndoWay.LEAF),
        (PI, False, True, UndoWay.EDITS),
        (PI, True, False, UndoWay.EDITS),
        (PI, False, False, UndoWay.EDITS),
    ],
)
def test_the_way_depends_on_the_agent_and_on_what_followed(facts, is_last, is_whole, way):
    assert choose_way(made_session=False, is_last=is_last, is_whole=is_whole, **facts) is way


@pytest.mark.parametrize("is_last", [True, False])
@pytest.mark.parametrize("facts", [A, PI])
def test_a_new_session_is_deleted_or_made_again(facts, is_last):
    whole = choose_way(made_session=True, is_last=is_last, is_whole=True, **facts)
    part = choose_way(made_session=True, is_last=is_last, is_whole=False, **facts)
    assert (whole, part) == (UndoWay.REMOVAL, UndoWay.FORK)


def test_only_three_ways_append_to_the_session():
    appending = {way for way in UndoWay if way.appends}
    assert appending == {UndoWay.LEAF, UndoWay.SMALLER, UndoWay.EDITS}
    assert len({way.sentence for way in UndoWay}) == len(UndoWay)


def together(
    wanted: list[Target], deleted: list[Target], companions: Mapping[str, tuple[str, ...]] | None = None
) -> list[Target]:
    """e2 calls x and y, e3 answers x, e4 answers y; e5 calls z in block 1, e6 answers it."""
    branch = branch_of(
        chain(
            user("Go."),
            assistant(call("x"), call("y")),
            result("x"),
            result("y"),
            assistant(text("next"), call("z")),
            result("z"),
            user("Thanks."),
        )
    )
    messages = {message.entry.id: message for message in PiReader().rebuild(branch).messages}
    return list(with_pairs(wanted, deleted, messages, companions or {}))


E = [Target("e2"), Target("e3"), Target("e4"), Target("e5", 1), Target("e6")]


@pytest.mark.parametrize(
    ("wanted", "back"),
    [([E[0]], E[:3]), ([E[1]], E[:3]), ([E[3]], E[3:]), ([E[4]], E[3:]), ([E[4], E[2]], E), ([], [])],
)
def test_calls_and_results_come_back_together_in_order(wanted, back):
    assert together(wanted, E) == back


def test_one_call_of_several_comes_back_alone():
    deleted = [Target("e2", 0), Target("e3"), Target("e2", 1), Target("e4")]
    assert together([Target("e3")], deleted) == deleted[:2]


def test_a_block_of_a_result_or_of_a_text_comes_back_alone():
    deleted = [Target("e3", 0), Target("e5", 0), Target("e5", 1), Target("e6")]
    assert together([Target("e3", 0)], deleted) == [Target("e3", 0)]
    assert together([Target("e5", 0)], deleted) == [Target("e5", 0)]


def test_what_is_not_in_the_context_comes_back_alone():
    assert together([Target("gone")], [*E, Target("gone")]) == [Target("gone")]


def test_what_must_not_be_deleted_without_an_entry_comes_back_with_it():
    deleted = [Target("e1"), Target("e3"), Target("e2"), Target("e5"), Target("e6"), Target("e4")]
    joined = {"e1": ("e5",), "e5": ("e7",), "e7": ("e6",)}
    assert together([Target("e5")], deleted, joined) == [Target("e1"), Target("e5"), Target("e6")]
    assert together([Target("e1")], deleted, joined) == [Target("e1")]
    assert together([Target("e5", 0)], [Target("e1"), Target("e5", 0)], joined) == [Target("e5", 0)]
