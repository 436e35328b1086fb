"""The drawing of a tree: lines of neighbouring rows meet, and the active branch is one line."""

import re
from itertools import pairwise

from hypothesis import given, strategies as st

from compaction_app.core.lanes import FIRST, HEIGHT, LANES, MIDDLE, LaneDrawing, Lanes
from sessions_app.sessionlog.entries import Entry, EntryKind, Role
from sessions_app.sessionlog.tree import SessionTree
from sessions_app.sessionlog.tree_rows import FoldedRows, TreeRows, folded

names = st.integers(0, 12).map(str)
trees = st.lists(st.tuples(names, names | st.none()), min_size=1, max_size=25)


def rows_of(links: list[tuple[str, str | None]]) -> TreeRows:
    entries = [
        Entry(number, number, 1, entry_id, parent, "message", EntryKind.MESSAGE, role=Role.USER)
        for number, (entry_id, parent) in enumerate(links, 1)
    ]
    return TreeRows(SessionTree(entries))


def drawings(rows: TreeRows) -> list[LaneDrawing]:
    lanes = Lanes(rows.depth)
    shown = folded(rows.rows, (), ())
    return [lanes.fold(one) if isinstance(one, FoldedRows) else lanes.row(one) for one in shown]


def crossings(path: str) -> tuple[set[int], set[int]]:
    """Where the lines of a path cross the top and the bottom of a row."""
    top, bottom = set(), set()
    for x, y, rest in re.findall(r"M(\d+) (\d+)([^M]*)", path):
        down = re.search(r"V(\d+)", rest)
        if y == "0":
            top.add(int(x))
        if down and int(down[1]) == HEIGHT:
            bottom.add(int(x))
    return top, bottom


@given(trees)
def test_the_lines_of_a_row_go_on_in_the_next_one_and_each_shape_is_on_one_or_stands_alone(links):
    drawn = drawings(rows_of(links))
    for above, below in pairwise(drawn):
        for attribute in ("active", "other"):
            going, coming = crossings(getattr(above, attribute))[1], crossings(getattr(below, attribute))[0]
            if attribute == "active":
                assert going == coming
            # A branch leaves from a line that goes on in its own way.
            assert going <= coming
    assert crossings(drawn[0].active + drawn[0].other)[0] == set()
    assert crossings(drawn[-1].active + drawn[-1].other)[1] == set()
    assert all(FIRST <= drawing.x <= drawing.width - FIRST for drawing in drawn)
    assert sum(drawing.shape == "leaf" for drawing in drawn) == 1


def test_a_straight_session_is_one_line_to_its_leaf_and_a_branch_bends_away_from_it():
    links = [(str(number), str(number - 1) if number else None) for number in range(5)]
    first, fold, last = drawings(rows_of(links))
    assert (first.active, first.shape) == (f"M12 {MIDDLE}V{HEIGHT}", "turn")
    assert (fold.active, fold.shape) == (f"M12 0V{HEIGHT}", "fold")
    assert (last.active, last.shape) == (f"M12 0V{MIDDLE}", "leaf")
    assert {first.other, fold.other, last.other} == {""}
    _, side, _ = drawings(rows_of([("a", None), ("b", "a"), ("c", "a")]))
    assert (side.active, side.other) == (f"M12 0V{HEIGHT}", f"M12 0C12 12 36 4 36 {MIDDLE}")
    assert (side.x, side.shape, side.width) == (36, "end", 48)


def test_deep_branches_share_the_last_lane():
    """Each branch leaves the one that left before it."""
    links: list[tuple[str, str | None]] = [("0", None)]
    for number in range(1, 20):
        links += [(f"s{number}", str(number - 1)), (str(number), str(number - 1))]
    rows = rows_of(list(reversed(links))[:-1] + links[:1])
    assert rows.depth > LANES
    assert max(drawing.x for drawing in drawings(rows)) == drawings(rows)[0].width - FIRST
