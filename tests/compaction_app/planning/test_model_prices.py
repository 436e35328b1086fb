"""Promises of prices: the user's word comes first, and no price is ever invented."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from compaction_app.models import PlannerModel, Provider
from compaction_app.planning.model_prices import KnownPrices, prices_of_session
from redline.configuration import PriceSetting
from sessions_app.model_prices import InputPrices
from sessions_app.models import Session
from tests.installation import Installation, override_configuration

LOCAL = "http://127.0.0.1:1/v1"


def known(home: Path, prices: Mapping[str, PriceSetting] | None = None) -> KnownPrices | None:
    with override_configuration(prices=prices or {}):
        return prices_of_session(Session(provider="own", model="m"), home)


def enter(provider: str, price: float | None) -> None:
    Provider.objects.create(name=provider, dialect="openai", base_url=LOCAL)
    PlannerModel.objects.create(
        provider=provider, name="m", window=1_000, output_limit=100, price_in=price, price_cache_read=price
    )


@pytest.fixture
def home(redline: Installation) -> Path:
    return redline.home


def test_without_a_source_no_price_is_known(home: Path) -> None:
    assert known(home) is None


def test_each_source_gives_way_to_the_one_before_it(home: Path) -> None:
    models = {"providers": {"p": {"models": [{"id": "m", "cost": {"input": 1}}]}}}
    path = home / ".pi" / "agent" / "models.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(models), encoding="utf-8")
    assert known(home) == KnownPrices(InputPrices(1), "the agent's configuration")
    enter("own", 2)
    assert known(home) == KnownPrices(InputPrices(2, 2), "the Models page")
    configured = {"m": PriceSetting(input=3, cache_write=4)}
    assert known(home, configured) == KnownPrices(InputPrices(3, None, 4), "your configuration")


def test_the_models_page_gives_the_price_of_the_sessions_own_provider(home: Path) -> None:
    enter("other", 5)
    assert known(home) == KnownPrices(InputPrices(5, 5), "the Models page")
    enter("third", 6)
    assert known(home) is None
    enter("own", 2)
    assert known(home) == KnownPrices(InputPrices(2, 2), "the Models page")


def test_a_model_without_a_price_gives_none(home: Path) -> None:
    enter("own", None)
    assert known(home) is None
