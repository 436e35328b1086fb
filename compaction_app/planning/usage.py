"""What a run sends to a model, gets back and costs, added up from what the provider reports."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from compaction_app.providers.types import ReportedUsage

MILLION: Final = 1_000_000
CHARACTERS_PER_TOKEN: Final = 4
"""By which tokens are estimated if a provider reports none: as the agents estimate them."""


class Prices(msgspec.Struct, frozen=True):
    """US dollars for a million tokens; None if nobody has said."""

    input: float | None = None
    output: float | None = None
    cache_read: float | None = None
    """Where it is not known, cached input counts as input."""
    cache_write: float | None = None

    def cost(self, usage: ReportedUsage) -> float | None:
        """What it costs in US dollars: as the provider says, else by the prices; None if neither is known."""
        if usage.cost is not None:
            return usage.cost
        if self.input is None or self.output is None:
            return None
        read = self.cache_read if self.cache_read is not None else self.input
        write = self.cache_write if self.cache_write is not None else self.input
        total = usage.input * self.input + usage.output * self.output
        return (total + usage.cache_read * read + usage.cache_write * write) / MILLION


class UsageTotals(msgspec.Struct, rename="camel"):
    """The sums of a run. Characters are those of request bodies and of answers; tokens are the provider's."""

    host: str
    requests: int = 0
    sent: int = 0
    received: int = 0
    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    cost: float | None = None
    """US dollars; None if the cost of a request is not known, and before there is any."""
    counted: int = 0
    """Answers whose tokens are in the sums."""
    estimated: bool = False
    """Whether some of the tokens are our estimate, because the provider reported none."""

    @classmethod
    def of(cls, kept: Mapping[str, Any] | None, host: str) -> UsageTotals:
        """The sums so far of a run that goes on; from nothing where it begins."""
        return msgspec.convert(dict(kept), cls) if kept else cls(host)

    def add_request(self, characters: int) -> None:
        """A request is on its way."""
        self.requests += 1
        self.sent += characters

    def add_received(self, characters: int) -> None:
        """Some of an answer has come."""
        self.received += characters

    def add_answer(
        self, usage: ReportedUsage | None, sent: int, received: int, prices: Prices
    ) -> dict[str, Any]:
        """Add the tokens and the cost of an answer, whole or broken off; gives what that added, for its event.

        `sent` and `received` are its characters, by which it is estimated if the provider reports nothing.
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

    def to_json(self) -> dict[str, Any]:
        built: dict[str, Any] = msgspec.to_builtins(self)
        return built
