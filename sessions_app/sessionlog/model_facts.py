"""PURE: the names by which models are configured, their context windows, and the prices of their input."""

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, TypeVar

from .sourced_value import SourcedValue

T = TypeVar("T")

_DATE: Final = re.compile(r"[-@]20\d\d(?:\d{4}|-\d\d-\d\d)$")
"""The date with which providers end the name of a version: `-20250929`, `-2024-08-06`, `@20250929`."""


def undated(model: str) -> str:
    """The name of a model without a date at its end: `claude-sonnet-4-5` of `claude-sonnet-4-5-20250929`."""
    return _DATE.sub("", model)


def of_model(values: Mapping[str, T], model: str) -> T | None:
    """The value for a model in a mapping by model name: under its own name, else under the undated one."""
    return values[model] if model in values else values.get(undated(model))


# By the longest matching prefix of a model id. As published by the providers; other models are unknown.
KNOWN_WINDOWS: Final[Mapping[str, int]] = {
    "claude-": 200_000,
    "codex-mini": 200_000,
    "deepseek-chat": 128_000,
    "deepseek-reasoner": 128_000,
    "gemini-1.5-pro": 2_097_152,
    "gemini-2.": 1_048_576,
    "gemini-3": 1_048_576,
    "gpt-4.1": 1_047_576,
    "gpt-4o": 128_000,
    "gpt-5": 400_000,
    "kimi-k2": 262_144,
    "o1": 200_000,
    "o3": 200_000,
    "o4-mini": 200_000,
}


def window_of(
    model: str, chosen: Mapping[str, SourcedValue[int]], agents: Mapping[str, int], recorded: int | None = None
) -> SourcedValue[int] | None:
    """The window of a model: the user's choice, that of the agent's configuration, what the session records, or this
    table; None if unknown."""
    chosen_one = of_model(chosen, model)
    if chosen_one is not None:
        return chosen_one
    configured = of_model(agents, model)
    if configured is not None:
        return SourcedValue(configured, "the agent's configuration")
    if recorded is not None:
        return SourcedValue(recorded, "the session")
    # Aggregators name a model after its maker: "anthropic/claude-…".
    name = model.rpartition("/")[2]
    known = max((prefix for prefix in KNOWN_WINDOWS if name.startswith(prefix)), key=len, default=None)
    return SourcedValue(KNOWN_WINDOWS[known], "Redline's table") if known is not None else None


MILLION: Final = 1_000_000
MOST: Final = 1_000_000
"""The maximum valid price, in US dollars for a million tokens."""


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
    """The prices of a model in an agent's configuration, which has its own names for those of the cache; None if it has
    none.
    """
    price = _price(values.get("input"))
    return None if price is None else InputPrices(price, _price(values.get(read)), _price(values.get(write)))


def _price(value: object) -> float | None:
    # JSON's true is a number to Python.
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MOST:
        return None
    return float(value)
