"""The pages of the lab: experiments, the figures of one, the losses of each strategy, and two experiments side by
side."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
from django.db.models import QuerySet

from compaction_app.planning.model_registry import prices_of_session
from compaction_app.providers.usage import dollars
from lab_app.models import Experiment, MeasuredSession
from lab_app.pure.measure import HORIZONS
from lab_app.pure.report import LABELS, LossPlot, StrategyResult, TriedSession, loss_plot, mean, percent, results_of
from lab_app.pure.strategies import STRATEGIES, SUMMARIES
from lab_app.pure.trials import BOUND, LostReference, Trial
from sessions_app.models import Session

LOST_SHOWN: Final = 40
"""References of a strategy that are listed."""
KIND_LABELS: Final[Mapping[str, str]] = {
    "output": "outputs",
    "call": "calls",
    "message": "messages",
    "reasoning": "thinking",
    "part": "parts of outputs",
}


@dataclass(frozen=True, slots=True)
class StrategyRow:
    """A strategy with its losses, share by share."""

    key: str
    label: str
    what: str
    cells: Sequence[StrategyResult | None]
    """None if it was not measured at a share."""
    kept: str
    """The share that it kept, if it takes no share."""
    is_best: bool
    """Whether no other planning strategy loses less, on average over the shares."""
    failures: int


@dataclass(frozen=True, slots=True)
class DetailRow:
    """The properties of a strategy's plans at one share. Numbers are means over cuts."""

    key: str
    label: str
    kept: str
    deleted: int
    rewritten: int
    saved: str
    pays_after: int | None
    milliseconds: int
    kinds: Sequence[tuple[str, str]]
    horizons: Sequence[str]
    """The losses by horizon, and by the older measure; empty texts if they are not measured."""


@dataclass(frozen=True, slots=True)
class LostRow:
    """A lost reference: the entry that needed it, and the entries that had it."""

    session: Session
    lost: LostReference

    @property
    def first(self) -> str:
        return self.lost.stood_in[0]

    @property
    def further(self) -> int:
        return len(self.lost.stood_in) - 1


@dataclass(frozen=True, slots=True)
class MeasuredRow:
    """A measured session, with its losses by the strategies that take a share, at one share."""

    measured: MeasuredSession
    cuts: int
    losses: Sequence[str]


@dataclass(frozen=True, slots=True)
class ChangeRow:
    """A strategy in two experiments, over the sessions that both measured."""

    label: str
    keep: str
    here: str
    there: str
    change: str


@dataclass(frozen=True, slots=True)
class ExperimentView:
    """The data of an experiment's page."""

    experiment: Experiment
    total: int
    done: int
    short: int
    """The number of sessions that were too short, or need too little of their past, to be measured."""
    cuts: int
    keeps: Sequence[str]
    rows: Sequence[StrategyRow]
    plot: LossPlot | None
    keep: float | None
    """The share of the details."""
    details: Sequence[DetailRow]
    horizons: Sequence[int]
    strategy: str
    """The strategy whose lost references are listed."""
    lost: Sequence[LostRow]
    more_lost: int
    sessions: Sequence[MeasuredRow]
    columns: Sequence[tuple[str, str]]
    """The strategies of `sessions`: key and label."""
    others: Sequence[Experiment]
    other: Experiment | None
    common: int
    """The number of sessions that both experiments measured."""
    changes: Sequence[ChangeRow]

    @property
    def percent_done(self) -> int:
        return round(100 * self.done / self.total) if self.total else 0

    @property
    def choices(self) -> list[tuple[float, str]]:
        """The shares, with their words."""
        return list(zip(self.experiment.keeps, self.keeps, strict=True))


