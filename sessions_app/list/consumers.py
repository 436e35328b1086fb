"""The socket of the list: it hears of changes and draws the list anew, and passes on what a page is told as JSON.

A page says which list it shows (`{"query": "?show=due&page=2"}`), and again when that changes. What it gets is the
same part of the page that the page itself was made from, for htmx to put in its place.
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
"""Characters of a message; an address is shorter."""
TOO_BIG: Final = 1009
FAILED: Final = 1011
"""The code after a defect of ours: a page that hears it connects again."""
DRAW_SECONDS: Final = 1
"""Between two drawings: an agent that writes all the time moves the list once a second."""
IDLE_SECONDS: Final = 30
"""Without any news: a session stops being live because time passes."""

_log = logging.getLogger("redline")


class Hello(msgspec.Struct):
    """What a page says: the query of its address, and how often it said one."""

    query: str
    asked: Annotated[int, msgspec.Meta(ge=0, lt=2**31)] = 0


class ListSubscription(NamedTuple):
    """The list that a page shows, and the number by which it knows what is drawn for it."""

    choice: ListFilters
    number: int


class SessionsConsumer(AsyncWebsocketConsumer):
    """Draws the list for the address that its page shows."""

    async def connect(self) -> None:
        self._asked: ListSubscription | None = None
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
        """Take up the list that the page shows; what is no such message is passed over."""
        if len(text_data or "") > MESSAGE_LIMIT or len(bytes_data or b"") > MESSAGE_LIMIT:
            await self.close(TOO_BIG)
            return
        asked = subscription_in(text_data or "")
        if asked is None:
            return
        self._asked = asked
        self._news.set()
        if self._drawing is None:
            self._drawing = asyncio.create_task(self._draw())

    async def on_event(self, message: dict[str, Any]) -> None:
        """Something changed. What it is the rows say, but for what is meant for the page as it is."""
        told = message.get("fact", {}).get("page")
        if told is not None:
            await self.send(text_data=json.dumps(told))
        self._news.set()

    async def _draw(self) -> None:
        """Draw the list at the first news, and not again for a while; a drawing that changes nothing stays here."""
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
        """The list; None where the database could not be read, and then it is drawn again soon."""
        assert self._asked is not None  # noqa: S101  # nothing is drawn before
        try:
            drawn: str = await database_sync_to_async(draw)(self._asked)
        except DatabaseError as fault:
            _log.warning("The list could not be drawn: %s", type(fault).__name__)
            self._news.set()
            return None
        return drawn


def subscription_in(message: str) -> ListSubscription | None:
    """What a page's message asks for; None where it is no such message."""
    try:
        hello = msgspec.json.decode(message, type=Hello)
        return ListSubscription(ListFilters.of(QueryDict(hello.query.removeprefix("?"))), hello.asked)
    except (ValueError, RecursionError):
        return None


def draw(asked: ListSubscription) -> str:
    """The list as its page draws it, and the line above it, each to be put in its place by its id."""
    context = {"listing": browse(asked.choice, timezone.now()), "asked": asked.number}
    return render_to_string("list/list.html#listing", context)
