"""The price of a session's model, and its source: the configuration, the Models page, the agent's own files, the
session, if it records the cost of its replies, or the list prices that come with Redline."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from django.conf import settings

from sessions_app.agents.registry import model_prices
from sessions_app.models import Session
from sessions_app.sessionlog.entries import Role
from sessions_app.sessionlog.errors import RedlineError
from sessions_app.sessionlog.model_names import of_model, undated
from sessions_app.sessionlog.model_prices import InputPrices
from sessions_app.sessionlog.sourced_value import SourcedValue

from .list_prices import list_prices
from .model_registry import models
from .usage import Prices

REPLIES: Final = 20
"""The number of a session's latest replies that are searched for a price."""


def prices_of_session(session: Session, home: Path) -> SourcedValue[InputPrices] | None:
    """The prices of the model that last wrote to a session; None if no source has them.

    A model whose name ends with a date also has the prices that are configured for its name without the date.
    """
    configured = of_model(settings.REDLINE.prices, session.model)
    if configured is not None:
        prices = InputPrices(configured.input, configured.cache_read, configured.cache_write)
        return SourcedValue(prices, "your configuration")
    entered = _entered(session)
    if entered is not None:
        return SourcedValue(entered, "the Models page")
    of_agents = of_model(model_prices(home, session.continuing_agent), session.model)
    if of_agents is not None:
        return SourcedValue(of_agents, "the agent's configuration")
    recorded = _recorded(session)
    if recorded is not None:
        return SourcedValue(recorded, "the session")
    listed = list_prices(session.model, provider=session.provider) if session.model else None
    of_list = _of_input(listed)
    return SourcedValue(of_list, "list prices") if of_list is not None else None


def _entered(session: Session) -> InputPrices | None:
    """The prices from the Models page: those of the session's provider, otherwise those of the only other one with that
    model."""
    priced = [one for one in models() if one.entered.input is not None]
    for name in (session.model, undated(session.model)):
        named = [one for one in priced if one.name == name]
        own = [one for one in named if one.provider.name == session.provider]
        for model in own or (named if len(named) == 1 else []):
            return _of_input(model.entered)
    return None


def _of_input(prices: Prices | None) -> InputPrices | None:
    if prices is None or prices.input is None:
        return None
    return InputPrices(prices.input, prices.cache_read, prices.cache_write)


def _recorded(session: Session) -> InputPrices | None:
    """The prices in the session's last replies; also None if the session cannot be read, which is reported
    elsewhere."""
    replies = session.entries.filter(role=Role.ASSISTANT).order_by("-number")
    places = list(replies.values_list("offset", "length")[:REPLIES])
    try:
        with session.agent.store.open(session.real_path()) as reader:
            lines = [reader.read_at(offset, length) for offset, length in places]
    except RedlineError:
        return None
    return session.agent.format.recorded_prices(lines, session.model)
