"""An answer while it arrives: a reader of either dialect builds it from fragments.

A reader opens parts and adds to them; each addition returns the piece that can be shown now. Text may be cut inside a
character (JSON escapes its two surrogates separately), and may contain lone surrogates, and NULs, which no database
accepts: text that is shown or sent back is repaired, and reasoning is returned complete and unchanged.

Nothing grows without limit: an answer that is too long is `Unreadable`. No value from a provider is trusted to be
valid: each is converted to the expected type.
"""

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from compaction_app.core.messages import AssistantMessage, CallPart, Message, TextPart, ThinkingPart
from sessions_app.sessionlog.jsjson import well_formed

from .error_mapping import ProviderFault, Reported, Unreadable, fault_in
from .types import AnswerEnd, ArgumentsPiece, CallBegun, Piece, ReportedUsage, TextPiece, ThoughtPiece

ANSWER_CHARACTERS: Final = 8_000_000
"""The maximum length of one answer, with its reasoning, arguments and signatures."""
CALLS: Final = 1_000
PARTS: Final = 10_000
NAME_CHARACTERS: Final = 1_000
STOP_CHARACTERS: Final = 50
"""The maximum length of a provider's own word for the end of an answer, in characters."""

_HIGH_HALF: Final = re.compile("[\ud800-\udbff]\\Z")


class FragmentBuffer:
    """Text that arrives in fragments."""

    def __init__(self) -> None:
        self._fragments: list[str] = []
        self._held = ""
        self.ends_with = ""
        """The last character so far that is not white space."""

    def add(self, fragment: str) -> str:
        """Add a fragment; returns the text that can be shown now: half a character is held back until the next
        fragment."""
        self._fragments.append(fragment)
        self.ends_with = fragment.rstrip()[-1:] or self.ends_with
        text = self._held + fragment
        half = _HIGH_HALF.search(text)
        self._held = half[0] if half else ""
        return _shown(text[: half.start()] if half else text)

    def rest(self) -> str:
        """The end that was held back and can no longer become a character."""
        held, self._held = self._held, ""
        return _shown(held)

    @property
    def shown(self) -> str:
        """The text shown so far."""
        text = "".join(self._fragments)
        return _shown(text[: len(text) - len(self._held)])

    @property
    def raw(self) -> str:
        """The whole text, with adjacent surrogates joined."""
        return well_formed("".join(self._fragments))

    @property
    def text(self) -> str:
        """The whole text, as it is finally shown."""
        return _shown("".join(self._fragments))

    def __bool__(self) -> bool:
        return any(self._fragments)


def _shown(text: str) -> str:
    return well_formed(text).replace("\0", "\ufffd")


@dataclass
class Text:
    """Text of the model."""

    buffer: FragmentBuffer = field(default_factory=FragmentBuffer)

    def piece(self, text: str) -> Piece:
        return TextPiece(text)

    def finished(self) -> TextPart | None:
        """The whole part; None if it is empty."""
        return TextPart(self.buffer.text) if self.buffer else None


@dataclass
class Reasoning:
    """Reasoning of the model, with the data that its provider requires back."""

    buffer: FragmentBuffer = field(default_factory=FragmentBuffer)
    block: dict[str, Any] = field(default_factory=dict)

    def piece(self, text: str) -> Piece:
        return ThoughtPiece(text)

    def finished(self) -> ThinkingPart | None:
        return ThinkingPart(self.buffer.text, self.block) if self.buffer or self.block else None


@dataclass
class AccumulatedCall:
    """A tool call of the model; its index counts the calls of the answer from 0."""

    index: int
    call_id: str
    name: str = ""
    buffer: FragmentBuffer = field(default_factory=FragmentBuffer)

    def piece(self, text: str) -> Piece:
        return ArgumentsPiece(self.index, text)

    def finished(self) -> CallPart:
        return CallPart(self.call_id, self.name, self.buffer.text)


Part = Text | Reasoning | AccumulatedCall
AnyPart = TypeVar("AnyPart", Text, Reasoning, AccumulatedCall)


