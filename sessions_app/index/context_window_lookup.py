"""The context window of a session's model, and the settings and version of its agent on this computer."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from django.conf import settings

from sessions_app.agents.base import Agent, AgentSettings
from sessions_app.agents.edge.installed_version import Version
from sessions_app.agents.registry import model_windows, version_installed
from sessions_app.models import ChosenWindow, Session
from sessions_app.sessionlog.model_facts import window_of
from sessions_app.sessionlog.sourced_value import SourcedValue

UPDATED_AT_ONCE: Final = 200
REFRESHED: Final = ["window", "window_source", "reserve_tokens", "keep_recent_tokens", "compacts_automatically"]
"""The fields of a session that depend on files of its agent."""


def configured_windows() -> dict[str, SourcedValue[int]]:
    """The windows that the user's configuration sets, by model."""
    return {model: SourcedValue(tokens, "your configuration") for model, tokens in settings.REDLINE.windows.items()}


def chosen_windows() -> dict[str, SourcedValue[int]]:
    """The windows that the user chose, by model: the configuration takes precedence over the settings page."""
    chosen = ChosenWindow.objects.values_list("model", "tokens")
    return {model: SourcedValue(tokens, "this page") for model, tokens in chosen} | configured_windows()


@dataclass(slots=True)
class ContextWindowLookup:
    """Context windows and settings from the agents' own files, and the installed versions of the agents.

    All of it is cached: create a new lookup from time to time.
    """

    home: Path = field(default_factory=Path.home)
    _windows: dict[str, Mapping[str, int]] = field(default_factory=dict)
    """By the key of the agent whose own configuration takes precedence; "" for none."""
    _chosen: Mapping[str, SourcedValue[int]] | None = None
    _versions: dict[str, Version | None] = field(default_factory=dict)
    _settings: dict[tuple[str, str, str, str], AgentSettings] = field(default_factory=dict)

    def window(self, model: str, recorded: int | None = None, own: Agent | None = None) -> SourcedValue[int] | None:
        """The context window of a model; `recorded` is that in the session, `own` the agent that continues it."""
        if self._chosen is None:
            self._chosen = chosen_windows()
        key = own.key if own is not None else ""
        if key not in self._windows:
            self._windows[key] = model_windows(self.home, own)
        return window_of(model, self._chosen, self._windows[key], recorded)

    def window_of_session(self, session: Session) -> SourcedValue[int] | None:
        """The context window of the model that a session was last written with."""
        return self.window(session.model, session.recorded_window, session.continuing_agent)

    def settings(self, session: Session) -> AgentSettings:
        """The settings of a session's agent for its project and model."""
        known = session.continuing_agent.key, session.cwd, session.provider, session.model
        if known not in self._settings:
            self._settings[known] = session.agent_settings(self.home)
        return self._settings[known]

    def version_of(self, agent: str) -> Version | None:
        """The installed version of the agent with this key."""
        if agent not in self._versions:
            self._versions[agent] = version_installed(agent)
        return self._versions[agent]

    def fields(self, session: Session) -> dict[str, Any]:
        """The values of REFRESHED for a session."""
        window, found = self.window_of_session(session), self.settings(session)
        tokens = window.value if window is not None else None
        return {
            "window": tokens,
            "window_source": window.source if window is not None else "",
            "reserve_tokens": found.budget.reserve(tokens),
            "keep_recent_tokens": found.budget.keep_recent_tokens,
            "compacts_automatically": found.compacts_automatically,
        }


def refresh_windows(lookup: ContextWindowLookup) -> list[int]:
    """Update windows and settings of all sessions without reading files; returns the keys of changed sessions."""
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
