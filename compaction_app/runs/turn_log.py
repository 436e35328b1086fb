"""The streamed text of a model in the log of a run: each turn is one block, which grows during the answer.

    asked → streamed, streamed, … → answered → called, called, …
      │        │                       │          └ the result of a call, in the place of the pending call
      │        │                       └ its cost; text that is longer than a page shows is cut
      │        └ reasoning, text, and calls with their arguments, each appended to its place
      └ a turn, with a place for all of it; repeated if the request is sent again after a `retried`

A log takes the events of a run in order. The page renders its items; an open page is sent what has changed since. Both
come from the same turns, so that a page that grew piece by piece equals one that is loaded later.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from compaction_app.core.states import EventKind
from compaction_app.planning.usage import dollars

from .event_rows import EventRow, event_row

THOUGHT_SHOWN: Final = 2_000
"""Characters of a finished turn's reasoning on the page of a run; the rest has its own page."""
TEXT_SHOWN: Final = 20_000
ARGUMENTS_SHOWN: Final = 1_000
"""Characters of the arguments of a call that did not run."""
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
    """Something new at the end of an element of the page, or replacing it."""

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
