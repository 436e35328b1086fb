"""PURE: the chart of what compactions saved and what was read again: a bar for each month, with its figures beside it.

tokens │      ┌──┐ 12.6M saved
       │ ┌──┐ │  │
       │ │  │ │██│ 25% read again
       └─┴──┴─┴──┴──
         Aug   Sep
"""

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from typing import Final, NamedTuple

MONTHS_SHOWN: Final = 8
"""The number of months in the chart, up to the latest one with a compaction."""
LEFT, TOP, BOTTOM = 56, 22, 206
"""The edges of the drawing area, in pixels."""
STEP: Final = 160
"""The distance between two bars: the figures of a bar are on its right."""
BAR: Final = 60
FIRST_BAR: Final = 28
LABEL_HEIGHT: Final = 14
LOWEST_LABEL: Final = BOTTOM - 4
TICKS: Final = 4


class MonthSums(NamedTuple):
    """The sums of one month, in tokens."""

    compactions: int = 0
    saved: int = 0
    again: int = 0
    """Read again, counted once for each request that carried it."""


class CostBar(NamedTuple):
    """The bar of one month. Positions and heights are in pixels."""

    month: date
    compactions: int
    x: float
    middle: float
    saved_y: float
    saved_height: float
    again_y: float
    again_height: float
    label_x: float
    saved_label: str
    saved_label_y: float
    again_label: str
    """Empty if nothing was saved."""
    again_label_y: float


class CostTick(NamedTuple):
    """A mark on the vertical axis."""

    y: float
    label: str


class CostChart(NamedTuple):
    """The chart; its size is in pixels, because its text must not shrink."""

    width: int
    bars: tuple[CostBar, ...]
    ticks: tuple[CostTick, ...]


def short_tokens(tokens: int) -> str:
    """A number of tokens in at most five characters: 940, 12.8k, 24.1M, 1.2G."""
    for unit, letter in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if abs(tokens) >= unit:
            return f"{tokens / unit:.1f}".removesuffix(".0") + letter
    return str(tokens)


def cost_chart(sums: Mapping[date, MonthSums]) -> CostChart | None:
    """The chart of the last months, by their first day; None without any."""
    if not sums:
        return None
    months = _last_months(sorted(sums))
    shown = [sums.get(month, MonthSums()) for month in months]
    step = _step(max(max(one.saved, one.again) for one in shown))
    top = step * max(1, math.ceil(max(max(one.saved, one.again) for one in shown) / step))

    def y_of(tokens: float) -> float:
        return round(BOTTOM - (BOTTOM - TOP) * tokens / top, 1)

    bars = tuple(_bar(number, month, one, y_of) for number, (month, one) in enumerate(zip(months, shown, strict=True)))
    ticks = tuple(CostTick(y_of(tokens), short_tokens(tokens)) for tokens in range(0, top + 1, step))
    return CostChart(LEFT + FIRST_BAR + STEP * len(bars), bars, ticks)


def _last_months(known: Sequence[date]) -> list[date]:
    """The last MONTHS_SHOWN months up to the latest one, without gaps; the first of them is a known one."""
    months = [known[-1]]
    while len(months) < MONTHS_SHOWN:
        first = months[0]
        months.insert(0, date(first.year - (first.month == 1), (first.month - 2) % 12 + 1, 1))
    return months[next(place for place, month in enumerate(months) if month in known) :]


def _step(highest: int) -> int:
    """A round distance between ticks, with about TICKS of them."""
    wanted = max(1, highest) / TICKS
    power = 10 ** math.floor(math.log10(wanted)) if wanted >= 1 else 1
    return int(next(factor * power for factor in (1, 2, 5, 10) if factor * power >= wanted))


def _bar(number: int, month: date, sums: MonthSums, y_of: Callable[[float], float]) -> CostBar:
    x = LEFT + FIRST_BAR + STEP * number
    saved_y, again_y = y_of(sums.saved), y_of(sums.again)
    # The part that was read again has its label at its middle; the other label is above it.
    again_label_y = min(LOWEST_LABEL, (again_y + BOTTOM) / 2 + 4)
    saved_label_y = min(saved_y + 11, again_label_y - LABEL_HEIGHT)
    return CostBar(
        month,
        sums.compactions,
        x,
        x + BAR / 2,
        saved_y,
        round(max(0.0, again_y - saved_y), 1),
        again_y,
        round(BOTTOM - again_y, 1),
        x + BAR + 7,
        f"{short_tokens(sums.saved)} saved" if sums.compactions else "",
        round(saved_label_y, 1),
        f"{100 * sums.again / sums.saved:.0f}% read again" if sums.saved else "",
        round(again_label_y, 1),
    )
