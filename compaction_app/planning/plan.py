"""A plan in progress: the prepared transcript, the chosen targets, and the planner's loop.

transcript, answers of hooks ─▶ Plan ─▶ complete: planner ⇄ tools ⇄ airlock ─▶ the outcome
                                             └─▶ PlanListener: each event
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from compaction_app.core.airlock import ValidatedDeletion
from compaction_app.core.gates import Refusal, Restraints
from compaction_app.core.loop import Ended, Event, Exhausted, Loop, Origin, Outcome, Planner
from compaction_app.core.store import DeletionStore
from compaction_app.core.tools import Workbench
from compaction_app.core.transcript import Transcript
from compaction_app.providers.error_mapping import Overflow, ProviderError
from sessions_app.sessionlog.entries import Target
from sessions_app.sessionlog.errors import Stopped

from .effective_parameters import EffectiveParameters
from .hook_runner import NO_ANSWERS, HookAnswers, choose_supplied


class PlanListener(Protocol):
    """Receives the events of a plan while it is made, and can stop it."""

    def begin(self, plan: Plan) -> None:
        """The planner starts."""

    def step(self, plan: Plan, event: Event, place: Mapping[str, int] | None = None) -> None:
        """One event of the loop; `place` is the position of a call in an LLM planner's answers."""

    def on_event(self, kind: str, data: dict[str, Any], usage: dict[str, Any]) -> None:
        """One event of an LLM planner, with the totals of the data sent and received."""

    def is_stopped(self) -> bool: ...


@dataclass(slots=True)
class Plan:
    """A plan for one branch. `window` is the session model's, in tokens."""

    leaf_id: str
    transcript: Transcript
    effective: EffectiveParameters
    restraints: Restraints
    answers: HookAnswers = NO_ANSWERS
    window: int | None = None
    store: DeletionStore = field(init=False)
    workbench: Workbench = field(init=False)
    loop: Loop = field(init=False)
    refusal: Refusal | None = None
    """The last refused deletion, if nothing was validated."""
    is_stopped: bool = False
    has_failed: bool = False
    """Whether it ended because of a provider's failure."""
    why: str = ""
    """Why it ended before the planner finished, in words."""
    hide: Callable[[Any], Any] = lambda value: value
    """Removes secrets from a planner's output."""

    def __post_init__(self) -> None:
        self.store = DeletionStore(self.transcript, self.restraints)
        self.workbench = Workbench(self.store, self.window)
        self.loop = Loop(self.workbench)

    @property
    def outcome(self) -> Outcome | None:
        """None until it has ended."""
        return self.loop.outcome

    @property
    def origins(self) -> Mapping[Target, Origin]:
        """The origin of each chosen target."""
        return self.loop.origins

    @property
    def validated(self) -> ValidatedDeletion:
        """The chosen targets, validated again together."""
        return self.store.validated()

    def start_with(self, origins: Mapping[Target, Origin]) -> None:
        """Set the origins of the targets that the store contains before the first call."""
        self.loop = Loop(self.workbench, origins)

    def complete(self, make_planner: Callable[[], Planner | None], listener: PlanListener) -> None:
        """Let a planner work until the target is met, it finishes, or it is stopped.

        If a hook supplied the plan, no planner is created. Without a planner, the targets already chosen are the plan.
        Raises ProviderError, and BadInput `hook_refused`; targets validated by then stay chosen.
        """
        listener.begin(self)
        supplied, planner = self.answers.supplied, None
        if supplied is None:
            planner = make_planner()
        else:
            self.start_with({**self.origins, **choose_supplied(supplied, self.store)})
        while self.outcome is None:
            if planner is None or self.store.target_met:
                self._end(listener)
            elif listener.is_stopped():
                self._end(listener, is_stopped=True)
            else:
                self._take_turn(planner, listener)

    def _take_turn(self, planner: Planner, listener: PlanListener) -> None:
        """Take the planner's next turn and run its calls."""
        try:
            turn = planner.next_turn(self.loop.report)
        except Stopped:
            self._end(listener, is_stopped=True)
        except Exhausted as enough:
            self._end(listener, why=str(enough))
        except Overflow as fault:
            self._end(listener, why=fault.message)
        except ProviderError as fault:
            self._end(listener, why=fault.message, has_failed=True)
            raise
        else:
            for index, event in enumerate(self.loop.take(turn)):
                place = {"turn": turn.number, "index": index} if turn.number else None
                self._step(listener, event, place)
                if listener.is_stopped():
                    break

    def _end(
        self, listener: PlanListener, why: str = "", *, is_stopped: bool = False, has_failed: bool = False
    ) -> None:
        """End the plan in its present state."""
        self.why, self.is_stopped, self.has_failed = why, is_stopped, has_failed
        self._step(listener, self.loop.close())

    def _step(self, listener: PlanListener, event: Event, place: Mapping[str, int] | None = None) -> None:
        if isinstance(event, Ended):
            self.refusal = event.refusal
        listener.step(self, event, place)
