"""What the page of runs says of planning by itself: whether it is on, with what, and what it leaves alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Final

from django.conf import settings

from compaction_app.models import Run
from compaction_app.planning.planners import EMBEDDED
from sessions_app.models import Session

from .automatic import due_sessions, left_because, note_on_planner
from .unseen_proposals import outgrown

LOOKED_AT: Final = 20
SHOWN: Final = 5
MODELS_PAGE: Final = "Models page"
OUTGROWN: Final = (
    "it has gone on since its proposal was planned; it is planned again once you have looked at that"
)


@dataclass(frozen=True, slots=True)
class AutomaticPlanning:
    """What is set up for planning by itself, and what it passes over."""

    on: bool
    planner: str
    """The one in force: `embedded`, a model as `provider/name`, or `session`."""
    set_up: str = ""
    """The one that is set up, if it is not in force."""
    why: tuple[str, str, str] = ("", "", "")
    """Why not, in words: before the mention of the page of models, that mention, and after it."""
    left: list[tuple[Session, str]] = field(default_factory=list)
    """Sessions that are due and left alone, each with the reason in words."""


def automatic_planning(now: datetime, home: Path) -> AutomaticPlanning:
    """For the page of runs. Nothing is left alone where nothing is planned."""
    configuration = settings.REDLINE
    planner = configuration.plan_by_itself_with
    if not configuration.plan_by_itself:
        return AutomaticPlanning(False, planner)
    due = [(session, left_because(session, now, home)) for session in due_sessions(now)[:LOOKED_AT]]
    left = [(session, why) for session, why in due if why]
    older = (
        Run.objects.unseen()
        .with_session()
        .filter(session__in=Session.objects.due())
        .annotate(outgrown=outgrown())
        .filter(outgrown=True)
        .order_by("-pk")
    )
    left = [*((run.session, OUTGROWN) for run in older[:SHOWN]), *left][:SHOWN]
    note = note_on_planner()
    if not note:
        return AutomaticPlanning(True, planner, left=left)
    return AutomaticPlanning(True, EMBEDDED, planner, note.partition(MODELS_PAGE), left)
