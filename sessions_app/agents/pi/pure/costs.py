"""PURE: the prices at which pi and Atomic charged the replies of a session: each records its tokens and their cost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from sessions_app.sessionlog.model_prices import MILLION, InputPrices

from .parser import parse_line

NAMES: Final = ("input", "cacheRead", "cacheWrite")
DIGITS: Final = 6
"""Decimals of a price: what was charged is a product in floating point."""


def recorded_prices(lines: Iterable[bytes], model: str) -> InputPrices | None:
    """The prices of a model in replies, the latest first; None if the price of input is not in them.

    Replies of models without a price record a cost of 0, which is not a price.
    """
    found: dict[str, float] = {}
    for line in lines:
        for name, price in _prices(line, model):
            found.setdefault(name, price)
        if len(found) == len(NAMES):
            break
    if "input" not in found:
        return None
    return InputPrices(found["input"], found.get("cacheRead"), found.get("cacheWrite"))


def _prices(line: bytes, model: str) -> Iterator[tuple[str, float]]:
    try:
        message = _mapping(_mapping(parse_line(line)).get("message"))
    except ValueError:
        return
    usage = _mapping(message.get("usage"))
    cost = _mapping(usage.get("cost"))
    if message.get("model") != model:
        return
    for name in NAMES:
        tokens, charged = _number(usage.get(name)), _number(cost.get(name))
        if 0 < charged <= tokens:
            yield name, round(charged / tokens * MILLION, DIGITS)


def _number(value: object) -> int | float:
    # JSON's true is a number to Python.
    return value if isinstance(value, int | float) and not isinstance(value, bool) else 0


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
