"""The form that starts a run: each parameter as it is in force, with its source, or as it was typed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from django.db.models import QuerySet

from sessions_app.models import Session
from sessions_app.sessionlog.errors import BadInput

from ..deletion import parameters as normal
from ..deletion.states import ACTIVE, REVIEWABLE
from ..models import Run
from ..services.planning import PLANNERS, settings_in_force

DEFAULT_PLANNER: Final = "embedded"
LABELS: Final = {"embedded": "embedded: offline, deterministic, no key"}


@dataclass(frozen=True, slots=True)
class Given:
    """What was typed, as text. Empty fields take what is in force."""

    keep: str = ""
    """The fraction to keep, in percent."""
    preserve_recent: str = ""
    query: str = ""
    planner: str = DEFAULT_PLANNER
    leaf_id: str = ""

    @classmethod
    def of(cls, posted: Mapping[str, str]) -> Given:
        return cls(
            keep=posted.get("keep", "").strip(),
            preserve_recent=posted.get("preserve_recent", "").strip(),
            query=posted.get("query", "").strip(),
            planner=posted.get("planner", DEFAULT_PLANNER),
            leaf_id=posted.get("leaf", ""),
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
class CompactForm:
    """The form as it is shown."""

    keep: str
    keep_source: str
    preserve_recent: str
    recent_source: str
    query: str
    query_source: str
    planner: str
    planners: list[tuple[str, str]]
    leaf_id: str
    faults: tuple[str, ...]
    in_flight: Run | None
    waiting: list[Run]
    """Runs of this session whose plan can be reviewed."""


def compact_form(session: Session, given: Given, home: Path) -> CompactForm:
    """The form for a session: what is in force, overlaid by what was typed."""
    in_force = settings_in_force(session.cwd, {}, home)
    values, sources = in_force.values, in_force.sources
    query = values.get("query")
    return CompactForm(
        keep=given.keep or _percent(normal.compression_ratio(values.get("compression_ratio"))),
        keep_source=sources["compression_ratio"],
        preserve_recent=given.preserve_recent or str(normal.preserve_recent(values.get("preserve_recent"))),
        recent_source=sources["preserve_recent"],
        query=given.query or (query if isinstance(query, str) else ""),
        query_source=sources["query"],
        planner=given.planner,
        planners=[(name, LABELS.get(name, name)) for name in PLANNERS],
        leaf_id=given.leaf_id,
        faults=in_force.faults,
        in_flight=Run.objects.filter(session=session, state__in=ACTIVE).first(),
        waiting=list(_reviewable(session)[:5]),
    )


def _reviewable(session: Session) -> QuerySet[Run]:
    """The runs of a session whose plan waits for a review: those that got as far as being prepared."""
    return Run.objects.filter(session=session, state__in=REVIEWABLE, snapshot__isnull=False).order_by("-pk")


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
