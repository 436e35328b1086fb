"""The list of indexed sessions, with how full each one's window is."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from ..models import Session


@dataclass(frozen=True, slots=True)
class SessionSummary:
    """One session as the list shows it. Sizes in bytes, context and window in tokens."""

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


def list_sessions() -> list[SessionSummary]:
    """Every indexed session, the most recently used first."""
    found = Session.objects.select_related("root").defer("damage", "state", "fingerprint")
    return [_summary(session) for session in found.order_by("-mtime_ns", "pk").iterator()]


def _summary(session: Session) -> SessionSummary:
    return SessionSummary(
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
