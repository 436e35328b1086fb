"""The context window of a session's model, and the part of it that its agent leaves free."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from django.conf import settings

from sessions_app.agents.base import Agent
from sessions_app.agents.registry import model_windows
from sessions_app.context_windows import Window, window_of
from sessions_app.models import Session

UPDATED_AT_ONCE: Final = 200


@dataclass(slots=True)
class ContextWindowLookup:
    """Context windows and reserves from the agents' own files, cached: create a new lookup from time to time."""

    home: Path = field(default_factory=Path.home)
    _windows: dict[str, int] | None = None
    _reserves: dict[tuple[str, str], int] = field(default_factory=dict)

    def window(self, model: str) -> Window | None:
        """The context window of a model."""
        if self._windows is None:
            self._windows = model_windows(self.home)
        return window_of(model, settings.REDLINE.windows, self._windows) if model else None

    def reserve_tokens(self, agent: Agent, cwd: str) -> int:
        """The tokens of the window that an agent leaves free in a project."""
        project = agent.key, cwd
        if project not in self._reserves:
            self._reserves[project] = agent.settings(cwd, self.home).reserve_tokens
        return self._reserves[project]


def refresh_windows(lookup: ContextWindowLookup) -> list[int]:
    """Update windows and reserves of all sessions without reading files; returns the keys of changed sessions."""
    stale = []
    rows = (
        Session.objects.filter(schema__gt=0)
        .select_related("root")
        .only("root", "relative_path", "model", "cwd", "window", "window_source", "reserve_tokens")
    )
    for session in rows.iterator():
        window = lookup.window(session.model)
        found = (
            window.tokens if window is not None else None,
            window.source if window is not None else "",
            lookup.reserve_tokens(session.agent, session.cwd),
        )
        if found != (session.window, session.window_source, session.reserve_tokens):
            session.window, session.window_source, session.reserve_tokens = found
            stale.append(session)
    Session.objects.bulk_update(
        stale, ["window", "window_source", "reserve_tokens"], batch_size=UPDATED_AT_ONCE
    )
    return [session.pk for session in stale]
