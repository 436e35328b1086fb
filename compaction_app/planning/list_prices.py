"""The list prices of models, as published by their providers and included in the package `genai-prices`.

No request is made: the package's own updates are not used. If prices rise with the length of a request, those of a
short one apply.
"""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from .usage import Prices

if TYPE_CHECKING:
    from genai_prices.types import TieredPrices

CACHED: Final = 1_000


@lru_cache(CACHED)
def list_prices(model: str, *, provider: str = "", address: str = "") -> Prices | None:
    """The prices of a model, whose name may include a date or its maker; None if unknown.

    The provider is the one with this name or this base URL; without both, the one that makes models of such a name.
    Another provider's prices are not used: a gateway, or a server on this machine, has different ones.
    """
    # Most commands show no price, and the package takes half a second to import.
    from genai_prices.data_snapshot import get_snapshot

    try:
        _, found = get_snapshot().find_provider_model(model, None, provider or None, address or None)
    except LookupError:
        return None
    prices = vars(found.get_prices(datetime.now(UTC)))
    return Prices(
        _dollars(prices.get("input_mtok")),
        _dollars(prices.get("output_mtok")),
        _dollars(prices.get("cache_read_mtok")),
        _dollars(prices.get("cache_write_mtok")),
        is_listed=True,
    )


def _dollars(price: Decimal | TieredPrices | None) -> float | None:
    if price is None:
        return None
    return float(price if isinstance(price, Decimal) else price.base)
