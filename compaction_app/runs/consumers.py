"""The socket of a run's page: what is new after the last event on the page, rendered as the page renders it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final

from channels.db import database_sync_to_async
from channels.generic.websocket import AsyncWebsocketConsumer
from django.db import DatabaseError
from django.template.loader import render_to_string

from compaction_app.models import Run
from sessions_app.web.broadcast import run_group

from .presenter import Followed, FollowedRun, facts_of, follow_run

ROW_CHECK_SECONDS: Final = 1.0
"""The rows are polled this often even without an announcement: a lost one only makes the page wait."""
MESSAGE_LIMIT: Final = 1_000
DRAWN_AT_ONCE: Final = 200
"""The most events in one message."""
PARTS: Final = (
    "heading",
    "facts",
    "note",
    "meter",
    "brief",
    "acts",
    "nothing",
    "steps",
    "traffic",
    "asked",
    "foot",
)
"""The parts beside the log, which are sent again when they change."""
OVER: Final = 1000
"""The close code when nothing more can come."""
FAILED: Final = 1011
"""The close code after a bug in Redline: a page that receives it connects again."""

_log = logging.getLogger("redline")


class RunConsumer(AsyncWebsocketConsumer):
    """Follows one run from the sequence number that its page sends."""

    async def connect(self) -> None:
        self.run_id = int(self.scope["url_route"]["kwargs"]["run"])
        self.after = -1
        self.shown: FollowedRun | None = None
        self.parts: dict[str, str] = {}
        self.news = asyncio.Event()
        self.follower: asyncio.Task[None] | None = None
        await self.channel_layer.group_add(run_group(self.run_id), self.channel_name)
        await self.accept()

    async def disconnect(self, code: int) -> None:
        del code
        await self.channel_layer.group_discard(run_group(self.run_id), self.channel_name)
        if self.follower is not None:
            self.follower.cancel()

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        """`{"after": N}`: the page shows the rows up to N. Anything else is ignored."""
        del bytes_data
        if text_data is None or len(text_data) > MESSAGE_LIMIT:
            return
        try:
            received = json.loads(text_data)
        except ValueError:
            return
        after = received.get("after") if isinstance(received, dict) else None
        if type(after) is int and after >= 0:
            self.after = after
            self.news.set()
            if self.follower is None:
                self.follower = asyncio.create_task(self._follow())

    async def on_event(self, message: dict[str, Any]) -> None:
        """Something is new; the rows say what."""
        del message
        self.news.set()

    async def _follow(self) -> None:
        """Poll the rows until nothing more can come."""
        code = OVER
        try:
            while await self._look():
                pass
        except Exception:  # noqa: BLE001  # it is logged
            _log.exception("The socket of run %d failed and is closed", self.run_id)
            code = FAILED
        await self.close(code)

    async def _look(self) -> bool:
        """Wait for news or a moment, and send what is new; returns whether more can come."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.news.wait(), ROW_CHECK_SECONDS)
        self.news.clear()
        shown, self.shown = self.shown, None
        try:
            found = await database_sync_to_async(follow_run)(self.run_id, self.after, shown, DRAWN_AT_ONCE)
            if found is None:
                return False
            drawn = await database_sync_to_async(_draw)(found, self.parts) if found.is_new else None
        except DatabaseError as fault:
            # Another writer blocked the database for too long: the next poll finds what is new.
            _log.warning("Run %d could not be read: %s", self.run_id, type(fault).__name__)
            return True
        self.after, self.shown = found.shown.seq, found.shown
        if drawn is not None:
            message, self.parts = drawn
            await self.send(message)
        if found.more:
            self.news.set()
        return bool(found.more or found.run.is_active)


def _draw(found: Followed, parts: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """What is new as the page's own fragments, each with its place; and the parts as the page then has them."""
    context: dict[str, Any] = {
        "run": found.run,
        "steps": found.steps,
        "facts": facts_of(found.run),
        "seq": found.shown.seq,
    }
    now = dict(parts)
    if found.steps is not None:
        now |= {part: render_to_string(f"runs/run.html#{part}", context) for part in _parts(found.run)}
    fresh = [(part, drawn) for part, drawn in now.items() if parts.get(part) != drawn]
    message = render_to_string("runs/run.html#news", {**context, "changes": found.changes, "fresh": fresh})
    return message, now


def _parts(run: Run) -> Sequence[str]:
    """While a run can be stopped, the button is not sent again: only the page's own has its token."""
    is_stoppable = run.is_active and not run.is_stopping
    return [part for part in PARTS if part != "acts" or not is_stoppable]
