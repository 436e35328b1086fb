"""Requests to a provider and their answers, independent of a provider's dialect."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from compaction_app.core.messages import AssistantMessage, Message
from compaction_app.core.tools import ToolSchema


class Dialect(StrEnum):
    """The format of a provider's requests and answers."""

    ANTHROPIC = "anthropic"
    OPENAI = "openai"

    @property
    def label(self) -> str:
        return "Anthropic Messages" if self is Dialect.ANTHROPIC else "OpenAI Chat Completions"


class ThinkingStyle(StrEnum):
    """How a level is sent to an Anthropic model."""

    BUDGET = "budget"
    ADAPTIVE = "adaptive"

    @property
    def label(self) -> str:
        return "a budget of tokens" if self is ThinkingStyle.BUDGET else "an effort; the model chooses"


LEVELS: Final = ("minimal", "low", "medium", "high", "xhigh")
"""Thinking levels as the agents name them, the lowest first."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The address of a model. The key is never shown: not in a repr, not in an error."""

    provider: str
    dialect: Dialect
    base_url: str
    """In the form that the official clients take: Anthropic's without `/v1`, OpenAI's with it."""
    key: str = field(default="", repr=False)

    @property
    def host(self) -> str:
        """Host and port as written in the address, for display."""
        from_scheme = self.base_url.partition("://")[2] or self.base_url
        return from_scheme.partition("/")[0].rpartition("@")[2]


@dataclass(frozen=True, slots=True)
class Request:
    """One request to a model."""

    model: str
    system: str
    tools: Sequence[ToolSchema]
    messages: Sequence[Message]
    output_limit: int
    """The maximum number of tokens of the answer, reasoning included."""
    thinking: str = ""
    """One of LEVELS; empty if no thinking is requested."""
    thinking_style: ThinkingStyle = ThinkingStyle.BUDGET


@dataclass(frozen=True, slots=True)
class ReportedUsage:
    """Tokens as the provider reports them. `input` includes neither cache reads nor cache writes."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    cost: float | None = None
    """In US dollars, if the provider reports it."""


# ---- the answer, piece by piece ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Sent:
    """A request is being sent: the length of its body, in characters."""

    characters: int


@dataclass(frozen=True, slots=True)
class Retrying:
    """The provider could not answer; the request is sent again after this many seconds. `attempt` counts from 1."""

    attempt: int
    seconds: float
    why: str


@dataclass(frozen=True, slots=True)
class TextPiece:
    """Additional text."""

    text: str


@dataclass(frozen=True, slots=True)
class ThoughtPiece:
    """Additional reasoning."""

    text: str


@dataclass(frozen=True, slots=True)
class CallBegun:
    """A tool call has its name. `index` counts the calls of the answer from 0."""

    index: int
    name: str


@dataclass(frozen=True, slots=True)
class ArgumentsPiece:
    """Additional text of a call's arguments."""

    index: int
    text: str


@dataclass(frozen=True, slots=True)
class AnswerEnd:
    """The answer is complete: always the last piece."""

    answer: AssistantMessage
    stop: str
    """`calls`, `end`, `length` (the output limit truncated it), `refusal`, or the provider's own word."""
    usage: ReportedUsage | None
    """None if the provider reported nothing."""
    characters: int
    """Characters received as text, reasoning, names and arguments."""


Piece = Sent | Retrying | TextPiece | ThoughtPiece | CallBegun | ArgumentsPiece | AnswerEnd
