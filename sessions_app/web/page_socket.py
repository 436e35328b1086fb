"""The socket of an open page: the page reports what it shows, and receives updated parts of itself."""

import asyncio
import contextlib
import logging
from abc import ABC, abstractmethod
from typing import Any, Final

from channels.generic.websocket import AsyncWebsocketConsumer

MESSAGE_LIMIT: Final = 4_096
"""The maximum length of a page's message in characters, or bytes."""
OVER: Final = 1000
"""The close code if no more updates can follow: the page does not connect again."""
TOO_BIG: Final = 1009
FAILED: Final = 1011
"""The close code after a bug in Redline: the page connects again."""

_log = logging.getLogger("redline")


class PageConsumer(AsyncWebsocketConsumer, ABC):
    """Updates one open page. A subclass decides which events matter, and which parts it sends."""

    idle_seconds: float
    """Seconds to wait for an event before updating anyway: one may be lost, and some things change as time passes."""

    @abstractmethod
    def group(self) -> str:
        """The group of events that the page is interested in."""

    @abstractmethod
    def take(self, message: str) -> bool:
        """Store what a page reports that it shows; False if its message is anything else."""

    async def is_news(self, fact: dict[str, Any]) -> bool:
        """Whether a fact changes what the page shows."""
        del fact
        return True

    @abstractmethod
    async def update(self) -> bool:
        """Send updates; False if no more can follow. Called after a message of the page, after each event that is news,
        and after `idle_seconds` without one.
        """

    async def connect(self) -> None:
        self.news = asyncio.Event()
        self._following: asyncio.Task[None] | None = None
        await self.channel_layer.group_add(self.group(), self.channel_name)
        await self.accept()

    async def disconnect(self, code: int) -> None:
        del code
        await self.channel_layer.group_discard(self.group(), self.channel_name)
        if self._following is not None:
            self._following.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._following

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        """Handle a message of the page; an unknown one is ignored."""
        if len(text_data or "") > MESSAGE_LIMIT or len(bytes_data or b"") > MESSAGE_LIMIT:
            await self.close(TOO_BIG)
            return
        if not self.take(text_data or ""):
            return
        self.news.set()
        if self._following is None:
            self._following = asyncio.create_task(self._follow())

    async def on_event(self, message: dict[str, Any]) -> None:
        if await self.is_news(message.get("fact", {})):
            self.news.set()

    async def _follow(self) -> None:
        code = OVER
        try:
            while True:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self.news.wait(), self.idle_seconds)
                self.news.clear()
                if not await self.update():
                    break
        except Exception:  # noqa: BLE001  # it is logged
            _log.exception("The socket of %s failed and is closed", self.group())
            code = FAILED
        await self.close(code)
