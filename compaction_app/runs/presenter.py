"""A run as its page shows it: where it stands, what was called and streamed, and how far the plan is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec
from django.db.models import QuerySet

from compaction_app.core.parameters import Parameters
from compaction_app.core.states import ACTIVE, REVIEWABLE, WRITTEN, RunState
from compaction_app.core.stats import target_reduction, tokens_to_go
from compaction_app.models import Run, RunEvent
from compaction_app.planning.planners import EMBEDDED
from sessions_app.sessionlog.deletion import Stats

from .event_rows import EventRow
from .turn_log import OF_A_TURN, Change, Event, Log, ModelTurn, dollars
from .unseen_proposals import FINISHED

STEP_WIDTH, STEP_HEIGHT = 296, 96
PAGE_ROWS: Final = 300
"""Rows on a page; of a longer run the last ones are shown, and the others on demand."""
PAGE_STREAMED: Final = 6_000
"""Events that hold streamed words on a page: a hundred milliseconds each."""
ASKED_AT_MOST: Final = 20
"""More often than this a provider is not asked for one answer."""


@dataclass(frozen=True, slots=True)
class Steps:
    """The reduction by call as a drawing: a path, and where the target lies. Units of the drawing."""

    width: int
    height: int
    path: str
    target: float
    calls: int


@dataclass(frozen=True, slots=True)
class Fact:
    """One parameter in force, and where it comes from."""

    name: str
    value: str
    source: str


@dataclass(frozen=True, slots=True)
class Traffic:
    """What went to a model's provider and came back, so far."""

    host: str
    requests: int
    sent: int
    """Characters."""
    received: int
    tokens_in: int
    """Those that the provider had cached among them."""
    tokens_out: int
    cached: int
    estimated: bool
    """Whether some of the tokens are our estimate."""
    cost: str
    """In words; empty where it is not known, and before anything was reported."""

    @property
    def is_reported(self) -> bool:
        """Whether anything is known of the tokens: until then their sums are no facts."""
        return self.tokens_in + self.tokens_out > 0


@dataclass(frozen=True, slots=True)
class RunStatus:
    """Where a run stands, and what can be done with it."""

    run: Run
    state: RunState
    sentence: str
    percent: float
    target: float
    proposed: int
    """Entries and blocks that the plan deletes."""
    tokens: int
    to_go: int
    stopping: bool
    steps: Steps
    refused: int
    traffic: Traffic | None
    """None where nothing has left the machine."""
    facts: list[Fact]
    """What was asked for."""

    @property
    def is_active(self) -> bool:
        return self.state in ACTIVE

    @property
    def is_written(self) -> bool:
        """Whether there is a result to see."""
        return self.state in WRITTEN

    @property
    def is_reviewable(self) -> bool:
        """Whether there is a plan to review. One that did not end as planned counts if it proposes something."""
        if self.state not in REVIEWABLE or self.run.parameters is None:
            return False
        return self.state in FINISHED or self.proposed > 0

    @property
    def can_go_on(self) -> bool:
        """Whether it can be taken up where it ended."""
        if self.run.parameters is None:
            return False
        return self.state is RunState.INTERRUPTED or (self.state is RunState.FAILED and self.is_by_model)

    @property
    def is_by_model(self) -> bool:
        return self.run.planner != EMBEDDED

    @property
    def sends_to(self) -> str:
        """The host that its model is asked at again where it goes on; empty where nothing leaves the machine."""
        return host_asked(self.run)

    @property
    def met(self) -> bool:
        return self.tokens > 0 and not self.to_go

    @property
    def seconds(self) -> float | None:
        """How long it took, where it is over."""
        if self.run.started_at is None or self.run.ended_at is None:
            return None
        return max(0.1, round((self.run.ended_at - self.run.started_at).total_seconds(), 1))


@dataclass(slots=True)
class FollowedRun:
    """What a page has of a run that it follows."""

    seq: int
    log: Log
    points: list[tuple[float, bool]]
    """For each call the percentage afterwards, and whether it was refused."""
    mark: object = None
    """By what it is known whether a standing is another one."""


