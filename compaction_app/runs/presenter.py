"""A run on its page: its state, its calls, the streamed text, and the plan's progress.

The log has a row for each event, in words and with its effect. The streamed text of a model is one block for each turn,
which grows during the answer.

    asked → streamed, streamed, … → answered → called, called, …
      │        │                       │          └ the result of a call, in the place of the pending call
      │        │                       └ its cost; text that is longer than a page shows is cut
      │        └ reasoning, text, and calls with their arguments, each appended to its place
      └ a turn, with a place for all of it; repeated if the request is sent again after a `retried`

A log takes the events of a run in order. The page renders its items; an open page is sent what has changed since. Both
come from the same turns, so that a page that grew piece by piece equals one that is loaded later.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Literal

from django.db.models import QuerySet

from compaction_app.core.states import ACTIVE, EventKind, RunState
from compaction_app.core.transcript import TranscriptEntry
from compaction_app.models import Proposal, Run, RunEvent
from compaction_app.planning.plan import EMBEDDED, source_of_query
from compaction_app.planning.snapshots import Prepared, is_prepared, read_snapshot_texts
from compaction_app.providers.types import dollars
from sessions_app.models import Session
from sessions_app.sessionlog.entries import Target, Texts
from sessions_app.sessionlog.sourced_value import SourcedValue
from sessions_app.sessionlog.text import plural

from .automatic import chosen_planner, due_sessions, is_on, note_on_planner, skipped_because
from .forms import repeated_fields
from .reviews import review_of
from .unseen_proposals import outgrown

ARGUMENT_CHARACTERS: Final = 160
TARGETS_SHOWN: Final = 6
HITS_SHOWN: Final = 5
SNIPPET_CHARACTERS: Final = 400


@dataclass(frozen=True, slots=True)
class Hit:
    """One object that a call found or named."""

    entry_id: str
    block: int | None
    text: str


@dataclass(slots=True)
class EventRow:
    """One event. Tokens and percentages are of the transcript's own estimate."""

    seq: int
    kind: str
    number: int | None
    tool: str
    arguments: list[tuple[str, str]]
    sentence: str
    code: str
    target: Hit | None
    hits: list[Hit]
    more_hits: int
    snippet: str
    gain: int
    percent: float
    title: str = ""
    """What the call does, in words; empty for other events."""
    about: str = ""
    """What it is about: the pattern that it searches, or the names of the largest texts that it proposes to delete."""
    proposed: int = 0
    """The number of deletions that it proposes."""
    is_earlier: bool = False
    """Whether it belongs to an attempt before the latest one, which counts its calls from 1 again."""

    @property
    def anchor(self) -> str:
        """Its id on the page: the call's number, if only one row has it."""
        return f"ev-s{self.seq}" if self.number is None or self.is_earlier else f"ev-{self.number}"


def event_row(seq: int, kind: str, data: Mapping[str, Any]) -> EventRow:
    """The row of one event."""
    details = data.get("details", {})
    hits = [_hit(match) for match in details.get("matches", ())] or [
        Hit(raw["entryId"], raw.get("blockIndex"), raw.get("code", "")) for raw in data.get("dropped", ())
    ]
    target = data.get("target")
    return EventRow(
        seq=seq,
        kind=kind,
        number=data.get("call"),
        tool=data.get("tool", ""),
        arguments=list(_arguments(data["arguments"])) if "arguments" in data else [],
        sentence=_sentence(kind, data),
        code=data.get("code", ""),
        target=_hit(target) if target else None,
        hits=hits[:HITS_SHOWN],
        more_hits=max(0, len(hits) - HITS_SHOWN),
        snippet=str(details.get("text", ""))[:SNIPPET_CHARACTERS],
        gain=data.get("gain", 0),
        percent=min(100.0, float(data.get("percent", 0))),
        title=_title(data) if kind == EventKind.CALLED else "",
        about=_about(data),
        proposed=_proposed(data),
    )


