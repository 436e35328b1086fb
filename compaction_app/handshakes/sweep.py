"""The server's task each second for waiting agents: it plans, expires, approves by rules, and verifies.

It also ends the review request of an agent that no longer polls: nobody should review for an agent that is gone.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from datetime import datetime
from typing import Final

from compaction_app.core.handshake_states import HandshakeState, NextStep
from compaction_app.models import Handshake
from sessions_app.sessionlog.errors import RedlineError

from .approval import approve_by_rule
from .lifecycle import advance, end_handshake
from .outcomes import settle_approved
from .review_requests import start_requested

SILENT_SECONDS: Final = 120
"""After this time without a poll an agent counts as gone: bridges give up after half a minute without an answer."""

_polls: dict[int, tuple[datetime, float]] = {}
"""The last poll of each waiting agent, and when it was first seen here, by the clock of this process, which stops while
the computer sleeps, and does not jump."""
_log = logging.getLogger("redline")


def look_after_handshakes(now: datetime, clock: float | None = None) -> None:
    """Bring all unfinished handshakes up to date. Raises DatabaseError; another failure concerns one handshake only.

    `clock` is the time of this process in seconds, by default `time.monotonic`.
    """
    found = list(Handshake.objects.unfinished().with_session())
    silent = _silent(found, time.monotonic() if clock is None else clock)
    for handshake in found:
        try:
            is_gone = handshake.pk in silent
            if is_gone:
                _end(handshake, now)
            start_requested(handshake, now)
            approve_by_rule(advance(handshake, now), now)
            settle_approved(handshake, now, is_gone=is_gone)
        except RedlineError as fault:
            _log.warning("%s could not be looked after (%s)", handshake, fault.code)


def _silent(found: Iterable[Handshake], clock: float) -> set[int]:
    """The handshakes whose agents have not polled for too long since this process saw their last poll. An agent that
    closes its session before Redline writes stops polling, and is not reported."""
    present = {one.pk: one.polled_at for one in found if one.is_open or one.note is not None}
    for pk in _polls.keys() - present.keys():
        del _polls[pk]
    for pk, polled_at in present.items():
        if pk not in _polls or _polls[pk][0] != polled_at:
            _polls[pk] = polled_at, clock
    return {pk for pk, (_, since) in _polls.items() if clock - since > SILENT_SECONDS}


def _end(handshake: Handshake, now: datetime) -> None:
    """End the open review request of an agent that is gone; if it comes back, it continues as without an answer."""
    step = NextStep.CONTINUE if handshake.is_manual else NextStep.COMPACT
    words = f"{handshake.agent_label} does not ask for the answer any more."
    end_handshake(handshake, HandshakeState.FAILED, step, words, now)