@dataclass(frozen=True, slots=True)
class Followed:
    """What is new on a run, for a page that has it up to a sequence number."""

    run: Run
    changes: list[Change]
    standing: RunStatus | None
    """Where it stands; None where that is as it was."""
    shown: FollowedRun
    more: bool

    @property
    def is_new(self) -> bool:
        return bool(self.changes) or self.standing is not None


@dataclass(frozen=True, slots=True)
class RunView:
    """A run's page."""

    standing: RunStatus
    items: list[ModelTurn | EventRow]
    earlier: int
    """How many rows came before those shown."""
    seq: int


# ---- a page, and what it is told afterwards ----------------------------------------------------------------


def view_run(run: Run, *, whole: bool = False) -> RunView:
    """The page of a run, with its last rows, or all of them."""
    first = 0 if whole else _first(run)
    log, seq = Log(), first
    for event in _events(run.events.filter(seq__gt=first)):
        log.take([event])
        seq = event[0]
    if run.state not in ACTIVE:
        log.close()
    earlier = run.events.filter(seq__lte=first).exclude(kind="streamed").count() if first else 0
    return RunView(standing_of(run, _points(run)), log.items, earlier, seq)


def follow_run(run_id: int, after: int, shown: FollowedRun | None, limit: int) -> Followed | None:
    """What is new after a sequence number, from at most `limit` events; None where there is no such run.

    `shown` is what the last one gave, or None at first, and is of no use afterwards, whatever comes of this.
    """
    run = Run.objects.select_related("session__root").filter(pk=run_id).first()
    if run is None:
        return None
    if shown is None or shown.seq != after:
        shown = _as_shown(run, after)
    events = list(_events(run.events.filter(seq__gt=after))[: limit + 1])
    more = len(events) > limit
    events = events[:limit]
    shown.log.take(events)
    shown.points += [_point(data) for _, kind, data in events if kind == "called"]
    shown.seq = events[-1][0] if events else after
    if run.state not in ACTIVE and not more:
        shown.log.close()
    changes = list(shown.log.changes())
    mark = (run.state, run.stop_requested, run.calls, run.stats, run.usage, run.failure, run.parameters)
    is_same, shown.mark = mark == shown.mark, mark
    return Followed(run, changes, None if is_same else standing_of(run, shown.points), shown, more)


def _as_shown(run: Run, after: int) -> FollowedRun:
    """What a page has that shows the events up to `after`: its turn that may still grow, and the steps."""
    log = Log()
    began = _turn_began(run, after)
    if began is not None:
        log.take(_events(run.events.filter(seq__gte=began, seq__lte=after)))
        log.settle()
    return FollowedRun(after, log, _points(run, after))


def _events(events: QuerySet[RunEvent]) -> QuerySet[RunEvent, Event]:
    return events.order_by("seq").values_list("seq", "kind", "data")


def _first(run: Run) -> int:
    """The event after which a page of the last rows begins. A turn is shown as a whole, or not at all."""
    newest = run.events.order_by("-seq").values_list("seq", flat=True)
    rows = newest.exclude(kind="streamed")[PAGE_ROWS : PAGE_ROWS + 1]
    streamed = newest.filter(kind="streamed")[PAGE_STREAMED : PAGE_STREAMED + 1]
    first = max([0, *rows, *streamed])
    following = run.events.filter(seq=first + 1).values_list("kind", flat=True).first()
    if first and (following in OF_A_TURN or following == "asked"):
        began = _turn_began(run, first + 1)
        return first if began is None else began - 1
    return first


def _turn_began(run: Run, until: int) -> int | None:
    """The first event of the latest turn up to an event; it may have been asked for more than once."""
    found = run.events.filter(kind__in=("asked", "prepared"), seq__lte=until).order_by("-seq")
    began = number = None
    for seq, kind, turn in found.values_list("seq", "kind", "data__turn")[:ASKED_AT_MOST]:
        if kind == "prepared" or (began is not None and turn != number):
            break
        began, number = seq, turn
    return began