_READS: Final = {
    "context_search_transcript": "Search",
    "context_read_entry": "Read",
    "context_compaction_budget": "Check how much is left to delete",
}
"""What calls do that delete nothing."""
DELETING_TOOLS: Final = frozenset({"context_delete", "context_grep_delete"})


def _title(data: Mapping[str, Any]) -> str:
    """What a call does, in words."""
    tool = str(data.get("tool", ""))
    if data.get("code") is not None:
        return "Refused"
    if tool in DELETING_TOOLS:
        return str(data.get("rule") or "Propose deletions")
    return _READS.get(tool, tool)


def _about(data: Mapping[str, Any]) -> str:
    """What a call is about, in a few words; empty if there is nothing to say."""
    if "largest" in data:
        return ", ".join(map(str, data["largest"]))
    arguments = data.get("arguments")
    if not isinstance(arguments, dict) or "pattern" not in arguments:
        return ""
    found = data.get("details", {}).get("matches")
    words = f"“{str(arguments['pattern'])[:ARGUMENT_CHARACTERS]}”"
    return words if found is None else f"{words}: {plural(len(found), 'match')}"


def _proposed(data: Mapping[str, Any]) -> int:
    if "proposed" in data:
        return int(data["proposed"])
    return len(data.get("added", ())) if data.get("gain") else 0


def _hit(match: Mapping[str, Any]) -> Hit:
    snippet = " ".join(match.get("snippet", "").split())
    return Hit(str(match["entryId"]), match.get("blockIndex"), snippet if snippet.strip("…") else "")


def _sentence(kind: str, data: Mapping[str, Any]) -> str:
    if kind == EventKind.PREPARED:
        return (
            f"{plural(data['entries'], 'entry')} read, {data['protected']:,} of them never proposed. Tokens are the "
            f"agent’s own count here and below, characters / 4: {data['tokens']:,}."
        )
    if kind == EventKind.CARRIED:
        dropped = len(data["dropped"])
        text = f"{plural(data['kept'], 'earlier deletion')} kept"
        text += f", {plural(data['pinned'], 'object')} pinned" if data["pinned"] else ""
        return text + (f"; {dropped:,} dropped, no longer valid." if dropped else ".")
    if kind in (EventKind.NUDGED, EventKind.HOOKED):
        return str(data["text"])
    if kind == EventKind.RETRIED:
        return f"Retry {data['attempt']}, after {data['seconds']:g} s: {data['why']}"
    if kind == EventKind.TRIMMED:
        return (
            f"{plural(data['results'], 'old result')} of {plural(data['characters'], 'character')} dropped from the "
            "conversation with the model, which can request them again."
        )
    if kind == EventKind.ENDED:
        return f"Planning ended: {RunState(data['state']).sentence}. {data.get('message', '')}".strip()
    return str(data.get("message") or data.get("sentence", ""))


def _arguments(arguments: object) -> Iterable[tuple[str, str]]:
    """Arguments by name, each in a few words; something is shown for any value."""
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


# ---- the turns of a model --------------------------------------------------------------------------------

THOUGHT_SHOWN: Final = 2_000
"""The number of characters of a finished turn's reasoning that a run's page shows; the rest has its own page."""
TEXT_SHOWN: Final = 20_000
ARGUMENTS_SHOWN: Final = 1_000
"""The number of characters that are shown of the arguments of a call that did not run."""
OF_A_TURN: Final = frozenset({EventKind.STREAMED, EventKind.RETRIED, EventKind.ANSWERED, EventKind.CALLED})
"""Events that belong to the turn before them, if there is one."""
STOPS: Final = {"length": "cut off by its output limit", "refusal": "the model refused"}
"""Reasons for the end of an answer that are worth mentioning."""

Event = tuple[int, str, Mapping[str, Any]]
"""An event: its sequence number, kind and data."""


