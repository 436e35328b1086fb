"""What a script can do with one request: play an answer, refuse it, say nothing, or cut the connection.

    Play(parts)       an answer, streamed or whole; `breaks` ends it before its end
    Refuse(kind)      an HTTP error as the real service words it
    Silence           no byte comes until the client gives up
    Cut               the connection is closed without a byte
    Foreign           an answer of something that is no provider

Thoughts carry proof that they come back unchanged: a signature over their text, and a checksum inside it for dialects
without signatures.
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
    """Reasoning that is shown, and signed where the dialect signs it."""

    text: str


@dataclass(frozen=True, slots=True)
class Sealed:
    """Reasoning that is not shown, only handed through."""

    text: str


@dataclass(frozen=True, slots=True)
class CallTool:
    """A tool call; `arguments` is JSON text, or what a model takes for it."""

    name: str
    arguments: str = "{}"


@dataclass(frozen=True, slots=True)
class Frame:
    """Bytes of a stream. `ends_call`: with them a call is complete."""

    data: bytes
    ends_call: bool = False


Part = Say | Think | Sealed | CallTool
Stop = Literal["calls", "end", "length", "refusal"]


@dataclass(frozen=True, slots=True)
class Break:
    """How an answer ends before its end, and where: before any content, inside its last call, or behind it."""

    how: Literal["error", "cut", "stall"]
    where: Literal["start", "inside", "after"]


@dataclass(frozen=True, slots=True)
class Play:
    """An answer, and how it goes over the wire."""

    parts: Sequence[Part]
    stop: Stop
    breaks: Break | None = None
    fragment: int = 24
    """Characters in one delta."""
    pieces: int = 0
    """Bytes in one write; 0: each event is one write."""
    pings: bool = False
    """Whether keep-alives stand between all events."""
    whole_calls: bool = False
    """Whether a call comes in one piece, and in OpenAI's dialect without id and index."""
    reports_usage: bool = True
    priced: bool = False
    """Whether OpenAI's usage names a cost, as OpenRouter's does."""
    details: bool = False
    """Whether OpenAI's reasoning is `reasoning_details`, as OpenRouter's, or `reasoning_content`."""
    marks_end: bool = True
    """Whether OpenAI's stream ends with [DONE]."""
    streams: bool = True
    """Whether a stream is given where one is asked for."""
    gap: float = 0.0
    """Seconds after each call."""
    step: float = 0.0
    """Seconds after each delta."""


Kind = Literal[
    "invalid", "key", "model", "path", "overloaded", "limited", "quota", "overflow", "too-large", "broken"
]


@dataclass(frozen=True, slots=True)
class Refuse:
    """An HTTP error. `message` replaces the words that the service has for this kind."""

    kind: Kind
    message: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Silence:
    """Nothing comes until the client closes."""


@dataclass(frozen=True, slots=True)
class Cut:
    """The connection is closed without a byte."""


@dataclass(frozen=True, slots=True)
class Foreign:
    """A whole answer that no provider gives."""

    status: int
    content_type: str
    body: str
    headers: Mapping[str, str] = field(default_factory=dict)


Move = Play | Refuse | Silence | Cut | Foreign

# ---- thoughts that prove themselves ------------------------------------------------------------------------

_CHECKSUM: Final = re.compile(r"(.*) \[([0-9a-f]{8})\]", re.DOTALL)


def checked(text: str) -> str:
    """The text with its checksum behind it."""
    return f"{text} [{_digest(text)[:8]}]"


def is_checked(text: str) -> bool:
    """Whether the text is one that `checked` made."""
    found = _CHECKSUM.fullmatch(text)
    return found is not None and _digest(found[1])[:8] == found[2]


def signature_of(text: str) -> str:
    """What a service signs a thought with."""
    return base64.b64encode(hashlib.sha512(f"signed {text}".encode()).digest()).decode()


def sealed(text: str) -> str:
    """A thought that only the service can read."""
    return base64.b64encode(f"{_digest(text)}{text}".encode()).decode()


def is_sealed(data: str) -> bool:
    """Whether the data is what `sealed` made."""
    try:
        opened = base64.b64decode(data, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return False
    return opened[:64] == _digest(opened[64:])


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def fragments(text: str, length: int) -> list[str]:
    """The text in pieces of so many characters; none of an empty text."""
    return [text[start : start + length] for start in range(0, len(text), length)]


def shown_until(parts: Sequence[Part], breaks: Break | None) -> tuple[Sequence[Part], bool]:
    """The parts that are played, and whether the last of them is broken off half-way."""
    if breaks is None:
        return parts, False
    if breaks.where == "start":
        return (), False
    calls = [place for place, part in enumerate(parts) if isinstance(part, CallTool)]
    last = calls[-1] if calls else len(parts) - 1
    return parts[: last + 1], breaks.where == "inside"
