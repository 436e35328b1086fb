"""The price of a session's model, and its source: the configuration, the Models page, the agent's own files, or the
session, if it records what its replies cost."""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

from django.conf import settings

from sessions_app.agents.registry import model_prices
from sessions_app.model_prices import InputPrices
from sessions_app.models import Session
from sessions_app.sessionlog.entries import Role
from sessions_app.sessionlog.errors import RedlineError

from .model_registry import models

REPLIES: Final = 20
"""The latest replies of a session in which a price is looked for."""


class KnownPrices(NamedTuple):
    """What a model's input costs, and where that is configured."""

    prices: InputPrices
    source: str


def prices_of_session(session: Session, home: Path) -> KnownPrices | None:
    """The prices of the model that a session was last written with; None if nothing gives them."""
    configured = settings.REDLINE.prices.get(session.model)
    if configured is not None:
        prices = InputPrices(configured.input, configured.cache_read, configured.cache_write)
        return KnownPrices(prices, "your configuration")
    entered = _entered(session)
    if entered is not None:
        return KnownPrices(entered, "the Models page")
    of_agents = model_prices(home, session.continuing_agent).get(session.model)
    if of_agents is not None:
        return KnownPrices(of_agents, "the agent's configuration")
    recorded = _recorded(session)
    return KnownPrices(recorded, "the session") if recorded is not None else None


def _entered(session: Session) -> InputPrices | None:
    """The prices of the Models page: those of the session's provider, else of the only other one with that model."""
    named = [one for one in models() if one.name == session.model and one.prices.input is not None]
    own = [one for one in named if one.provider.name == session.provider]
    for model in own or (named if len(named) == 1 else []):
        prices = model.prices
        if prices.input is not None:
            return InputPrices(prices.input, prices.cache_read, prices.cache_write)
    return None


def _recorded(session: Session) -> InputPrices | None:
    """The prices in the session's last replies; also None if it cannot be read, which is reported elsewhere."""
    replies = session.entries.filter(role=Role.ASSISTANT).order_by("-number")
    places = list(replies.values_list("offset", "length")[:REPLIES])
    try:
        with session.agent.open(session.real_path()) as reader:
            lines = [reader.read_at(offset, length) for offset, length in places]
    except RedlineError:
        return None
    return session.agent.recorded_prices(lines, session.model)
