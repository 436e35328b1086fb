"""The form that starts a run: each parameter as it is in force, with its source, or as it was typed.

A planner that is a model is started only by a form that has said where that sends what: `Given.disclosed` names the
planner and the host that were shown, together with the size of the first request, and `demand_disclosed` compares it
with those that would be asked.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from django.db.models import Exists, OuterRef, Q, QuerySet

from compaction_app.core import parameters as normal
from compaction_app.core.manifest import PREVIEW_LENGTH
from compaction_app.core.states import ACTIVE, REVIEWABLE, RunState
from compaction_app.display.branches import branch_state
from compaction_app.models import Proposal, Run
from compaction_app.planning.effective_parameters import effective_parameters
from compaction_app.planning.egress_preview import FirstRequest, measure_first_request
from compaction_app.planning.model_registry import (
    ResolvedModel,
    level_taken,
    model_named,
    model_of_session,
    models,
)
from compaction_app.planning.planners import EMBEDDED
from compaction_app.planning.snapshots import known_torn_line
from compaction_app.providers.addresses import is_loopback
from sessions_app.models import Session
from sessions_app.sessionlog.context import thinking_level_of
from sessions_app.sessionlog.errors import BadInput, Conflict, RedlineError
from sessions_app.storage.session_loader import TornLine

from .turn_log import dollars


@dataclass(frozen=True, slots=True)
class Given:
    """What was typed, as text. Empty fields take what is in force."""

    keep: str = ""
    """The fraction to keep, in percent."""
    preserve_recent: str = ""
    query: str = ""
    planner: str = ""
    """Empty: the session's own model where it can be asked, else the embedded planner."""
    thinking: str | None = None
    """None: the session's level, as the model takes it."""
    leaf_id: str = ""
    disclosed: str = ""
    """Of which planner and host it was shown what leaves the machine."""

    @classmethod
    def of(cls, sent: Mapping[str, str]) -> Given:
        """What a form sent, or an address says."""
        return cls(
            keep=sent.get("keep", "").strip(),
            preserve_recent=sent.get("preserve_recent", "").strip(),
            query=sent.get("query", "").strip(),
            planner=sent.get("planner", ""),
            thinking=sent.get("thinking"),
            leaf_id=sent.get("leaf", ""),
            disclosed=sent.get("disclosed", ""),
        )

    def asked(self, in_force: CompactForm) -> dict[str, object]:
        """The run's own parameters: what was typed and is not in force anyway. Raises BadInput."""
        asked: dict[str, object] = {}
        if self.keep and self.keep != in_force.keep:
            asked["compression_ratio"] = _ratio(self.keep)
        if self.preserve_recent and self.preserve_recent != in_force.preserve_recent:
            asked["preserve_recent"] = _count(self.preserve_recent)
        if self.query and self.query != in_force.query:
            asked["query"] = self.query
        return asked


@dataclass(frozen=True, slots=True)
class PlannerChoice:
    """A planner that can be chosen, or cannot for the reason beside it."""

    name: str
    label: str
    fault: str = ""


@dataclass(frozen=True, slots=True)
class Disclosure:
    """What is said of a model before it is asked."""

    planner: str
    host: str
    base_url: str
    is_here: bool
    """Whether the host is this machine."""
    prices: str
    preview: int = PREVIEW_LENGTH
    """Characters that the manifest shows of an entry at most."""

    @property
    def mark(self) -> str:
        """By what a form says that this was shown."""
        return f"{self.planner} at {self.base_url}"


@dataclass(frozen=True, slots=True)
class CompactForm:
    """The form as it is shown."""

    keep: str
    keep_source: str
    preserve_recent: str
    recent_source: str
    query: str
    query_source: str
    planner: str
    planner_source: str
    """Why this one is chosen, where nobody has chosen yet."""
    planners: list[PlannerChoice]
    thinking: str
    """Empty: the model is not asked to think."""
    thinking_source: str
    levels: tuple[str, ...]
    """Which the chosen model takes."""
    disclosure: Disclosure | None
    """None where nothing leaves the machine."""
    leaf_id: str
    faults: tuple[str, ...]
    in_flight: Run | None
    waiting: list[Run]
    """Runs of this session whose plan can be reviewed."""
    torn: TornLine | None
    """The session's last line, where it is torn."""


