"""A plan for one branch: what is in force, the prepared transcript, and the run of a planner over it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

from django.conf import settings

from compaction_app.core import parameters as normal
from compaction_app.core.airlock import ValidatedDeletion
from compaction_app.core.embedded import EmbeddedPlanner
from compaction_app.core.errors import Refusal
from compaction_app.core.gates import Restraints
from compaction_app.core.loop import Ended, Event, Exhausted, Loop, Origin, Outcome, Planner
from compaction_app.core.store import DeletionStore
from compaction_app.core.targets import Target
from compaction_app.core.tools import Workbench
from compaction_app.core.transcript import Transcript, prepare
from compaction_app.models import Run
from compaction_app.providers.errors import Overflow
from sessions_app.agents.base import AgentSettings
from sessions_app.agents.registry import agent_at, model_windows, rules_for
from sessions_app.context_windows import window_of
from sessions_app.sessionlog.context import model_of
from sessions_app.sessionlog.errors import BadInput
from sessions_app.sessionlog.noise import is_noise
from sessions_app.storage.session_loader import LoadedSession

from .hook_runner import NO_ANSWERS, HookAnswers, before_compact, choose_supplied, require_not_cancelled
from .model_registry import ResolvedModel, endpoint_of, model_named
from .usage import UsageTotals

PARAMETERS: Final = ("compression_ratio", "preserve_recent", "query")
DEFAULT_SOURCE: Final = "default"

EMBEDDED: Final = "embedded"
"""The planner that is no model."""
PLANNERS: Final[Mapping[str, Callable[[Transcript], Planner]]] = {EMBEDDED: EmbeddedPlanner}
"""Planners that need nothing but the transcript, by name. The others are models: see `model_registry`."""


def is_llm(planner: str) -> bool:
    """Whether a planner is a model, which works elsewhere and is waited for."""
    return planner not in PLANNERS


class PlanListener(Protocol):
    """Whoever a planner that is a model tells what happens, and asks whether it is to stop."""

    def tell(self, kind: str, data: dict[str, Any], usage: dict[str, Any] | None = None) -> None: ...

    def is_stopped(self) -> bool: ...


def require_planner(planner: str, thinking: str = "") -> str:
    """The full name of a planner. Raises BadInput `unknown_planner` and `bad_thinking`."""
    if planner in PLANNERS:
        if thinking:
            raise BadInput(
                "bad_thinking", f"The planner {planner} has no thinking levels. Nothing was planned."
            )
        return planner
    model = model_named(planner)
    if thinking and thinking not in model.thinking_levels:
        levels = ", ".join(model.thinking_levels) or "none"
        raise BadInput(
            "bad_thinking",
            f"{model.planner} does not take the thinking level {thinking}; it takes {levels}. Nothing was planned.",
        )
    return model.planner


def model_of_run(run: Run) -> ResolvedModel | None:
    """The model that a run asks, if one does. What is sent goes where it was said to go, or nowhere.

    Raises BadInput `moved_elsewhere` where the model is asked somewhere else by now, and `not_agreed` where nobody
    wants it asked by itself any more.
    """
    if not is_llm(run.planner):
        return None
    model = model_named(run.planner)
    if model.base_url != run.base_url:
        raise BadInput(
            "moved_elsewhere",
            f"{model.planner} is asked at {model.base_url} now, and run {run.pk} was started for {run.base_url}. "
            "Nothing was sent. Start a new run.",
        )
    if run.automatic and not model.agreed:
        raise BadInput(
            "not_agreed",
            f"Nobody agrees any more that {model.planner} plans by itself. Nothing was sent. Start a run by hand.",
        )
    return model


def planner_of(
    name: str,
    thinking: str,
    workbench: Workbench,
    told: PlanListener,
    usage: Mapping[str, Any] | None = None,
    model: ResolvedModel | None = None,
) -> Planner:
    """The planner of a run, ready for its first turn; `usage` are the sums of an earlier attempt.

    `model`: the one by that name, where somebody has looked whether it may be asked. Raises BadInput
    `unknown_planner` and `no_key`.
    """
    if name in PLANNERS:
        return PLANNERS[name](workbench.store.transcript)
    # The client of a provider takes long to import, and most commands plan without one.
    from .llm_planner import LLMPlanner

    model = model or model_named(name)
    endpoint = endpoint_of(model)
    spent = UsageTotals.of(usage, endpoint.host)
    planner = LLMPlanner(
        model,
        endpoint,
        thinking,
        tell=lambda kind, data: told.tell(kind, data, spent.to_json()),
        is_stopped=told.is_stopped,
        spent=spent,
    )
    planner.begin(workbench.store.transcript, workbench.budget, len(workbench.store.targets))
    return planner


@dataclass(frozen=True, slots=True)
class EffectiveParameters:
    """Raw compaction settings that apply to a project, with where each comes from."""

    values: Mapping[str, object]
    sources: Mapping[str, str]
    faults: tuple[str, ...] = ()
    """What was passed over, and why: files that cannot be used, values out of range."""


def effective_parameters(agent_settings: AgentSettings, own: Mapping[str, object]) -> EffectiveParameters:
    """The run's own parameters first, then the project's settings file, then the user's; else the default."""
    values: dict[str, object] = {}
    sources: dict[str, str] = dict.fromkeys(PARAMETERS, DEFAULT_SOURCE)
    for name in PARAMETERS:
        if own.get(name) is not None:
            values[name], sources[name] = own[name], "this run"
    faults = []
    for found in agent_settings.files:
        if found.fault:
            faults.append(f"{found.path}: {found.fault}")
        for name, value in found.parameters.items():
            if name not in values:
                values[name], sources[name] = value, str(found.path)
                if not _is_usable(name, value):
                    # The agent takes its default for such a value, and asks no other file.
                    sources[name] = DEFAULT_SOURCE
                    faults.append(f"{found.path}: {name} cannot be used")
    return EffectiveParameters(values, sources, tuple(faults))


