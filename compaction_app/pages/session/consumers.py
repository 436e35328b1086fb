"""The socket of a session's page: sends the entries added to the branch since the page was rendered."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import msgspec
from channels.db import database_sync_to_async
from django.db import DatabaseError
from django.template.loader import render_to_string
from django.utils import timezone

from compaction_app.entries.branches import VIEWS, BranchState, branch_state
from sessions_app.models import Session
from sessions_app.server.broadcast import SESSIONS
from sessions_app.sessionlog.entries import Entry
from sessions_app.sessionlog.errors import RedlineError
from sessions_app.web.page_socket import PageConsumer

from .presenter import live_signs, page_title, surroundings_of, version_of, view_address

IDLE_SECONDS: Final = 30
PAUSE_SECONDS: Final = 1.0
PAUSES: Final = 4
"""The pause after each reading, as a multiple of its duration: branches that take long to read are read less often."""

_log = logging.getLogger("redline")


class SessionConsumer(PageConsumer):
    """Follows the branch from which one session continues."""

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
        """Send the news, then pause; returns False if the session is no longer shown."""
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
        """The news; None if the session or the database cannot be read now: the next event tries again."""
        try:
            drawn: str = await database_sync_to_async(draw_news)(self._key, self._shown, timezone.now())
        except (DatabaseError, RedlineError) as fault:
            _log.info("The news of session %d could not be read: %s", self._key, type(fault).__name__)
            return None
        return drawn


COMPACTED: Final = "What the model sees of this session has changed"
ANOTHER_BRANCH: Final = "This session continues on another branch"


class ShownBranch(msgspec.Struct, frozen=True, rename={"start": "from", "end": "to"}):
    """The part of the continued branch that a page shows: the entries of a view between two positions.

    The view had `count` entries when the page was rendered, and `last` was the last of them; both grow with the page.
    """

    view: str
    last: str
    count: int
    start: int
    end: int
    drawn: str
    """The version of the surroundings of the entries."""

    @classmethod
    def of(cls, message: str) -> ShownBranch | None:
        """The part that a page shows, from its JSON; None for any other JSON."""
        try:
            said = msgspec.json.decode(message, type=cls)
        except (ValueError, RecursionError):
            return None
        is_valid = said.view in VIEWS and 0 <= said.start <= said.end <= said.count
        return said if is_valid and (said.count > 0) == bool(said.last) else None


def news_of(state: BranchState, shown: ShownBranch) -> tuple[Sequence[Entry], str]:
    """The entries after the last one of a page, and why they do not continue it: a sentence without a full stop; empty
    if they do.
    """
    listed = state.listed[shown.view]
    if not shown.count or (shown.count <= len(listed) and listed[shown.count - 1].id == shown.last):
        return listed[shown.count :], ""
    is_on_branch = any(entry.id == shown.last for entry in state.branch)
    return (), COMPACTED if is_on_branch else ANOTHER_BRANCH


def draw_news(key: int, shown: ShownBranch, now: datetime) -> str:
    """The news for a page, as its changed parts. Raises the errors of reading a session."""
    session = Session.objects.shown().select_related("root").get(pk=key)
    state = branch_state(session)
    entries, change = news_of(state, shown)
    activity = live_signs(session, now)
    start, end = (0, 0) if change else (shown.start, shown.end)
    context: dict[str, Any] = {
        "session": session,
        "size": state.size,
        "activity": activity,
        "title": page_title(session, activity),
        "news": {"entries": entries, "count": len(state.listed[shown.view]), "change": change},
        "tokens": sum(state.kept[entry.id].tokens for entry in entries if entry.id in state.kept),
        "page": view_address(session, shown.view),
        "apart": True,
    }
    if change != ANOTHER_BRANCH and shown.drawn != version_of(session, start, end):
        context["sidebar"] = surroundings_of(session, state, shown.view, "", start, end)
    return render_to_string("session_page/news.html", context)
