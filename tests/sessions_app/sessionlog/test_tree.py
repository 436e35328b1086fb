"""The tree of a session: branches that are finite whatever is damaged, its outline, and the rows of its drawing."""

import itertools
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import pairwise

import pytest
from hypothesis import example, given, strategies as st

from sessions_app.sessionlog.entries import BoundaryControl, Entry, EntryKind, Role, SummaryControl
from sessions_app.sessionlog.errors import BadInput
from sessions_app.sessionlog.session import DamageKind
from sessions_app.sessionlog.tree import NO_PARENT, OutlineRun, SessionTree, labels, runs
from sessions_app.sessionlog.tree_rows import UNFOLDED, FoldedRows, RowKind, TreeRow, TreeRows, compare_branches, folded
from tests.factories import assistant, bash, chain, damage_of, session_log, text, user
from tests.installation import refusal

USER, ASSISTANT = Role.USER, Role.ASSISTANT
LONG = 50_000
Link = tuple[str, str | None] | tuple[str, str | None, str]


def entry(number: int, entry_id: str, parent_id: str | None, role: str = USER) -> Entry:
    kind = EntryKind.MESSAGE if role else EntryKind.MODEL
    return Entry(number, number * 100, 99, entry_id, parent_id, "message", kind, role=role, tokens=number)


def tree_of(*links: Link) -> SessionTree:
    """A tree of (id, parent id) and perhaps a role, on lines starting at 2."""
    return SessionTree([entry(number, *link) for number, link in enumerate(links, 2)])


def path(tree: SessionTree, leaf: str) -> list[str]:
    return [one.id for one in tree.branch(leaf)]


def test_a_branch_runs_from_the_root_to_its_leaf_and_those_of_a_fork_are_in_file_order():
    tree = tree_of(("a", None), ("b", "a"), ("c", "a"), ("d", "b"))
    assert [path(tree, leaf) for leaf in "dca"] == [["a", "b", "d"], ["a", "c"], ["a"]]
    assert tree.leaf.id == "d"
    assert damage_of(tree) == []
    tree = tree_of(("a", None), ("c", "a"), ("b", "a"), ("r", None), ("d", "c"))
    assert tree.children == {NO_PARENT: [0, 3], 0: [1, 2], 1: [4]}


def test_an_unknown_id_is_bad_input_and_an_empty_session_has_no_leaf():
    tree = tree_of(("a", None))
    for ask in (tree.entry, tree.position, tree.branch, lambda one: tree.descends("a", one)):
        assert refusal(partial(ask, "nowhere"), "nowhere") == "2 unknown_entry"
    assert refusal(lambda: tree_of().leaf) == "2 no_entries"


def test_the_last_entry_of_an_id_counts_and_earlier_ones_are_reported():
    tree = tree_of(("a", None), ("x", "a"), ("b", "x"), ("x", None), ("c", "x"))
    assert tree.entry("x").number == 5
    assert [one.number for one in tree.branch("b")] == [5, 4]
    assert path(tree, "c") == ["x", "c"]
    assert damage_of(tree) == [(DamageKind.DUPLICATE_ID, 3)]
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
    assert damage_of(tree) == damaged


def test_a_long_cycle_or_one_that_a_duplicate_closes_is_cut_once_above_its_first_line():
    length = 1_000
    links = [(f"e{number}", f"e{(number - 7) % length}") for number in range(length)]
    tree = tree_of(("z", "e500"), *links)
    assert damage_of(tree) == [(DamageKind.CYCLE, 3)]
    assert len(path(tree, "e993")) == length
    assert path(tree, "e993")[0] == "e0"
    assert path(tree, "z")[-2:] == ["e500", "z"]
    tree = tree_of(("x", None), ("b", "x"), ("c", "b"), ("x", "c"), ("d", "x"))
    assert damage_of(tree) == [(DamageKind.DUPLICATE_ID, 2), (DamageKind.CYCLE, 3)]
    assert [one.number for one in tree.branch("d")] == [3, 4, 5, 6]


def test_descent_follows_the_branch_only():
    tree = tree_of(("a", None), ("b", "a"), ("c", "b"), ("d", "a"))
    descents = {("c", "a"): True, ("c", "c"): True, ("a", "c"): False, ("d", "b"): False}
    assert {pair: tree.descends(*pair) for pair in descents} == descents


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