@dataclass(slots=True)
class Words:
    """The received text of one kind, and how much of it an open page has."""

    place: str
    """The id of the element that contains it."""
    most: int
    """The number of characters shown once it is complete."""
    pieces: list[str] = field(default_factory=list)
    length: int = 0
    is_over: bool = False
    drawn: int = 0
    was_cut: bool = False

    def add(self, text: str) -> None:
        self.pieces.append(text)
        self.length += len(text)

    @property
    def whole(self) -> str:
        return "".join(self.pieces)

    @property
    def is_cut(self) -> bool:
        return self.is_over and self.length > self.most

    @property
    def shown(self) -> str:
        return self.whole[: self.most] if self.is_cut else self.whole

    def settle(self) -> None:
        self.drawn, self.was_cut = len(self.pieces), self.is_cut


@dataclass(slots=True)
class PendingCall:
    """A call of a turn: named, with growing arguments, until it has its row."""

    place: str
    name: str
    arguments: Words
    row: EventRow | None = None
    drawn: str = ""

    @property
    def shape(self) -> str:
        """How it is rendered: `pending`, `done`, or `not run`."""
        if self.row is not None:
            return "done"
        return "not run" if self.arguments.is_over else "pending"

    def settle(self) -> None:
        self.drawn = self.shape
        self.arguments.settle()


@dataclass(slots=True)
class ModelTurn:
    """One request to a model with everything received in response."""

    seq: int
    """The sequence number of its first event, which identifies it."""
    number: int
    sent: int
    """Characters of the request."""
    dropped: int
    """The number of results that the request omits."""
    thought: Words
    text: Words
    notes: list[EventRow] = field(default_factory=list)
    calls: dict[int, PendingCall] = field(default_factory=dict)
    answer: Mapping[str, Any] | None = None
    is_over: bool = False
    """Whether it is complete; calls that are still pending did not run."""
    notes_drawn: int = 0
    end_drawn: str = ""

    @classmethod
    def from_request(cls, seq: int, data: Mapping[str, Any]) -> ModelTurn:
        return cls(
            seq=seq,
            number=data["turn"],
            sent=data["characters"],
            dropped=data.get("dropped", 0),
            thought=Words(f"turn-{seq}-thought", THOUGHT_SHOWN),
            text=Words(f"turn-{seq}-text", TEXT_SHOWN),
        )

    # ---- for the page ------------------------------------------------------------------------------------

    @property
    def in_order(self) -> list[PendingCall]:
        return [self.calls[index] for index in sorted(self.calls)]

    @property
    def is_answered(self) -> bool:
        """Whether no more text will arrive."""
        return self.thought.is_over

    @property
    def has_begun(self) -> bool:
        """Whether any part of the answer arrived."""
        return bool(self.thought.length or self.text.length or self.calls)

    @property
    def end(self) -> str:
        """How the answer ended, in words."""
        if self.answer is not None:
            return _sum(self.answer)
        if not self.is_over:
            return "The answer is still coming."
        return "The answer broke off." if self.has_begun else "No answer came."

    # ---- events ------------------------------------------------------------------------------------------

    def stream(self, pieces: Iterable[Sequence[Any]]) -> None:
        for kind, *piece in pieces:
            if kind == "thought":
                self.thought.add(piece[0])
            elif kind == "text":
                self.text.add(piece[0])
            elif kind == "call":
                self.calls[piece[0]] = self._call(piece[0], piece[1])
            elif piece[0] in self.calls:
                self.calls[piece[0]].arguments.add(piece[1])

    def answered(self, data: Mapping[str, Any]) -> None:
        self.answer = data
        self.thought.is_over = self.text.is_over = True

    def called(self, index: int, row: EventRow) -> None:
        self.calls.setdefault(index, self._call(index, row.tool)).row = row

    def close(self) -> None:
        """Mark the turn as complete."""
        self.is_over = self.thought.is_over = self.text.is_over = True
        for call in self.calls.values():
            call.arguments.is_over = True

    def settle(self) -> None:
        """Record that an open page has the present state."""
        self.notes_drawn, self.end_drawn = len(self.notes), self.end
        for words in (self.thought, self.text):
            words.settle()
        for call in self.calls.values():
            call.settle()

    def _call(self, index: int, name: str) -> PendingCall:
        place = f"turn-{self.seq}-call-{index}"
        return PendingCall(place, name, Words(f"{place}-arguments", ARGUMENTS_SHOWN))


