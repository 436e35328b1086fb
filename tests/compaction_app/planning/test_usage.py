"""Sums of what a run sent, received and cost, and the sources of prices: no figure is ever invented."""

import json
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from compaction_app.models import PlannerModel, Provider
from compaction_app.planning.model_registry import model_named, prices_of_session
from compaction_app.providers.types import Prices, ReportedUsage, UsageTotals
from redline.configuration import PriceSetting
from sessions_app.index.indexer import index_file
from sessions_app.models import Session
from sessions_app.sessionlog.model_facts import InputPrices
from sessions_app.sessionlog.sourced_value import SourcedValue
from tests.factories import assistant, chain, session_bytes, text, user
from tests.files import place
from tests.installation import override_configuration

PRICES = Prices(input=3.0, output=15.0, cache_read=0.3, cache_write=3.75)


def test_tokens_and_cost_add_up_over_requests_by_the_providers_own_price_if_it_has_one():
    usage = UsageTotals("api.example.com")
    usage.add_request(4_000)
    usage.add_received(380)
    usage.add_answer(ReportedUsage(input=1_000, output=100, cache_read=2_000, cache_write=400), 4_000, 380, PRICES)
    usage.add_request(5_000)
    usage.add_received(90)
    usage.add_answer(ReportedUsage(input=10, output=20), 5_000, 90, PRICES)
    assert usage.cost == pytest.approx((1_010 * 3 + 120 * 15 + 2_000 * 0.3 + 400 * 3.75) / 1_000_000)
    traffic = {"host": "api.example.com", "requests": 2, "sent": 9_000, "received": 470}
    tokens = {"input": 1_010, "output": 120, "cacheRead": 2_000, "cacheWrite": 400}
    assert usage.to_json() == {**traffic, **tokens, "cost": usage.cost, "counted": 2, "estimated": False}
    assert PRICES.cost(ReportedUsage(input=1_000_000, cost=0.5)) == 0.5
    assert Prices(input=2.0, output=0.0).cost(ReportedUsage(cache_read=500_000, cache_write=500_000)) == 2.0


def test_a_provider_that_reports_nothing_is_estimated_and_marked():
    usage = UsageTotals("localhost:8080")
    added = usage.add_answer(None, 4_001, 10, PRICES)
    assert (added["input"], added["output"], added["estimated"]) == (1_001, 3, True)
    assert usage.add_answer(ReportedUsage(input=1, output=1), 4, 4, PRICES)["estimated"] is False
    assert usage.estimated is True


@pytest.mark.parametrize("prices", [Prices(), Prices(input=1.0), Prices(output=1.0)])
def test_one_request_of_unknown_cost_makes_the_sum_unknown(prices):
    usage = UsageTotals("h")
    usage.add_answer(ReportedUsage(input=1), 4, 4, PRICES)
    assert usage.cost is not None
    usage.add_answer(ReportedUsage(input=1), 4, 4, prices)
    usage.add_answer(ReportedUsage(input=1), 4, 4, PRICES)
    assert usage.cost is None


def test_before_the_first_response_the_cost_is_unknown_and_a_resumed_run_adds_to_its_totals():
    usage = UsageTotals("h")
    usage.add_request(100)
    usage.add_answer(ReportedUsage(input=5, output=7), 100, 20, PRICES)
    again = UsageTotals.of(usage.to_json(), "h")
    again.add_request(50)
    assert (again.requests, again.sent, again.output) == (2, 150, 7)
    assert UsageTotals.of(None, "other").to_json()["requests"] == 0
    usage = UsageTotals("h")
    usage.add_request(100)
    assert usage.cost is None
    usage.add_answer(ReportedUsage(input=1_000_000), 100, 0, PRICES)
    assert usage.cost == 3.0


LOCAL = "http://127.0.0.1:1/v1"


@pytest.fixture
def session(known_root):
    """A session whose replies are charged: the last one with a price of 0, another one from the cache."""
    free = dict.fromkeys(("input", "cacheRead", "cacheWrite"), 0)
    charged = reply(10, {"input": 0.00007, "cacheRead": 0.000007, "cacheWrite": 0})
    replies = [reply(9, dict.fromkeys(free, 9), model="another"), charged, reply(10, free)]
    said = [one for number, one in enumerate(replies) for one in (user(f"Go {number}."), one)]
    return index_file(place(known_root / "work.jsonl", session_bytes(chain(*said))))


