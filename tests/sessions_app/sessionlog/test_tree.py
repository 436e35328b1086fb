"""The tree: the agent's branches, all of them finite, however damaged the file is."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sessions_app.sessionlog.entries import Entry
from sessions_app.sessionlog.errors import BadInput
from sessions_app.sessionlog.session import DamageKind
from sessions_app.sessionlog.tree import NO_PARENT, SessionTree

LONG = 50_000


def entry(number: int, entry_id: str, parent_id: str | None) -> Entry:
    return Entry(number, number * 100, 99, entry_id, parent_id, "message")


def tree_of(*links: tuple[str, str | None]) -> SessionTree:
    """A tree of (id, parent id), on lines starting at 2."""
    return SessionTree([entry(number, *link) for number, link in enumerate(links, 2)])


def path(tree: SessionTree, leaf: str) -> list[str]:
    return [one.id for one in tree.branch(leaf)]


def damage(tree: SessionTree) -> list[tuple[DamageKind, int]]:
    """Kinds of damage, with their lines."""
    return [(one.kind, one.number) for one in tree.damage]


def test_a_branch_runs_from_the_root_to_its_leaf():
    tree = tree_of(("a", None), ("b", "a"), ("c", "a"), ("d", "b"))
    assert path(tree, "d") == ["a", "b", "d"]
    assert path(tree, "c") == ["a", "c"]
    assert path(tree, "a") == ["a"]
    assert tree.leaf.id == "d"
    assert damage(tree) == []


def test_a_fork_lists_its_branches_in_file_order():
    tree = tree_of(("a", None), ("c", "a"), ("b", "a"), ("r", None), ("d", "c"))
    assert tree.children == {NO_PARENT: [0, 3], 0: [1, 2], 1: [4]}


def test_an_unknown_id_is_bad_input_and_an_empty_session_has_no_leaf():
    tree = tree_of(("a", None))
    for ask in (tree.entry, tree.position, tree.branch, lambda one: tree.descends("a", one)):
        with pytest.raises(BadInput) as caught:
            ask("nowhere")
        assert caught.value.code == "unknown_entry"
        assert "nowhere" in caught.value.message
    with pytest.raises(BadInput) as caught:
        tree_of().leaf  # noqa: B018  the refusal is expected
    assert caught.value.code == "no_entries"


def test_the_last_entry_of_an_id_counts_and_earlier_ones_are_reported():
    tree = tree_of(("a", None), ("x", "a"), ("b", "x"), ("x", None), ("c", "x"))
    assert tree.entry("x").number == 5
    assert [one.number for one in tree.branch("b")] == [5, 4]
    assert path(tree, "c") == ["x", "c"]
    assert damage(tree) == [(DamageKind.DUPLICATE_ID, 3)]
    assert 1 not in [position for below in tree.children.values() for position in below]


@pytest.mark.parametrize(
    ("links", "leaf", "branch", "damaged"),
    [
        ([("b", "a"), ("a", None), ("c", "b")], "c", "abc", []),
        ([("a", None), ("b", "gone"), ("c", "b")], "c", "bc", [(DamageKind.MISSING_PARENT, 3)]),
        ([("x", None)] * 3, "x", "x", [(DamageKind.DUPLICATE_ID, 2), (DamageKind.DUPLICATE_ID, 3)]),
        ([("a", "a"), ("b", "a")], "b", "ab", [(DamageKind.CYCLE, 2)]),
        ([("r", None), ("a", "b"), ("b", "a"), ("c", "b")], "c", "abc", [(DamageKind.CYCLE, 3)]),
        ([("a", "b"), ("c", "d"), ("b", "a"), ("d", "c")], "b", "ab", [(DamageKind.CYCLE, 2), (DamageKind.CYCLE, 3)]),
        ([("a", "b"), ("c", "d"), ("b", "a"), ("d", "c")], "d", "cd", [(DamageKind.CYCLE, 2), (DamageKind.CYCLE, 3)]),
    ],
    ids=[
        *("a parent that comes later", "an orphan", "an id that occurs three times", "its own parent"),
        *("each other's parent", "the first of two cycles", "the second of two cycles"),
    ],
)
def test_a_branch_is_cut_where_it_is_damaged_and_the_damage_is_reported(links, leaf, branch, damaged):
    tree = tree_of(*links)
    assert path(tree, leaf) == list(branch)
    assert damage(tree) == damaged


def test_a_long_cycle_is_cut_once_above_its_first_line_wherever_it_is_entered():
    length = 1_000
    links = [(f"e{number}", f"e{(number - 7) % length}") for number in range(length)]
    tree = tree_of(("z", "e500"), *links)
    assert damage(tree) == [(DamageKind.CYCLE, 3)]
    assert len(path(tree, "e993")) == length
    assert path(tree, "e993")[0] == "e0"
    assert path(tree, "z")[-2:] == ["e500", "z"]


def test_a_cycle_that_a_duplicate_closes_is_cut():
    tree = tree_of(("x", None), ("b", "x"), ("c", "b"), ("x", "c"), ("d", "x"))
    assert damage(tree) == [(DamageKind.DUPLICATE_ID, 2), (DamageKind.CYCLE, 3)]
    assert [one.number for one in tree.branch("d")] == [3, 4, 5, 6]


def test_descent_follows_the_branch_only():
    tree = tree_of(("a", None), ("b", "a"), ("c", "b"), ("d", "a"))
    assert tree.descends("c", "a")
    assert tree.descends("c", "c")
    assert not tree.descends("a", "c")
    assert not tree.descends("d", "b")


ids = st.integers(0, 12).map(str)


@given(st.lists(st.tuples(ids, ids | st.none()), max_size=25))
@example([("0", "0"), ("0", "1"), ("1", "0")])
def test_every_branch_is_finite_and_has_no_entry_twice(links):
    tree = tree_of(*links)
    for one in tree.entries:
        branch = path(tree, one.id)
        assert branch[-1] == one.id
        assert len(set(branch)) == len(branch)
        assert {tree.descends(one.id, above) for above in branch} == {True}
        # Every step is a recorded one.
        for above, below in pairwise(branch):
            assert tree.entry(below).parent_id == above


@given(st.lists(st.tuples(ids, ids | st.none()), max_size=25))
def test_every_id_has_exactly_one_position(links):
    tree = tree_of(*links)
    placed = [tree.entries[position].id for below in tree.children.values() for position in below]
    assert sorted(placed) == sorted({entry_id for entry_id, _ in links})


@given(st.permutations(range(12)))
def test_an_undamaged_tree_is_undamaged_in_any_order_of_its_lines(order):
    links = [(str(number), str((number - 1) // 2) if number else None) for number in order]
    tree = tree_of(*links)
    assert damage(tree) == []
    assert path(tree, "11") == ["0", "2", "5", "11"]


@contextmanager
def without_hanging() -> Iterator[None]:
    """Fail if the block takes more than 20 seconds, where a fraction of one is enough."""

    def give_up(*_: object) -> None:
        raise AssertionError("every entry is walked to its root")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(20)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("step", [-1, 1], ids=["parent before", "parent after"])
def test_a_chain_of_50_000_entries_is_one_branch(step):
    """Walking each entry to its root would take 1,250,000,000 steps here."""
    links = [(str(number), str(number + step)) for number in range(LONG)]
    with without_hanging():
        tree = tree_of(*links)
    last = str(LONG - 1 if step == -1 else 0)
    assert len(tree.branch(last)) == LONG
    assert [kind for kind, _ in damage(tree)] == [DamageKind.MISSING_PARENT]


def test_a_cycle_of_50_000_entries_is_cut_once():
    with without_hanging():
        tree = tree_of(*((str(number), str((number + 1) % LONG)) for number in range(LONG)))
    assert damage(tree) == [(DamageKind.CYCLE, 2)]
    assert len(tree.branch("1")) == LONG