@dataclass(frozen=True, slots=True)
class Change:
    """An addition at the end of an element of the page, or a replacement of it."""

    what: Literal["item", "note", "call", "other call", "more words", "cut words", "end"]
    place: str
    """The id of an element. `other call` replaces it, `cut words` and `end` replace its content."""
    item: ModelTurn | EventRow | None = None
    turn: ModelTurn | None = None
    note: EventRow | None = None
    call: PendingCall | None = None
    words: Words | None = None
    text: str = ""


class Log:
    """The events of a run as its page shows them; the latest turn can still grow."""

    def __init__(self) -> None:
        self.items: list[ModelTurn | EventRow] = []
        self._open: ModelTurn | None = None
        self._drawn = 0

    def take(self, events: Iterable[Event]) -> None:
        """Add events, in their order."""
        for seq, kind, data in events:
            self._take(seq, kind, data)

    def _take(self, seq: int, kind: str, data: Mapping[str, Any]) -> None:
        turn = self._open if kind in OF_A_TURN and "turn" in data else None
        if kind == EventKind.ASKED:
            if self._open is not None and not self._open.is_over and self._open.number == data["turn"]:
                # The request is repeated, and the reason is a note of this turn.
                return
            self.close()
            self._open = ModelTurn.from_request(seq, data)
            self.items.append(self._open)
        elif kind == EventKind.STREAMED:
            if turn is not None:
                turn.stream(data["pieces"])
        elif kind == EventKind.ANSWERED:
            if turn is not None:
                turn.answered(data)
        elif turn is None:
            self.close()
            if kind == EventKind.PREPARED:
                self._begin_again()
            self.items.append(event_row(seq, kind, data))
        elif kind == EventKind.RETRIED:
            turn.notes.append(event_row(seq, kind, data))
        else:
            turn.called(data["index"], event_row(seq, kind, data))

    def close(self) -> None:
        """Complete the latest turn: another event came, or no worker has the run."""
        if self._open is not None:
            self._open.close()

    def _begin_again(self) -> None:
        for item in self.items:
            for row in [item] if isinstance(item, EventRow) else [call.row for call in item.calls.values()]:
                if row is not None:
                    row.is_earlier = True

    # ---- changes of an open page -------------------------------------------------------------------------

    def settle(self) -> None:
        """Record that an open page has everything."""
        for _ in self.changes():
            pass

    def changes(self) -> Iterator[Change]:
        """The changes for an open page since the last call; the caller must read them all. Finished turns are
        dropped."""
        for item in self.items[: self._drawn]:
            if isinstance(item, ModelTurn):
                yield from _grown(item)
        for item in self.items[self._drawn :]:
            if isinstance(item, ModelTurn):
                item.settle()
            yield Change("item", "log", item=item)
        self.items = [item for item in self.items if item is self._open and not self._open.is_over]
        self._drawn = len(self.items)


def _grown(turn: ModelTurn) -> Iterator[Change]:
    """The changes of a turn that is already on the page."""
    for note in turn.notes[turn.notes_drawn :]:
        yield Change("note", f"turn-{turn.seq}-notes", note=note)
    yield from _more(turn, turn.thought)
    yield from _more(turn, turn.text)
    for call in turn.in_order:
        if not call.drawn:
            yield Change("call", f"turn-{turn.seq}-calls", turn=turn, call=call)
        elif call.drawn != call.shape:
            yield Change("other call", call.place, turn=turn, call=call)
        elif call.shape == "pending":
            yield from _more(turn, call.arguments)
    if turn.end != turn.end_drawn:
        yield Change("end", f"turn-{turn.seq}-end", turn=turn)
    turn.settle()


def _more(turn: ModelTurn, words: Words) -> Iterator[Change]:
    if words.drawn < len(words.pieces):
        # Even if they are cut immediately: a page keeps the whole text if you have unfolded it.
        yield Change("more words", words.place, text="".join(words.pieces[words.drawn :]))
    if words.is_cut and not words.was_cut:
        yield Change("cut words", words.place, turn=turn, words=words)


