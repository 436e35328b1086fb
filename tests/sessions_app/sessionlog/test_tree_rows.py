"""The rows of a tree: each entry once, in lanes that a drawing can follow, folded without hiding anything."""

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessions_app.sessionlog.branch_comparison import compare
from sessions_app.sessionlog.controls import BoundaryControl, SummaryControl
from sessions_app.sessionlog.entries import Entry, EntryKind, Role
from sessions_app.sessionlog.errors import BadInput
from sessions_app.sessionlog.tree import NO_PARENT, SessionTree
from sessions_app.sessionlog.tree_rows import UNFOLDED, FoldedRows, RowKind, TreeRow, TreeRows, folded

USER = Role.USER
ASSISTANT = Role.ASSISTANT


def entry(number: int, entry_id: str, parent_id: str | None, role: str = USER) -> Entry:
    kind = EntryKind.MESSAGE if role else EntryKind.MODEL
    return Entry(number, number * 100, 99, entry_id, parent_id, "message", kind, role=role, tokens=number)


Links = list[tuple[str, str | None, str]]


def rows_of(*links: tuple[str, str | None] | tuple[str, str | None, str]) -> TreeRows:
    return TreeRows(SessionTree([entry(number, *link) for number, link in enumerate(links, 1)]))


def chain(ids: str, *roles: str) -> Links:
    parents = [None, *ids]
    return [(one, parents[at], roles[at] if at < len(roles) else USER) for at, one in enumerate(ids)]


def ids_of(rows: TreeRows, row: TreeRow) -> str:
    return "".join(rows.tree.entries[position].id for position in row.stretch.positions)


def drawn(rows: TreeRows) -> list[tuple[str, int]]:
    return [(ids_of(rows, row), row.lane) for row in rows.rows]


# ---- every tree ----------------------------------------------------------------------------------------------

names = st.integers(0, 12).map(str)
roles = st.sampled_from([USER, ASSISTANT, Role.BRANCH_SUMMARY, ""])
trees = st.lists(st.tuples(names, names | st.none(), roles), min_size=1, max_size=25)


@given(trees)
def test_every_entry_of_the_tree_is_in_exactly_one_row(links):
    rows = rows_of(*links)
    placed = [position for row in rows.rows for position in row.stretch.positions]
    assert sorted(placed) == sorted(one for found in rows.tree.children.values() for one in found)
    for index, row in enumerate(rows.rows):
        for position in row.stretch.positions:
            assert rows.row_of(rows.tree.entries[position].id) == index
        assert row.stretch.start in row.stretch.positions
        assert row.tokens_above == sum(above.tokens for above in rows.rows[:index])
    assert rows.tokens == sum(row.tokens for row in rows.rows)


@given(trees)
def test_the_entries_of_a_lane_follow_each_other(links):
    """What a drawing relies on: each lane to the left of a row's goes on below it."""
    rows = rows_of(*links)
    above: list[int] = []  # the last position of each lane that is open
    for row in rows.rows:
        positions = row.stretch.positions
        assert row.lane <= len(above)
        parent = rows.parents[positions[0]]
        if row.is_start:
            assert (parent == NO_PARENT) == (row.lane == 0)
            assert row.lane == 0 or parent == above[row.lane - 1]
            assert row.lane == len(above)
        else:
            assert row.lane == len(above) - 1
            assert parent == above[row.lane]
        for before, after in pairwise(positions):
            assert rows.parents[after] == before
        above[row.lane :] = [] if row.is_end else [positions[-1]]
    assert above == []


@given(trees)
def test_the_active_branch_is_lane_0_down_to_the_leaf(links):
    rows = rows_of(*links)
    active = [position for row in rows.rows if row.is_active for position in row.stretch.positions]
    assert active == rows.path(rows.tree.leaf.id)
    assert {row.lane for row in rows.rows if row.is_active} == {0}
    leaf = next(row for row in rows.rows if row.is_leaf)
    assert rows.tree.entries[leaf.stretch.positions[-1]] is rows.tree.leaf
    assert sum(row.is_leaf for row in rows.rows) == 1
    # A lane beside it has it on its left.
    goes_on = False
    for row in rows.rows:
        if row.lane == 0:
            goes_on = row.is_active and not row.is_leaf
        assert row.beside_active == (goes_on and row.lane > 0)


@given(trees)
def test_there_are_as_many_branches_as_entries_that_nothing_follows(links):
    rows = rows_of(*links)
    children = rows.tree.children
    ends = {one for found in children.values() for one in found} - children.keys()
    assert {row.stretch.positions[-1] for row in rows.ends()} == ends
    assert rows.branches == len(ends)
    first = rows.rows[0].stretch.positions[0]
    below = rows.below(first)
    apart = sum(rows.path(rows.tree.entries[end].id)[0] == first for end in ends)
    assert below.branches == (apart if below.entries else 0)
    assert below.entries == sum(rows.path(one.id)[0] == first for one in _placed(rows)) - 1


