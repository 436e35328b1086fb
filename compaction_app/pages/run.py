"""A run as its page shows it: where it stands, each call with what it gave, and how far the plan is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from ..deletion.parameters import Parameters
from ..deletion.states import ACTIVE, REVIEWABLE, State
from ..deletion.targets import Target
from ..models import Run, RunEvent

ARGUMENT_CHARACTERS: Final = 160
TARGETS_SHOWN: Final = 6
HITS_SHOWN: Final = 5
SNIPPET_CHARACTERS: Final = 400
STEP_WIDTH, STEP_HEIGHT = 296, 96
PAGE_ROWS: Final = 300
"""Rows on a page; of a longer run the last ones are shown, and the others on demand."""


@dataclass(frozen=True, slots=True)
class Hit:
    """One object that a call found or named."""

    entry_id: str
    block: int | None
    text: str


@dataclass(frozen=True, slots=True)
class Row:
    """One event. Tokens and percentages are of the transcript's own estimate."""

    seq: int
    kind: str
    at: datetime
    number: int | None
    tool: str
    arguments: list[tuple[str, str]]
    said: str
    code: str
    target: Hit | None
    hits: list[Hit]
    more_hits: int
    snippet: str
    gain: int
    before: float
    percent: float
    took: int | None


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
class Standing:
    """Where a run stands, and what can be done with it."""

    run: Run
    state: State
    sentence: str
    percent: float
    target: float
    deleted: int
    tokens: int
    to_go: int
    stopping: bool
    steps: Steps
    refused: int

    @property
    def is_active(self) -> bool:
        return self.state in ACTIVE

    @property
    def is_reviewable(self) -> bool:
        return self.state in REVIEWABLE and self.run.parameters is not None

    @property
    def met(self) -> bool:
        return self.tokens > 0 and not self.to_go

    @property
    def seconds(self) -> float | None:
        """How long it took, where it is over."""
        if self.run.started_at is None or self.run.ended_at is None:
            return None
        return max(0.1, round((self.run.ended_at - self.run.started_at).total_seconds(), 1))


@dataclass(frozen=True, slots=True)
class Followed:
    """What is new on a run since a sequence number."""

    standing: Standing
    rows: list[Row]
    seq: int
    more: bool

    @property
    def state(self) -> tuple[str, bool]:
        return self.standing.state, self.standing.stopping


@dataclass(frozen=True, slots=True)
class RunView:
    """A run's page."""

    standing: Standing
    facts: list[Fact]
    rows: list[Row]
    earlier: int
    """How many rows came before those shown."""
    seq: int


def view_run(run: Run, *, whole: bool = False) -> RunView:
    """The page of a run, with its last rows, or all of them."""
    first = 0 if whole else max(0, run.last_seq - PAGE_ROWS)
    rows = [_row(event) for event in run.events.filter(seq__gt=first).order_by("seq")]
    return RunView(standing_of(run), _facts(run), rows, first, rows[-1].seq if rows else 0)


def follow_run(run_id: int, after: int, limit: int) -> Followed | None:
    """The rows after a sequence number, at most `limit`, and where the run stands; None where there is no such run."""
    run = Run.objects.filter(pk=run_id).first()
    if run is None:
        return None
    events = list(RunEvent.objects.filter(run=run, seq__gt=after).order_by("seq")[: limit + 1])
    rows = [_row(event) for event in events[:limit]]
    return Followed(standing_of(run), rows, rows[-1].seq if rows else after, len(events) > limit)


def standing_of(run: Run, *, steps: bool = True) -> Standing:
    """Where a run stands; without its steps where nobody draws them."""
    stats = run.stats or {}
    before, after = stats.get("tokensBefore", 0), stats.get("tokensAfter", 0)
    ratio = _ratio(run)
    goal = int(before * ratio)
    called = run.events.filter(kind="called").order_by("seq")
    points = list(called.values_list("data__percent", "data__code")) if steps else []
    return Standing(
        run=run,
        state=State(run.state),
        sentence=State(run.state).sentence,
        # By the agent's rule a plan can delete more than the sum before: estimates are rounded up one by one.
        percent=min(100.0, float(stats.get("percentReduction", 0))),
        target=round(100 * (1 - ratio), 1),
        deleted=min(before, before - after),
        tokens=before,
        to_go=max(0, after - goal),
        stopping=run.stop_asked and run.state == State.RUNNING,
        steps=_steps([float(percent or 0) for percent, _ in points], 100 * (1 - ratio)),
        refused=sum(code is not None for _, code in points),
    )