def _sum(answer: Mapping[str, Any]) -> str:
    """The cost of an answer: `412 tokens out, 12,040 in, $0.012`; `about` if the provider reported nothing."""
    cached = answer["cacheRead"]
    read = answer["input"] + cached + answer["cacheWrite"]
    about = "about " if answer["estimated"] else ""
    parts = [
        f"{about}{answer['output']:,} token{'s' * (answer['output'] != 1)} out",
        f"{read:,} in" + (f" ({cached:,} from the provider’s cache)" if cached else ""),
    ]
    if answer["cost"] is not None:
        parts.append(about + dollars(answer["cost"]))
    if answer["stop"] in STOPS:
        parts.append(STOPS[answer["stop"]])
    return ", ".join(parts)


# ---- what an open page shows -----------------------------------------------------------------------------

CHART_LEFT, CHART_RIGHT, CHART_TOP, CHART_BOTTOM = 44, 812, 16, 104
"""The ground of the chart of the steps, in units of the drawing."""
STEPS_NAMED: Final = 12
"""The maximum number of steps that are named below the chart."""
PAGE_ROWS: Final = 300
"""The number of rows on a page; for a longer run the last ones are shown, the others on request."""
PAGE_STREAMED: Final = 6_000
"""The maximum number of streaming events on a page; each covers a hundred milliseconds."""
ASKED_AT_MOST: Final = 20
"""The maximum number of requests for one answer."""


@dataclass(frozen=True, slots=True)
class Steps:
    """The proposed share by call as a drawing: a path, the axes, and the height of the target. Units of the drawing."""

    path: str
    target: float
    levels: list[tuple[float, int]]
    """The lines of the ground: the height and the percentage of each."""
    numbers: list[tuple[float, int]]
    """The named steps: the place and the number of each."""
    end: float
    """The height at the end."""
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
    """The drawing of the steps; None if the run's row is unchanged."""
    shown: FollowedRun
    more: bool

    @property
    def is_new(self) -> bool:
        return bool(self.changes) or self.steps is not None


# ---- a page, and its updates -------------------------------------------------------------------------------


def view_run(run: Run, *, whole: bool = False) -> dict[str, Any]:
    """The context of a run's page, with its last rows or all of them; `earlier` counts the rows before those."""
    first = 0 if whole else _first(run)
    log, seq = Log(), first
    for event in _events(run.events.filter(seq__gt=first, seq__lte=run.last_seq)):
        log.take([event])
        seq = event[0]
    if run.state not in ACTIVE:
        log.close()
    earlier = run.events.filter(seq__lte=first).exclude(kind=EventKind.STREAMED).count() if first else 0
    return {
        "steps": _steps(run, _points(run)),
        "parameters": shown_parameters(run),
        "items": log.items,
        "earlier": earlier,
        "seq": seq,
        "proposal_count": proposal_count(run),
        "fields": repeated_fields(run),
    }


def proposal_count(run: Run) -> int:
    """The number of proposals that a reviewer decides about; of a plan that is being made, those of its planner."""
    if run.is_active or not is_prepared(run):
        return run.proposals.exclude(source=Proposal.Source.REPAIR).count()
    return review_of(run).total


