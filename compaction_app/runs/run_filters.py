"""What the list of runs can be limited to: what waits for a decision, and the states."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from django.db.models import Count

from compaction_app.core.states import ACTIVE, FINISHED, WRITTEN, RunState
from compaction_app.models import Run, RunQuerySet

_FILTERS: Final[dict[str, tuple[str, Collection[RunState]]]] = {
    "": ("All", frozenset(RunState)),
    "waiting": ("Wait for a decision", FINISHED),
    "active": ("At work", ACTIVE),
    "stopped": ("Stopped or failed", frozenset({RunState.CANCELLED, RunState.INTERRUPTED, RunState.FAILED})),
    "written": ("Committed", WRITTEN),
    "replaced": ("Replaced", frozenset({RunState.SUPERSEDED})),
}


@dataclass(frozen=True, slots=True)
class RunFilter:
    """One of the filters, with the number of runs that it shows."""

    name: str
    words: str
    count: int
    is_current: bool


def run_filters(asked: str) -> list[RunFilter]:
    """The filters, of which the asked one is current; all runs, if there is no such filter."""
    chosen = asked if asked in _FILTERS else ""
    states = Run.objects.shown().order_by().values_list("state").annotate(number=Count("pk"))
    counts = {RunState(state): number for state, number in states}
    return [
        RunFilter(name, words, sum(counts.get(state, 0) for state in shown), name == chosen)
        for name, (words, shown) in _FILTERS.items()
    ]


def filtered_runs(chosen: RunFilter) -> RunQuerySet:
    """The runs that a filter shows, the latest first."""
    states = _FILTERS[chosen.name][1]
    return Run.objects.shown().with_session().filter(state__in=states).order_by("-pk")
