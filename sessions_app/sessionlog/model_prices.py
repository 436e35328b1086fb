"""Prices of models' input. PURE: what an agent's or the user's configuration gives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

MILLION: Final = 1_000_000
MOST: Final = 1_000_000
"""US dollars for a million tokens: anything above is not a price."""


class InputPrices(NamedTuple):
    """US dollars for a million tokens of input."""

    input: float
    cache_read: float | None = None
    """None if unknown: then cached input is counted as input."""
    cache_write: float | None = None
    """None if unknown: then writing to the cache is counted as input."""

    @property
    def read(self) -> float:
        return self.input if self.cache_read is None else self.cache_read

    @property
    def write(self) -> float:
        return self.input if self.cache_write is None else self.cache_write


def configured_prices(values: Mapping[str, Any], read: str, write: str) -> InputPrices | None:
    """The prices in an agent's configuration of a model, with its names for those of the cache; None if it has none."""
    price = _price(values.get("input"))
    return None if price is None else InputPrices(price, _price(values.get(read)), _price(values.get(write)))


def _price(value: object) -> float | None:
    # JSON's true is a number to Python.
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MOST:
        return None
    return float(value)
