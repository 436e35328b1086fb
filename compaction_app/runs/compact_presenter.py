"""The form that starts a run: its planners, the sources of its values, and what leaves this machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from django.db.models import Exists, OuterRef, Q, QuerySet

from compaction_app.core.manifest import PREVIEW_LENGTH
from compaction_app.core.states import RunState
from compaction_app.models import Proposal, Run
from compaction_app.planning.model_registry import ResolvedModel, model_of_session, models
from compaction_app.planning.planners import EMBEDDED
from compaction_app.planning.snapshots import known_torn_line
from compaction_app.planning.usage import dollars
from compaction_app.providers.addresses import is_loopback
from sessions_app.models import Session
from sessions_app.storage.session_loader import TornLine

from .forms import CompactForm


@dataclass(frozen=True, slots=True)
class PlannerChoice:
    """A planner that can be chosen, or that cannot, with the reason."""

    name: str
    label: str
    fault: str = ""


@dataclass(frozen=True, slots=True)
class Disclosure:
    """What you are shown about a model before anything is sent to it."""

    host: str
    base_url: str
    is_here: bool
    """Whether the host is this machine."""
    prices: str
    preview: int = PREVIEW_LENGTH
    """The most characters of an entry in the manifest."""


@dataclass(frozen=True, slots=True)
class CompactPage:
    """What surrounds the fields of the form."""

    sources: Mapping[str, str]
    """The source of each parameter in effect."""
    planner_source: str
    """Why this planner is preselected."""
    planners: list[PlannerChoice]
    level_source: str
    levels: tuple[str, ...]
    """Thinking levels that the chosen model supports."""
    disclosure: Disclosure | None
    """None if nothing leaves the machine."""
    faults: tuple[str, ...]
    in_flight: Run | None
    waiting: list[Run]
    """Runs of this session whose plan can be reviewed."""
    torn: TornLine | None
    """The session's last line, if it is torn."""


def compact_page(session: Session, form: CompactForm) -> CompactPage:
    model = form.model
    is_own = model is not None and model == model_of_session(session)
    return CompactPage(
        sources=form.effective.sources,
        planner_source="This is the session’s own model." if is_own else "",
        planners=[
            PlannerChoice(EMBEDDED, "embedded: offline, deterministic, needs no key"),
            *(PlannerChoice(one.planner, f"{one.planner}, at {one.host}", one.fault) for one in models()),
        ],
        level_source=_level_source(form),
        levels=model.thinking_levels if model is not None else (),
        disclosure=_disclosure(model) if model is not None else None,
        faults=form.effective.faults,
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
    return (
        source
        if own in (form.level, "off")
        else f"{source} The nearest that the model supports is {form.level}."
    )


def _disclosure(model: ResolvedModel) -> Disclosure:
    prices = model.prices
    price = "Its price is not known."
    if prices.input is not None and prices.output is not None:
        price = (
            f"{dollars(prices.input)} for a million tokens in, {dollars(prices.output)} for a million out."
        )
    return Disclosure(model.host, model.base_url, is_loopback(model.base_url), price)


def _reviewable(session: Session) -> QuerySet[Run]:
    """The prepared runs of a session whose plan can be reviewed."""
    planned = session.runs.reviewable().filter(snapshot__isnull=False)
    is_empty = Q(state=RunState.FAILED) & ~Exists(Proposal.objects.filter(run=OuterRef("pk")))
    return planned.exclude(is_empty).order_by("-pk")
