"""PURE: the size of a context over the turns of a branch, as a drawing with axes, limits, drops and labels.

    y  tokens, from 0 to a round number that the drawing needs
    x  turns: one that is twice as long in entries is no wider

A label stands at its line. Labels at the right margin that would overlap are moved apart, with a leader to the line; a
drop whose label would overlap another one keeps only its link.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from sessions_app.sessionlog.context import significant

WIDTHS: Final = {"wide": 1376, "narrow": 720}
"""The widths of the drawing, in pixels: its texts are drawn in the size of the page."""
HEIGHT: Final = 330
LEFT, TOP, BOTTOM = 60, 40, 280
RIGHT_MARGIN: Final = 120
"""The space for labels at the right."""
LINE: Final = 16
"""The height of a line of text."""
LETTER: Final = 6.4
"""The mean width of a letter."""
COLUMNS: Final = 500
"""The maximum number of positions at which a size is drawn."""
LABELS: Final = 12
MOST_TICKS: Final = 5
FAR: Final = 4
"""A limit that is so many times as large as the context is not drawn: the line of the context would be flat."""


Scale = Callable[[float], float]


class AxisNumber(NamedTuple):
    """A number on an axis, and its place."""

    at: float
    words: str


@dataclass(frozen=True, slots=True)
class RightLabel:
    """A label at the right margin, at the height `y`; its line is at `line_y`."""

    words: str
    line_y: float
    y: float
    kind: str
    """`window`, `threshold` or `now`."""

    @property
    def has_leader(self) -> bool:
        return abs(self.y - self.line_y) > 1


class SizeChange(NamedTuple):
    """A change of the context to be drawn: at an entry of the branch, by its position. `words` name it."""

    position: int
    before: int
    after: int
    words: str
    is_own: bool
    """Whether Redline made it."""
    key: str


@dataclass(frozen=True, slots=True)
class Drop:
    """A change as it is drawn."""

    change: SizeChange
    x: float
    before_y: float
    after_y: float
    label_x: float
    label_y: float
    anchor: str
    """`start` or `end`; empty if there is no place for its label."""


@dataclass(frozen=True, slots=True)
class ContextChart:
    """A drawing."""

    kind: str
    """A key of WIDTHS."""
    width: int
    right: float
    """The end of the axes."""
    path: str
    """The line of the size."""
    rows: list[AxisNumber]
    columns: list[AxisNumber]
    unit: str
    """What the columns count: `turn` or `entry`."""
    labels: list[RightLabel]
    drops: list[Drop]
    now: tuple[float, float]
    """The place of the present size."""

    @property
    def middle(self) -> float:
        """The middle of the axis of the turns."""
        return (LEFT + self.right) / 2

    @property
    def label_x(self) -> float:
        """Where the labels at the right begin."""
        return self.right + 16


class Limits(NamedTuple):
    """The window of the model, and the size at which the agent compacts; None if unknown."""

    window: int | None
    threshold: int | None


def draw_context(
    kind: str, sizes: Sequence[int], turns: Sequence[int], changes: Sequence[SizeChange], limits: Limits
) -> ContextChart:
    """The drawing of a width. `sizes` are those after each entry of the branch, `turns` the positions of the entries
    that begin a turn."""
    width = WIDTHS[kind]
    right = width - RIGHT_MARGIN
    largest = max((*sizes, *(change.before for change in changes), 1))
    near = [limit for limit in limits if limit and limit <= FAR * largest]
    rows, top = _rows(max((largest, *near)))
    unit = "turn" if len(turns) > 1 else "entry"
    begins = list(turns) if unit == "turn" else list(range(len(sizes)))

    def x(position: float) -> float:
        return round(LEFT + (right - LEFT) * _column(begins, len(sizes), position) / max(1, len(begins)), 1)

    def y(size: float) -> float:
        return round(BOTTOM - (BOTTOM - TOP) * size / top, 1)

    last = len(sizes) - 1
    now = (x(last + 1), y(sizes[-1]))
    named = {"window": limits.window, "threshold": limits.threshold}
    marks = [(_limit_words(name, size), y(size), name) for name, size in named.items() if size in near and size]
    return ContextChart(
        kind=kind,
        width=width,
        right=right,
        path=_path(sizes, changes, x, y),
        rows=[AxisNumber(y(size), short(size)) for size in rows],
        columns=[AxisNumber(x(begins[number]), f"{number + 1:,}") for number in _columns(len(begins), width)],
        unit=unit,
        labels=_apart([*marks, (f"now {significant(sizes[-1]):,}", now[1], "now")]),
        drops=list(_drops(changes, x, y, right)),
        now=now,
    )


def short(size: int) -> str:
    """A round number of tokens: 0, 250, 50k, 1.5m."""
    if size >= 1_000_000:
        return f"{size / 1_000_000:g}m"
    return f"{size / 1_000:g}k" if size >= 1_000 else str(size)


def _limit_words(name: str, size: int) -> str:
    thousands = f"{size / 1000:,.0f}k"
    return f"window {thousands}" if name == "window" else f"compacts {thousands}"


def _rows(largest: int) -> tuple[list[int], int]:
    """Round sizes up to at least the largest one, and the last of them."""
    step = next(
        step
        for power in range(12)
        for step in (10**power, 2 * 10**power, 5 * 10**power)
        if -(-largest // step) <= MOST_TICKS
    )
    top = -(-largest // step) * step
    return list(range(0, top + 1, step)), top


def _columns(count: int, width: int) -> range:
    """The numbers that are written below the axis."""
    most = width // 60
    step = next(
        step for power in range(9) for step in (10**power, 2 * 10**power, 5 * 10**power) if count <= most * step
    )
    return range(0, count, step)


def _column(begins: Sequence[int], entries: int, position: float) -> float:
    """The turn of a position, with the part of it that is over."""
    turn = bisect_right(begins, position) - 1
    if turn < 0:
        return 0.0
    end = begins[turn + 1] if turn + 1 < len(begins) else entries
    return turn + (position - begins[turn]) / max(1, end - begins[turn])


def _path(sizes: Sequence[int], changes: Sequence[SizeChange], x: Scale, y: Scale) -> str:
    """The line of the size. It ends at each change, and begins again after it."""
    step = max(1, len(sizes) // COLUMNS)
    at_changes = {change.position: change for change in changes}
    drawn = sorted({*range(0, len(sizes), step), len(sizes) - 1, *at_changes, *(one - 1 for one in at_changes if one)})
    parts = [f"M{x(0)} {y(sizes[0])}"]
    for position in drawn:
        place = x(position + 1)
        change = at_changes.get(position)
        line = f"L{place} {y(sizes[position])}"
        parts.append(f"L{place} {y(change.before)}M{place} {y(change.after)}" if change else line)
    return "".join(parts)


def _apart(marks: Iterable[tuple[str, float, str]]) -> list[RightLabel]:
    """The labels at the right, from the top, each at least a line below the one above."""
    found: list[RightLabel] = []
    for words, line_y, kind in sorted(marks, key=lambda mark: mark[1]):
        y = max(line_y, found[-1].y + LINE) if found else line_y
        found.append(RightLabel(words, line_y, y, kind))
    return found


def _drops(changes: Sequence[SizeChange], x: Scale, y: Scale, right: float) -> Iterator[Drop]:
    taken: list[tuple[float, float, float, float]] = []
    labelled: dict[int, tuple[float, float, str]] = {}
    by_size = sorted(changes, key=lambda change: change.after - change.before)
    for change in by_size[:LABELS]:
        place, middle = x(change.position + 1), (y(change.before) + y(change.after)) / 2
        wide = LETTER * max(len(change.words), len(f"{change.before:,} → {change.after:,}"))
        for anchor, near in (("start", place + 10), ("end", place - 10)):
            begin = near if anchor == "start" else near - wide
            box = (begin, middle - LINE, begin + wide, middle + LINE)
            is_inside = begin > LEFT and begin + wide < right
            if is_inside and not any(_overlap(box, other) for other in taken):
                taken.append(box)
                labelled[change.position] = (near, middle - 4, anchor)
                break
    for change in changes:
        label_x, label_y, anchor = labelled.get(change.position, (0.0, 0.0, ""))
        yield Drop(change, x(change.position + 1), y(change.before), y(change.after), label_x, label_y, anchor)


def _overlap(one: tuple[float, float, float, float], other: tuple[float, float, float, float]) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
