"""The context window of a session's model, and what the computer tells of its agent: its settings and its version."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from django.conf import settings

from sessions_app.agents.agent_settings import CompactionBudget
from sessions_app.agents.installed_version import Version
from sessions_app.agents.registry import agent_with_reader, model_windows, version_installed
from sessions_app.context_windows import Window, window_of
from sessions_app.models import ChosenWindow, Session

UPDATED_AT_ONCE: Final = 200
REFRESHED: Final = ["window", "window_source", "reserve_tokens", "keep_recent_tokens"]
"""The fields of a session that depend on files of its agent."""


def configured_windows() -> dict[str, Window]:
    """The windows that the user's configuration sets, by model."""
    return {model: Window(tokens, "your configuration") for model, tokens in settings.REDLINE.windows.items()}


def chosen_windows() -> dict[str, Window]:
    """The windows that the user chose, by model: those of the configuration come before those of the settings page."""
    here = ChosenWindow.objects.values_list("model", "tokens")
    return {model: Window(tokens, "this page") for model, tokens in here} | configured_windows()


@dataclass(slots=True)
class ContextWindowLookup:
    """Context windows and budgets from the agents' own files, and the installed versions of the agents.

    All of it is cached: create a new lookup from time to time.
    """

    home: Path = field(default_factory=Path.home)
    _windows: dict[str, int] | None = None
    _chosen: dict[str, Window] = field(default_factory=dict)
    _versions: dict[str, Version | None] = field(default_factory=dict)
    _budgets: dict[tuple[str, str, tuple[str, str]], CompactionBudget] = field(default_factory=dict)

    def window(self, model: str, recorded: int | None = None) -> Window | None:
        """The context window of a model; `recorded` is that in the session."""
        if self._windows is None:
            self._windows = model_windows(self.home)
            self._chosen = chosen_windows()
        return window_of(model, self._chosen, self._windows, recorded)

    def budget(self, session: Session) -> CompactionBudget:
        """The budget that the settings of a session's agent give its project and model."""
        agent = agent_with_reader(session.read_as) or session.agent
        model = session.provider, session.model
        known = agent.key, session.cwd, model
        if known not in self._budgets:
            self._budgets[known] = agent.settings(session.cwd, self.home, model).budget
        return self._budgets[known]

    def version_of(self, agent: str) -> Version | None:
        """The installed version of the agent with this key."""
        if agent not in self._versions:
            self._versions[agent] = version_installed(agent)
        return self._versions[agent]

    def fields(self, session: Session) -> dict[str, Any]:
        """The values of REFRESHED for a session."""
        window, budget = self.window(session.model, session.recorded_window), self.budget(session)
        tokens = window.tokens if window is not None else None
        return {
            "window": tokens,
            "window_source": window.source if window is not None else "",
            "reserve_tokens": budget.reserve(tokens),
            "keep_recent_tokens": budget.keep_recent_tokens,
        }


def refresh_windows(lookup: ContextWindowLookup) -> list[int]:
    """Update windows and budgets of all sessions without reading files; returns the keys of changed sessions."""
    stale = []
    rows = (
        Session.objects.filter(schema__gt=0)
        .select_related("root")
        .only("root", "relative_path", "read_as", "provider", "model", "cwd", "recorded_window", *REFRESHED)
    )
    for session in rows.iterator():
        found = lookup.fields(session)
        if any(getattr(session, name) != value for name, value in found.items()):
            for name, value in found.items():
                setattr(session, name, value)
            stale.append(session)
    Session.objects.bulk_update(stale, REFRESHED, batch_size=UPDATED_AT_ONCE)
    return [session.pk for session in stale]
