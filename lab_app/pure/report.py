"""PURE: the trials of many sessions as figures: one result for each strategy and share, with an interval.

The cuts of one session are alike, so sessions are resampled and not cuts: differences within an interval are noise.
Tokens are the agents' estimates; a cost is in US dollars, and only for sessions whose model has a known price. The
losses are also drawn by the kept share, with the minimum possible loss.
"""

import csv
import io
import math
import random
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from compaction_app.core.stats import InputCost, input_cost
from sessions_app.sessionlog.model_facts import InputPrices

from .measure import HORIZON
from .strategies import EMBEDDED, STRATEGIES, SUMMARIES
from .trials import BOUND, Trial

DRAWS: Final = 2_000
SPLITS: Final = 200
_SEED: Final = 1

Shares = Sequence[Sequence[float]]
"""For each session the losses at its cuts."""


class Interval(NamedTuple):
    """The 95% bootstrap interval of a mean, over resampled sessions."""

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
    """The bootstrap interval of the mean, resampled by session; None without any cut."""
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


# ---- results ---------------------------------------------------------------------------------------------

LABELS: Final[Mapping[str, str]] = {
    BOUND: "the least possible",
    **{key: one.label for key, one in STRATEGIES.items()},
    SUMMARIES.key: SUMMARIES.label,
}
"""The names of strategies, by key."""
CSV_COLUMNS: Final = (
    "session",
    "cut_before",
    "strategy",
    "keep",
    "tokens_before",
    "tokens_after",
    "rewritten",
    "seconds",
    "needed",
    "lost",
    "loss",
    "loss_20",
    "loss_40",
    "loss_100",
    "loss_substrings",
    "failure",
)


class TriedSession(NamedTuple):
    """A session with its trials."""

    name: str
    """Its name in exports: the path."""
    trials: Sequence[Trial]
    prices: InputPrices | None
    """The input prices of its model; None if unknown."""


class StrategyResult(NamedTuple):
    """A strategy at one share, over all cuts of all sessions. Means are over cuts."""

    strategy: str
    keep: float | None
    cuts: int
    loss: float | None
    """The mean share of the needed references that was lost; None if nothing could be measured."""
    loss_interval: Interval | None
    excess: float | None
    """The loss above the minimum possible one; None without a bound."""
    kept: float
    """The share of the tokens that was kept."""
    deleted: float
    """In tokens."""
    rewritten: float
    """Tokens that the next request writes to the cache again."""
    seconds: float
    """Seconds for one plan."""
    kinds: Mapping[str, float]
    """The share of the deleted tokens by kind of unit, the largest first."""
    by_horizon: Mapping[str, float]
    """The mean loss by horizon, and by the older measure."""
    saved: float | None
    """US dollars for one request; None without a price."""
    pays_after: int | None
    """The median number of requests after which the saving exceeds the cost; None without a price, or if it never
    does."""
    failures: int
    """The number of cuts without a plan."""

    @property
    def loss_words(self) -> str:
        return percent(self.loss) if self.loss is not None else ""

    @property
    def interval_words(self) -> str:
        ends = self.loss_interval
        return f"{100 * ends.low:.1f}–{100 * ends.high:.1f}" if ends is not None else ""

    @property
    def excess_words(self) -> str:
        """The excess loss in percentage points, as text."""
        return f"+{100 * self.excess:.1f}" if self.excess is not None else ""


def percent(share: float) -> str:
    """A share with one decimal, such as 5.9%."""
    return f"{100 * share:.1f}%"


def results_of(sessions: Sequence[TriedSession]) -> list[StrategyResult]:
    """The results, by strategy in the order of the trials, the largest share first."""
    groups: dict[tuple[str, float | None], list[list[Trial]]] = {}
    for number, session in enumerate(sessions):
        for trial in session.trials:
            found = groups.setdefault((trial.strategy, trial.keep), [[] for _ in sessions])
            found[number].append(trial)
    least = {
        (number, trial.place, trial.keep): trial.share
        for number, session in enumerate(sessions)
        for trial in session.trials
        if trial.strategy == BOUND
    }
    order = {strategy: place for place, strategy in enumerate(dict.fromkeys(key for key, _ in groups))}
    keys = sorted(groups, key=lambda key: (order[key[0]], -(key[1] or 0.0)))
    return [_result(strategy, keep, groups[strategy, keep], sessions, least) for strategy, keep in keys]


