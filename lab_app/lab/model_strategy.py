"""A configured model as a strategy: it plans with the tools of a run, and what it plans is not recorded anywhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from compaction_app.core.gates import NO_RESTRAINTS
from compaction_app.core.transcript import Transcript
from compaction_app.planning.effective_parameters import EffectiveParameters
from compaction_app.planning.model_registry import ResolvedModel
from compaction_app.planning.plan import Plan, PlanListener
from compaction_app.planning.planners import planner_named
from lab_app.pure.strategies import Strategy
from sessions_app.sessionlog.errors import Stopped
from sessions_app.sessionlog.targets import Target


class TotalsListener(PlanListener, Protocol):
    """Keeps the totals of all plans."""

    usage: Mapping[str, Any] | None
    """What was sent and received so far, as `UsageTotals.to_json`; None before the first request."""


class ModelStrategy:
    """The plans of a model, one after the other, with their common totals."""

    def __init__(self, model: ResolvedModel, listener: TotalsListener) -> None:
        self._model = model
        self._listener = listener

    @property
    def strategy(self) -> Strategy:
        return Strategy(self._model.planner, self._model.planner, "What the model chooses.", self._plan)

    def _plan(self, transcript: Transcript, share: float) -> tuple[Target, ...]:
        """Raises Stopped, and what the planner raises."""
        wanted = transcript.with_ratio(1 - share)
        plan = Plan(wanted.entries[-1].entry_id, wanted, EffectiveParameters(), NO_RESTRAINTS)
        plan.complete(
            lambda: planner_named(self._model.planner, "", plan, self._listener, self._listener.usage, self._model),
            self._listener,
        )
        if plan.is_stopped:
            raise Stopped
        return plan.store.targets
