"""The socket of a run's page: the events after the last one on the page, rendered as the page renders them."""

import json
import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final

from channels.db import database_sync_to_async
from django.db import DatabaseError
from django.template.loader import render_to_string

from compaction_app.models import Run
from sessions_app.server.broadcast import run_group
from sessions_app.web.page_socket import PageConsumer

from .presenter import Followed, FollowedRun, follow_run, planning_steps, proposal_count, shown_parameters

ROW_CHECK_SECONDS: Final = 1.0
"""The interval at which the rows are polled, so that a lost announcement only delays the page."""
DRAWN_AT_ONCE: Final = 200
"""The maximum number of events in one message."""
PARTS: Final = (
    "heading",
    "facts",
    "note",
    "meter",
    "brief",
    "acts",
    "nothing",
    "steps",
    "total",
    "traffic",
    "asked",
    "foot",
)
"""The parts of the page besides the log, which are sent again when they change."""
PANEL: Final = b"panel"
"""The query of the socket of a session's panel, which shows only how far the plan is."""

_log = logging.getLogger("redline")


class RunConsumer(PageConsumer):
    """Follows one run from the sequence number that its page sends, until nothing more can come."""

    idle_seconds = ROW_CHECK_SECONDS
    _after = -1
    _shown: FollowedRun | None = None
    _parts: Mapping[str, str] = {}

    @property
    def _key(self) -> int:
        return int(self.scope["url_route"]["kwargs"]["run"])

    def group(self) -> str:
        return run_group(self._key)

    def take(self, message: str) -> bool:
        """Accept the message `{"after": N}`: the page shows the rows up to N."""
        try:
            received = json.loads(message)
        except (ValueError, RecursionError):
            return False
        after = received.get("after") if isinstance(received, dict) else None
        if type(after) is not int or after < 0:
            return False
        self._after = after
        return True

    async def update(self) -> bool:
        """Send the new rows."""
        shown, self._shown = self._shown, None
        try:
            found = await database_sync_to_async(follow_run)(self._key, self._after, shown, DRAWN_AT_ONCE)
            if found is None:
                return False
            draw = _draw_panel if self.scope["query_string"] == PANEL else _draw
            drawn = await database_sync_to_async(draw)(found, self._parts) if found.is_new else None
        except DatabaseError as fault:
            # Another writer blocked the database for too long: the next poll finds the new rows.
            _log.warning("Run %d could not be read: %s", self._key, type(fault).__name__)
            return True
        self._after, self._shown = found.shown.seq, found.shown
        if drawn is not None:
            message, self._parts = drawn
            await self.send(message)
        if found.more:
            self.news.set()
        return bool(found.more or found.run.is_active)


def _draw(found: Followed, parts: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """The new events as the page's own fragments, each with its place, and the resulting parts of the page."""
    context: dict[str, Any] = {
        "run": found.run,
        "steps": found.steps,
        "parameters": shown_parameters(found.run),
        "seq": found.shown.seq,
        "proposal_count": proposal_count(found.run),
    }
    now = dict(parts)
    if found.steps is not None:
        now |= {part: render_to_string(f"runs/run.html#{part}", context) for part in _parts(found.run)}
    fresh = [(part, drawn) for part, drawn in now.items() if parts.get(part) != drawn]
    message = render_to_string("runs/run.html#news", {**context, "changes": found.changes, "fresh": fresh})
    return message, now


def _draw_panel(found: Followed, parts: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """The progress in the panel of a session, whole."""
    context = {"run": found.run, "steps": planning_steps(found.run), "seq": found.shown.seq, "apart": True}
    return render_to_string("runs/planning.html#progress", context), dict(parts)


def _parts(run: Run) -> Sequence[str]:
    """While a run can be stopped, the button is not sent again: only the one of the page has its token."""
    is_stoppable = run.is_active and not run.is_stopping
    return [part for part in PARTS if part != "acts" or not is_stoppable]
