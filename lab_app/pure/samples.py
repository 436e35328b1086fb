"""PURE: means over the cuts of many sessions, and their reliability.

The cuts of one session are alike, so sessions are resampled and not cuts: differences within an interval are noise.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

DRAWS: Final = 2_000
SPLITS: Final = 200
_SEED: Final = 1

Shares = Sequence[Sequence[float]]
"""For each session the losses at its cuts."""


class Interval(NamedTuple):
    """The middle 95% of the means of resampled sessions."""

    low: float
    high: float


def mean(shares: Shares) -> float | None:
    """The mean over all cuts; None if there are none."""
    cuts = [share for session in shares for share in session]
    return statistics.fmean(cuts) if cuts else None


def excess(shares: Shares, least: Shares) -> Shares:
    """The loss above the minimum possible one, cut by cut."""
    return [
        [share - bound for share, bound in zip(session, bounds, strict=True)]
        for session, bounds in zip(shares, least, strict=True)
    ]


def interval(shares: Shares) -> Interval | None:
    """The bootstrap interval of the mean, by sessions; None without any cut."""
    sessions = [(sum(session), len(session)) for session in shares if session]
    if not sessions:
        return None
    chance = random.Random(_SEED)  # noqa: S311  # draws that are the same each time, and nothing secret
    means = []
    for _ in range(DRAWS):
        drawn = chance.choices(sessions, k=len(sessions))
        means.append(sum(total for total, _ in drawn) / sum(count for _, count in drawn))
    means.sort()
    return Interval(means[DRAWS // 40], means[DRAWS - 1 - DRAWS // 40])


def ratio_to_best(planner: Shares, orders: Mapping[str, Shares]) -> float | None:
    """A planner's mean relative to that of the best order, if the order is chosen on one half of the sessions and both
    are measured on the other: the mean of many divisions into halves. None if there are too few sessions.

    All are given for the same sessions, in the same order.
    """
    used = [number for number, session in enumerate(planner) if session]
    chance = random.Random(_SEED)  # noqa: S311  # draws that are the same each time, and nothing secret
    ratios = []
    for _ in range(SPLITS if len(used) > 1 and orders else 0):
        chance.shuffle(used)
        first, second = used[: len(used) // 2], used[len(used) // 2 :]
        best = min(orders, key=lambda name: mean([orders[name][number] for number in first]) or 0.0)
        measured = mean([orders[best][number] for number in second])
        if measured:
            ratios.append((mean([planner[number] for number in second]) or 0.0) / measured)
    return statistics.fmean(ratios) if ratios else None
