"""The socket of the list: renders the list again when it changes, and passes on notices for open pages as JSON.

A page sends the query of the list that it shows (`{"query": "?show=due&page=2"}`), and again when it changes. It
receives the part of the page that contains the list, for htmx to insert.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from typing import Annotated, Any, Final, NamedTuple

import msgspec
from channels.db import database_sync_to_async
from channels.generic.websocket import AsyncWebsocketConsumer
from django.db import DatabaseError
from django.http import QueryDict
from django.template.loader import render_to_string
from django.utils import timezone

from sessions_app.web.broadcast import SESSIONS

from .service import ListFilters, browse

MESSAGE_LIMIT: Final = 4_096
"""The maximum length of a message in characters; a URL is shorter."""
TOO_BIG: Final = 1009
FAILED: Final = 1011
"""The close code after a bug in Redline: the page reconnects."""
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


class SessionsConsumer(AsyncWebsocketConsumer):
    """Renders the list for the URL of its page."""

    async def connect(self) -> None:
        self._subscription: ListSubscription | None = None
        self._news = asyncio.Event()
        self._drawing: asyncio.Task[None] | None = None
        await self.channel_layer.group_add(SESSIONS, self.channel_name)
        await self.accept()

    async def disconnect(self, code: int) -> None:
        del code
        await self.channel_layer.group_discard(SESSIONS, self.channel_name)
        if self._drawing is not None:
            self._drawing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._drawing

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        """Accept the list that the page shows; other messages are ignored."""
        if len(text_data or "") > MESSAGE_LIMIT or len(bytes_data or b"") > MESSAGE_LIMIT:
            await self.close(TOO_BIG)
            return
        subscription = subscription_in(text_data or "")
        if subscription is None:
            return
        self._subscription = subscription
        self._news.set()
        if self._drawing is None:
            self._drawing = asyncio.create_task(self._draw())

    async def on_event(self, message: dict[str, Any]) -> None:
        """Handle a fact: notices are passed on unchanged; any other fact makes the list be rendered again."""
        notice = message.get("fact", {}).get("page")
        if notice is not None:
            await self.send(text_data=json.dumps(notice))
        self._news.set()

    async def _draw(self) -> None:
        """Render the list after an event, then pause; an unchanged list is not sent."""
        sent = ""
        try:
            while True:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._news.wait(), IDLE_SECONDS)
                self._news.clear()
                drawn = await self._drawn()
                if drawn is not None and drawn != sent:
                    await self.send(text_data=drawn)
                    sent = drawn
                await asyncio.sleep(DRAW_SECONDS)
        except Exception:  # noqa: BLE001  # it is logged
            _log.exception("The socket of the list failed and is closed")
            await self.close(FAILED)

    async def _drawn(self) -> str | None:
        """The list; None if the database could not be read, and then it is rendered again soon."""
        assert self._subscription is not None  # noqa: S101  # set before the task starts
        try:
            drawn: str = await database_sync_to_async(draw)(self._subscription)
        except DatabaseError as fault:
            _log.warning("The list could not be drawn: %s", type(fault).__name__)
            self._news.set()
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
