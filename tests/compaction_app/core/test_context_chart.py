"""Promises of the drawing of a context: axes in round numbers, limits that are near, and labels that never overlap."""

from itertools import pairwise

import pytest

from compaction_app.core.context_chart import LINE, Limits, SizeChange, draw_context

NO_LIMITS = Limits(None, None)


def drawn(sizes=(1_000, 40_000, 90_000, 30_000), changes=(), limits=NO_LIMITS, turns=(0, 2)):
    return draw_context("wide", sizes, turns, changes, limits)


@pytest.mark.parametrize(
    ("largest", "words"), [(90_000, ["0", "20k", "40k", "60k", "80k", "100k"]), (3, ["0", "1", "2", "3"])]
)
def test_the_axis_of_tokens_has_round_numbers_up_to_the_largest(largest, words):
    assert [row.words for row in drawn(sizes=(1, largest)).rows] == words


def test_columns_are_turns_or_entries_if_there_is_only_one_turn():
    assert ([one.words for one in drawn().columns], drawn().unit) == (["1", "2"], "turn")
    alone = drawn(turns=(0,))
    assert ([one.words for one in alone.columns], alone.unit) == (["1", "2", "3", "4"], "entry")


def test_a_limit_far_beyond_the_context_does_not_make_its_line_flat():
    near, far = drawn(limits=Limits(200_000, 160_000)), drawn(limits=Limits(1_000_000, 900_000))
    assert [one.kind for one in near.labels] == ["window", "threshold", "now"]
    assert [one.kind for one in far.labels] == ["now"]
    assert far.rows[-1].words == "100k"


def test_labels_at_the_margin_are_a_line_apart_with_leaders_to_their_lines():
    labels = drawn(sizes=(1, 159_000), limits=Limits(165_000, 160_000)).labels
    assert all(below.y - above.y >= LINE for above, below in pairwise(labels))
    assert [one.has_leader for one in labels] == [False, True, True]


def test_the_line_ends_at_a_change_and_begins_again_after_it():
    change = SizeChange(3, 90_000, 30_000, "Redline, plan 4", is_own=True, key="e4")
    chart = drawn(changes=[change])
    (drop,) = chart.drops
    assert chart.path.count("M") == 2
    assert drop.before_y < drop.after_y
    assert drop.anchor == "end", "a label at the end of the drawing stands before its drop"


def test_of_drops_close_to_each_other_only_one_has_a_label():
    sizes = [10_000] * 400
    changes = [SizeChange(place, 90_000, 10_000, "Redline, plan 4", is_own=True, key="e") for place in range(200, 240)]
    drops = draw_context("wide", sizes, range(0, 400, 10), changes, NO_LIMITS).drops
    assert len(drops) == 40
    assert sum(bool(drop.anchor) for drop in drops) == 2, "one before them, one after them"