def _ratio(run: Run) -> float:
    if run.parameters is not None:
        return float(run.parameters["compression_ratio"])
    asked = run.asked.get("compression_ratio")
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
    values: Mapping[str, Any] = run.parameters if run.parameters is not None else run.asked
    names = {"compression_ratio": "Keep", "preserve_recent": "Recent entries kept", "query": "Query"}
    facts = []
    for name, label in names.items():
        value = values.get(name)
        if value is None:
            continue
        shown = f"{100 * float(value):g}% of the tokens" if name == "compression_ratio" else str(value)
        facts.append(Fact(label, shown, run.sources.get(name, "")))
    return facts


# ---- events ----------------------------------------------------------------------------------------------


def _row(event: RunEvent) -> Row:
    data = event.data
    details = data.get("details", {})
    hits = [_hit(match) for match in details.get("matches", ())] or [
        Hit(raw["entryId"], raw.get("blockIndex"), raw.get("code", "")) for raw in data.get("dropped", ())
    ]
    target = data.get("target")
    return Row(
        seq=event.seq,
        kind=event.kind,
        at=event.at,
        number=data.get("call"),
        tool=data.get("tool", ""),
        arguments=list(_arguments(data["arguments"])) if "arguments" in data else [],
        said=_said(event.kind, data),
        code=data.get("code", ""),
        target=_hit(target) if target else None,
        hits=hits[:HITS_SHOWN],
        more_hits=max(0, len(hits) - HITS_SHOWN),
        snippet=str(details.get("text", ""))[:SNIPPET_CHARACTERS],
        gain=data.get("gain", 0),
        before=min(100.0, float(data.get("before", 0))),
        percent=min(100.0, float(data.get("percent", 0))),
        took=data.get("ms"),
    )


def _hit(match: Mapping[str, Any]) -> Hit:
    snippet = " ".join(match.get("snippet", "").split())
    return Hit(str(match["entryId"]), match.get("blockIndex"), snippet if snippet.strip("…") else "")


def _said(kind: str, data: Mapping[str, Any]) -> str:
    if kind == "prepared":
        return (
            f"{data['entries']:,} entries with {data['tokens']:,} tokens can be looked at; {data['protected']:,} of "
            "them are protected."
        )
    if kind == "carried":
        dropped = len(data["dropped"])
        said = f"{data['kept']:,} deletions hold that were chosen before"
        said += f", {data['pinned']:,} kept objects stay pinned" if data["pinned"] else ""
        return said + (f"; {dropped:,} no longer hold and were dropped." if dropped else ".")
    if kind == "nudged":
        return str(data["text"])
    if kind == "ended":
        return f"The run ended: {State(data['state']).sentence}. {data.get('message', '')}".strip()
    return str(data.get("message") or data.get("sentence", ""))


def _arguments(arguments: object) -> Iterable[tuple[str, str]]:
    """Arguments by name, each in a few words; whatever a planner sent, something is shown."""
    if not isinstance(arguments, dict):
        yield "arguments", repr(arguments)[:ARGUMENT_CHARACTERS]
        return
    for name, value in arguments.items():
        if name == "deletions" and isinstance(value, list):
            shown = ", ".join(map(_target, value[:TARGETS_SHOWN]))
            more = len(value) - TARGETS_SHOWN
            yield name, f"{len(value)}: {shown}" + (f" and {more} more" if more > 0 else "")
        else:
            text = str(value)
            yield str(name), text[:ARGUMENT_CHARACTERS] + ("…" if len(text) > ARGUMENT_CHARACTERS else "")


def _target(raw: object) -> str:
    if not isinstance(raw, dict) or "entryId" not in raw:
        return repr(raw)[:ARGUMENT_CHARACTERS]
    block = raw.get("blockIndex")
    target = Target(str(raw["entryId"])[:ARGUMENT_CHARACTERS], block if isinstance(block, int) else None)
    return target.entry_id if target.block_index is None else f"{target.entry_id}[{target.block_index}]"
