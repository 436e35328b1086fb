"""PURE: the prices at which pi and Atomic charged the replies of a session: each records its tokens and their cost."""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator
from typing import Final

from sessions_app.agents.pure import fields
from sessions_app.sessionlog.model_prices import MILLION, InputPrices

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
    message = fields.mapping(fields.object_in(line.removeprefix(BOM_UTF8)) or {}, "message")
    usage = fields.mapping(message, "usage")
    cost = fields.mapping(usage, "cost")
    if message.get("model") != model:
        return
    for name in NAMES:
        tokens, charged = fields.number(usage, name) or 0, fields.number(cost, name) or 0
        if 0 < charged <= tokens:
            yield name, round(charged / tokens * MILLION, DIGITS)
