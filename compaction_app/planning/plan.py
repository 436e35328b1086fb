"""A plan for one branch: its parameters, its planner, and its progress.

    transcript, answers of hooks ─▶ Plan ─▶ complete: planner ⇄ tools ⇄ airlock ─▶ the outcome
                                                 └─▶ PlanListener: each event

A parameter comes from the run, otherwise from the agent's settings files, otherwise it has its default. Two planners
work offline; all others are the LLM planners that the user configured; a human's selection needs none. `dry_run` makes
a plan from a session's file, without the index and without a run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol

from django.conf import settings

from compaction_app.core import parameters as normal
from compaction_app.core.airlock import ValidatedDeletion
from compaction_app.core.embedded import EmbeddedPlanner
from compaction_app.core.gates import Refusal, Restraints
from compaction_app.core.loop import Ended, Event, Exhausted, Loop, Origin, Outcome, Planner, RequestListener
from compaction_app.core.prune import PrunePlanner
from compaction_app.core.store import DeletionStore
from compaction_app.core.tools import Workbench
from compaction_app.core.transcript import Transcript, prepare
from compaction_app.hooks import NOTHING_PLANNED
from compaction_app.models import Run
from compaction_app.providers.error_mapping import Overflow, ProviderError
from compaction_app.providers.types import UsageTotals
from sessions_app.agents.base import AgentSettings, CompactionSetting, SettingInForce
from sessions_app.document.document import Document
from sessions_app.index.context_window_lookup import ContextWindowLookup
from sessions_app.sessionlog.context import model_of, thinking_level_of
from sessions_app.sessionlog.entries import Target
from sessions_app.sessionlog.errors import BadInput, Stopped
from sessions_app.sessionlog.sourced_value import DEFAULT_SOURCE, resolve
from sessions_app.sessionlog.text import is_noise

from .hook_runner import HookAnswers, SuppliedPlan, before_compact, choose_supplied
from .model_registry import ResolvedModel, endpoint_of, level_taken, model_named

OWN_SOURCE: Final = "this plan"
PLAN_SETTINGS: Final = (
    CompactionSetting(
        "compression_ratio",
        "The fraction of the tokens that a plan keeps.",
        f"{normal.DEFAULT_RATIO:g}",
        partial(normal.is_usable, "compression_ratio"),
        normal.DEFAULT_RATIO,
        within=(),
    ),
    CompactionSetting(
        "preserve_recent",
        "How many of the last entries are never deleted.",
        f"{normal.DEFAULT_PRESERVE_RECENT}",
        partial(normal.is_usable, "preserve_recent"),
        normal.DEFAULT_PRESERVE_RECENT,
        within=(),
    ),
    CompactionSetting(
        "query",
        "What matters: a model keeps it, and the embedded planner keeps what its words find.",
        "your last message, for a model; nothing, for the embedded planner",
        bool,  # an empty query is none
        "the failing test",
        within=(),
    ),
)


@dataclass(frozen=True, slots=True)
class EffectiveParameters:
    """The effective parameters of a project."""

    found: tuple[SettingInForce, ...] = ()
    unusable: tuple[str, ...] = ()
    """The files that cannot be used, each with the reason."""

    @property
    def values(self) -> dict[str, object]:
        """The values by name, without default values."""
        return {one.name: one.value for one in self.found if not one.is_default}

    @property
    def sources(self) -> dict[str, str]:
        return {one.name: one.source for one in self.found}

    @property
    def faults(self) -> tuple[str, ...]:
        """Ignored files and values, with the reason: unusable files, values out of range."""
        refused = (f"{path}: {one.name} cannot be used" for one in self.found for path in one.refused)
        return (*self.unusable, *refused)


def effective_parameters(agent_settings: AgentSettings, own: Mapping[str, object]) -> EffectiveParameters:
    """The run's own parameters first, then the project's settings file, then the user's; otherwise the default.

    The first file that sets a parameter decides: if its value cannot be used, the default applies, as in Atomic.
    """
    within, files = agent_settings.parameters_within, agent_settings.files
    given = [
        (OWN_SOURCE, {name: value for name, value in own.items() if value is not None}),
        *((str(file.path), file.compaction) for file in files if within is not None),
    ]
    found = []
    for setting in PLAN_SETTINGS:
        name, default = setting.name, SettingInForce(None, setting=setting, within=within)
        offers = (
            replace(default, value=normal.in_force(name, values[name]), source=source)
            for source, values in given
            if name in values
        )
        found.append(resolve(offers, default, first_decides=True))
    unusable = tuple(f"{file.path}: {file.fault}" for file in files if file.fault)
    return EffectiveParameters(tuple(found), unusable)


def own_parameters(ratio: float | None, preserve_recent: int | None, query: str | None) -> dict[str, object]:
    """The parameters that a user gave for one run. Raises BadInput if one is out of range."""
    if ratio is not None and normal.compression_ratio(ratio) != ratio:
        raise BadInput("bad_ratio", f"The ratio {ratio} is not between 0 and 1, both excluded. Nothing was planned.")
    if preserve_recent is not None and preserve_recent < 0:
        raise BadInput(
            "bad_preserve_recent", f"preserve_recent is {preserve_recent}, less than 0. Nothing was planned."
        )
    return {"compression_ratio": ratio, "preserve_recent": preserve_recent, "query": query}


# ---- a plan ----------------------------------------------------------------------------------------------


class PlanListener(RequestListener, Protocol):
    """Receives the events of a plan while it is made, and can stop it."""

    def begin(self, plan: Plan) -> None:
        """Called when the planner starts."""

    def step(self, plan: Plan, event: Event, place: Mapping[str, int] | None = None) -> None:
        """One event of the loop; `place` is the position of a call in an LLM planner's answers."""


