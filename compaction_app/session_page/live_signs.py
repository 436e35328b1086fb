"""Whether a session is live, as its page shows it: by its file and by its agent's own signs."""

from __future__ import annotations

from datetime import datetime

from compaction_app.session_activity import Activity, activity_of
from sessions_app.models import Session
from sessions_app.templatetags.formatting import heading


def title_of(session: Session, activity: Activity) -> str:
    """The title of its page: the session and its states."""
    states = {"due": session.due, "live": activity.is_live}
    return ", ".join([heading(session), *(state for state, applies in states.items() if applies)])


def live_signs(session: Session, now: datetime) -> Activity:
    """The known activity of others in the session, without a search of all processes.

    Raises the errors of opening it.
    """
    return activity_of(session, session.agent.store.state(session.real_path()), now, with_writers=False)
