"""The list of indexed sessions, with how full each one's window is."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from django.conf import settings

from ..agents import model_windows, settings_files
from ..models import Session
from ..sessionlog.context import Gauge, is_due
from ..windows import window_of

DEFAULT_RESERVE: Final = 16_384
"""Tokens that an agent keeps free of the window, unless its settings say otherwise."""


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
    due: bool
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
            "due": self.due,
            "lastUsed": self.last_used.isoformat() if self.last_used else None,
            "damaged": self.damaged,
            "missing": self.missing,
            "fault": self.fault,
        }


def reserve_tokens(cwd: str, home: Path) -> int:
    """`reserveTokens` of the settings that are in force for a project."""
    for found in settings_files(cwd, home):
        section = found.values.get("compaction")
        reserve = section.get("reserveTokens") if isinstance(section, dict) else None
        if isinstance(reserve, int) and not isinstance(reserve, bool) and reserve >= 0:
            return reserve
    return DEFAULT_RESERVE


def list_sessions() -> list[SessionSummary]:
    """Every indexed session, the most recently used first."""
    home = Path.home()
    windows = model_windows(home)
    reserves: dict[str, int] = {}
    summaries = []
    for session in Session.objects.select_related("root").order_by("-last_used", "pk").iterator():
        if session.cwd not in reserves:
            reserves[session.cwd] = reserve_tokens(session.cwd, home)
        window = window_of(session.model, settings.REDLINE.windows, windows) if session.model else None
        due = session.context_tokens is not None and is_due(
            Gauge(session.context_tokens, "usage"), window.tokens if window else None, reserves[session.cwd]
        )
        summaries.append(
            SessionSummary(
                path=str(Path(session.root.path) / session.relative_path),
                title=session.name or session.first_user_message,
                cwd=session.cwd,
                agent=session.root.agent,
                model=session.model,
                entries=session.entry_count,
                size=session.size,
                context_tokens=session.context_tokens,
                context_source=session.context_source,
                window=window.tokens if window else None,
                window_source=window.source if window else "",
                due=due,
                last_used=session.last_used,
                damaged=session.damage_count,
                missing=session.missing,
                fault=session.fault,
            )
        )
    return summaries