@dataclass(slots=True)
class Plan:
    """A plan for one branch. `window` is the session model's, in tokens."""

    leaf_id: str
    transcript: Transcript
    effective: EffectiveParameters
    restraints: Restraints
    answers: HookAnswers[SuppliedPlan] = field(default_factory=lambda: HookAnswers(NOTHING_PLANNED))
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
        """The outcome; None until the plan has ended."""
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


# ---- planners --------------------------------------------------------------------------------------------

EMBEDDED: Final = "embedded"
PRUNE: Final = "prune"
MANUAL_PLANNER: Final = "hand"
"""Stands in for a planner's name if a human selected the proposals of the run, or writes the summary."""
OFF: Final = "off"
"""The thinking level that sessions record for no thinking."""
PLANNERS: Final[Mapping[str, Callable[[Transcript], Planner]]] = {
    EMBEDDED: EmbeddedPlanner,
    PRUNE: PrunePlanner,
}
"""Planners that need only the transcript, by name. All others are LLM planners: see `model_registry`."""


def is_llm(planner: str) -> bool:
    """Whether a planner is an LLM planner, which mostly waits for its provider."""
    return planner not in PLANNERS and planner != MANUAL_PLANNER


def source_of_query(planner: str, source: str) -> str:
    """The source of a plan's query, with a remark if its planner does not use it.

    The embedded planner searches for the words of a given query, but not for those of the user's last message.
    """
    used = planner not in (PRUNE, MANUAL_PLANNER) and (is_llm(planner) or source != DEFAULT_SOURCE)
    words = "your last message" if source == DEFAULT_SOURCE else source
    return words if used or planner == MANUAL_PLANNER else f"{words}; the {planner} planner does not use it"


def requested_level(name: str) -> str | None:
    """The thinking level given by a command or a script, empty for OFF; None, if none is given, means the session's."""
    return "" if name == OFF else name or None


def require_planner(planner: str, thinking: str | None = "") -> str:
    """The full name of a planner. Raises BadInput `unknown_planner` and `bad_thinking`."""
    if not is_llm(planner):
        if thinking:
            raise BadInput("bad_thinking", f"The planner {planner} has no thinking levels. Nothing was planned.")
        return planner
    model = model_named(planner)
    if thinking and thinking not in model.thinking_levels:
        levels = ", ".join(model.thinking_levels) or "none"
        raise BadInput(
            "bad_thinking",
            f"{model.planner} does not take the thinking level {thinking}; it takes {levels}. Nothing was planned.",
        )
    return model.planner


