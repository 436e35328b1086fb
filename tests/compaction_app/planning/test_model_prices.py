"""Promises of prices: the user's word comes first, and no price is ever invented."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from compaction_app.models import PlannerModel, Provider
from compaction_app.planning.model_prices import KnownPrices, prices_of_session
from redline.configuration import PriceSetting
from sessions_app.index.indexer import index_file
from sessions_app.model_prices import InputPrices
from sessions_app.models import Session
from tests.factories import assistant, chain, session_bytes, text, user
from tests.files import place
from tests.installation import override_configuration

LOCAL = "http://127.0.0.1:1/v1"


@pytest.fixture
def session(known_root):
    """A session whose replies are charged: the last one with a price of 0, another one from the cache."""
    free = dict.fromkeys(("input", "cacheRead", "cacheWrite"), 0)
    replies = [
        reply(9, {"input": 9, "cacheRead": 9, "cacheWrite": 9}, model="another"),
        reply(10, {"input": 0.00007, "cacheRead": 0.000007, "cacheWrite": 0}),
        reply(10, free),
    ]
    said = [one for number, one in enumerate(replies) for one in (user(f"Go {number}."), one)]
    return index_file(place(known_root / "work.jsonl", session_bytes(chain(*said))))


def reply(tokens: int, cost: dict[str, float], model: str = "m") -> dict[str, Any]:
    usage = dict.fromkeys(cost, tokens) | {"output": 1, "totalTokens": 3 * tokens + 1, "cost": cost}
    return assistant(text("Done."), provider="own", model=model, usage=usage)


RECORDED = KnownPrices(InputPrices(7, 0.7), "the session")


def known(session: Session, prices: Mapping[str, PriceSetting] | None = None) -> KnownPrices | None:
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


def test_a_session_that_cannot_be_read_gives_no_price(session):
    session.path.unlink()
    assert known(session) is None


def test_each_source_gives_way_to_the_one_before_it(session):
    models = {"providers": {"p": {"models": [{"id": "m", "cost": {"input": 1}}]}}}
    assert known(session) == RECORDED
    path = Path.home() / ".pi" / "agent" / "models.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(models), encoding="utf-8")
    assert known(session) == KnownPrices(InputPrices(1), "the agent's configuration")
    enter("own", 2)
    assert known(session) == KnownPrices(InputPrices(2, 2), "the Models page")
    configured = {"m": PriceSetting(input=3, cache_write=4)}
    assert known(session, configured) == KnownPrices(InputPrices(3, None, 4), "your configuration")


def test_the_models_page_gives_the_price_of_the_sessions_own_provider(session):
    enter("other", 5)
    assert known(session) == KnownPrices(InputPrices(5, 5), "the Models page")
    enter("third", 6)
    assert known(session) == RECORDED
    enter("own", 2)
    assert known(session) == KnownPrices(InputPrices(2, 2), "the Models page")


def test_a_model_without_a_price_gives_none(session):
    enter("own", None)
    assert known(session) == RECORDED
