"""PURE: two texts side by side, line by line.

Lines that occur once in both texts are anchors, if they are in the same order; equal lines before and after an anchor
follow it. The remaining lines between anchors are paired in order. The time grows with n log n.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise, zip_longest
from typing import NamedTuple


class LinePair(NamedTuple):
    """The numbers of a line on the two sides, from 0; None on a side that has no such line."""

    left: int | None
    right: int | None


def aligned(left: Sequence[str], right: Sequence[str]) -> list[LinePair]:
    """Every line of both texts once, in order."""
    found: list[LinePair] = []
    edges = [(-1, -1), *_anchors(left, right), (len(left), len(right))]
    for (left_before, right_before), (left_after, right_after) in pairwise(edges):
        found += _between(left, right, range(left_before + 1, left_after), range(right_before + 1, right_after))
        if left_after < len(left):
            found.append(LinePair(left_after, right_after))
    return found


def excerpts(
    pairs: Sequence[LinePair], is_shown: Callable[[LinePair], bool], around: int, most: int
) -> Iterator[Sequence[LinePair]]:
    """The shown pairs, each with `around` pairs before and after it, as runs of consecutive pairs; at most `most`."""
    wanted = sorted(
        {
            near
            for at, pair in enumerate(pairs)
            if is_shown(pair)
            for near in range(max(0, at - around), min(len(pairs), at + around + 1))
        }
    )[:most]
    start = 0
    for end in range(1, len(wanted) + 1):
        if end == len(wanted) or wanted[end] != wanted[end - 1] + 1:
            yield pairs[wanted[start] : wanted[end - 1] + 1]
            start = end


def _anchors(left: Sequence[str], right: Sequence[str]) -> list[tuple[int, int]]:
    """The longest run of lines that occur once in both texts and are in the same order."""
    once = _once(left), _once(right)
    places = [(at, once[1][line]) for line, at in once[0].items() if line in once[1]]
    ends: list[int] = []
    """The lowest right end of a run of each length."""
    last: list[int] = []
    before: list[int | None] = []
    for number, (_, at) in enumerate(places):
        length = bisect_left(ends, at)
        ends[length : length + 1] = [at]
        last[length : length + 1] = [number]
        before.append(last[length - 1] if length else None)
    found: list[tuple[int, int]] = []
    at_end = last[-1] if last else None
    while at_end is not None:
        found.append(places[at_end])
        at_end = before[at_end]
    return found[::-1]


def _once(lines: Sequence[str]) -> dict[str, int]:
    counts = Counter(lines)
    return {line: at for at, line in enumerate(lines) if line and counts[line] == 1}


def _between(left: Sequence[str], right: Sequence[str], left_range: range, right_range: range) -> Iterable[LinePair]:
    """The lines between two anchors: equal lines after the first and before the second, and the rest."""
    length = min(len(left_range), len(right_range))
    head = next((n for n in range(length) if left[left_range[n]] != right[right_range[n]]), length)
    rest = range(1, length - head + 1)
    tail = next((n for n in rest if left[left_range[-n]] != right[right_range[-n]]), length - head + 1) - 1
    middle = zip_longest(left_range[head : len(left_range) - tail], right_range[head : len(right_range) - tail])
    yield from map(LinePair, left_range[:head], right_range[:head])
    yield from (LinePair(*pair) for pair in middle)
    if tail:
        yield from map(LinePair, left_range[-tail:], right_range[-tail:])
