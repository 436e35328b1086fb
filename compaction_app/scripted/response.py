"""A script's possible moves: play an answer, refuse the request, stay silent, or cut the connection.

    Play(parts)       an answer, streamed or whole; `breaks` ends it early
    Refuse(kind)      an HTTP error in the words of the real service
    Silence           no byte is sent until the client gives up
    Cut               the connection is closed without a byte
    Foreign           a response of a server that is not a provider

Thinking carries proof that it is returned unchanged: a signature of its text, and for dialects without signatures a
checksum inside the text.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

Dialect = Literal["anthropic", "openai"]


@dataclass(frozen=True, slots=True)
class Say:
    """Text of the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class Think:
    """Reasoning that is shown, and signed if the dialect signs it."""

    text: str


@dataclass(frozen=True, slots=True)
class Sealed:
    """Reasoning that is not shown, only passed through."""

    text: str


@dataclass(frozen=True, slots=True)
class CallTool:
    """A tool call; `arguments` is JSON text, or a model's mistake for it."""

    name: str
    arguments: str = "{}"


@dataclass(frozen=True, slots=True)
class Frame:
    """Bytes of a stream. `ends_call`: they complete a call."""

    data: bytes
    ends_call: bool = False


Part = Say | Think | Sealed | CallTool
Stop = Literal["calls", "end", "length", "refusal"]


@dataclass(frozen=True, slots=True)
class Break:
    """How an answer ends early, and where: before any content, inside its last call, or after it."""

    how: Literal["error", "cut", "stall"]
    where: Literal["start", "inside", "after"]


@dataclass(frozen=True, slots=True)
class Play:
    """An answer, and how it is transmitted."""

    parts: Sequence[Part]
    stop: Stop
    breaks: Break | None = None
    fragment: int = 24
    """Characters in one delta."""
    pieces: int = 0
    """Bytes in one write; 0: each event is one write."""
    pings: bool = False
    """Whether keep-alives are sent between all events."""
    whole_calls: bool = False
    """Whether a call is sent in one piece, and in OpenAI's dialect without id and index."""
    reports_usage: bool = True
    priced: bool = False
    """Whether OpenAI's usage has a cost, as in OpenRouter."""
    details: bool = False
    """Whether OpenAI's reasoning is `reasoning_details`, as in OpenRouter, or `reasoning_content`."""
    marks_end: bool = True
    """Whether OpenAI's stream ends with [DONE]."""
    streams: bool = True
    """Whether a stream is sent if one is requested."""
    gap: float = 0.0
    """Seconds after each call."""
    step: float = 0.0
    """Seconds after each delta."""


Kind = Literal["invalid", "key", "model", "path", "overloaded", "limited", "quota", "overflow", "too-large", "broken"]


@dataclass(frozen=True, slots=True)
class Refuse:
    """An HTTP error. `message` replaces the service's own words for this kind."""

    kind: Kind
    message: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Silence:
    """Nothing is sent until the client disconnects."""


@dataclass(frozen=True, slots=True)
class Cut:
    """The connection is closed without a byte."""


@dataclass(frozen=True, slots=True)
class Foreign:
    """A complete response that no provider gives."""

    status: int
    content_type: str
    body: str
    headers: Mapping[str, str] = field(default_factory=dict)


Move = Play | Refuse | Silence | Cut | Foreign

# ---- thinking with proof of integrity ----------------------------------------------------------------------

_CHECKSUM: Final = re.compile(r"(.*) \[([0-9a-f]{8})\]", re.DOTALL)


def checked(text: str) -> str:
    """The text followed by its checksum."""
    return f"{text} [{_digest(text)[:8]}]"


def is_checked(text: str) -> bool:
    """Whether the text was made by `checked`."""
    found = _CHECKSUM.fullmatch(text)
    return found is not None and _digest(found[1])[:8] == found[2]


def signature_of(text: str) -> str:
    """A service's signature of a thought."""
    return base64.b64encode(hashlib.sha512(f"signed {text}".encode()).digest()).decode()


def sealed(text: str) -> str:
    """A thought that only the service can read."""
    return base64.b64encode(f"{_digest(text)}{text}".encode()).decode()


def is_sealed(data: str) -> bool:
    """Whether the data was made by `sealed`."""
    try:
        opened = base64.b64decode(data, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return False
    return opened[:64] == _digest(opened[64:])


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def fragments(text: str, length: int) -> list[str]:
    """The text in pieces of this many characters; none for an empty text."""
    return [text[start : start + length] for start in range(0, len(text), length)]


def shown_until(parts: Sequence[Part], breaks: Break | None) -> tuple[Sequence[Part], bool]:
    """The parts that are played, and whether the last of them breaks off half-way."""
    if breaks is None:
        return parts, False
    if breaks.where == "start":
        return (), False
    calls = [place for place, part in enumerate(parts) if isinstance(part, CallTool)]
    last = calls[-1] if calls else len(parts) - 1
    return parts[: last + 1], breaks.where == "inside"
