"""What the page of runs says of planning by itself: whether it is on, with what, and what it leaves alone."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from django.conf import settings

from sessions_app.models import Session

from ..services.triggers import due_sessions, left_because, note_on_planner

LOOKED_AT: Final = 20
SHOWN: Final = 5


@dataclass(frozen=True, slots=True)
class ByItself:
    """What is set up for planning by itself, and what it passes over."""

    on: bool
    planner: str
    note: str
    """Why that planner does not plan, in words; empty where it does."""
    left: list[tuple[Session, str]]
    """Sessions that are due and left alone, each with the reason in words."""


def by_itself(now: datetime, home: Path) -> ByItself:
    """For the page of runs. Nothing is left alone where nothing is planned."""
    configuration = settings.REDLINE
    if not configuration.plan_by_itself:
        return ByItself(False, configuration.plan_by_itself_with, "", [])
    due = [(session, left_because(session, now, home)) for session in due_sessions(now)[:LOOKED_AT]]
    left = [(session, why) for session, why in due if why][:SHOWN]
    return ByItself(True, configuration.plan_by_itself_with, note_on_planner(), left)
