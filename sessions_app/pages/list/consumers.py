"""The socket of the list: renders the list again when it changes, and passes on notices for open pages as JSON.

A page sends the query of the list that it shows (`{"query": "?show=due&page=2"}`), and again when it changes. It
receives the part of the page that contains the list, for htmx to insert.
"""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Annotated, Any, Final, NamedTuple

import msgspec
from channels.db import database_sync_to_async
from django.db import DatabaseError
from django.http import QueryDict
from django.template.loader import render_to_string
from django.utils import timezone

from sessions_app.server.broadcast import SESSIONS
from sessions_app.web.page_socket import PageConsumer

from .service import ListFilters, browse

DRAW_SECONDS: Final = 1
"""Between two renderings: while an agent writes continuously, the list is updated once a second."""
IDLE_SECONDS: Final = 30
"""Without any events: a session stops being live as time passes."""

_log = logging.getLogger("redline")


class Hello(msgspec.Struct):
    """A message from a page: the query of its URL, and a counter of such messages."""

    query: str
    asked: Annotated[int, msgspec.Meta(ge=0, lt=2**31)] = 0


class ListSubscription(NamedTuple):
    """The list that a page shows, and the number of the message that requested it."""

    choice: ListFilters
    number: int


class SessionsConsumer(PageConsumer):
    """Renders the list for the URL of its page."""

    idle_seconds = IDLE_SECONDS
    _subscription: ListSubscription
    _sent = ""

    def group(self) -> str:
        return SESSIONS

    def take(self, message: str) -> bool:
        subscription = subscription_in(message)
        if subscription is not None:
            self._subscription = subscription
        return subscription is not None

    async def is_news(self, fact: dict[str, Any]) -> bool:
        """Every fact causes a new rendering of the list; notices are also passed on unchanged."""
        notice = fact.get("page")
        if notice is not None:
            await self.send(text_data=json.dumps(notice))
        return True

    async def update(self) -> bool:
        """Render the list, then pause; an unchanged list is not sent."""
        drawn = await self._drawn()
        if drawn is not None and drawn != self._sent:
            await self.send(text_data=drawn)
            self._sent = drawn
        await asyncio.sleep(DRAW_SECONDS)
        return True

    async def _drawn(self) -> str | None:
        """The rendered list; None if the database could not be read, in which case it is rendered again soon."""
        try:
            drawn: str = await database_sync_to_async(draw)(self._subscription)
        except DatabaseError as fault:
            _log.warning("The list could not be drawn: %s", type(fault).__name__)
            self.news.set()
            return None
        return drawn


def subscription_in(message: str) -> ListSubscription | None:
    """The subscription in a page's message; None if it is not valid."""
    try:
        hello = msgspec.json.decode(message, type=Hello)
        return ListSubscription(ListFilters.of(QueryDict(hello.query.removeprefix("?"))), hello.asked)
    except (ValueError, RecursionError):
        return None


def draw(subscription: ListSubscription) -> str:
    """The list as its page renders it, and the line above it, with ids by which htmx inserts them."""
    context = {"listing": browse(subscription.choice, timezone.now()), "asked": subscription.number}
    return render_to_string("list/list.html#listing", context)
