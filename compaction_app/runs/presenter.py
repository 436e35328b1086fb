"""A run on its page: its state, its calls, the streamed text, and the plan's progress."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from django.conf import settings
from django.db.models import Exists, OuterRef, Q, QuerySet

from compaction_app.core.prompt import PREVIEW_LENGTH
from compaction_app.core.states import ACTIVE, EventKind, RunState
from compaction_app.core.transcript_entries import TranscriptEntry
from compaction_app.models import Proposal, Run, RunEvent
from compaction_app.planning.model_registry import ResolvedModel, model_of_session, models
from compaction_app.planning.planners import EMBEDDED, source_of_query
from compaction_app.planning.snapshots import Prepared, known_torn_line, read_snapshot_texts
from sessions_app.models import Session
from sessions_app.sessionlog.entries import Texts
from sessions_app.sessionlog.sourced_value import SourcedValue
from sessions_app.storage.session_loader import TornLine

from .automatic import due_sessions, left_because, note_on_planner
from .event_rows import EventRow
from .forms import CompactForm
from .turn_log import OF_A_TURN, Change, Event, Log, ModelTurn
from .unseen_proposals import outgrown

STEP_WIDTH, STEP_HEIGHT = 296, 96
PAGE_ROWS: Final = 300
"""Rows on a page; for a longer run the last ones are shown, the others on request."""
PAGE_STREAMED: Final = 6_000
"""Streaming events on a page, a hundred milliseconds each."""
ASKED_AT_MOST: Final = 20
"""The maximum number of requests for one answer."""


@dataclass(frozen=True, slots=True)
class Steps:
    """The reduction by call as a drawing: a path, and the position of the target. Units of the drawing."""

    width: int
    height: int
    path: str
    target: float
    calls: int
    refused: int


@dataclass(slots=True)
class FollowedRun:
    """The part of a run that an open page shows."""

    seq: int
    log: Log
    points: list[tuple[float, bool]]
    """For each call the reduction after it, and whether it was refused."""
    mark: object = None
    """Changes whenever the run's row does."""


@dataclass(frozen=True, slots=True)
class Followed:
    """The new part of a run, for a page that shows it up to a sequence number."""

    run: Run
    changes: list[Change]
    steps: Steps | None
    """None if the run's row is unchanged."""
    shown: FollowedRun
    more: bool

    @property
    def is_new(self) -> bool:
        return bool(self.changes) or self.steps is not None


@dataclass(frozen=True, slots=True)
class RunView:
    """A run's page."""

    steps: Steps
    parameters: dict[str, SourcedValue[str]]
    items: list[ModelTurn | EventRow]
    earlier: int
    """The number of rows before those shown."""
    seq: int


# ---- a page, and its updates -------------------------------------------------------------------------------


def view_run(run: Run, *, whole: bool = False) -> RunView:
    """The page of a run, with its last rows or all of them."""
    first = 0 if whole else _first(run)
    log, seq = Log(), first
    for event in _events(run.events.filter(seq__gt=first, seq__lte=run.last_seq)):
        log.take([event])
        seq = event[0]
    if run.state not in ACTIVE:
        log.close()
    earlier = run.events.filter(seq__lte=first).exclude(kind=EventKind.STREAMED).count() if first else 0
    return RunView(_steps(run, _points(run)), shown_parameters(run), log.items, earlier, seq)


def follow_run(run_id: int, after: int, shown: FollowedRun | None, limit: int) -> Followed | None:
    """The news after a sequence number, from at most `limit` events; None if there is no such run.

    `shown` is that of the last result, or None at first; it must not be used again afterwards.
    """
    run = Run.objects.with_session().filter(pk=run_id).first()
    if run is None:
        return None
    if shown is None or shown.seq != after:
        shown = _as_shown(run, after)
    # A worker may write between the two queries. Events that the row does not include yet come with the next row.
    events = list(_events(run.events.filter(seq__gt=after, seq__lte=run.last_seq))[: limit + 1])
    more = len(events) > limit
    events = events[:limit]
    shown.log.take(events)
    shown.points += [_point(data) for _, kind, data in events if kind == EventKind.CALLED]
    shown.seq = events[-1][0] if events else after
    if run.state not in ACTIVE and not more:
        shown.log.close()
    changes = list(shown.log.changes())
    mark = (run.state, run.stop_requested, run.calls, run.stats, run.usage, run.failure, run.parameters)
    is_same, shown.mark = mark == shown.mark, mark
    return Followed(run, changes, None if is_same else _steps(run, shown.points), shown, more)


