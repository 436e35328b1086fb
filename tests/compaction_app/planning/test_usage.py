"""Sums of what a run sent, received and cost: the provider's figures if it has some, else marked estimates."""

import pytest

from compaction_app.planning.usage import Prices, UsageTotals
from compaction_app.providers.types import ReportedUsage

PRICES = Prices(input=3.0, output=15.0, cache_read=0.3, cache_write=3.75)


def test_tokens_and_cost_add_up_over_requests():
    usage = UsageTotals("api.example.com")
    usage.add_request(4_000)
    usage.add_received(380)
    usage.add_answer(ReportedUsage(input=1_000, output=100, cache_read=2_000, cache_write=400), 4_000, 380, PRICES)
    usage.add_request(5_000)
    usage.add_received(90)
    usage.add_answer(ReportedUsage(input=10, output=20), 5_000, 90, PRICES)
    assert usage.cost == pytest.approx((1_010 * 3 + 120 * 15 + 2_000 * 0.3 + 400 * 3.75) / 1_000_000)
    assert usage.to_json() == {
        "host": "api.example.com",
        "requests": 2,
        "sent": 9_000,
        "received": 470,
        "input": 1_010,
        "output": 120,
        "cacheRead": 2_000,
        "cacheWrite": 400,
        "cost": usage.cost,
        "counted": 2,
        "estimated": False,
    }


def test_a_provider_that_reports_nothing_is_estimated_and_marked():
    usage = UsageTotals("localhost:8080")
    added = usage.add_answer(None, 4_001, 10, PRICES)
    assert (added["input"], added["output"], added["estimated"]) == (1_001, 3, True)
    assert usage.add_answer(ReportedUsage(input=1, output=1), 4, 4, PRICES)["estimated"] is False
    assert usage.estimated is True


def test_the_providers_own_price_wins():
    assert PRICES.cost(ReportedUsage(input=1_000_000, cost=0.5)) == 0.5


def test_without_a_price_for_cached_input_it_counts_as_input():
    assert Prices(input=2.0, output=0.0).cost(ReportedUsage(cache_read=500_000, cache_write=500_000)) == 2.0


@pytest.mark.parametrize("prices", [Prices(), Prices(input=1.0), Prices(output=1.0)])
def test_one_request_of_unknown_cost_makes_the_sum_unknown(prices):
    usage = UsageTotals("h")
    usage.add_answer(ReportedUsage(input=1), 4, 4, PRICES)
    assert usage.cost is not None
    usage.add_answer(ReportedUsage(input=1), 4, 4, prices)
    usage.add_answer(ReportedUsage(input=1), 4, 4, PRICES)
    assert usage.cost is None


def test_a_resumed_run_adds_to_its_totals():
    usage = UsageTotals("h")
    usage.add_request(100)
    usage.add_answer(ReportedUsage(input=5, output=7), 100, 20, PRICES)
    again = UsageTotals.of(usage.to_json(), "h")
    again.add_request(50)
    assert (again.requests, again.sent, again.output) == (2, 150, 7)
    assert UsageTotals.of(None, "other").to_json()["requests"] == 0


def test_before_the_first_response_the_cost_is_unknown():
    usage = UsageTotals("h")
    usage.add_request(100)
    assert usage.cost is None
    usage.add_answer(ReportedUsage(input=1_000_000), 100, 0, PRICES)
    assert usage.cost == 3.0
