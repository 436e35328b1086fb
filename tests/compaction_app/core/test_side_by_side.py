"""Two texts beside each other: no line is lost, and equal lines meet."""

import itertools

from hypothesis import given, strategies as st

from compaction_app.core.side_by_side import LinePair, aligned, excerpts

LINES = st.lists(st.sampled_from("abcdefgh"), max_size=20)


@given(LINES, LINES)
def test_every_line_of_both_texts_is_there_once_in_order(left, right):
    pairs = aligned(left, right)
    assert [pair.left for pair in pairs if pair.left is not None] == list(range(len(left)))
    assert [pair.right for pair in pairs if pair.right is not None] == list(range(len(right)))
    assert LinePair(None, None) not in pairs


@given(LINES)
def test_a_text_stands_beside_itself(lines):
    assert aligned(lines, lines) == [LinePair(at, at) for at in range(len(lines))]


@given(LINES, st.integers(0, 20), LINES)
def test_what_was_put_in_stands_beside_nothing(lines, at, new):
    lines = [f"{number} {line}" for number, line in enumerate(lines)]
    at = min(at, len(lines))
    pairs = aligned(lines, [*lines[:at], *(f"new {line}" for line in new), *lines[at:]])
    assert [pair.right for pair in pairs if pair.left is None] == list(range(at, at + len(new)))


def test_replaced_lines_stand_beside_their_replacement_and_the_longest_run_in_the_same_order_meets():
    pairs = aligned(["one", "was", "was too", "}", "two"], ["one", "is", "}", "two"])
    assert pairs == [LinePair(0, 0), LinePair(1, 1), LinePair(2, None), LinePair(3, 2), LinePair(4, 3)]
    pairs = aligned(["moved", "one", "two", "three"], ["one", "two", "three", "moved"])
    assert LinePair(1, 0) in pairs
    assert LinePair(3, 2) in pairs
    assert LinePair(0, None) in pairs


@given(st.lists(st.booleans(), max_size=30), st.integers(0, 3), st.integers(0, 30))
def test_excerpts_have_what_is_shown_and_around_it(shown, around, most):
    pairs = [LinePair(at, at) for at in range(len(shown))]
    pieces = list(excerpts(pairs, lambda pair: pair.left is not None and shown[pair.left], around, most))
    near = [at for at in range(len(shown)) if any(shown[max(0, at - around) : at + around + 1])]
    assert [pair.left for piece in pieces for pair in piece] == near[:most]
    for one, other in itertools.pairwise(pieces):
        assert other[0].left > one[-1].left + 1


def test_long_texts_of_the_same_lines_are_compared_in_a_moment():
    assert len(aligned(["same"] * 50_000, ["same"] * 49_000)) == 50_000
    numbers = [str(number) for number in range(20_000)]
    assert len(aligned(numbers, numbers[::-1])) == 39_999
