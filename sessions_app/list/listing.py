"""The list of indexed sessions, with how full each one's window is."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from django.db.models import F, Q, QuerySet

from sessions_app.models import Session
from sessions_app.sessionlog.errors import BadInput
from sessions_app.storage.files import SESSION_SUFFIX

UNQUOTED: Final = "/~:@!$&'()*+,;="
"""What stands for itself in a path: RFC 3986."""


@dataclass(frozen=True, slots=True)
class SessionSummary:
    """One session as the list shows it. Sizes in bytes, context and window in tokens."""

    id: int
    url: str | None
    """The path of its page; None if it has none, because no configured root holds it."""
    path: str
    title: str
    cwd: str
    agent: str
    model: str
    entries: int
    size: int
    context_tokens: int | None
    context_source: str
    window: int | None
    window_source: str
    due: str
    """`threshold`, `overflow`, or empty where it is not due."""
    last_used: datetime | None
    damaged: int
    missing: bool
    fault: str

    def to_json(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "url": self.url,
            "api": f"/api{self.url}" if self.url else None,
            "path": self.path,
            "title": self.title,
            "project": self.cwd,
            "agent": self.agent,
            "model": self.model,
            "entries": self.entries,
            "size": self.size,
            "contextTokens": self.context_tokens,
            "contextSource": self.context_source,
            "contextWindow": self.window,
            "windowSource": self.window_source,
            "due": bool(self.due),
            "dueReason": self.due,
            "lastUsed": self.last_used.isoformat() if self.last_used else None,
            "damaged": self.damaged,
            "missing": self.missing,
            "fault": self.fault,
        }


class SessionPage(NamedTuple):
    """Some sessions of a longer list, and whether more follow."""

    sessions: list[SessionSummary]
    more: bool


def list_sessions() -> list[SessionSummary]:
    """Every indexed session, the most recently used first."""
    return [summary_of(session) for session in _latest_first(Session.objects.all()).iterator()]


def list_page(text: str, limit: int, after: int | None = None) -> SessionPage:
    """At most `limit` sessions of configured roots, the most recently used first, with `text` in title or project.

    `after` is the id of the last one of the page before. Raises BadInput `no_such_session`.
    """
    found = _latest_first(Session.objects.filter(root__configured=True))
    if text:
        found = found.filter(Q(title__icontains=text) | Q(cwd__icontains=text))
    if after is not None:
        found = found.filter(_used_before(after))
    sessions = list(found[: limit + 1])
    more = len(sessions) > limit
    return SessionPage([summary_of(session) for session in sessions[:limit]], more)


def _latest_first(sessions: QuerySet[Session]) -> QuerySet[Session]:
    found = sessions.select_related("root").defer("damage", "state", "fingerprint")
    return found.order_by(F("mtime_ns").desc(nulls_last=True), "pk")


def _used_before(key: int) -> Q:
    """Which sessions come behind this one, the most recently used being first. Raises BadInput `no_such_session`."""
    last = Session.objects.filter(pk=key).values_list("mtime_ns").first()
    if last is None:
        raise BadInput(
            "no_such_session", f"There is no session {key}. Nothing was listed. List from the start."
        )
    (used,) = last
    if used is None:
        return Q(mtime_ns__isnull=True, pk__gt=key)
    return Q(mtime_ns__lt=used) | Q(mtime_ns=used, pk__gt=key) | Q(mtime_ns__isnull=True)


def page_path(session: Session) -> str | None:
    """The path of a session's page, as `reverse` gives it; None if it has none.

    Commands list thousands of sessions without loading the pages, so it is put together here.
    """
    if not session.root.configured or not session.relative_path.endswith(SESSION_SUFFIX):
        return None
    return f"/sessions/{session.root_id}/{quote(session.relative_path, safe=UNQUOTED)}"


def summary_of(session: Session) -> SessionSummary:
    """A session as the list shows it."""
    return SessionSummary(
        id=session.pk,
        url=page_path(session),
        path=str(Path(session.root.path) / session.relative_path),
        title=session.title,
        cwd=session.cwd,
        agent=session.root.agent,
        model=session.model,
        entries=session.entry_count,
        size=session.size,
        context_tokens=session.context_tokens,
        context_source=session.context_source,
        window=session.window,
        window_source=session.window_source,
        due=session.due,
        last_used=session.last_used,
        damaged=session.damage_count,
        missing=session.missing,
        fault=session.fault,
    )