def _placed(rows: TreeRows) -> list[Entry]:
    return [rows.tree.entries[position] for row in rows.rows for position in row.stretch.positions]


@given(trees, st.sets(st.integers(0, 25)), st.sets(st.integers(0, 25)))
def test_a_fold_hides_nothing_but_plain_rows(links, kept, opened):
    rows = rows_of(*links).rows
    shown = folded(rows, kept, opened)
    assert [row for one in shown for row in (one.rows if isinstance(one, FoldedRows) else [one])] == rows
    for fold in shown:
        if not isinstance(fold, FoldedRows):
            continue
        assert len(fold.rows) > 1
        assert len({row.lane for row in fold.rows}) == 1
        assert not any(row.forks or row.is_end or row.is_leaf or row.follows_fork for row in fold.rows)
        hidden = {index for index, row in enumerate(rows) if row in fold.rows}
        assert not hidden & kept
        assert not hidden & opened
        assert fold.tokens == sum(row.stretch.tokens for row in fold.rows)
        assert fold.entries == sum(len(row.stretch.positions) for row in fold.rows)
    assert not any(isinstance(one, FoldedRows) and isinstance(two, FoldedRows) for one, two in pairwise(shown))


@given(trees, st.data())
def test_a_comparison_parts_two_branches_where_they_part(links, data):
    rows = rows_of(*links)
    placed = [one.id for one in _placed(rows)]
    one, other = data.draw(st.sampled_from(placed)), data.draw(st.sampled_from(placed))
    found = compare(rows, one, other)
    for end, only in ((one, found.only[0]), (other, found.only[1])):
        assert rows.path(end) == [*found.common, *(place for part in only for place in part.positions)]
    sides = [{place for part in only for place in part.positions} for only in found.only]
    assert not sides[0] & sides[1]
    assert found.turns_before == sum(rows.tree.entries[place].role == USER for place in found.common)
    assert found.ancestor == (found.common[-1] if found.common else NO_PARENT)


# ---- the drawing ----------------------------------------------------------------------------------------------


def test_a_turn_is_a_row_with_all_that_follows_it():
    rows = rows_of(*chain("abcde", USER, ASSISTANT, USER, ASSISTANT, ASSISTANT))
    assert drawn(rows) == [("ab", 0), ("cde", 0)]
    assert [(row.turn, row.stretch.tokens) for row in rows.rows] == [(1, 3), (2, 12)]
    assert [row.stretch.kind for row in rows.rows] == [RowKind.TURN, RowKind.TURN]


def test_what_precedes_the_first_message_belongs_to_its_turn():
    rows = rows_of(*chain("abc", "", "", USER))
    assert drawn(rows) == [("abc", 0)]
    assert rows.tree.entries[rows.rows[0].stretch.start].id == "c"


def test_the_other_branches_of_a_fork_are_drawn_before_the_one_that_goes_on():
    # a ─ b ─ f ─ g      the leaf is g
    #  ├─ c ─ e
    #  └─ d
    links = [("a", None), ("b", "a"), ("c", "a"), ("d", "a"), ("e", "c"), ("f", "b"), ("g", "f")]
    rows = rows_of(*links)
    assert drawn(rows) == [("a", 0), ("c", 1), ("e", 1), ("d", 1), ("b", 0), ("f", 0), ("g", 0)]
    assert [row.forks for row in rows.rows] == [2, 0, 0, 0, 0, 0, 0]
    assert [row.follows_fork for row in rows.rows] == [True, True, False, True, True, False, False]


def test_off_the_active_branch_the_one_written_last_goes_on():
    # a ─ z, and a ─ b with c (older) and d, which e follows
    links = [("a", None), ("b", "a"), ("d", "b"), ("c", "b"), ("e", "d"), ("z", "a")]
    assert drawn(rows_of(*links)) == [("a", 0), ("b", 1), ("c", 2), ("d", 1), ("e", 1), ("z", 0)]


def test_a_branch_that_goes_on_past_the_leaf_is_not_active_there():
    class Earlier(SessionTree):
        @property
        def leaf(self) -> Entry:
            return self.entries[1]

    rows = TreeRows(Earlier([entry(number, *link) for number, link in enumerate(chain("abc"), 1)]))
    drawn_ = [(row.is_active, row.is_leaf, row.lane) for row in rows.rows]
    assert drawn_ == [(True, False, 0), (True, True, 0), (False, False, 0)]


