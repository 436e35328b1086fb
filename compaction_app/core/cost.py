"""PURE: what a compaction saves with each request, and what it costs once: the prompt cache is written anew.

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
"""US dollars: a request that saves less saves nothing."""


class InputCost(NamedTuple):
    """The input of a session in US dollars, as it is and struck."""

    before: float
    """Of one request as it is, read from the cache."""
    after: float
    """Of one request once it is struck."""
    once: float
    """What the first request costs more, because the cache is written anew."""

    @property
    def saved(self) -> float:
        """By each request."""
        return self.before - self.after

    @property
    def pays_after(self) -> int | None:
        """The number of requests after which less was spent than without the compaction; None if never."""
        if self.saved < NOTHING:
            return None
        return max(1, math.ceil(self.once / self.saved - 1e-9))

    def as_is(self, requests: float) -> float:
        return self.before * requests

    def struck(self, requests: float) -> float:
        return self.once + self.after * requests


def input_cost(before: int, after: int, rewritten: int, read: float, write: float) -> InputCost:
    """The cost of requests with these tokens; `read` and `write` are US dollars for a million tokens."""
    return InputCost(before * read / MILLION, after * read / MILLION, rewritten * max(0.0, write - read) / MILLION)
