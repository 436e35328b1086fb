"""The list prices of models, as their providers publish them: those that come with the package `genai-prices`.

Nothing is requested: the package's own updates are not used. Prices that rise with the length of a request count as for
a short one.
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
    """The prices of a model, which may be named with a date or its maker; None if they are not known.

    It is a model of the provider with this name or this base URL; without both, of the one that makes models of such a
    name. Another provider's prices do not count: a gateway, or a server on this machine, has its own.
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
