"""The share of the content needed later in real sessions that plans would have lost, by both measures."""

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from compaction_app.core.embedded import EmbeddedPlanner
from compaction_app.core.transcript import prepare
from lab_app.pure.measure import HORIZON, HORIZONS, ReplayCut, ReplayMeasure, bound, cuts
from lab_app.pure.report import excess, interval, mean, ratio_to_best
from lab_app.pure.strategies import EMBEDDED, KEYS, ORDERS, Order, planned_by, strategies_named
from lab_app.pure.trials import BOUND, Branch, trials_of
from sessions_app.agents.atomic.agent import ATOMIC
from sessions_app.sessionlog.tree import SessionTree

from .figures import Figure
from .sessions import RealBranch, read_branch, real_sessions

KEEPS: Final = (0.7, 0.5, 0.3)
BARS: Final[Mapping[float, float]] = {0.5: 3.6, 0.3: 8.8}
"""By the kept fraction: the maximum loss of the embedded planner in percent, by the older measure."""
RATIO_BAR: Final = 0.45
BRANCH_MESSAGES: Final = 1_000

Shares = dict[str, list[list[float]]]
"""For each plan and each session, the losses at the session's cuts."""


class Scale(NamedTuple):
    """The measure, the horizon, and the fraction of tokens kept."""

    measure: ReplayMeasure
    horizon: int
    keep: float

    def __str__(self) -> str:
        return f"replay_{self.measure}_{self.horizon}_keep_{self.keep * 100:.0f}"


PLANS: Final[Mapping[str, Order]] = {EMBEDDED: planned_by(EmbeddedPlanner), **ORDERS}
SCALES: Final = (
    (ReplayMeasure.SUBSTRINGS, HORIZON),
    *((ReplayMeasure.COMPONENTS, horizon) for horizon in HORIZONS),
)


def cuts_of(branch: RealBranch) -> Iterator[ReplayCut]:
    rules = ATOMIC.format.generations[-1].rules
    return cuts(branch.entries, lambda entries: prepare(entries, branch.texts, {}, rules))


def shares_of(branches: Iterable[RealBranch], plans: Mapping[str, Order] = PLANS) -> dict[Scale, Shares]:
    """The losses of each plan on each branch, and the bound."""
    shares: dict[Scale, Shares] = {}
    for number, branch in enumerate(branches):
        for cut in cuts_of(branch):
            scales = [(one, cut.needs(*one)) for one in SCALES]
            for keep in KEEPS:
                targets = {name: plan(cut.prefix, 1 - keep) for name, plan in plans.items()}
                for (measure, horizon), needs in scales:
                    if needs is None:
                        continue
                    lost = {name: needs.loss(targets[name]).share for name in plans}
                    lost[BOUND] = bound(needs, 1 - keep).share
                    for name, share in lost.items():
                        of_plan = shares.setdefault(Scale(measure, horizon, keep), {}).setdefault(name, [])
                        of_plan += [[] for _ in range(number + 1 - len(of_plan))]
                        of_plan[number].append(share)
    return shares


def replay_loss() -> Iterator[Figure]:
    """The mean replay loss over all cuts of the corpus, in percent."""
    measured = shares_of(map(read_branch, real_sessions()))
    for scale in sorted(measured, key=lambda one: (SCALES.index(one[:2]), -one.keep)):
        yield from _figures(scale, measured[scale])


def lab_seconds() -> Iterator[Figure]:
    """All strategies of the lab at three shares, on the real branch that is nearest to 1,000 messages."""
    branches = [read_branch(path) for path in real_sessions()]
    if not branches:
        return
    longest = min(branches, key=lambda one: abs(len(one.entries) - BRANCH_MESSAGES))
    rules = ATOMIC.format.generations[-1].rules
    branch = Branch(
        SessionTree(longest.entries), longest.entries, longest.texts, ATOMIC.format.generations[-1].reader, rules, {}
    )
    began = time.perf_counter()
    made = sum(1 for _ in trials_of(branch, strategies_named(KEYS)))
    note = f"s, {made} trials on {len(longest.entries)} entries"
    yield Figure("lab_all_strategies", round(time.perf_counter() - began, 2), note, 20.0)


def _figures(scale: Scale, shares: Shares) -> Iterator[Figure]:
    old = scale.measure is ReplayMeasure.SUBSTRINGS
    unbiased = excess(shares[EMBEDDED], shares[BOUND])
    for name, values in {**shares, "embedded_excess": unbiased}.items():
        bar = BARS.get(scale.keep) if old and name == EMBEDDED else None
        yield Figure(f"{scale}_{name}", _percent(mean(values)), "%", bar)
        if name == EMBEDDED:
            ends = interval(values)
            for end, value in zip(("low", "high"), ends or (None, None), strict=True):
                yield Figure(f"{scale}_{name}_{end}", _percent(value), "%", None)
    ratio = ratio_to_best(shares[EMBEDDED], {name: shares[name] for name in ORDERS})
    bar = RATIO_BAR if scale.keep in BARS and old else None
    yield Figure(f"{scale}_embedded_to_best_order", ratio and round(ratio, 3), "", bar)


def _percent(share: float | None) -> float | None:
    return None if share is None else round(share * 100, 2)
