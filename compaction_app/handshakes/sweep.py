"""What the server does each second for the agents that wait: it plans, expires, approves by rules, and verifies."""

from __future__ import annotations

import logging
from datetime import datetime

from compaction_app.models import Handshake
from sessions_app.sessionlog.errors import RedlineError

from .automatic_approval import approve_by_rule
from .lifecycle import advance
from .outcomes import settle_approved

_log = logging.getLogger("redline")


def look_after_handshakes(now: datetime) -> None:
    """Bring all unfinished handshakes up to date. Raises DatabaseError; another failure concerns one handshake only."""
    for handshake in Handshake.objects.unfinished().with_session():
        try:
            approve_by_rule(advance(handshake, now), now)
            settle_approved(handshake, now)
        except RedlineError as fault:
            _log.warning("%s could not be looked after (%s)", handshake, fault.code)