def _result(
    strategy: str,
    keep: float | None,
    trials: Sequence[Sequence[Trial]],
    sessions: Sequence[TriedSession],
    least: Mapping[tuple[int, str, float | None], float],
) -> StrategyResult:
    made = [[trial for trial in of_session if not trial.failure] for of_session in trials]
    every = [trial for of_session in made for trial in of_session]
    shares = [[trial.share for trial in of_session] for of_session in made]
    above = [
        trial.share - least[number, trial.place, trial.keep]
        for number, of_session in enumerate(made)
        for trial in of_session
        if (number, trial.place, trial.keep) in least
    ]
    costs = [
        _cost(trial, session.prices)
        for of_session, session in zip(made, sessions, strict=True)
        for trial in of_session
        if session.prices is not None and strategy != BOUND
    ]
    pays = [cost.pays_after for cost in costs if cost.pays_after is not None]
    return StrategyResult(
        strategy,
        keep,
        len(every),
        mean(shares),
        interval(shares),
        statistics.fmean(above) if above and strategy != BOUND else None,
        _mean(trial.kept for trial in every),
        _mean(trial.tokens_before - trial.tokens_after for trial in every),
        _mean(trial.rewritten for trial in every),
        _mean(trial.seconds for trial in every),
        _kinds(every),
        _horizons(every),
        _mean(cost.saved for cost in costs) if costs else None,
        int(statistics.median_high(pays)) if pays else None,
        sum(bool(trial.failure) for of_session in trials for trial in of_session),
    )


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return statistics.fmean(found) if found else 0.0


def _cost(trial: Trial, prices: InputPrices) -> InputCost:
    return input_cost(trial.tokens_before, trial.tokens_after, trial.rewritten, prices.read, prices.write)


def _kinds(trials: Sequence[Trial]) -> dict[str, float]:
    totals: dict[str, int] = {}
    for trial in trials:
        for kind, tokens in trial.kinds.items():
            totals[kind] = totals.get(kind, 0) + tokens
    every = sum(totals.values())
    return {kind: tokens / every for kind, tokens in sorted(totals.items(), key=lambda one: -one[1]) if every}


def _horizons(trials: Sequence[Trial]) -> dict[str, float]:
    found: dict[str, list[float]] = {}
    for trial in trials:
        for name, share in trial.shares.items():
            found.setdefault(name, []).append(share)
    return {name: statistics.fmean(shares) for name, shares in found.items()}


PHRASES: Final[Mapping[str, str]] = {
    EMBEDDED: "the built-in planner",
    "oldest": "deleting the oldest first",
    "largest": "deleting the largest first",
    "old_results": "deleting old tool results first",
    "keep_recent": "keeping only the recent part",
}
"""What a sentence about a strategy begins with, if its label does not say it."""