def words_of(run: Run, seq: int) -> ModelTurn | None:
    """All that was streamed in the turn whose first event that is; None where it is none of this run's."""
    log = Log()
    for event in _events(run.events.filter(seq__gte=seq)).iterator(chunk_size=500):
        log.take([event])
        if len(log.items) > 1:
            break
    if run.state not in ACTIVE:
        log.close()
    turn = log.items[0] if log.items else None
    return turn if isinstance(turn, ModelTurn) else None


# ---- where it stands ---------------------------------------------------------------------------------------


def _points(run: Run, until: int | None = None) -> list[tuple[float, bool]]:
    called = run.events.filter(kind="called").order_by("seq")
    if until is not None:
        called = called.filter(seq__lte=until)
    points = called.values_list("data__percent", "data__code")
    return [(float(percent or 0), code is not None) for percent, code in points]


def _point(data: Mapping[str, Any]) -> tuple[float, bool]:
    return float(data.get("percent") or 0), data.get("code") is not None


def standing_of(run: Run, points: Sequence[tuple[float, bool]] = ()) -> RunStatus:
    """Where a run stands; its steps are those of the calls that are given."""
    # A run that is not prepared yet has none.
    stats = msgspec.convert(run.stats or {}, Stats)
    before, ratio = stats.tokens_before, _ratio(run)
    return RunStatus(
        run=run,
        state=RunState(run.state),
        sentence=RunState(run.state).sentence,
        # By the agent's rule a plan can delete more than the sum before: estimates are rounded up one by one.
        percent=min(100.0, stats.percent_reduction),
        target=target_reduction(ratio),
        proposed=stats.objects_deleted,
        tokens=before,
        to_go=tokens_to_go(stats, ratio),
        stopping=run.stop_requested and run.state == RunState.RUNNING,
        steps=_steps([percent for percent, _ in points], target_reduction(ratio)),
        refused=sum(refused for _, refused in points),
        traffic=_traffic(run),
        facts=_facts(run),
    )


def host_asked(run: Run) -> str:
    """Host and port that a run's model is asked at, as it was said before it started; empty for the embedded one."""
    return urlsplit(run.base_url).netloc or (run.usage or {}).get("host", "")


def _traffic(run: Run) -> Traffic | None:
    usage = run.usage
    if not usage:
        return None
    about = "about " if usage["estimated"] else ""
    tokens_in, tokens_out = usage["input"] + usage["cacheRead"] + usage["cacheWrite"], usage["output"]
    is_known = usage["cost"] is not None and tokens_in + tokens_out > 0
    return Traffic(
        host=usage["host"],
        requests=usage["requests"],
        sent=usage["sent"],
        received=usage["received"],
        tokens_in=tokens_in,
        tokens_out=tokens_out,
        cached=usage["cacheRead"],
        estimated=usage["estimated"],
        cost=about + dollars(usage["cost"]) if is_known else "",
    )


def _ratio(run: Run) -> float:
    if run.parameters is not None:
        return float(run.parameters["compression_ratio"])
    asked = run.requested_parameters.get("compression_ratio")
    return float(asked) if asked is not None else Parameters().compression_ratio


def _steps(percents: list[float], target: float) -> Steps:
    """A step per call, from the left edge to the right; the height is 100 %, or a little more than is needed."""
    top = max([target * 1.15, *percents, 1.0])
    width = STEP_WIDTH / max(len(percents), 1)

    def y(percent: float) -> float:
        return round(STEP_HEIGHT * (1 - percent / top), 1)

    path = f"M0 {y(0)}" + "".join(
        f"H{round(number * width, 1)}V{y(percent)}" for number, percent in enumerate(percents, 0)
    )
    return Steps(STEP_WIDTH, STEP_HEIGHT, f"{path}H{STEP_WIDTH}", y(target), len(percents))


def _facts(run: Run) -> list[Fact]:
    values: Mapping[str, Any] = run.parameters if run.parameters is not None else run.requested_parameters
    names = {"compression_ratio": "Keep", "preserve_recent": "Recent entries kept", "query": "Query"}
    facts = []
    for name, label in names.items():
        value = values.get(name)
        if value is None:
            continue
        shown = f"{100 * float(value):g}% of the tokens" if name == "compression_ratio" else str(value)
        facts.append(Fact(label, shown, run.sources.get(name, "")))
    return facts