class AnswerBuilder:
    """One answer: its parts in order, its tokens, and its end. `conversation` are the messages before it."""

    def __init__(self, conversation: Iterable[Message]) -> None:
        self.parts: list[Part] = []
        self.calls: list[AccumulatedCall] = []
        self.stop = ""
        """Its end, in the words of `AnswerEnd.stop`; empty until then."""
        self.usage: ReportedUsage | None = None
        self.characters = 0
        self._weight = 0
        before = [message for message in conversation if isinstance(message, AssistantMessage)]
        self._ids = {call.call_id for answer in before for call in answer.calls}
        self._next_id = sum(len(answer.calls) for answer in before) + 1

    # ---- parts ------------------------------------------------------------------------------------------

    def open(self, part: AnyPart) -> AnyPart:
        """Begin a part of the answer."""
        if len(self.parts) >= PARTS:
            raise Unreadable(f"it has more than {PARTS:,} parts")
        self.parts.append(part)
        return part

    def open_call(self, call_id: str) -> AccumulatedCall:
        """A new call. If its id is missing or already used in the conversation it gets another one: `call_1`, …"""
        if len(self.calls) >= CALLS:
            raise Unreadable(f"it makes more than {CALLS:,} tool calls at once")
        self.weigh(call_id)
        call = self.open(AccumulatedCall(len(self.calls), self._own_id(_shown(call_id))))
        self.calls.append(call)
        return call

    def add(self, part: Part, fragment: str) -> list[Piece]:
        """Add to a part; returns what can be shown now: nothing of a call without a name."""
        self._count(fragment)
        shown = part.buffer.add(fragment)
        is_unnamed = isinstance(part, AccumulatedCall) and not part.name
        return [part.piece(shown)] if shown and not is_unnamed else []

    def name_call(self, call: AccumulatedCall, name: str) -> list[Piece]:
        """Give a call its name; arguments that came before it are returned now."""
        self._count(name)
        if len(name) > NAME_CHARACTERS:
            raise Unreadable(f"it calls a tool by a name of more than {NAME_CHARACTERS:,} characters")
        call.name = _shown(name)
        before = call.buffer.shown
        return [CallBegun(call.index, call.name), *([call.piece(before)] if before else [])]

    def weigh(self, kept: str) -> None:
        """Count data that is kept but not shown, such as a signature."""
        self._weight += len(kept)
        if self.characters + self._weight > ANSWER_CHARACTERS:
            raise Unreadable(f"it is longer than {ANSWER_CHARACTERS:,} characters")

    # ---- the end ----------------------------------------------------------------------------------------

    def rest(self) -> list[Piece]:
        """Pieces for held-back text, and for calls that never got a name."""
        pieces: list[Piece] = []
        for part in self.parts:
            held = part.buffer.rest()
            if isinstance(part, AccumulatedCall) and not part.name:
                pieces.append(CallBegun(part.index, ""))
                held = part.buffer.text
            if held:
                pieces.append(part.piece(held))
        return pieces

    def build(self) -> AnswerEnd:
        """The whole answer, without empty text and reasoning."""
        answer = AssistantMessage([found for part in self.parts if (found := part.finished()) is not None])
        stop = "calls" if self.stop == "end" and self.calls else self.stop
        return AnswerEnd(answer, stop, self.usage, self.characters)

    # ---- helpers -----------------------------------------------------------------------------------------

    def _count(self, fragment: str) -> None:
        self.characters += len(fragment)
        self.weigh("")

    def _own_id(self, call_id: str) -> str:
        while not call_id or call_id in self._ids:
            call_id = f"call_{self._next_id}"
            self._next_id += 1
        self._ids.add(call_id)
        return call_id


class AnswerReader(ABC):
    """Reads an event stream, or an answer sent as a whole, into pieces and an answer. Each dialect has its own."""

    def __init__(self, conversation: Sequence[Message] = ()) -> None:
        self.builder = AnswerBuilder(conversation)
        self.is_done = False
        """Whether the stream has ended."""

    @property
    def is_whole(self) -> bool:
        """Whether the answer is complete if nothing more arrives."""
        return bool(self.builder.stop)

    @abstractmethod
    def feed(self, event: str, data: str) -> list[Piece]:
        """Pieces of one event. Raises Reported if it is an error, Unreadable if it is not of this dialect."""

    @abstractmethod
    def feed_whole(self, payload: Mapping[str, Any]) -> list[Piece]:
        """Pieces of an answer sent as one JSON object."""

    def finish(self) -> list[Piece]:
        """The last pieces, and the answer as the last of them, when nothing more arrives.

        Raises Unreadable if the end is missing.
        """
        if not self.is_whole:
            raise Unreadable("it ended too early")
        return [*self._close(), *self.builder.rest(), self.builder.build()]

    @abstractmethod
    def _close(self) -> list[Piece]:
        """Complete the parts of the answer; returns their last pieces."""


# ---- values of the expected types ------------------------------------------------------------------------

MOST_TOKENS: Final = 2**53
DEPTH: Final = 50
"""Levels of nesting in the part of an answer that is kept to be sent back."""


def event_object(event: str, data: str) -> Mapping[str, Any]:
    """The object in an event of a stream. Raises Reported if it is an error, Unreadable if it is not an object."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        found = None
    fault = fault_in(found)
    if fault is not None or event == "error":
        raise Reported(fault or ProviderFault(0, "", data))
    if not isinstance(found, dict):
        raise Unreadable("one of its events is not a JSON object")
    return found


def mapping_of(value: object) -> Mapping[str, Any]:
    """The value, if it is an object; otherwise an empty one."""
    return value if isinstance(value, dict) else {}


def list_of(value: object) -> list[Any]:
    """The value, if it is a list; otherwise an empty one."""
    return value if isinstance(value, list) else []


def text_of(value: object) -> str:
    """The value, if it is a string; otherwise an empty one."""
    return value if isinstance(value, str) else ""


def count_of(value: object) -> int:
    """The value, if it is a number of tokens; otherwise 0."""
    is_count = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST_TOKENS
    return int(value) if is_count and isinstance(value, int) else 0


def printed(value: object) -> str:
    """The value as JSON. Raises Unreadable if it is nested so deeply that it could not be sent back."""
    if not _is_shallow(value, DEPTH):
        raise Unreadable("it is nested too deeply")
    return json.dumps(value, ensure_ascii=False)


def _is_shallow(value: object, levels: int) -> bool:
    below = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return levels > 0 and all(_is_shallow(one, levels - 1) for one in below)
