"""Requests to a provider and their answers, independent of a provider's dialect; and the data that a run sends and
receives, with its cost, summed from the provider's reports."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

import msgspec

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
    """The base URL as the official clients take it: Anthropic's without `/v1`, OpenAI's with it."""
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
    """The thinking level, one of LEVELS; empty if no thinking is requested."""
    thinking_style: ThinkingStyle = ThinkingStyle.BUDGET


@dataclass(frozen=True, slots=True)
class ReportedUsage:
    """Tokens as the provider reports them. `input` includes neither cache reads nor cache writes."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    cost: float | None = None
    """The cost in US dollars, if the provider reports it."""


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
    """The name of a tool call has arrived. `index` counts the calls of the answer from 0."""

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
    """The tokens that the provider reported; None if it reported nothing."""
    characters: int
    """Characters received as text, reasoning, names and arguments."""


Piece = Sent | Retrying | TextPiece | ThoughtPiece | CallBegun | ArgumentsPiece | AnswerEnd


MILLION: Final = 1_000_000
CHARACTERS_PER_TOKEN: Final = 4
"""Used to estimate tokens if a provider reports none, as the agents do."""
LEAST_DOLLARS: Final = 0.0001
CENTS_FROM: Final = 0.1
"""Amounts of at least this many dollars are rounded to cents."""


class Prices(msgspec.Struct, frozen=True):
    """US dollars per million tokens; None if unknown."""

    input: float | None = None
    output: float | None = None
    cache_read: float | None = None
    """If unknown, cached input costs as much as input."""
    cache_write: float | None = None
    is_listed: bool = False
    """Whether they are list prices because the user entered none."""

    @property
    def is_known(self) -> bool:
        return any(price is not None for price in (self.input, self.output, self.cache_read, self.cache_write))

    @property
    def sentence(self) -> str:
        if self.input is None or self.output is None:
            return "Its price is not known."
        ending = ", by its list prices." if self.is_listed else "."
        return f"{dollars(self.input)} for a million tokens in, {dollars(self.output)} for a million out{ending}"

    def cost(self, usage: ReportedUsage) -> float | None:
        """The cost in US dollars: from the provider's report, otherwise from the prices; None if neither is known."""
        if usage.cost is not None:
            return usage.cost
        if self.input is None or self.output is None:
            return None
        read = self.cache_read if self.cache_read is not None else self.input
        write = self.cache_write if self.cache_write is not None else self.input
        total = usage.input * self.input + usage.output * self.output
        return (total + usage.cache_read * read + usage.cache_write * write) / MILLION


class UsageTotals(msgspec.Struct, rename="camel"):
    """The totals of a run. Characters are those of request bodies and of answers; tokens are the provider's."""

    host: str
    requests: int = 0
    sent: int = 0
    received: int = 0
    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    cost: float | None = None
    """The cost in US dollars; None if the cost of a request is unknown, and before the first request."""
    counted: int = 0
    """The number of answers whose tokens are included."""
    estimated: bool = False
    """Whether some of the tokens are estimated because the provider reported none."""

    @classmethod
    def of(cls, kept: Mapping[str, Any] | None, host: str) -> UsageTotals:
        """The totals so far of a run that continues; zero for a new one."""
        return msgspec.convert(dict(kept), cls) if kept else cls(host)

    def add_request(self, characters: int) -> None:
        """Count a request that is being sent."""
        self.requests += 1
        self.sent += characters

    def add_received(self, characters: int) -> None:
        """Count a part of an answer that has arrived."""
        self.received += characters

    def add_answer(self, usage: ReportedUsage | None, sent: int, received: int, prices: Prices) -> dict[str, Any]:
        """Add the tokens and the cost of an answer, complete or not; returns the added numbers, for its event.

        `sent` and `received` are its characters, used for an estimate if the provider reports nothing.
        """
        counted = usage or ReportedUsage(
            input=math.ceil(sent / CHARACTERS_PER_TOKEN), output=math.ceil(received / CHARACTERS_PER_TOKEN)
        )
        cost = prices.cost(counted)
        is_first = not self.counted
        self.counted += 1
        self.input += counted.input
        self.output += counted.output
        self.cache_read += counted.cache_read
        self.cache_write += counted.cache_write
        known = 0.0 if is_first else self.cost
        self.cost = None if known is None or cost is None else known + cost
        self.estimated = self.estimated or usage is None
        return {
            "input": counted.input,
            "output": counted.output,
            "cacheRead": counted.cache_read,
            "cacheWrite": counted.cache_write,
            "cost": cost,
            "estimated": usage is None,
        }

    @property
    def tokens_in(self) -> int:
        """All input tokens, including those read from the cache and written to it."""
        return self.input + self.cache_read + self.cache_write

    @property
    def is_reported(self) -> bool:
        """Whether any tokens were counted: until then the totals are meaningless."""
        return self.tokens_in + self.output > 0

    @property
    def cost_text(self) -> str:
        """The cost as text; empty if it is unknown, and before the first report."""
        if self.cost is None or not self.is_reported:
            return ""
        return ("about " if self.estimated else "") + dollars(self.cost)

    def to_json(self) -> dict[str, Any]:
        built: dict[str, Any] = msgspec.to_builtins(self)
        return built


def dollars(cost: float) -> str:
    """US dollars with as many decimals as are significant: $1.24, $0.012, $0.0004."""
    if 0 < cost < LEAST_DOLLARS:
        return f"less than ${LEAST_DOLLARS}"
    return f"${cost:,.2f}" if cost >= CENTS_FROM or not cost else f"${cost:.2g}"
