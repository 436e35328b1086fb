"""What lies around a session: the window of its model, and what its project keeps free of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from django.conf import settings

from sessions_app.agents.settings import model_windows, reserve_tokens
from sessions_app.context_windows import Window, window_of
from sessions_app.models import Session

UPDATED_AT_ONCE: Final = 200


@dataclass(slots=True)
class Surroundings:
    """What the agents' own files say, looked up once: whoever goes on for long makes a new one now and then."""

    home: Path = field(default_factory=Path.home)
    _windows: dict[str, int] | None = None
    _reserves: dict[str, int] = field(default_factory=dict)

    def window(self, model: str) -> Window | None:
        """The context window of a model."""
        if self._windows is None:
            self._windows = model_windows(self.home)
        return window_of(model, settings.REDLINE.windows, self._windows) if model else None

    def reserve(self, cwd: str) -> int:
        """Tokens that a project's agent keeps free of the window."""
        if cwd not in self._reserves:
            self._reserves[cwd] = reserve_tokens(cwd, self.home)
        return self._reserves[cwd]


def refresh_windows(surroundings: Surroundings) -> list[int]:
    """Bring windows and reserves of all sessions up to date, without reading one; gives the keys of those changed."""
    stale = []
    rows = Session.objects.filter(schema__gt=0).only(
        "model", "cwd", "window", "window_source", "reserve_tokens"
    )
    for session in rows.iterator():
        window = surroundings.window(session.model)
        found = (
            window.tokens if window is not None else None,
            window.source if window is not None else "",
            surroundings.reserve(session.cwd),
        )
        if found != (session.window, session.window_source, session.reserve_tokens):
            session.window, session.window_source, session.reserve_tokens = found
            stale.append(session)
    Session.objects.bulk_update(
        stale, ["window", "window_source", "reserve_tokens"], batch_size=UPDATED_AT_ONCE
    )
    return [session.pk for session in stale]
