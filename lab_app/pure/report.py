"""PURE: the trials of many sessions as figures: one result for each strategy and share, with an interval.

An interval comes from resampling sessions, not cuts: the cuts of one session are alike (see `samples`). Tokens are the
agents' estimates; a cost is in US dollars, and only for sessions whose model has a known price.
"""

from __future__ import annotations

import csv
import io
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from compaction_app.core.stats import InputCost, input_cost
from sessions_app.sessionlog.model_facts import InputPrices

from .measure import HORIZON
from .samples import Interval, interval, mean
from .strategies import STRATEGIES, SUMMARIES
from .trials import BOUND, Trial

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
    """The median number of requests after which it has paid; None without a price, or if it never does."""
    failures: int
    """The number of cuts without a plan."""


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
    """A value that no spreadsheet executes: session files and entries may have any name."""
    if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r"):
        return f"'{value}"
    return value