def reply(tokens: int, cost: dict[str, float], model: str = "m") -> dict[str, Any]:
    usage = dict.fromkeys(cost, tokens) | {"output": 1, "totalTokens": 3 * tokens + 1, "cost": cost}
    return assistant(text("Done."), provider="own", model=model, usage=usage)


RECORDED = SourcedValue(InputPrices(7, 0.7), "the session")


def known(session: Session, prices: Mapping[str, PriceSetting] | None = None) -> SourcedValue[InputPrices] | None:
    with override_configuration(prices=prices or {}):
        return prices_of_session(session, Path.home())


def enter(provider: str, price: float | None) -> None:
    Provider.objects.create(name=provider, dialect="openai", base_url=LOCAL)
    PlannerModel.objects.create(
        provider=provider, name="m", window=1_000, output_limit=100, price_in=price, price_cache_read=price
    )


def test_without_a_source_no_price_is_known(known_root):
    said = chain(user("Go."), reply(10, {}), user("On."))
    assert known(index_file(place(known_root / "work.jsonl", session_bytes(said)))) is None


def test_each_source_gives_way_to_the_one_before_it(session):
    models = {"providers": {"p": {"models": [{"id": "m", "cost": {"input": 1}}]}}}
    assert known(session) == RECORDED
    place(Path.home() / ".pi" / "agent" / "models.json", json.dumps(models).encode())
    assert known(session) == SourcedValue(InputPrices(1), "the agent's configuration")
    enter("own", 2)
    assert known(session) == SourcedValue(InputPrices(2, 2), "the Models page")
    configured = {"m": PriceSetting(input=3, cache_write=4)}
    assert known(session, configured) == SourcedValue(InputPrices(3, None, 4), "your configuration")


def test_the_models_page_gives_the_price_of_the_sessions_own_provider(session):
    enter("other", 5)
    assert known(session) == SourcedValue(InputPrices(5, 5), "the Models page")
    enter("third", 6)
    assert known(session) == RECORDED
    enter("own", 2)
    assert known(session) == SourcedValue(InputPrices(2, 2), "the Models page")


DATED = "claude-sonnet-4-5-20250929"


def test_without_settings_list_prices_count_and_a_dated_model_has_those_of_its_undated_name(known_root, monkeypatch):
    monkeypatch.setattr(socket.socket, "connect", lambda *_: pytest.fail("the network was used"))
    said = chain(user("Go."), assistant(text("Done."), provider="anthropic", model=DATED))
    session = index_file(place(known_root / "work.jsonl", session_bytes(said)))
    assert known(session) == SourcedValue(InputPrices(3, 0.3, 3.75), "list prices")
    configured = {"claude-sonnet-4-5": PriceSetting(input=4), "claude-sonnet-4": PriceSetting(input=9)}
    assert known(session, configured) == SourcedValue(InputPrices(4), "your configuration")
    configured[DATED] = PriceSetting(input=5)
    assert known(session, configured) == SourcedValue(InputPrices(5), "your configuration")
    # Another provider has other prices: one on this machine has none.
    session.provider = "own"
    assert known(session) is None


def test_a_model_that_plans_has_the_list_prices_of_its_address_unless_the_user_entered_some(redline):
    def prices_at(address: str, **entered: float) -> Prices:
        Provider.objects.update_or_create(name="p", defaults={"dialect": "anthropic", "base_url": address})
        PlannerModel.objects.all().delete()
        PlannerModel.objects.create(provider="p", name=DATED, window=200_000, output_limit=8_000, **entered)
        return model_named(f"p/{DATED}").prices

    listed = prices_at("https://api.anthropic.com")
    assert listed == Prices(3, 15, 0.3, 3.75, is_listed=True)
    assert listed.sentence == "$3.00 for a million tokens in, $15.00 for a million out, by its list prices."
    assert prices_at("https://api.anthropic.com", price_in=0.0) == Prices(0)
    for elsewhere in (LOCAL, "https://gateway.example"):
        assert prices_at(elsewhere) == Prices()


def test_neither_a_model_without_a_price_nor_a_session_that_cannot_be_read_gives_one(session):
    enter("own", None)
    assert known(session) == RECORDED
    session.path.unlink()
    assert known(session) is None
