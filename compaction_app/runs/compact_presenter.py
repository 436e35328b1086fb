"""The form that starts a run: its planners, the level of thinking, and other plans of the session."""

from __future__ import annotations

from dataclasses import dataclass

from django.db.models import Exists, OuterRef, Q, QuerySet

from compaction_app.core.prompt import PREVIEW_LENGTH
from compaction_app.core.states import RunState
from compaction_app.models import Proposal, Run
from compaction_app.planning.model_registry import ResolvedModel, model_of_session, models
from compaction_app.planning.snapshots import known_torn_line
from sessions_app.models import Session
from sessions_app.storage.session_loader import TornLine

from .forms import CompactForm


@dataclass(frozen=True, slots=True)
class CompactPage:
    """What surrounds the fields of the form."""

    planner_source: str
    """Why this planner is preselected."""
    models: list[ResolvedModel]
    level_source: str
    in_flight: Run | None
    waiting: list[Run]
    """Runs of this session whose plan can be reviewed."""
    torn: TornLine | None
    """The session's last line, if it is torn."""
    preview_length: int = PREVIEW_LENGTH
    """The most characters of an entry in the manifest."""


def compact_page(session: Session, form: CompactForm) -> CompactPage:
    model = form.model
    is_own = model is not None and model == model_of_session(session)
    return CompactPage(
        planner_source="This is the session’s own model." if is_own else "",
        models=models(),
        level_source=_level_source(form),
        in_flight=session.runs.active().first(),
        waiting=list(_reviewable(session)[:5]),
        torn=known_torn_line(session),
    )


def _level_source(form: CompactForm) -> str:
    """The source of the thinking level; empty if it was chosen, or if there is none."""
    own = form.session_level
    if form.is_level_chosen or not own:
        return ""
    source = f"The session’s thinking level is {own}."
    return source if own in (form.level, "off") else f"{source} The nearest that the model supports is {form.level}."


def _reviewable(session: Session) -> QuerySet[Run]:
    """The prepared runs of a session whose plan can be reviewed."""
    planned = session.runs.reviewable().filter(snapshot__isnull=False)
    is_empty = Q(state=RunState.FAILED) & ~Exists(Proposal.objects.filter(run=OuterRef("pk")))
    return planned.exclude(is_empty).order_by("-pk")
