"""The way of an undo, and the entries that come back together."""

from collections.abc import Mapping

import pytest

from compaction_app.core.undo_ways import UndoWay, choose_way, with_pairs
from sessions_app.agents.pi.pure.format import PiReader
from sessions_app.sessionlog.entries import Target
from tests.factories import assistant, branch_of, call, chain, result, targets, text, user

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
    for is_whole, way in ((True, UndoWay.REMOVAL), (False, UndoWay.FORK)):
        assert choose_way(made_session=True, is_last=is_last, is_whole=is_whole, **facts) is way


def test_only_three_ways_append_to_the_session():
    assert {way for way in UndoWay if way.appends} == {UndoWay.LEAF, UndoWay.SMALLER, UndoWay.EDITS}
    assert len({way.sentence for way in UndoWay}) == len(UndoWay)


def together(
    wanted: list[Target], deleted: list[Target], companions: Mapping[str, tuple[str, ...]] | None = None
) -> list[Target]:
    """e2 calls x and y, e3 answers x, e4 answers y; e5 calls z in block 1, e6 answers it."""
    first = user("Go."), assistant(call("x"), call("y")), result("x"), result("y")
    branch = branch_of(chain(*first, assistant(text("next"), call("z")), result("z"), user("Thanks.")))
    messages = {message.entry.id: message for message in PiReader().rebuild(branch).messages}
    return list(with_pairs(wanted, deleted, messages, companions or {}))


E = targets("e2 e3 e4 e5[1] e6")


@pytest.mark.parametrize(
    ("wanted", "back"),
    [([E[0]], E[:3]), ([E[1]], E[:3]), ([E[3]], E[3:]), ([E[4]], E[3:]), ([E[4], E[2]], E), ([], [])],
)
def test_calls_and_results_come_back_together_in_order(wanted, back):
    assert together(wanted, E) == back


@pytest.mark.parametrize(
    ("wanted", "deleted", "back"),
    [
        pytest.param("e3", "e2[0] e3 e2[1] e4", "e2[0] e3", id="one call of several"),
        pytest.param("e3[0]", "e3[0] e5[0] e5[1] e6", "e3[0]", id="a block of a result"),
        pytest.param("e5[0]", "e3[0] e5[0] e5[1] e6", "e5[0]", id="a text"),
        pytest.param("gone", "e2 e3 e4 e5[1] e6 gone", "gone", id="what is not in the context"),
    ],
)
def test_what_comes_back_without_the_rest(wanted, deleted, back):
    assert together(targets(wanted), targets(deleted)) == targets(back)


@pytest.mark.parametrize(
    ("wanted", "deleted", "back"),
    [("e5", "e1 e3 e2 e5 e6 e4", "e1 e5 e6"), ("e1", "e1 e3 e2 e5 e6 e4", "e1"), ("e5[0]", "e1 e5[0]", "e5[0]")],
)
def test_what_must_not_be_deleted_without_an_entry_comes_back_with_it(wanted, deleted, back):
    joined = {"e1": ("e5",), "e5": ("e7",), "e7": ("e6",)}
    assert together(targets(wanted), targets(deleted), joined) == targets(back)
