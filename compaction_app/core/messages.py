"""What was said between a planner that is a model and its tools, in no provider's dialect.

    Told(prompt) → Answer → Results → Answer → Results → … → Answer (stops) → Told(nudge) → Answer …

A model's own parts are kept as they came: reasoning goes back to its provider unchanged, in its place. Arguments are
the JSON text that was streamed, whatever it is.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from sessions_app.sessionlog.jsjson import well_formed

from .tools import ToolResult


@dataclass(frozen=True, slots=True)
class TextPart:
    """Text of the model. It is shown, and never read as a plan."""

    text: str


@dataclass(frozen=True, slots=True)
class ThinkingPart:
    """Reasoning: its text, and what goes back to the provider for it, unchanged."""

    text: str
    block: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class CallPart:
    """A tool call as the model made it; `arguments` is JSON text as it came, empty for none."""

    call_id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class AssistantMessage:
    """One answer of the model, its parts in order."""

    parts: Sequence[TextPart | ThinkingPart | CallPart]

    @property
    def calls(self) -> list[CallPart]:
        return [part for part in self.parts if isinstance(part, CallPart)]


@dataclass(frozen=True, slots=True)
class CallResult:
    """What one call gave, as the model is told it."""

    call_id: str
    name: str
    text: str
    is_error: bool = False


@dataclass(frozen=True, slots=True)
class ToolResults:
    """The results of all calls of one answer, in their order."""

    results: Sequence[CallResult]


@dataclass(frozen=True, slots=True)
class UserMessage:
    """What the loop says to the model: the prompt, or a nudge."""

    text: str


Message = UserMessage | AssistantMessage | ToolResults


# ---- what the model is told of a result -------------------------------------------------------------------

LISTED: Final = 100
"""Items of a list in a result that the model is told; a search finds at most so many."""
DEPTH: Final = 50
"""Levels of objects and lists in a call's arguments; no tool takes more than three."""
DROPPED: Final = "Dropped to make room. Ask again for what you still need."
CUT: Final = "… cut to make room: {shown:,} of {total:,} characters. Ask for less at once."


def result_text(result: ToolResult) -> str:
    """A tool's result as the model reads it: its facts and its sentence as JSON; long lists say how many more."""
    told: dict[str, Any] = {}
    for name, value in result.details.items():
        if isinstance(value, list) and len(value) > LISTED:
            told[name], told[f"{name}NotShown"] = value[:LISTED], len(value) - LISTED
        else:
            told[name] = value
    told["message"] = result.sentence
    return well_formed(json.dumps(told, ensure_ascii=False))


def parsed_arguments(text: str) -> Any:
    """What a call's arguments say. Text that is no JSON stays that text, and the tools refuse it in words.

    So does what no database keeps as JSON: numbers that are none, and nesting beyond DEPTH levels.
    """
    if not text.strip():
        return {}
    try:
        found = json.loads(text, parse_constant=_no_number, parse_float=_finite)
        # Halves of characters are replaced wherever they stand, in keys too.
        found = json.loads(well_formed(json.dumps(found, ensure_ascii=False)))
    except (ValueError, RecursionError):
        return well_formed(text)
    return found if _is_flat(found, DEPTH) else well_formed(text)


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is no JSON")


def _finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _no_number(text)


def _is_flat(value: object, levels: int) -> bool:
    below = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return levels > 0 and all(_is_flat(one, levels - 1) for one in below)


# ---- the conversation, kept within the model's window ------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Trimmed:
    """What was taken out of the conversation with the model: how many results, and their characters."""

    results: int
    characters: int