def test_a_compaction_and_a_branch_summary_have_rows_of_their_own():
    entries = [
        entry(1, "a", None),
        Entry(2, 200, 99, "b", "a", "compaction", EntryKind.SUMMARY, control=SummaryControl(None, False)),
        entry(3, "c", "b", ASSISTANT),
        entry(4, "d", "c", Role.BRANCH_SUMMARY),
        entry(5, "e", "d"),
    ]
    rows = TreeRows(SessionTree(entries))
    kinds = [RowKind.TURN, RowKind.COMPACTION, RowKind.REST, RowKind.SUMMARY, RowKind.TURN]
    assert [row.stretch.kind for row in rows.rows] == kinds
    assert [row.turn for row in rows.rows] == [1, 1, 1, 1, 2]


def test_a_summary_on_the_line_of_its_boundary_belongs_to_it():
    entries = [
        entry(1, "a", None),
        Entry(2, 200, 99, "b", "a", "compacted", EntryKind.BOUNDARY, control=BoundaryControl()),
        entry(2, "c", "b", USER),
        entry(3, "d", "c", Role.COMPACTION_SUMMARY),
        entry(4, "e", "d", ASSISTANT),
    ]
    assert drawn(TreeRows(SessionTree(entries))) == [("a", 0), ("bcd", 0), ("e", 0)]


def test_turns_that_were_taken_back_are_a_branch_of_their_own():
    back = BoundaryControl(("a", "b"), turns=1)
    entries = [
        entry(1, "a", None),
        entry(2, "b", "a", ASSISTANT),
        entry(3, "c", "b"),
        entry(4, "d", "c", ASSISTANT),
        Entry(5, 500, 99, "e", "d", "rolled_back", EntryKind.BOUNDARY, control=back),
        entry(6, "f", "e"),
    ]
    rows = TreeRows(SessionTree(entries))
    assert drawn(rows) == [("ab", 0), ("cd", 1), ("e", 0), ("f", 0)]
    assert rows.branches == 2
    assert [row.turn for row in rows.rows] == [1, 2, 1, 2]


@pytest.mark.parametrize(
    "kept", [("gone",), ("e",), ()], ids=["of an entry that is not there", "of itself", "of nothing"]
)
def test_a_boundary_that_cannot_be_placed_stays_where_it_is(kept):
    back = BoundaryControl(kept, turns=1)
    entries = [entry(1, "a", None), Entry(2, 200, 99, "e", "a", "x", EntryKind.BOUNDARY, control=back)]
    assert drawn(TreeRows(SessionTree(entries))) == [("a", 0), ("e", 0)]


# ---- folds ----------------------------------------------------------------------------------------------------


def words(shown: Sequence[TreeRow | FoldedRows], rows: TreeRows) -> list[str]:
    return [f"{len(one.rows)} rows" if isinstance(one, FoldedRows) else ids_of(rows, one) for one in shown]


def test_a_run_without_a_fork_is_folded_between_its_first_and_its_last_row():
    rows = rows_of(*chain("abcdef"))
    assert words(folded(rows.rows, (), ()), rows) == ["a", "4 rows", "f"]
    assert words(folded(rows.rows, {2}, ()), rows) == ["a", "b", "c", "2 rows", "f"]
    assert words(folded(rows.rows, (), {1}), rows) == list("abcdef")


def test_an_opened_fold_shows_its_first_rows_and_folds_the_rest():
    links: list[tuple[str, str | None]] = [("0", None)]
    links += [(str(number), str(number - 1)) for number in range(1, 300)]
    rows = rows_of(*links)
    shown = folded(rows.rows, (), {1})
    assert len(shown) == 1 + UNFOLDED + 2
    assert isinstance(shown[-2], FoldedRows)
    assert shown[-2].first is rows.rows[1 + UNFOLDED]
    assert shown[-2].last is rows.rows[298]
    assert shown[-2].turns == 198


# ---- questions ------------------------------------------------------------------------------------------------


def test_an_entry_that_does_not_exist_is_refused():
    rows = rows_of(("a", None))
    for ask in (rows.row_of, rows.path, lambda entry_id: compare(rows, "a", entry_id)):
        with pytest.raises(BadInput, match="no entry gone"):
            ask("gone")


def test_a_deep_tree_is_drawn_without_recursion():
    """Every second entry is a branch of its own, each a level deeper."""
    links: list[tuple[str, str | None]] = [("0", None)]
    for number in range(1, 20_000):
        parent = str(number - 1 if number % 2 else max(0, number - 3))
        links.append((str(number), parent))
    rows = rows_of(*links)
    assert len(rows.rows) == 20_000
