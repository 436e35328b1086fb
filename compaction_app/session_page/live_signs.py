"""Whether a session is live, as its page says: by its file and by its agent's own signs."""

from __future__ import annotations

from datetime import datetime

from compaction_app.session_activity import Activity, activity_of
from sessions_app.models import Session


def live_signs(session: Session, now: datetime) -> Activity:
    """What is known of others who use the session, without a search among all processes.

    Raises what opening it raises.
    """
    return activity_of(session, session.agent.state(session.real_path()), now, with_writers=False)