@given(st.permutations(range(12)))
def test_an_undamaged_tree_is_undamaged_in_any_order_of_its_lines(order):
    links = [(str(number), str((number - 1) // 2) if number else None) for number in order]
    tree = tree_of(*links)
    assert damage_of(tree) == []
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
    assert len(tree.branch(str(LONG - 1 if step == -1 else 0))) == LONG
    assert [kind for kind, _ in damage_of(tree)] == [DamageKind.MISSING_PARENT]


def test_a_cycle_of_50_000_entries_is_cut_once():
    with without_hanging():
        tree = tree_of(*((str(number), str((number + 1) % LONG)) for number in range(LONG)))
    assert damage_of(tree) == [(DamageKind.CYCLE, 2)]
    assert len(tree.branch("1")) == LONG


def run_of(run: OutlineRun) -> tuple[str, int]:
    """The ids of a run, joined, and its depth."""
    return "".join(entry.id for entry in run.entries), run.depth


FORKED = tree_of(
    *(("a", None), ("b", "a"), ("c", "b"), ("d", "c"), ("p", "b")),
    *(("q", "p"), ("x", "q"), ("y", "q"), ("r", "b"), ("e", "d")),
)
"""a─b─┬─c─d─e, where b also continues to p─q (and from there to x and to y) and to r; e is last in the file."""


def test_a_session_without_forks_is_one_run_and_several_roots_are_branches_of_one_fork():
    (run,) = runs(tree_of(("a", None), ("b", "a"), ("c", "b")))
    assert (run_of(run), run.is_last, run.above, run.has_leaf) == (("abc", 0), True, (), True)
    assert (run.first.id, run.last.id, run.tokens) == ("a", "c", 9)
    assert list(runs(tree_of())) == []
    tree = tree_of(("a", None), ("r", "gone"), ("b", "a"), ("s", "r"))
    assert [(run_of(run), run.is_last) for run in runs(tree)] == [(("ab", 1), False), (("rs", 1), True)]


def test_a_fork_lists_its_branches_in_file_order_each_with_its_own_forks_and_the_leaf_is_the_last_entry():
    drawn = [("ab", 0), ("cde", 1), ("pq", 1), ("x", 2), ("y", 2), ("r", 1)]
    assert [run_of(run) for run in runs(FORKED)] == drawn
    assert [run.first.id for run in runs(FORKED) if run.has_leaf] == ["c"]


def test_each_run_knows_whether_other_branches_follow():
    assert {run.first.id: (run.is_last, run.above) for run in runs(FORKED)} == {
        "a": (True, ()),
        "c": (False, ()),
        "p": (False, ()),
        "x": (False, (True,)),
        "y": (True, (True,)),
        "r": (True, ()),
    }


def test_only_messages_count_tokens():
    summary = {"type": "compaction", "summary": "x" * 400}
    log = session_log(chain(user("1234"), summary, assistant(text("1234")), bash("", "1")))
    (run,) = runs(SessionTree(log.entries))
    assert run.tokens == 3


@given(st.lists(st.tuples(ids, ids | st.none()), min_size=1, max_size=20))
@example([("0", "0"), ("0", "1"), ("1", "0")])
def test_each_id_and_the_leaf_are_drawn_once_in_any_damaged_tree(links):
    tree = tree_of(*links)
    drawn = list(runs(tree))
    assert sorted(entry.id for run in drawn for entry in run.entries) == sorted({one for one, _ in links})
    assert [run.has_leaf for run in drawn].count(True) == 1
    (leaf_run,) = [run for run in drawn if run.has_leaf]
    assert tree.leaf in leaf_run.entries
    for run in drawn:
        assert tuple(tree.branch(run.last.id)[-len(run.entries) :]) == run.entries
        assert len(run.above) == max(0, run.depth - 1)


def test_a_ladder_of_1_500_forks_is_drawn():
    forks = (((f"m{number}", f"m{number - 1}"), (f"s{number}", f"m{number - 1}")) for number in range(1, 1_500))
    links = [("m0", None), *itertools.chain.from_iterable(forks)]
    drawn = list(runs(tree_of(*links)))
    assert len(drawn) == len(links)
    assert max(run.depth for run in drawn) == 1_499


def test_a_later_label_replaces_an_earlier_one_and_an_empty_one_removes_it():
    def label(target: object, *words: object) -> dict[str, object]:
        return {"type": "label", "targetId": target, **({"label": words[0]} if words else {})}

    log = session_log(
        chain(
            user("x"),
            *(label("e1", "first"), label("e1", "second"), label("e9", "of something that is not there")),
            *(label("e2", "x"), label("e2", ""), label("e3", "x"), label("e3"), label("e4", "x"), label("e4", 7)),
            *(label(None, "x"), label(["e1"], "x"), label("e5", "once"), label("e5", None), label("e5", "again")),
            {"type": "custom", "targetId": "e1", "label": "of no label entry"},
        )
    )
    expected = {"e1": "second", "e9": "of something that is not there", "e5": "again"}
    assert labels(SessionTree(log.entries)) == expected


def rows_of(*links: Link) -> TreeRows:
    return TreeRows(tree_of(*links))


def linked(ids: str, *roles: str) -> list[Link]:
    parents = [None, *ids]
    return [(one, parents[at], roles[at] if at < len(roles) else USER) for at, one in enumerate(ids)]


def ids_of(rows: TreeRows, row: TreeRow) -> str:
    return "".join(rows.tree.entries[position].id for position in row.stretch.positions)


def drawn(rows: TreeRows) -> list[tuple[str, int]]:
    return [(ids_of(rows, row), row.lane) for row in rows.rows]


names = st.integers(0, 12).map(str)
roles = st.sampled_from([USER, ASSISTANT, Role.BRANCH_SUMMARY, ""])
trees = st.lists(st.tuples(names, names | st.none(), roles), min_size=1, max_size=25)


@given(trees)
def test_every_entry_is_in_exactly_one_row_and_the_active_branch_in_lane_0_down_to_the_leaf(links):
    rows = rows_of(*links)
    placed = [position for row in rows.rows for position in row.stretch.positions]
    assert sorted(placed) == sorted(one for found in rows.tree.children.values() for one in found)
    for index, row in enumerate(rows.rows):
        for position in row.stretch.positions:
            assert rows.row_of(rows.tree.entries[position].id) == index
        assert row.stretch.start in row.stretch.positions
        assert row.tokens_above == sum(above.tokens for above in rows.rows[:index])
    assert rows.tokens == sum(row.tokens for row in rows.rows)
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
def test_the_entries_of_a_lane_follow_each_other_and_each_branch_ends_where_nothing_follows(links):
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
    found = compare_branches(rows, one, other)
    for end, only in ((one, found.only[0]), (other, found.only[1])):
        assert rows.path(end) == [*found.common, *(place for part in only for place in part.positions)]
    sides = [{place for part in only for place in part.positions} for only in found.only]
    assert not sides[0] & sides[1]
    assert found.turns_before == sum(rows.tree.entries[place].role == USER for place in found.common)
    assert found.ancestor == (found.common[-1] if found.common else NO_PARENT)


def test_a_turn_is_a_row_with_all_that_follows_it_and_what_precedes_the_first_message():
    rows = rows_of(*linked("abcde", USER, ASSISTANT, USER, ASSISTANT, ASSISTANT))
    assert drawn(rows) == [("ab", 0), ("cde", 0)]
    assert [(row.turn, row.stretch.tokens) for row in rows.rows] == [(1, 5), (2, 15)]
    assert [row.stretch.kind for row in rows.rows] == [RowKind.TURN, RowKind.TURN]
    rows = rows_of(*linked("abc", "", "", USER))
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
    # Off the active branch the one written last goes on: a ─ z, and a ─ b with c (older) and d, which e follows.
    links = [("a", None), ("b", "a"), ("d", "b"), ("c", "b"), ("e", "d"), ("z", "a")]
    assert drawn(rows_of(*links)) == [("a", 0), ("b", 1), ("c", 2), ("d", 1), ("e", 1), ("z", 0)]


def test_a_branch_that_goes_on_past_the_leaf_is_not_active_there():
    class Earlier(SessionTree):
        @property
        def leaf(self) -> Entry:
            return self.entries[1]

    rows = TreeRows(Earlier(tree_of(*linked("abc")).entries)).rows
    expected = [(True, False, 0), (True, True, 0), (False, False, 0)]
    assert [(row.is_active, row.is_leaf, row.lane) for row in rows] == expected


def test_a_compaction_and_a_branch_summary_have_rows_of_their_own():
    entries = [
        entry(1, "a", None),
        Entry(2, 200, 99, "b", "a", "compaction", EntryKind.SUMMARY, control=SummaryControl(None, False)),
        *(entry(3, "c", "b", ASSISTANT), entry(4, "d", "c", Role.BRANCH_SUMMARY), entry(5, "e", "d")),
    ]
    rows = TreeRows(SessionTree(entries))
    kinds = [RowKind.TURN, RowKind.COMPACTION, RowKind.REST, RowKind.SUMMARY, RowKind.TURN]
    assert [row.stretch.kind for row in rows.rows] == kinds
    assert [row.turn for row in rows.rows] == [1, 1, 1, 1, 2]


def test_a_summary_on_the_line_of_its_boundary_belongs_to_it():
    entries = [
        entry(1, "a", None),
        Entry(2, 200, 99, "b", "a", "compacted", EntryKind.BOUNDARY, control=BoundaryControl()),
        *(entry(2, "c", "b"), entry(3, "d", "c", Role.COMPACTION_SUMMARY), entry(4, "e", "d", ASSISTANT)),
    ]
    assert drawn(TreeRows(SessionTree(entries))) == [("a", 0), ("bcd", 0), ("e", 0)]


def test_turns_that_were_taken_back_are_a_branch_of_their_own():
    back = BoundaryControl(("a", "b"), turns=1)
    entries = [
        *(entry(1, "a", None), entry(2, "b", "a", ASSISTANT), entry(3, "c", "b"), entry(4, "d", "c", ASSISTANT)),
        Entry(5, 500, 99, "e", "d", "rolled_back", EntryKind.BOUNDARY, control=back),
        entry(6, "f", "e"),
    ]
    rows = TreeRows(SessionTree(entries))
    assert drawn(rows) == [("ab", 0), ("cd", 1), ("e", 0), ("f", 0)]
    assert rows.branches == 2
    assert [row.turn for row in rows.rows] == [1, 2, 1, 2]


@pytest.mark.parametrize("kept", [("gone",), ("e",), ()], ids=["of an entry that is gone", "of itself", "of nothing"])
def test_a_boundary_that_cannot_be_placed_stays_where_it_is(kept):
    back = BoundaryControl(kept, turns=1)
    entries = [entry(1, "a", None), Entry(2, 200, 99, "e", "a", "x", EntryKind.BOUNDARY, control=back)]
    assert drawn(TreeRows(SessionTree(entries))) == [("a", 0), ("e", 0)]


def words(shown: Sequence[TreeRow | FoldedRows], rows: TreeRows) -> list[str]:
    return [f"{len(one.rows)} rows" if isinstance(one, FoldedRows) else ids_of(rows, one) for one in shown]


def test_a_run_without_a_fork_is_folded_and_an_opened_fold_shows_its_first_rows():
    rows = rows_of(*linked("abcdef"))
    assert words(folded(rows.rows, (), ()), rows) == ["a", "4 rows", "f"]
    assert words(folded(rows.rows, {2}, ()), rows) == ["a", "b", "c", "2 rows", "f"]
    assert words(folded(rows.rows, (), {1}), rows) == list("abcdef")
    rows = rows_of(("0", None), *((str(number), str(number - 1)) for number in range(1, 300)))
    shown = folded(rows.rows, (), {1})
    assert len(shown) == 1 + UNFOLDED + 2
    assert isinstance(shown[-2], FoldedRows)
    assert shown[-2].first is rows.rows[1 + UNFOLDED]
    assert shown[-2].last is rows.rows[298]
    assert shown[-2].turns == 198


def test_an_entry_that_does_not_exist_is_refused():
    rows = rows_of(("a", None))
    for ask in (rows.row_of, rows.path, lambda entry_id: compare_branches(rows, "a", entry_id)):
        with pytest.raises(BadInput, match="no entry gone"):
            ask("gone")


def test_a_deep_tree_is_drawn_without_recursion():
    """Every second entry is a branch of its own, each a level deeper."""
    parents = {number: number - 1 if number % 2 else max(0, number - 3) for number in range(1, 20_000)}
    rows = rows_of(("0", None), *((str(number), str(parent)) for number, parent in parents.items()))
    assert len(rows.rows) == 20_000