def _as_shown(run: Run, after: int) -> FollowedRun:
    """The content of a page with the events up to `after`: its last turn, which may still grow, and the steps."""
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
    rows = newest.exclude(kind=EventKind.STREAMED)[PAGE_ROWS : PAGE_ROWS + 1]
    streamed = newest.filter(kind=EventKind.STREAMED)[PAGE_STREAMED : PAGE_STREAMED + 1]
    first = max([0, *rows, *streamed])
    following = run.events.filter(seq=first + 1).values_list("kind", flat=True).first()
    if first and (following in OF_A_TURN or following == EventKind.ASKED):
        began = _turn_began(run, first + 1)
        return first if began is None else began - 1
    return first


def _turn_began(run: Run, until: int) -> int | None:
    """The first event of the latest turn up to an event; a turn may have several requests."""
    found = run.events.filter(kind__in=(EventKind.ASKED, EventKind.PREPARED), seq__lte=until).order_by("-seq")
    began = number = None
    for seq, kind, turn in found.values_list("seq", "kind", "data__turn")[:ASKED_AT_MOST]:
        if kind == EventKind.PREPARED or (began is not None and turn != number):
            break
        began, number = seq, turn
    return began


def model_turn(run: Run, seq: int) -> ModelTurn | None:
    """Everything streamed in the turn with that first event; None if this run has no such turn."""
    log = Log()
    for event in _events(run.events.filter(seq__gte=seq)).iterator(chunk_size=500):
        log.take([event])
        if len(log.items) > 1:
            break
    if run.state not in ACTIVE:
        log.close()
    turn = log.items[0] if log.items else None
    return turn if isinstance(turn, ModelTurn) else None


# ---- its progress ------------------------------------------------------------------------------------------


def _points(run: Run, until: int | None = None) -> list[tuple[float, bool]]:
    called = run.events.filter(kind=EventKind.CALLED).order_by("seq")
    if until is not None:
        called = called.filter(seq__lte=until)
    points = called.values_list("data__percent", "data__code")
    return [(float(percent or 0), code is not None) for percent, code in points]


def _point(data: Mapping[str, Any]) -> tuple[float, bool]:
    return float(data.get("percent") or 0), data.get("code") is not None


def _steps(run: Run, points: Sequence[tuple[float, bool]]) -> Steps:
    """A step per call, from left to right; the height is 100 %, or a little more than needed."""
    percents, target = [percent for percent, _ in points], run.target_percent
    top = max([target * 1.15, *percents, 1.0])
    width = STEP_WIDTH / max(len(percents), 1)

    def y(percent: float) -> float:
        return round(STEP_HEIGHT * (1 - percent / top), 1)

    refused = sum(refused for _, refused in points)
    path = f"M0 {y(0)}" + "".join(
        f"H{round(number * width, 1)}V{y(percent)}" for number, percent in enumerate(percents, 0)
    )
    return Steps(STEP_WIDTH, STEP_HEIGHT, f"{path}H{STEP_WIDTH}", y(target), len(percents), refused)


def shown_parameters(run: Run) -> dict[str, SourcedValue[str]]:
    """The parameters that were given or are in effect, by label."""
    values: Mapping[str, Any] = run.parameters if run.parameters is not None else run.requested_parameters
    names = {"compression_ratio": "Keep", "preserve_recent": "Recent entries kept", "query": "Query"}
    found = {}
    for name, label in names.items():
        value = values.get(name)
        if value is None:
            continue
        shown = f"{100 * float(value):g}% of the tokens" if name == "compression_ratio" else str(value)
        source = run.sources.get(name, "")
        found[label] = SourcedValue(shown, source_of_query(run.planner, source) if name == "query" else source)
    return found


LOOKED_AT: Final = 20
SHOWN: Final = 5
MODELS_PAGE: Final = "Models page"
OUTGROWN: Final = "it has continued since its proposal was planned; it is planned again once you have looked at it"


