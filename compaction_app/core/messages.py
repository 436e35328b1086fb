"""The conversation between an LLM planner and its tools, independent of a provider's dialect.

    User(prompt) → Assistant → Results → Assistant → Results → … → Assistant (stops) → User(nudge) → Assistant …

The model's parts are kept unchanged: reasoning is returned to its provider at its position. Arguments are the JSON text
that was streamed, valid or not.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from sessions_app.sessionlog.jsjson import well_formed

from .tools import ToolResult


@dataclass(frozen=True, slots=True)
class TextPart:
    """Text of the model. It is displayed, and never parsed as a plan."""

    text: str


@dataclass(frozen=True, slots=True)
class ThinkingPart:
    """Reasoning: its text, and the block that is sent back to the provider unchanged."""

    text: str
    block: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class CallPart:
    """A tool call as the model made it; `arguments` is the JSON text as received, empty for none."""

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
    """The result of one call, as sent to the model."""

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
    """A message from the loop to the model: the prompt, or a nudge."""

    text: str


Message = UserMessage | AssistantMessage | ToolResults


# ---- results as sent to the model ----------------------------------------------------------------------------

LISTED: Final = 100
"""The maximum number of list items in a result that are sent to the model; a search finds no more than that."""
DEPTH: Final = 50
"""The maximum nesting of objects and lists in a call's arguments; no tool takes more than three levels."""
DROPPED: Final = "Dropped to make room. Ask again for what you still need."
CUT: Final = "… cut to make room: {shown:,} of {total:,} characters. Ask for less at once."


def result_text(result: ToolResult) -> str:
    """A tool's result as sent to the model, in JSON: its details and sentence; cut lists state how many items are
    omitted."""
    sent: dict[str, Any] = {}
    for name, value in result.details.items():
        if isinstance(value, list) and len(value) > LISTED:
            sent[name], sent[f"{name}NotShown"] = value[:LISTED], len(value) - LISTED
        else:
            sent[name] = value
    sent["message"] = result.sentence
    return well_formed(json.dumps(sent, ensure_ascii=False))


def parsed_arguments(text: str) -> Any:
    """A call's arguments, parsed. Text that is not JSON is returned unchanged, and the tools refuse it.

    The same applies to values that a database cannot store as JSON: NaN, infinities, and nesting beyond DEPTH levels.
    """
    if not text.strip():
        return {}
    try:
        found = json.loads(text, parse_constant=_no_number, parse_float=_finite)
        # Lone surrogates are replaced everywhere, including keys.
        found = json.loads(well_formed(json.dumps(found, ensure_ascii=False)))
    except (ValueError, RecursionError):
        return well_formed(text)
    return found if _is_flat(found, DEPTH) else well_formed(text)


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _no_number(text)


def _is_flat(value: object, levels: int) -> bool:
    below = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return levels > 0 and all(_is_flat(one, levels - 1) for one in below)


# ---- the conversation, kept within the model's window ------------------------------------------------------


class Trimmed(NamedTuple):
    """The removed part of the conversation with the model: the number of results, and their characters."""

    results: int
    characters: int


class Conversation:
    """All messages of one run, at most `limit` characters: the prompt is always kept, the oldest results are removed
    first.

    Removed results stay in the run's rows; they are only not sent to the model again.
    """

    def __init__(self, prompt: str) -> None:
        self.messages: list[Message] = [UserMessage(prompt)]

    def add(self, message: Message) -> None:
        """Append a message. Two consecutive messages of the loop become one turn in either dialect."""
        self.messages.append(message)

    @property
    def characters(self) -> int:
        return sum(map(_size, self.messages))

    def fit(self, limit: int) -> Trimmed | None:
        """Trim the conversation to `limit` characters, if possible; returns what was removed, or None.

        Old results become a note, the oldest first, down to two thirds of the limit, so that a provider's cache of
        others stays valid for a while. If that is not enough, the latest results are cut to half of the limit, then the
        oldest exchanges are removed, and finally the latest results are cut to the remaining room.
        """
        if self.characters <= limit:
            return None
        before, count = self.characters, 0
        goal = limit * 2 // 3
        latest = max((place for place, one in enumerate(self.messages) if isinstance(one, ToolResults)), default=0)
        for place, message in enumerate(self.messages[:latest]):
            if self.characters <= goal:
                break
            if isinstance(message, ToolResults):
                blank = ToolResults([replace(one, text=min(one.text, DROPPED, key=len)) for one in message.results])
                count += sum(old.text != new.text for old, new in zip(message.results, blank.results, strict=True))
                self.messages[place] = blank
        count += self._cut_latest(limit, limit // 2)
        count += self._forget_exchanges(limit)
        count += self._cut_latest(limit, 0)
        return Trimmed(count, before - self.characters) if count else None

    def _cut_latest(self, limit: int, least: int) -> int:
        """Cut the latest results until everything fits, but not below `least`; each gets an equal share of the room."""
        places = [place for place, one in enumerate(self.messages) if isinstance(one, ToolResults)]
        over = self.characters - limit
        if not places or over <= 0:
            return 0
        latest = self.messages[places[-1]]
        assert isinstance(latest, ToolResults)  # noqa: S101  # `places` lists nothing else
        lengths = [len(one.text) for one in latest.results]
        share = _fair_share(lengths, max(least, sum(lengths) - over))
        cut = [one if len(one.text) <= share else replace(one, text=_cut(one.text, share)) for one in latest.results]
        self.messages[places[-1]] = ToolResults(cut)
        return sum(old.text != new.text for old, new in zip(latest.results, cut, strict=True))

    def _forget_exchanges(self, limit: int) -> int:
        """Remove whole exchanges after the prompt, an answer with all replies to it, except the last one."""
        gone = 0
        while self.characters > limit:
            answers = [place for place, one in enumerate(self.messages) if isinstance(one, AssistantMessage)]
            if len(answers) < 2:
                break
            first, second = answers[0], answers[1]
            gone += sum(len(one.results) for one in self.messages[first:second] if isinstance(one, ToolResults))
            del self.messages[first:second]
        return gone


def _size(message: Message) -> int:
    """The characters of a message that a provider counts, without the dialect's overhead."""
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
    """The characters of all strings in a JSON value."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, Mapping):
        return sum(len(str(name)) + _weight(one) for name, one in value.items())
    return sum(map(_weight, value)) if isinstance(value, list | tuple) else 0


def _fair_share(lengths: Sequence[int], room: int) -> int:
    """The greatest length at which all fit into `room`; room that short ones leave is shared by the others."""
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