def view_experiment(experiment: Experiment, keep: str = "", strategy: str = "", other: str = "") -> ExperimentView:
    """The measured part of an experiment. Unknown choices are replaced by the first ones."""
    rows = list(_shown(experiment))
    tried = [(row, trials_in(row)) for row in rows]
    sessions = [TriedSession(str(row.session.path), trials, _prices(row.session)) for row, trials in tried]
    results = results_of(sessions)
    labels = {**LABELS, **({experiment.planner: experiment.planner} if experiment.planner else {})}
    shares: list[float] = experiment.keeps
    chosen = next((one for one in shares if f"{one:g}" == keep), shares[len(shares) // 2] if shares else None)
    planning = list(dict.fromkeys(one.strategy for one in results if one.strategy not in (BOUND, SUMMARIES.key)))
    shown = strategy if strategy in labels else next(iter(planning), "")
    every = [
        LostRow(row.session, lost)
        for row, trials in tried
        for trial in trials
        if trial.strategy == shown and trial.keep in (chosen, None)
        for lost in trial.named
    ]
    columns = [(key, labels[key]) for key in planning if key in STRATEGIES and STRATEGIES[key].takes_share]
    against = _other(experiment, other)
    common, changes = _changes(tried, against, labels) if against is not None else (0, [])
    return ExperimentView(
        experiment=experiment,
        total=len(rows),
        done=sum(row.measured_at is not None for row in rows),
        short=sum(row.measured_at is not None and not row.failure and not trials for row, trials in tried),
        cuts=len({(row.pk, trial.place) for row, trials in tried for trial in trials}),
        keeps=[f"{share:.0%}" for share in shares],
        rows=_strategy_rows(results, shares, labels),
        plot=loss_plot(results, labels),
        keep=chosen,
        details=[_detail(one, labels) for one in results if one.keep in (chosen, None) and one.strategy != BOUND],
        horizons=HORIZONS,
        strategy=shown,
        lost=every[:LOST_SHOWN],
        more_lost=max(0, len(every) - LOST_SHOWN),
        sessions=[_session_row(row, trials, chosen, [key for key, _ in columns]) for row, trials in tried],
        columns=columns,
        others=list(Experiment.objects.exclude(pk=experiment.pk).order_by("-pk")[:20]),
        other=against,
        common=common,
        changes=changes,
    )


def _shown(experiment: Experiment) -> QuerySet[MeasuredSession]:
    """Its sessions in configured roots, in the order of measurement: pages show no others."""
    shown = experiment.measured.filter(session__root__configured=True)
    return shown.select_related("session__root").order_by("pk")


def trials_in(measured: MeasuredSession) -> list[Trial]:
    """The stored trials of a session."""
    return msgspec.convert(measured.trials, list[Trial])


def tried_sessions(experiment: Experiment) -> list[TriedSession]:
    """The measured sessions of an experiment, for its exports."""
    rows = _shown(experiment)
    return [TriedSession(str(row.session.path), trials_in(row), _prices(row.session)) for row in rows]


def about(experiment: Experiment) -> dict[str, Any]:
    """The description of an experiment in an export."""
    return {
        "experiment": experiment.pk,
        "version": experiment.version,
        "createdAt": experiment.created_at.isoformat(),
        "state": experiment.state,
        "strategies": [*experiment.strategies, *([experiment.planner] if experiment.planner else [])],
        "keeps": experiment.keeps,
    }


def _prices(session: Session) -> Any:
    known = prices_of_session(session, Path.home())
    return known.value if known is not None else None


def _strategy_rows(
    results: Sequence[StrategyResult], shares: Sequence[float], labels: Mapping[str, str]
) -> list[StrategyRow]:
    found = {(one.strategy, one.keep): one for one in results}
    keys = list(dict.fromkeys(one.strategy for one in results))
    means = {
        key: mean([[one.loss for one in results if one.strategy == key and one.loss is not None]])
        for key in keys
        if key != BOUND and any((key, share) in found for share in shares)
    }
    least = min((value for value in means.values() if value is not None), default=None)
    rows = []
    for key in keys:
        free = found.get((key, None))
        known = {**STRATEGIES, SUMMARIES.key: SUMMARIES}.get(key)
        what = known.what if known is not None else ""
        if key == BOUND:
            what = "A plan that knows the future. No plan of this size can lose much less."
        rows.append(
            StrategyRow(
                key,
                labels[key],
                what,
                [found.get((key, share)) for share in shares] if free is None else [free],
                percent(free.kept) if free is not None else "",
                least is not None and means.get(key) == least,
                sum(one.failures for one in results if one.strategy == key),
            )
        )
    return rows


def _detail(result: StrategyResult, labels: Mapping[str, str]) -> DetailRow:
    names = [*map(str, HORIZONS), "substrings"]
    return DetailRow(
        result.strategy,
        labels[result.strategy],
        percent(result.kept),
        round(result.deleted),
        round(result.rewritten),
        dollars(result.saved) if result.saved is not None else "",
        result.pays_after,
        max(1, round(1000 * result.seconds)),
        [(KIND_LABELS.get(kind, kind), f"{share:.0%}") for kind, share in result.kinds.items()],
        [percent(result.by_horizon[name]) if name in result.by_horizon else "" for name in names],
    )


def _session_row(
    measured: MeasuredSession, trials: Sequence[Trial], keep: float | None, columns: Iterable[str]
) -> MeasuredRow:
    losses = []
    for key in columns:
        shares = [one.share for one in trials if (one.strategy, one.keep) == (key, keep) and not one.failure]
        value = mean([shares])
        losses.append("" if value is None else percent(value))
    return MeasuredRow(measured, len({trial.place for trial in trials}), losses)


def _other(experiment: Experiment, number: str) -> Experiment | None:
    if not number.isdecimal() or len(number) > 18:
        return None
    return Experiment.objects.exclude(pk=experiment.pk).filter(pk=int(number)).first()


def _changes(
    tried: Sequence[tuple[MeasuredSession, Sequence[Trial]]], other: Experiment, labels: Mapping[str, str]
) -> tuple[int, list[ChangeRow]]:
    """The number of sessions that both measured at some of the same cuts, and the changes there."""
    there = {row.session_id: trials_in(row) for row in other.measured.all()}
    ours: list[TriedSession] = []
    theirs: list[TriedSession] = []
    for row, trials in tried:
        earlier = there.get(row.session_id, [])
        places = {one.place for one in trials} & {one.place for one in earlier}
        if places:
            ours.append(TriedSession("", [one for one in trials if one.place in places], None))
            theirs.append(TriedSession("", [one for one in earlier if one.place in places], None))
    before = {(one.strategy, one.keep): one for one in results_of(theirs)}
    rows = []
    for one in results_of(ours):
        earlier_result = before.get((one.strategy, one.keep))
        if one.loss is None or earlier_result is None or earlier_result.loss is None:
            continue
        rows.append(
            ChangeRow(
                labels.get(one.strategy, one.strategy),
                f"{one.keep:.0%}" if one.keep is not None else "",
                percent(one.loss),
                percent(earlier_result.loss),
                f"{100 * (one.loss - earlier_result.loss):+.1f}",
            )
        )
    return len(ours), rows