def confirmed_model(planner: str, base_url: str, work: str, advice: str) -> ResolvedModel:
    """The model of a job that was confirmed with this address: requests are sent nowhere else.

    Raises BadInput `moved_elsewhere` if its address has changed since; `work` and `advice` are parts of the message.
    """
    model = model_named(planner)
    if model.base_url != base_url:
        raise BadInput(
            "moved_elsewhere",
            f"The address of {model.planner} is now {model.base_url}, but {work} {base_url}. Nothing was sent. "
            f"{advice}",
        )
    return model


def model_of_run(run: Run) -> ResolvedModel | None:
    """The model of a run's LLM planner; None for other planners. Requests are sent only to the confirmed address.

    Raises BadInput `moved_elsewhere` if the model's address has changed since, and `not_agreed` if the run is automatic
    and the user has withdrawn the agreement to that.
    """
    if not is_llm(run.planner):
        return None
    model = confirmed_model(run.planner, run.base_url, f"plan {run.pk} was started for", "Plan again.")
    if run.automatic and not model.agreed:
        raise BadInput(
            "not_agreed",
            f"Automatic planning with {model.planner} is no longer allowed. Nothing was sent. Start a plan yourself.",
        )
    return model


def planner_of_run(run: Run, plan: Plan, listener: PlanListener) -> Planner | None:
    """The planner of a run, ready for its first turn; None if a human selected. Raises the errors of `model_of_run` and
    `planner_named`."""
    if run.planner == MANUAL_PLANNER:
        return None
    model = model_of_run(run)
    return planner_named(run.planner, run.thinking, plan, listener, run.usage, model)


def planner_named(
    name: str,
    thinking: str,
    plan: Plan,
    listener: PlanListener,
    usage: Mapping[str, Any] | None = None,
    model: ResolvedModel | None = None,
) -> Planner:
    """A planner, ready for its first turn.

    `usage` are the totals of an earlier attempt, `model` is the one with that name if known. Raises BadInput
    `unknown_planner` and `no_key`.
    """
    if name in PLANNERS:
        return PLANNERS[name](plan.transcript)
    # The client of a provider takes long to import, and most commands plan without one.
    from .llm_planner import LLMPlanner

    model = model or model_named(name)
    endpoint = endpoint_of(model)
    planner = LLMPlanner(model, endpoint, thinking, listener, UsageTotals.of(usage, endpoint.host))
    plan.hide = planner.hide
    planner.begin(plan.transcript, plan.workbench.budget, len(plan.store.targets))
    return planner


# ---- a plan that is not recorded -------------------------------------------------------------------------


def dry_run(
    document: Document,
    leaf_id: str,
    own: Mapping[str, object],
    planner: str,
    thinking: str | None,
    listener: PlanListener,
    writer: str = "",
) -> Plan:
    """Plan a branch for a writer, by default the best.

    An empty `leaf_id` means the file's last entry; `thinking` is as in `start_run`.

    Raises BadInput `unknown_entry`, `no_entries`, `nothing_to_compact` and `cancelled_by_hook`, and the errors of the
    hooks and the planner.
    """
    home = Path.home()
    reading, leaf = document.reading, leaf_id or document.leaf_id
    branch = document.branch(leaf)
    model = model_of(branch)
    effective = effective_parameters(reading.agent.settings.for_project(document.log.cwd, home, model), own)
    transcript = prepare(branch, document.texts(branch), effective.values, reading.rules(writer), is_noise)
    if transcript is None:
        raise BadInput(
            "nothing_to_compact",
            f"The branch of {leaf} in {document.path} has fewer than two entries that could be compacted. "
            "Nothing was planned.",
        )
    answers = before_compact(lambda: document, leaf, transcript, "manual", stop=listener.is_stopped)
    answers.require_not_cancelled()
    name = model[1] if model is not None else ""
    window = ContextWindowLookup(home).window(name, document.log.state.window, reading.agent)
    plan = Plan(
        leaf,
        transcript,
        effective,
        Restraints(frozenset(answers.pins), settings.REDLINE.thinking_guard),
        answers,
        window.value if window is not None else None,
    )
    if thinking is None:
        levels = model_named(planner).thinking_levels if is_llm(planner) else ()
        thinking = level_taken(thinking_level_of(branch), levels)
    level = thinking
    plan.complete(lambda: planner_named(planner, level, plan, listener), listener)
    return plan