@dataclass(frozen=True, slots=True)
class AutomaticPlanning:
    """How automatic planning is configured, and what it skips."""

    on: bool
    planner: str
    """The planner in use: `embedded`, `prune`, a model as `provider/name`, or `session`."""
    set_up: str = ""
    """The configured planner, if it is not in use."""
    why: tuple[str, str, str] = ("", "", "")
    """The reason for that, in words: before the mention of the page of models, that mention, and after it."""
    left: list[tuple[Session, str]] = field(default_factory=list)
    """Sessions that are due and skipped, each with the reason in words."""


def automatic_planning(now: datetime, home: Path) -> AutomaticPlanning:
    """For the page of runs. Nothing is listed as skipped if automatic planning is off."""
    configuration = settings.REDLINE
    planner = configuration.plan_by_itself_with
    if not configuration.plan_by_itself:
        return AutomaticPlanning(False, planner)
    due = [(session, left_because(session, now, home)) for session in due_sessions(now)[:LOOKED_AT]]
    left = [(session, why) for session, why in due if why]
    older = (
        Run.objects.unseen()
        .with_session()
        .filter(session__in=Session.objects.due())
        .annotate(outgrown=outgrown())
        .filter(outgrown=True)
        .order_by("-pk")
    )
    left = [*((run.session, OUTGROWN) for run in older[:SHOWN]), *left][:SHOWN]
    note = note_on_planner()
    if not note:
        return AutomaticPlanning(True, planner, left=left)
    return AutomaticPlanning(True, EMBEDDED, planner, note.partition(MODELS_PAGE), left)


@dataclass(frozen=True, slots=True)
class CompactPage:
    """The page around the fields of the form."""

    planner_source: str
    """Why this planner is preselected."""
    models: list[ResolvedModel]
    level_source: str
    in_flight: Run | None
    waiting: list[Run]
    """Runs of this session whose plan can be reviewed."""
    torn: TornLine | None
    """The session's last line, if it is torn."""
    preview_length: int = PREVIEW_LENGTH
    """The maximum length of an entry in the manifest, in characters."""


def compact_page(session: Session, form: CompactForm) -> CompactPage:
    model = form.model
    is_own = model is not None and model == model_of_session(session)
    return CompactPage(
        planner_source="This is the session’s own model." if is_own else "",
        models=models(),
        level_source=_level_source(form),
        in_flight=session.runs.active().first(),
        waiting=list(_reviewable(session)[:5]),
        torn=known_torn_line(session),
    )


def _level_source(form: CompactForm) -> str:
    """The source of the thinking level; empty if it was chosen, or if there is none."""
    own = form.session_level
    if form.is_level_chosen or not own:
        return ""
    source = f"The session’s thinking level is {own}."
    return source if own in (form.level, "off") else f"{source} The nearest that the model supports is {form.level}."


def _reviewable(session: Session) -> QuerySet[Run]:
    """The prepared runs of a session whose plan can be reviewed."""
    planned = session.runs.reviewable().filter(snapshot__isnull=False)
    is_empty = Q(state=RunState.FAILED) & ~Exists(Proposal.objects.filter(run=OuterRef("pk")))
    return planned.exclude(is_empty).order_by("-pk")


BATCH: Final = 200


def transcript_lines(path: Path, prepared: Prepared) -> Iterator[bytes]:
    """One line for each entry of the transcript, a few at a time.

    Raises Conflict `session_rewritten` if the file is no longer the one that was prepared.
    """
    for start in range(0, len(prepared.entries), BATCH):
        entries = prepared.entries[start : start + BATCH]
        texts = read_snapshot_texts(path, prepared, entries)
        lines = (json.dumps(_line(entry, texts[entry.entry_id])) for entry in entries)
        yield "".join(f"{line}\n" for line in lines).encode()


def _line(entry: TranscriptEntry, texts: Texts) -> dict[str, Any]:
    return {
        "entryId": entry.entry_id,
        "entryType": entry.entry_type,
        "role": entry.role,
        "tokens": entry.tokens,
        "protected": entry.is_protected,
        "protectedBy": entry.reason.value if entry.reason is not None else None,
        "callIds": list(entry.call_ids),
        "answers": entry.result_for,
        "text": texts.joined(entry.blocks),
        "blocks": [
            {
                "index": block.index,
                "type": block.type,
                "tokens": block.tokens,
                "text": texts.block(block.index),
            }
            for block in entry.blocks
        ],
    }