def compact_form(session: Session, given: Given, home: Path) -> CompactForm:
    """The form for a session: what is in force, overlaid by what was typed."""
    in_force = effective_parameters(session.agent.settings(session.cwd, home), {})
    values, sources = in_force.values, in_force.sources
    query = values.get("query")
    known = models()
    own = model_of_session(session)
    model = _model(given.planner) if given.planner else own
    thinking, thinking_source = _thinking(session, given, model)
    return CompactForm(
        keep=given.keep or _percent(normal.compression_ratio(values.get("compression_ratio"))),
        keep_source=sources["compression_ratio"],
        preserve_recent=given.preserve_recent or str(normal.preserve_recent(values.get("preserve_recent"))),
        recent_source=sources["preserve_recent"],
        query=given.query or (query if isinstance(query, str) else ""),
        query_source=sources["query"],
        planner=model.planner if model is not None else given.planner or EMBEDDED,
        planner_source="This is the session’s own model." if model is not None and model == own else "",
        planners=[PlannerChoice(EMBEDDED, "embedded: offline, deterministic, no key"), *map(_choice, known)],
        thinking=thinking,
        thinking_source=thinking_source,
        levels=model.thinking_levels if model is not None else (),
        disclosure=_disclosure(model) if model is not None else None,
        leaf_id=given.leaf_id,
        faults=in_force.faults,
        in_flight=Run.objects.filter(session=session, state__in=ACTIVE).first(),
        waiting=list(_reviewable(session)[:5]),
        torn=known_torn_line(session),
    )


def demand_disclosed(given: Given, form: CompactForm) -> None:
    """Raise Conflict `not_disclosed` where the form that was sent did not show where this planner sends what."""
    shown = form.disclosure
    if shown is not None and given.disclosed != shown.mark:
        raise Conflict(
            "not_disclosed",
            f"{shown.planner} is asked at {shown.host}, and the form had not said so yet. Nothing was sent and nothing "
            "planned. Read below what leaves this machine, then start.",
        )


def first_request(session: Session, given: Given, home: Path) -> FirstRequest | RedlineError | None:
    """The first request of the run that the form would start, or why there is none; None for the embedded planner.

    What is typed and cannot be used is left out: starting says so.
    """
    form = compact_form(session, given, home)
    model = _model(form.planner)
    if model is None:
        return None
    try:
        own = given.asked(compact_form(session, Given(), home))
    except BadInput:
        own = {}
    try:
        return measure_first_request(session, given.leaf_id, own, model, form.thinking)
    except RedlineError as fault:
        return fault


def _model(planner: str) -> ResolvedModel | None:
    """The model that a run of this planner would ask; None for the embedded one, and for one that is not there."""
    if planner == EMBEDDED:
        return None
    try:
        return model_named(planner)
    except BadInput:
        return None


def _choice(model: ResolvedModel) -> PlannerChoice:
    return PlannerChoice(model.planner, f"{model.planner}, at {model.host}", model.fault)


def _thinking(session: Session, given: Given, model: ResolvedModel | None) -> tuple[str, str]:
    """The thinking level and where it comes from."""
    if model is None or not model.thinking_levels:
        return "", ""
    try:
        own = thinking_level_of(branch_state(session, given.leaf_id).branch)
    except RedlineError:
        # The branch is not there, which starting says: a form that shows no level is no harm.
        own = ""
    taken = level_taken(own, model.thinking_levels)
    if given.thinking is not None and given.thinking in ("", *model.thinking_levels):
        return given.thinking, ""
    source = f"The session’s thinking level is {own}." if own else ""
    return taken, source if own in (
        taken,
        "off",
        "",
    ) else f"{source} The nearest that the model takes is {taken}."


def _disclosure(model: ResolvedModel) -> Disclosure:
    prices = model.prices
    said = "No price of it is known."
    if prices.input is not None and prices.output is not None:
        said = f"{dollars(prices.input)} for a million tokens in, {dollars(prices.output)} for a million out."
    return Disclosure(model.planner, model.host, model.base_url, is_loopback(model.base_url), said)


def _reviewable(session: Session) -> QuerySet[Run]:
    """The runs of a session whose plan waits for a review: those that got as far as being prepared."""
    planned = Run.objects.filter(session=session, state__in=REVIEWABLE, snapshot__isnull=False)
    is_empty = Q(state=RunState.FAILED) & ~Exists(Proposal.objects.filter(run=OuterRef("pk")))
    return planned.exclude(is_empty).order_by("-pk")


def _percent(ratio: float) -> str:
    return f"{round(100 * ratio, 6):g}"


def _ratio(typed: str) -> float:
    try:
        ratio = float(typed.rstrip("% ")) / 100
    except ValueError:
        ratio = math.nan
    if normal.compression_ratio(ratio) != ratio:
        raise BadInput(
            "bad_ratio",
            f"“{typed}” is no percentage between 0 and 100, both excluded. Nothing was planned.",
        )
    return ratio


def _count(typed: str) -> int:
    if not typed.isascii() or not typed.isdigit() or len(typed) > 9:
        raise BadInput("bad_preserve_recent", f"“{typed}” is no whole number from 0 up. Nothing was planned.")
    return int(typed)
