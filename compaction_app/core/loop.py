"""The loop between a planner and its tools. It does no I/O: the caller decides when to take the next turn.

    loop = Loop(workbench)
    while loop.outcome is None:
        for event in loop.take(planner.next_turn(loop.report)):
            ...

A turn is a list of tool calls. They run in order against one store; each becomes an event, and their results are the
report that the planner gets next. The loop ends as soon as the validated plan deletes as much as required. A planner
that stops earlier is nudged with its progress; if it stops again without having changed anything, the run ends below
the target. Validated targets are kept, whatever the outcome.
"""

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from sessions_app.sessionlog.entries import Target

from .gates import Refusal, read_target
from .tools import DELETING_TOOLS, TOOLS, ToolCall, ToolResult, Workbench


class Outcome(StrEnum):
    """How a run ended."""

    TARGET_MET = "target_met"
    BELOW_TARGET = "below_target"
    """Less was validated than required. It can be reviewed, and committed with a confirmation."""
    FAILED = "failed"
    """Nothing was validated."""


@dataclass(frozen=True, slots=True)
class PlannerTurn:
    """The next step of a planner. Without calls it stops."""

    calls: Sequence[ToolCall] = ()
    number: int = 0
    """The number, from 1, of the answer that contained the calls; 0 if the planner makes no requests."""


@dataclass(frozen=True, slots=True)
class Report:
    """The input of a planner's turn: the results of its last turn, and the nudge if it stopped too early."""

    results: Sequence[ToolResult] = ()
    nudge: str = ""


class Exhausted(Exception):
    """A planner cannot continue, for the reason in the message, such as that it has used all its turns."""


class Planner(Protocol):
    """Decides which targets to delete. It sees results, and acts only through tool calls."""

    @property
    def name(self) -> str: ...

    def next_turn(self, report: Report) -> PlannerTurn:
        """The next turn. Raises Exhausted, Stopped, and the errors of the planner's own source."""
        ...


class RequestListener(Protocol):
    """Receives the events of a planner's requests to a model, and can stop them."""

    def on_event(self, kind: str, data: dict[str, Any], usage: dict[str, Any]) -> None:
        """One event, with the totals of the characters and tokens sent and received."""

    def is_stopped(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class Called:
    """A call that ran: its number in the run from 1, its result, and the targets that it added."""

    number: int
    call: ToolCall
    result: ToolResult
    added: tuple[Target, ...]


@dataclass(frozen=True, slots=True)
class Nudged:
    """The planner stopped early and was sent its progress."""

    text: str


@dataclass(frozen=True, slots=True)
class Ended:
    """The run has ended. `refusal` is the last refused deletion, if nothing was validated."""

    outcome: Outcome
    refusal: Refusal | None = None


Event = Called | Nudged | Ended


@dataclass(frozen=True, slots=True)
class Origin:
    """The origin of a target: the call's number and tool, its reason if one was given, and whether repair added it."""

    call: int
    tool: str
    reason: str
    by_repair: bool


class Loop:
    """One run's state: its calls, the next report, and its outcome.

    `carried` are the targets that the store contains before the first call, with their origins.
    """

    def __init__(self, workbench: Workbench, carried: Mapping[Target, Origin] | None = None) -> None:
        self._workbench = workbench
        self._store = workbench.store
        self.outcome: Outcome | None = None
        self.report = Report()
        self._origins: dict[Target, Origin] = dict(carried or {})
        self._last_chosen: tuple[Target, ...] | None = None
        self._last_refusal: Refusal | None = None

    @property
    def origins(self) -> Mapping[Target, Origin]:
        """The origin of each chosen target."""
        return {target: self._origins[target] for target in self._store.targets}

    def take(self, turn: PlannerTurn) -> Iterator[Event]:
        """Run a planner's turn. Raises RuntimeError after the end."""
        if self.outcome is not None:
            raise RuntimeError("the run has ended")
        if not turn.calls:
            yield from self._stopped()
            return
        results = []
        for call in turn.calls:
            called = self._run(call)
            results.append(called.result)
            yield called
            if self._store.target_met:
                yield self._end(Outcome.TARGET_MET)
                return
        self.report = Report(results)

    def close(self) -> Ended:
        """End the run now: it was stopped, its planner cannot continue, or the target was met before the first call."""
        if self._store.target_met:
            return self._end(Outcome.TARGET_MET)
        return self._end(Outcome.BELOW_TARGET if self._store.targets else Outcome.FAILED)

    def _run(self, call: ToolCall) -> Called:
        result = self._workbench.call(call)
        # A call of an unknown tool may have been meant to delete: it is counted until a deletion is refused.
        if call.name in DELETING_TOOLS or (call.name not in TOOLS and self._last_refusal is None):
            self._last_refusal = result.refusal or self._last_refusal
        number = self._workbench.call_count
        chosen = self._store.targets
        added = tuple(target for target in chosen if target not in self._origins)
        named = _named_by(call, result) if added else frozenset()
        for target in added:
            reason = call.reasons.get(target, "")
            self._origins[target] = Origin(number, call.name, reason, by_repair=not reason and target not in named)
        return Called(number, call, result, added)

    def _stopped(self) -> Iterator[Event]:
        chosen = self._store.targets
        if chosen == self._last_chosen:
            yield self.close()
            return
        self._last_chosen = chosen
        budget = self._workbench.budget
        text = (
            f"The target is not reached: {budget.stats.percent_reduction}% of the tokens are deleted, and "
            f"{budget.tokens_to_go:,} tokens are still to go. Delete more."
        )
        self.report = Report(nudge=text)
        yield Nudged(text)

    def _end(self, outcome: Outcome) -> Ended:
        self.outcome = outcome
        return Ended(outcome, self._last_refusal if outcome is Outcome.FAILED else None)


def drive(planner: Planner, workbench: Workbench) -> Iterator[tuple[Loop, Event]]:
    """A whole run of a planner that answers immediately."""
    loop = Loop(workbench)
    while loop.outcome is None:
        for event in loop.take(planner.next_turn(loop.report)):
            yield loop, event


def _named_by(call: ToolCall, result: ToolResult) -> Set[Target]:
    """The targets that a call named itself, or found."""
    arguments = call.arguments
    requested = arguments.get("deletions") if isinstance(arguments, dict) else None
    named = (read_target(raw, 0) for raw in requested) if isinstance(requested, list) else ()
    found = (Target(match["entryId"], match.get("blockIndex")) for match in result.details.get("matches", ()))
    return {*found, *(target for target in named if isinstance(target, Target))}
