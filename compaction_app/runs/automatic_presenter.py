"""Automatic planning on the page of runs: whether it is on, with which planner, and what it skips."""

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
OUTGROWN: Final = "it has continued since its proposal was planned; it is planned again once you have looked at it"


@dataclass(frozen=True, slots=True)
class AutomaticPlanning:
    """How automatic planning is configured, and what it skips."""

    on: bool
    planner: str
    """The planner in use: `embedded`, `prune`, a model as `provider/name`, or `session`."""
    set_up: str = ""
    """The configured one, if it is not in use."""
    why: tuple[str, str, str] = ("", "", "")
    """Why not, in words: before the mention of the page of models, that mention, and after it."""
    left: list[tuple[Session, str]] = field(default_factory=list)
    """Sessions that are due and skipped, each with the reason in words."""


def automatic_planning(now: datetime, home: Path) -> AutomaticPlanning:
    """For the page of runs. Nothing is listed as skipped if automatic planning is off."""
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
