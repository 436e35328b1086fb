"""PURE: the saving of a compaction with each request, and its single cost: the prompt cache is written again.

Providers cache the beginning of a request. What precedes the first deletion stays cached; everything that follows it
is written to the cache again by the next request, at the price of writing, and is read from it afterwards:

    as it is   requests x before x read
    struck     rewritten x (write - read) + requests x after x read
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

MILLION: Final = 1_000_000
NOTHING: Final = 1e-9
"""In US dollars: a smaller saving for each request counts as none."""


class InputCost(NamedTuple):
    """The cost of a session's input in US dollars, without and with the deletion."""

    before: float
    """The cost of one request without the deletion, read from the cache."""
    after: float
    """The cost of one request after the deletion."""
    once: float
    """The additional cost of the first request, because the cache is written again."""

    @property
    def saved(self) -> float:
        """The saving for each request."""
        return self.before - self.after

    @property
    def pays_after(self) -> int | None:
        """The number of requests after which the compaction has saved more than it cost; None if never."""
        if self.saved < NOTHING:
            return None
        return max(1, math.ceil(self.once / self.saved - 1e-9))

    def as_is(self, requests: float) -> float:
        return self.before * requests

    def struck(self, requests: float) -> float:
        return self.once + self.after * requests


def input_cost(before: int, after: int, rewritten: int, read: float, write: float) -> InputCost:
    """The cost of requests with these tokens; `read` and `write` are US dollars per million tokens."""
    return InputCost(before * read / MILLION, after * read / MILLION, rewritten * max(0.0, write - read) / MILLION)
