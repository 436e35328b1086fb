"""The indexed sessions for scripts, as JSON, with the usage of their context windows."""

from __future__ import annotations

from typing import Any, NamedTuple

from django.db.models import Q

from sessions_app.models import Session
from sessions_app.sessionlog.errors import BadInput


class SessionPage(NamedTuple):
    """Part of a longer list of sessions, and whether more follow."""

    sessions: list[Session]
    more: bool


def list_page(text: str, limit: int, after: int | None = None) -> SessionPage:
    """At most `limit` sessions of configured roots, most recently used first, with `text` in title or project.

    `after` is the id of the last session of the previous page. Raises BadInput `no_such_session`.
    """
    found = Session.objects.shown().containing(text).for_display().latest_first()
    if after is not None:
        found = found.filter(_used_before(after))
    sessions = list(found[: limit + 1])
    return SessionPage(sessions[:limit], len(sessions) > limit)


def _used_before(key: int) -> Q:
    """The sessions that follow this one, most recently used first. Raises BadInput `no_such_session`."""
    last = Session.objects.filter(pk=key).values_list("last_used").first()
    if last is None:
        raise BadInput("no_such_session", f"There is no session {key}. Nothing was listed. Start from the beginning.")
    (used,) = last
    if used is None:
        return Q(last_used__isnull=True, pk__gt=key)
    return Q(last_used__lt=used) | Q(last_used=used, pk__gt=key) | Q(last_used__isnull=True)


def session_json(session: Session) -> dict[str, Any]:
    """A session in the format for scripts. Sizes in bytes, context and window in tokens; times are UTC.

    Only sessions in configured roots have a page, and so URLs.
    """
    url = session.get_absolute_url() if session.has_page else None
    return {
        "id": session.pk,
        "shortId": session.short_id,
        "url": url,
        "api": f"/api{url}" if url else None,
        "path": str(session.path),
        "title": session.title,
        "project": session.cwd,
        "agent": session.agent_key,
        "model": session.model,
        "entries": session.entry_count,
        "size": session.size,
        "contextTokens": session.context_tokens,
        "contextBasis": session.context_basis,
        "contextWindow": session.window,
        "windowSource": session.window_source,
        "due": bool(session.due),
        "dueReason": session.due,
        "lastUsed": session.last_used.isoformat() if session.last_used else None,
        "damaged": session.damage_count,
        "forkOf": (not session.is_subagent and session.parent) or None,
        "subagentOf": (session.is_subagent and session.parent) or None,
        "broken": {"entry": session.broken_at, "reason": session.broken} if session.broken else None,
        "missing": session.missing,
        "takenOver": session.taken_over or None,
        "fault": session.fault,
    }