def answer(results: Sequence[StrategyResult], labels: Mapping[str, str]) -> str:
    """What the built-in planner loses at the middle share, or else the best strategy, beside a simple order; empty if
    nothing could be measured."""
    keeps = sorted({one.keep for one in results if one.keep is not None and one.loss is not None}, reverse=True)
    if not keeps:
        return ""
    keep = keeps[len(keeps) // 2]
    found = {one.strategy: one for one in results if one.keep == keep and one.loss is not None}
    ranked = sorted((key for key in found if key != BOUND), key=lambda key: found[key].loss or 0.0)
    if not ranked:
        return ""
    first = EMBEDDED if EMBEDDED in found else ranked[0]
    others = [key for key in ("oldest", *ranked) if key in found and key != first]
    share = "half of the tokens" if keep == 0.5 else f"{keep:.0%} of the tokens"
    said = [f"{PHRASES.get(key, labels.get(key, key))} loses {found[key].loss_words}" for key in (first, *others[:1])]
    return f"Keeping {share}, {said[0]} of what the agent needed next{''.join(f'; {one}' for one in said[1:])}."


# ---- exports ----------------------------------------------------------------------------------------------


def as_document(sessions: Sequence[TriedSession], **about: Any) -> dict[str, Any]:
    """Results and trials as JSON values; `about` describes the measurement."""
    return {
        **about,
        "horizon": HORIZON,
        "results": [_as_object(one) for one in results_of(sessions)],
        "sessions": [{"path": one.name, "trials": [_trial_object(trial) for trial in one.trials]} for one in sessions],
    }


def _as_object(one: StrategyResult) -> dict[str, Any]:
    found = one._asdict()
    found["loss_interval"] = list(one.loss_interval) if one.loss_interval is not None else None
    return {name: round(value, 5) if isinstance(value, float) else value for name, value in found.items()}


def _trial_object(trial: Trial) -> dict[str, Any]:
    return {
        "strategy": trial.strategy,
        "cutBefore": trial.place,
        "keep": trial.keep,
        "tokensBefore": trial.tokens_before,
        "tokensAfter": trial.tokens_after,
        "rewritten": trial.rewritten,
        "seconds": round(trial.seconds, 4),
        "needed": trial.needed,
        "lost": trial.lost,
        "losses": trial.shares,
        "kinds": trial.kinds,
        "lostReferences": [
            {"reference": one.reference, "neededIn": one.needed_in, "stoodIn": list(one.stood_in)}
            for one in trial.named
        ],
        "failure": trial.failure,
    }


def as_csv(sessions: Sequence[TriedSession]) -> str:
    """One line for each trial. A value that a spreadsheet would treat as a formula has an apostrophe before it."""
    lines = io.StringIO()
    writer = csv.writer(lines)
    writer.writerow(CSV_COLUMNS)
    for session in sessions:
        for trial in session.trials:
            loss = trial.share if trial.needed else None
            values = (
                session.name,
                trial.place,
                trial.strategy,
                trial.keep,
                trial.tokens_before,
                trial.tokens_after,
                trial.rewritten,
                round(trial.seconds, 4),
                trial.needed,
                trial.lost,
                loss,
                *(trial.shares.get(name) for name in ("20", "40", "100", "substrings")),
                trial.failure,
            )
            writer.writerow([_cell(value) for value in values])
    return lines.getvalue()


def _cell(value: object) -> object:
    """A CSV value that no spreadsheet executes as a formula: session files and entries may have any name."""
    if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r"):
        return f"'{value}"
    return value


LEFT, RIGHT, TOP, BOTTOM = 70, 630, 30, 330
"""The edges of the drawing area, in pixels; the labels are on its right."""
LABEL_HEIGHT = 20
"""The minimum distance between two labels."""


class PlotPoint(NamedTuple):
    """A measured point, with its interval as two vertical positions."""

    x: float
    y: float
    low: float
    high: float


class PlotLine(NamedTuple):
    """The line of one strategy."""

    label: str
    last: str
    """The loss at the end of the line, in words."""
    kind: str
    """How the line is drawn: `embedded`, `bound`, or `other`."""
    path: str
    points: tuple[PlotPoint, ...]
    label_y: float

    @property
    def leader(self) -> str:
        """The path from the end of the line to its label."""
        end = self.points[-1]
        return f"M{end.x + 6:g} {end.y:g}L{RIGHT + 32:g} {self.label_y - 4:g}H{RIGHT + 38:g}"


class PlotTick(NamedTuple):
    """A mark on an axis."""

    at: float
    percent: int


class LossPlot(NamedTuple):
    """A plot of the loss, with one line for each strategy. The kept share decreases from left to right."""

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
    lasts: dict[str, str] = {}
    for one in measured:
        loss, ends = one.loss or 0.0, one.loss_interval
        low, high = (ends.low, ends.high) if ends is not None else (loss, loss)
        point = PlotPoint(x_of(one.keep or 0.0), y_of(loss), y_of(low), y_of(high))
        drawn.setdefault(one.strategy, []).append(point)
        lasts[one.strategy] = one.loss_words
    heights = _apart({strategy: points[-1].y for strategy, points in drawn.items()})
    lines = tuple(
        PlotLine(
            labels.get(strategy, strategy),
            lasts[strategy],
            strategy if strategy in (EMBEDDED, BOUND) else "other",
            "M" + "L".join(f"{point.x} {point.y}" for point in points),
            tuple(points),
            heights[strategy],
        )
        for strategy, points in drawn.items()
    )
    step = next(step for most, step in ((0.05, 0.01), (0.25, 0.05), (0.5, 0.1), (math.inf, 0.2)) if top <= most)
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