def follow_run(run_id: int, after: int, shown: FollowedRun | None, limit: int) -> Followed | None:
    """The news after a sequence number, from at most `limit` events; None if there is no such run.

    `shown` is that of the last result, or None at first; it must not be used again afterwards.
    """
    run = Run.objects.with_session().filter(pk=run_id).first()
    if run is None:
        return None
    if shown is None or shown.seq != after:
        # The content of a page with the events up to `after`: its last turn may still grow.
        shown = FollowedRun(after, Log(), _points(run, after))
        began = _turn_began(run, after)
        if began is not None:
            shown.log.take(_events(run.events.filter(seq__gte=began, seq__lte=after)))
            shown.log.settle()
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
    """A step per call, from left to right; the ground ends above the target and the highest step."""
    percents, target = [percent for percent, _ in points], run.target_percent
    spacing = 25 if max([target, *percents]) > 20 else 5
    top = spacing * math.ceil(max([target, *percents, 1.0]) / spacing)
    width = (CHART_RIGHT - CHART_LEFT) / (len(percents) or 1)

    def y(percent: float) -> float:
        return round(CHART_BOTTOM - (CHART_BOTTOM - CHART_TOP) * percent / top, 1)

    def x(number: float) -> float:
        return round(CHART_LEFT + number * width, 1)

    path = f"M{CHART_LEFT} {y(0)}" + "".join(
        f"H{x(number + 0.5)}V{y(percent)}" for number, percent in enumerate(percents)
    )
    every = math.ceil(len(percents) / STEPS_NAMED) or 1
    return Steps(
        path=f"{path}H{CHART_RIGHT}",
        target=y(target),
        levels=[(y(level), level) for level in range(0, top + 1, spacing)],
        numbers=[(x(number - 0.5), number) for number in range(every, len(percents) + 1, every)],
        end=y(percents[-1] if percents else 0),
        calls=len(percents),
        refused=sum(refused for _, refused in points),
    )


PANEL_STEPS: Final = 8
"""The number of the latest steps that a panel shows."""


def planning_steps(run: Run) -> list[EventRow]:
    """The latest steps of a plan that is being made, for the panel of its session."""
    kinds = (EventKind.PREPARED, EventKind.CALLED, EventKind.NUDGED, EventKind.RETRIED)
    newest = run.events.filter(kind__in=kinds, seq__lte=run.last_seq).order_by("-seq")
    found = newest.values_list("seq", "kind", "data")[:PANEL_STEPS]
    return [event_row(*event) for event in reversed(found)]


_IN_WORDS: Final[Mapping[str, Callable[[Any], str]]] = {
    "compression_ratio": lambda ratio: f"{100 * float(ratio):g}% of the tokens",
    "preserve_recent": lambda entries: f"your messages, the last {plural(int(entries), 'entry')}",
}


def shown_parameters(run: Run) -> dict[str, SourcedValue[str]]:
    """The parameters that were given or are in effect, by label."""
    values: Mapping[str, Any] = run.parameters if run.parameters is not None else run.requested_parameters
    names = {"compression_ratio": "Keep", "preserve_recent": "Never proposed", "query": "Next work"}
    found = {}
    for name, label in names.items():
        value = values.get(name)
        if value is None:
            continue
        shown = _IN_WORDS[name](value) if name in _IN_WORDS else str(value)
        source = run.sources.get(name, "")
        found[label] = SourcedValue(shown, source_of_query(run.planner, source) if name == "query" else source)
    return found


LOOKED_AT: Final = 20
SHOWN: Final = 5
MODELS_PAGE: Final = "Models page"
OUTGROWN: Final = "it has continued since its proposal was planned; it is planned again once you have looked at it"


@dataclass(frozen=True, slots=True)
class AutomaticPlanning:
    """The configuration of automatic planning, and the sessions that it skips."""

    on: bool
    planner: str
    """The planner in use: `embedded`, `prune`, a model as `provider/name`, or `session`."""
    set_up: str = ""
    """The configured planner, if it is not in use."""
    why: tuple[str, str, str] = ("", "", "")
    """The reason for that, in three parts: the words before the link to the Models page, its words, the words after."""
    left: list[tuple[Session, str]] = field(default_factory=list)
    """Sessions that are due and skipped, each with the reason in words."""


def automatic_planning(now: datetime, home: Path) -> AutomaticPlanning:
    """Automatic planning, for the page of runs. Nothing is listed as skipped if it is off."""
    planner = chosen_planner()
    if not is_on():
        return AutomaticPlanning(False, planner)
    due = [(session, skipped_because(session, now, home)) for session in due_sessions(now)[:LOOKED_AT]]
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