def _is_usable(name: str, value: object) -> bool:
    if name == "query":
        return isinstance(value, str)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return normal.compression_ratio(value) == value if name == "compression_ratio" else math.isfinite(value)


def own_parameters(ratio: float | None, preserve_recent: int | None, query: str | None) -> dict[str, object]:
    """The parameters that a user gave for one run. Raises BadInput where one is out of range."""
    if ratio is not None and normal.compression_ratio(ratio) != ratio:
        raise BadInput(
            "bad_ratio", f"The ratio {ratio} is not between 0 and 1, both excluded. Nothing was planned."
        )
    if preserve_recent is not None and preserve_recent < 0:
        raise BadInput(
            "bad_preserve_recent", f"preserve_recent is {preserve_recent}, less than 0. Nothing was planned."
        )
    return {"compression_ratio": ratio, "preserve_recent": preserve_recent, "query": query}


@dataclass(slots=True)
class Plan:
    """One run on one branch of a loaded session, and what came of it."""

    loaded: LoadedSession
    leaf_id: str
    transcript: Transcript
    sources: Mapping[str, str]
    planner: str
    thinking: str
    store: DeletionStore
    faults: tuple[str, ...] = ()
    heard: HookAnswers = NO_ANSWERS
    outcome: Outcome | None = None
    refusal: Refusal | None = None
    why: str = ""
    """Why it ended before the planner was done, in words."""
    origins: Mapping[Target, Origin] = field(default_factory=dict)

    @property
    def validated(self) -> ValidatedDeletion:
        """What was chosen, judged once more as a whole."""
        return self.store.validated()


def prepare_plan(
    loaded: LoadedSession,
    *,
    leaf_id: str | None = None,
    own: Mapping[str, object] | None = None,
    planner: str = EMBEDDED,
    thinking: str = "",
    home: Path | None = None,
) -> Plan:
    """Everything up to the planner's first call.

    Raises BadInput `unknown_planner`, `unknown_entry`, `no_entries`, `nothing_to_compact` and `cancelled_by_hook`,
    and what asking the hooks raises.
    """
    planner = require_planner(planner, thinking)
    leaf = leaf_id or loaded.leaf_id
    branch = loaded.tree.branch(leaf)
    agent = agent_at(loaded.path)
    agent_settings = agent.settings(loaded.log.cwd, home or Path.home())
    in_force = effective_parameters(agent_settings, own or {})
    transcript = prepare(branch, loaded.texts(branch), in_force.values, rules_for(agent), is_noise)
    if transcript is None:
        raise BadInput(
            "nothing_to_compact",
            f"The branch of {leaf} in {loaded.path} has fewer than two entries that could be compacted. "
            "Nothing was planned.",
        )
    heard = before_compact(lambda: loaded, leaf, transcript, "manual")
    require_not_cancelled(heard)
    restraints = Restraints(frozenset(heard.pins), settings.REDLINE.thinking_guard)
    return Plan(
        loaded=loaded,
        leaf_id=leaf,
        transcript=transcript,
        sources=in_force.sources,
        planner=planner,
        thinking=thinking,
        store=DeletionStore(transcript, restraints),
        faults=in_force.faults,
        heard=heard,
    )


class NoListener:
    """Where nobody listens, and nobody stops it."""

    def tell(self, kind: str, data: dict[str, Any], usage: dict[str, Any] | None = None) -> None:
        del kind, data, usage

    def is_stopped(self) -> bool:
        return False


def run_planner(plan: Plan, told: PlanListener | None = None, home: Path | None = None) -> Iterator[Event]:
    """Let the planner work, event by event; the plan holds the outcome afterwards.

    What a provider gets wrong ends it: by its own overflow with what was validated, by anything else with
    ProviderError.
    """
    branch = plan.loaded.tree.branch(plan.leaf_id)
    model = model_of(branch)
    windows = model_windows(home or Path.home())
    window = window_of(model[1], settings.REDLINE.windows, windows) if model is not None else None
    workbench = Workbench(plan.store, window.tokens if window is not None else None)
    if plan.heard.supplied is not None:
        supplied = Loop(workbench, choose_supplied(plan.heard.supplied, plan.store))
        ended = supplied.close()
        plan.outcome, plan.refusal, plan.origins = ended.outcome, ended.refusal, supplied.origins
        yield ended
        return
    planner = planner_of(plan.planner, plan.thinking, workbench, told or NoListener())
    loop = Loop(workbench)
    while loop.outcome is None:
        for event in _next(planner, loop, plan):
            if isinstance(event, Ended):
                plan.outcome, plan.refusal, plan.origins = event.outcome, event.refusal, loop.origins
            yield event


def _next(planner: Planner, loop: Loop, plan: Plan) -> Iterator[Event]:
    try:
        turn = planner.next_turn(loop.report)
    except Overflow as fault:
        plan.why = fault.message
        yield loop.close()
    except Exhausted as enough:
        plan.why = str(enough)
        yield loop.close()
    else:
        yield from loop.take(turn)