class Conversation:
    """All that was said in one run, at most `limit` characters of it: the prompt always, old results first to go.

    What is taken out stays in the run's rows; only the model does not hear it again.
    """

    def __init__(self, prompt: str) -> None:
        self.messages: list[Message] = [UserMessage(prompt)]

    def add(self, message: Message) -> None:
        """Go on with a message. Two of the loop's in a row become one turn in either dialect."""
        self.messages.append(message)

    @property
    def characters(self) -> int:
        return sum(map(_size, self.messages))

    def fit(self, limit: int) -> Trimmed | None:
        """Make it at most `limit` characters long, where that can be; what was taken out, or None.

        Old results become a note, the oldest first, down to two thirds of the limit, so that what a provider has
        cached of the rest holds for a while. Where that is not enough, the latest results are cut to half of the limit,
        the oldest exchanges go as a whole, and the latest results are cut to what fits.
        """
        if self.characters <= limit:
            return None
        before, count = self.characters, 0
        goal = limit * 2 // 3
        latest = max(
            (place for place, one in enumerate(self.messages) if isinstance(one, ToolResults)), default=0
        )
        for place, message in enumerate(self.messages[:latest]):
            if self.characters <= goal:
                break
            if isinstance(message, ToolResults):
                blank = ToolResults(
                    [replace(one, text=min(one.text, DROPPED, key=len)) for one in message.results]
                )
                count += sum(
                    old.text != new.text for old, new in zip(message.results, blank.results, strict=True)
                )
                self.messages[place] = blank
        count += self._cut_latest(limit, limit // 2)
        count += self._forget_exchanges(limit)
        count += self._cut_latest(limit, 0)
        return Trimmed(count, before - self.characters) if count else None

    def _cut_latest(self, limit: int, least: int) -> int:
        """Cut the latest results so that all fits, but not below `least`; each has an equal part of the room."""
        places = [place for place, one in enumerate(self.messages) if isinstance(one, ToolResults)]
        over = self.characters - limit
        if not places or over <= 0:
            return 0
        latest = self.messages[places[-1]]
        assert isinstance(latest, ToolResults)  # noqa: S101  # it was chosen by that
        lengths = [len(one.text) for one in latest.results]
        share = _fair_share(lengths, max(least, sum(lengths) - over))
        cut = [
            one if len(one.text) <= share else replace(one, text=_cut(one.text, share))
            for one in latest.results
        ]
        self.messages[places[-1]] = ToolResults(cut)
        return sum(old.text != new.text for old, new in zip(latest.results, cut, strict=True))

    def _forget_exchanges(self, limit: int) -> int:
        """Take out whole exchanges behind the prompt, an answer with all that was said to it, but not the last one."""
        gone = 0
        while self.characters > limit:
            answers = [place for place, one in enumerate(self.messages) if isinstance(one, AssistantMessage)]
            if len(answers) < 2:
                break
            first, second = answers[0], answers[1]
            gone += sum(
                len(one.results) for one in self.messages[first:second] if isinstance(one, ToolResults)
            )
            del self.messages[first:second]
        return gone


def _size(message: Message) -> int:
    """The characters of a message that a provider counts, without what a dialect adds."""
    if isinstance(message, UserMessage):
        return len(message.text)
    if isinstance(message, ToolResults):
        return sum(len(one.text) + len(one.name) + len(one.call_id) for one in message.results)
    return sum(map(_part_size, message.parts))


def _part_size(part: TextPart | ThinkingPart | CallPart) -> int:
    if isinstance(part, TextPart):
        return len(part.text)
    if isinstance(part, ThinkingPart):
        return max(len(part.text), _weight(part.block))
    return len(part.name) + len(part.arguments) + len(part.call_id)


def _weight(value: object) -> int:
    """The characters of all texts in a JSON value."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, Mapping):
        return sum(len(str(name)) + _weight(one) for name, one in value.items())
    return sum(map(_weight, value)) if isinstance(value, list | tuple) else 0


def _fair_share(lengths: Sequence[int], room: int) -> int:
    """The longest length that each may have so that together they fit; what the short ones leave is for the others."""
    left, share = room, 0
    for place, length in enumerate(sorted(lengths)):
        share = left // (len(lengths) - place)
        if length > share:
            return share
        left -= length
    return max(lengths, default=share)


def _cut(text: str, length: int) -> str:
    note = CUT.format(shown=length, total=len(text))
    return text[: max(0, length - len(note))] + note if length > len(note) else min(text, DROPPED, key=len)
