"""The data that a run sends to and receives from a model, and its cost, summed from the provider's reports."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from .types import ReportedUsage

MILLION: Final = 1_000_000
CHARACTERS_PER_TOKEN: Final = 4
"""Used to estimate tokens if a provider reports none, as the agents do."""
LEAST_DOLLARS: Final = 0.0001
CENTS_FROM: Final = 0.1
"""From this many dollars on, cents are shown."""


class Prices(msgspec.Struct, frozen=True):
    """US dollars for a million tokens; None if unknown."""

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
    """In US dollars; None if the cost of a request is unknown, and before the first request."""
    counted: int = 0
    """Answers whose tokens are included."""
    estimated: bool = False
    """Whether some of the tokens are estimated because the provider reported none."""

    @classmethod
    def of(cls, kept: Mapping[str, Any] | None, host: str) -> UsageTotals:
        """The totals so far of a run that continues; zero for a new one."""
        return msgspec.convert(dict(kept), cls) if kept else cls(host)

    def add_request(self, characters: int) -> None:
        """A request is sent."""
        self.requests += 1
        self.sent += characters

    def add_received(self, characters: int) -> None:
        """A part of an answer has arrived."""
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
        """The input tokens that the provider had cached."""
        return self.input + self.cache_read + self.cache_write

    @property
    def is_reported(self) -> bool:
        """Whether any tokens were counted: until then the totals are meaningless."""
        return self.tokens_in + self.output > 0

    @property
    def cost_text(self) -> str:
        """Empty if the cost is unknown, and before the first report."""
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
