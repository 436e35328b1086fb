"""The indexed session that a command line names by a path or an id, or that was used last in a directory.

With the row of a session, a command reads it as its pages do: with the chosen reader, and without mistaking Redline's
own entries for the agent's. `known_sessions` and `known_session` serve commands that also work without an index:
nothing is created or migrated.
"""

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Final

from django.db.models import F, Q

from sessions_app.database.migrated import is_current
from sessions_app.database.sqlite import database_path
from sessions_app.models import Session
from sessions_app.sessionlog.errors import BadInput, Conflict

from .indexer import index_roots
from .progress import Report
from .session_locks import open_sessions

LEAST: Final = 4
"""The minimum length of the beginning of an id that names a session, in characters."""
MOST_LISTED: Final = 5
NOT_DONE: Final = "Nothing was done."


def session_with_id(name: str) -> Session:
    """The session with this id or beginning of an id: a short id, an id of the agent, or a number in the API.

    A session whose file is gone matches only if no other does. Raises BadInput `no_such_file`, and Conflict
    `several_sessions` if several match.
    """
    exact: list[int] = []
    begun: list[int] = []
    sessions = Session.objects.select_related("root").only("root__path", "relative_path", "header_id")
    for session in sessions.iterator():
        ids = (session.short_id, session.header_id)
        if name in (*ids, str(session.pk)):
            exact.append(session.pk)
        elif len(name) >= LEAST and any(one.startswith(name) for one in ids):
            begun.append(session.pk)
    found = list(Session.objects.among(exact or begun).for_display().latest_first())
    found = [session for session in found if not session.missing] or found
    if not found:
        raise BadInput(
            "no_such_file",
            f"There is no file {name}, and no indexed session has an id that begins so. {NOT_DONE} `redline sessions` "
            "lists the ids; `redline index` reads new sessions.",
        )
    if len(found) > 1:
        raise Conflict(
            "several_sessions", f"{name} means {_listed(found)}. {NOT_DONE} Give more of the id, or the path."
        )
    return found[0]


def newest_session(directory: str, now: datetime, report: Report) -> Session:
    """The session last used in a directory; the index is brought up to date first.

    It records that directory as its own, or its file is there. Raises BadInput `no_session_here`, and Conflict
    `several_sessions` if several of them are live, so that it is not clear which one is meant.
    """
    index_roots(report=report)
    sessions = Session.objects.shown().present().filter(_belongs_to(directory), fault="", is_subagent=False)
    # A fork that was just made was last used when its original was.
    ordered = (
        sessions.filter(imported_at=None).for_display().order_by(F("last_used").desc(nulls_last=True), "-mtime_ns")
    )
    found = [one for one in ordered if one.cwd == directory or str(one.path.parent) == directory]
    if not found:
        raise BadInput(
            "no_session_here",
            f"There is no session of {directory}. {NOT_DONE} Name a session: `redline sessions` lists them.",
        )
    opened = open_sessions({(session.root.path, session.root.agent) for session in found})
    live = [session for session in found if session.is_live(now) or opened.agent_of(session)]
    if len(live) > 1:
        raise Conflict(
            "several_sessions",
            f"Several sessions of {directory} are live: {_listed(live)}. {NOT_DONE} Name one of them.",
        )
    return found[0]


def _belongs_to(directory: str) -> Q:
    """Whether a session may belong to a directory: it records this directory, or its file is there or below."""
    place = Path(directory)
    below = Q(cwd=directory) | Q(root__path=directory)
    for root in place.parents:
        below |= Q(root__path=str(root), relative_path__startswith=f"{place.relative_to(root)}/")
    return below


def _listed(sessions: Sequence[Session]) -> str:
    named = [f"{session.short_id} “{session.heading}” ({session.path})" for session in sessions[:MOST_LISTED]]
    more = len(sessions) - MOST_LISTED
    return f"{', '.join(named)}{f' and {more:,} more' if more > 0 else ''}"


# ---- without an index, too -------------------------------------------------------------------------------


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
