"""PURE: the drawing of strategies' losses by the kept share, with the minimum possible loss."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from .report import StrategyResult
from .strategies import EMBEDDED
from .trials import BOUND

LEFT, RIGHT, TOP, BOTTOM = 40, 520, 12, 228
"""The edges of the drawing area; units of the drawing."""
LABEL_HEIGHT = 14
"""The minimum distance between two labels."""


class PlotPoint(NamedTuple):
    """A measured point, with its interval as two vertical positions."""

    x: float
    y: float
    low: float
    high: float


class PlotLine(NamedTuple):
    """A strategy."""

    label: str
    kind: str
    """`embedded`, `bound`, or `other`: the way it is drawn."""
    path: str
    points: tuple[PlotPoint, ...]
    label_y: float


class PlotTick(NamedTuple):
    """A mark on an axis."""

    at: float
    percent: int


class LossPlot(NamedTuple):
    """Lines from left to right: the more is kept, the further to the left."""

    lines: tuple[PlotLine, ...]
    losses: tuple[PlotTick, ...]
    keeps: tuple[PlotTick, ...]


def loss_plot(results: Sequence[StrategyResult], labels: Mapping[str, str]) -> LossPlot | None:
    """The drawing; None if fewer than two shares were measured."""
    measured = [one for one in results if one.keep is not None and one.loss is not None]
    keeps = sorted({one.keep for one in measured if one.keep is not None}, reverse=True)
    if len(keeps) < 2:
        return None
    highest = max(one.loss_interval.high if one.loss_interval else one.loss or 0.0 for one in measured)
    top = max(0.05, math.ceil(highest * 20) / 20)

    def x_of(keep: float) -> float:
        return round(LEFT + (RIGHT - LEFT) * (keeps[0] - keep) / (keeps[0] - keeps[-1]), 1)

    def y_of(loss: float) -> float:
        return round(BOTTOM - (BOTTOM - TOP) * loss / top, 1)

    drawn: dict[str, list[PlotPoint]] = {}
    for one in measured:
        loss, ends = one.loss or 0.0, one.loss_interval
        low, high = (ends.low, ends.high) if ends is not None else (loss, loss)
        point = PlotPoint(x_of(one.keep or 0.0), y_of(loss), y_of(low), y_of(high))
        drawn.setdefault(one.strategy, []).append(point)
    heights = _apart({strategy: points[-1].y for strategy, points in drawn.items()})
    lines = tuple(
        PlotLine(
            labels.get(strategy, strategy),
            strategy if strategy in (EMBEDDED, BOUND) else "other",
            "M" + "L".join(f"{point.x} {point.y}" for point in points),
            tuple(points),
            heights[strategy],
        )
        for strategy, points in drawn.items()
    )
    step = 0.05 if top <= 0.25 else 0.1 if top <= 0.5 else 0.2
    losses = tuple(
        PlotTick(y_of(step * number), round(100 * step * number)) for number in range(int(top / step + 0.5) + 1)
    )
    return LossPlot(lines, losses, tuple(PlotTick(x_of(keep), round(100 * keep)) for keep in keeps))


def _apart(ends: Mapping[str, float]) -> dict[str, float]:
    """The heights of labels near the ends of their lines, without overlaps."""
    heights: dict[str, float] = {}
    above = -math.inf
    for strategy, y in sorted(ends.items(), key=lambda one: one[1]):
        above = max(y, above + LABEL_HEIGHT)
        heights[strategy] = round(above + 4, 1)
    below: float = BOTTOM
    for strategy in sorted(heights, key=lambda one: -heights[one]):
        below = min(heights[strategy], below)
        heights[strategy] = round(below, 1)
        below -= LABEL_HEIGHT
    return heights
