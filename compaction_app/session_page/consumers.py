"""The socket of a session's page: says what was added to the branch since the page was drawn."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any, Final

from channels.db import database_sync_to_async
from django.db import DatabaseError
from django.utils import timezone

from sessions_app.models import Session
from sessions_app.sessionlog.errors import RedlineError
from sessions_app.web.broadcast import SESSIONS
from sessions_app.web.page_socket import PageConsumer

from .new_entries import ShownBranch, draw_news

IDLE_SECONDS: Final = 30
PAUSE_SECONDS: Final = 1.0
PAUSES: Final = 4
"""A session whose branch takes long to read is read less often: the pause is so many times as long."""

_log = logging.getLogger("redline")


class SessionConsumer(PageConsumer):
    """Follows the branch that one session continues."""

    idle_seconds = IDLE_SECONDS
    _shown: ShownBranch
    _sent = ""

    @property
    def _key(self) -> int:
        return int(self.scope["url_route"]["kwargs"]["session"])

    def group(self) -> str:
        return SESSIONS

    def take(self, message: str) -> bool:
        shown = ShownBranch.of(message)
        if shown is not None:
            self._shown = shown
        return shown is not None

    async def is_news(self, fact: dict[str, Any]) -> bool:
        return self._key in (fact.get("sessions") or ())

    async def update(self) -> bool:
        """Send what is new, then pause; there is no more of a session that is not shown any more."""
        began = time.monotonic()
        try:
            drawn = await self._drawn()
        except Session.DoesNotExist:
            return False
        if drawn is not None and drawn != self._sent:
            await self.send(text_data=drawn)
            self._sent = drawn
        await asyncio.sleep(max(PAUSE_SECONDS, PAUSES * (time.monotonic() - began)))
        return True

    async def _drawn(self) -> str | None:
        """What is new; None if the session or the database cannot be read now: the next event tries again."""
        try:
            drawn: str = await database_sync_to_async(draw_news)(self._key, self._shown, timezone.now())
        except (DatabaseError, RedlineError) as fault:
            _log.info("The news of session %d could not be read: %s", self._key, type(fault).__name__)
            return None
        return drawn
