"""The socket of a session's page: says what was added to the branch since the page was drawn."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from typing import Any, Final

from channels.db import database_sync_to_async
from channels.generic.websocket import AsyncWebsocketConsumer
from django.db import DatabaseError
from django.utils import timezone

from sessions_app.models import Session
from sessions_app.sessionlog.errors import RedlineError
from sessions_app.web.broadcast import SESSIONS

from .new_entries import ShownBranch, draw_news

MESSAGE_LIMIT: Final = 4_096
IDLE_SECONDS: Final = 30
"""Without an event: a session stops being live as time passes, and an event may be lost."""
PAUSE_SECONDS: Final = 1.0
PAUSES: Final = 4
"""A session whose branch takes long to read is read less often: the pause is so many times as long."""
GONE: Final = 1000
"""The close code when the session is not shown any more: the page does not connect again."""
FAILED: Final = 1011

_log = logging.getLogger("redline")


class SessionConsumer(AsyncWebsocketConsumer):
    """Follows the branch that one session continues."""

    async def connect(self) -> None:
        self._key = int(self.scope["url_route"]["kwargs"]["session"])
        self._shown: ShownBranch | None = None
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
        """What the page shows, as JSON. Anything else is ignored."""
        del bytes_data
        if text_data is None or len(text_data) > MESSAGE_LIMIT:
            return
        shown = ShownBranch.of(text_data)
        if shown is None:
            return
        self._shown = shown
        self._news.set()
        if self._drawing is None:
            self._drawing = asyncio.create_task(self._draw())

    async def on_event(self, message: dict[str, Any]) -> None:
        """Handle a fact: one that names this session."""
        if self._key in (message.get("fact", {}).get("sessions") or ()):
            self._news.set()

    async def _draw(self) -> None:
        sent = ""
        try:
            while True:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._news.wait(), IDLE_SECONDS)
                self._news.clear()
                began = time.monotonic()
                drawn = await self._drawn()
                if drawn is not None and drawn != sent:
                    await self.send(text_data=drawn)
                    sent = drawn
                await asyncio.sleep(max(PAUSE_SECONDS, PAUSES * (time.monotonic() - began)))
        except Session.DoesNotExist:
            await self.close(GONE)
        except Exception:  # noqa: BLE001  # it is logged
            _log.exception("The socket of session %d failed and is closed", self._key)
            await self.close(FAILED)

    async def _drawn(self) -> str | None:
        """What is new; None if the session or the database cannot be read now: the next event tries again."""
        assert self._shown is not None  # noqa: S101  # set before the task starts
        try:
            drawn: str = await database_sync_to_async(draw_news)(self._key, self._shown, timezone.now())
        except (DatabaseError, RedlineError) as fault:
            _log.info("The news of session %d could not be read: %s", self._key, type(fault).__name__)
            return None
        return drawn
