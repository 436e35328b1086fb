"""Prices are taken from what an agent charged, and hostile lines give none."""

import json
from typing import Any

import pytest

from sessions_app.agents.pi.costs import recorded_prices


def line(usage: object, model: str = "m") -> bytes:
    return json.dumps({"type": "message", "message": {"role": "assistant", "model": model, "usage": usage}}).encode()


def charged(tokens: Any, cost: Any) -> dict[str, Any]:
    return {"input": tokens, "cacheRead": tokens, "cost": {"input": cost, "cacheRead": cost}}


def test_each_price_is_the_latest_that_was_charged():
    lines = [
        line({"input": 5, "cacheRead": 0, "cacheWrite": 2_887, "cost": {"input": 1.5e-05, "cacheWrite": 0.01082625}}),
        line({"input": 5, "cacheRead": 16_728, "cost": {"input": 1, "cacheRead": 0.0050184}}),
    ]
    assert recorded_prices(lines, "m") == (3, 0.3, 3.75)


def test_the_replies_of_other_models_do_not_count():
    assert recorded_prices([line(charged(10, 1), "other")], "m") is None


@pytest.mark.parametrize(
    ("tokens", "cost"),
    [(10, 0), (10, -1), (10, True), (10, "1"), (True, 1), (0, 1), (10, 11), (10, 10**400), (None, 1), (10, None)],
)
def test_what_is_no_charge_gives_no_price(tokens, cost):
    assert recorded_prices([line(charged(tokens, cost))], "m") is None


@pytest.mark.parametrize("hostile", [b"", b"{", b"[]", b"7", b'{"message": 7}', line(7), line({"cost": 7})])
def test_any_line_is_read(hostile):
    assert recorded_prices([hostile], "m") is None
