"""Lookups of session files in the index, for commands that also work without one: nothing is created or migrated.

With the row of a session, a command reads it as its pages do: with the chosen reader, and without mistaking Redline's
own entries for the agent's.
"""

from __future__ import annotations

from pathlib import Path

from sessions_app.database import is_current
from sessions_app.models import Session
from sessions_app.sqlite import database_path


def known_sessions(limit: int) -> list[Session]:
    """The sessions that were used last, without those whose file is gone."""
    if not _is_index_readable():
        return []
    return list(Session.objects.present().for_display().latest_first()[:limit])


def known_session(path: Path) -> Session | None:
    """The row of the file at a real path; None if it is not indexed, or the database is of another version."""
    if not _is_index_readable():
        return None
    try:
        str(path).encode()
    except UnicodeEncodeError:
        # A file whose name is not UTF-8 cannot be indexed.
        return None
    roots = list(map(str, path.parents))
    names = [str(path.relative_to(root)) for root in roots]
    rows = Session.objects.select_related("root").filter(root__path__in=roots, relative_path__in=names)
    return next((session for session in rows if session.path == path and session.read_as), None)


def _is_index_readable() -> bool:
    return database_path().exists() and is_current()
