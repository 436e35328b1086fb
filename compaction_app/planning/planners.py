"""The planners: two that work offline, and the LLM planners that the user configured; none if a human selected."""
# WAS compaction_app/planning/plan: """A plan in progress: the prepared transcript, the chosen targets, and the planner's loop.
#
# transcript, answers of hooks ─▶ Plan ─▶ complete: planner ⇄ tools ⇄ airlock ─▶ the outcome
#                                              └─▶ PlanListener: each event
# """
# WAS compaction_app/planning/dry_run: """A plan that is not recorded: made from the session's file, without the index and without a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from django.conf import settings

from compaction_app.core.embedded import EmbeddedPlanner
from compaction_app.core.gates import Restraints
from compaction_app.core.loop import Planner
from compaction_app.core.prune import PrunePlanner
from compaction_app.core.transcript import Transcript, prepare
from compaction_app.models import Run
from compaction_app.providers.usage import UsageTotals
from sessions_app.document.document import Document
from sessions_app.index.context_window_lookup import ContextWindowLookup
from sessions_app.sessionlog.context import model_of, thinking_level_of
from sessions_app.sessionlog.errors import BadInput
from sessions_app.sessionlog.sourced_value import DEFAULT_SOURCE
from sessions_app.sessionlog.text import is_noise

from .effective_parameters import effective_parameters
from .hook_runner import before_compact, require_not_cancelled
from .model_registry import ResolvedModel, endpoint_of, level_taken, model_named
from .plan import Plan, PlanListener

EMBEDDED: Final = "embedded"
PRUNE: Final = "prune"
MANUAL_PLANNER: Final = "hand"
"""Replaces the name of a planner: a human selected the proposals of the run, or writes the summary."""
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
    said = "the last message of the user" if source == DEFAULT_SOURCE else source
    return said if used or planner == MANUAL_PLANNER else f"{said}; the {planner} planner does not use it"


def level_asked_for(name: str) -> str | None:
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


def model_of_run(run: Run) -> ResolvedModel | None:
    """The model of a run's LLM planner; None for other planners. Requests are sent only to the confirmed address.

    Raises BadInput `moved_elsewhere` if the model's address has changed since, and `not_agreed` if the run is automatic
    and the user has withdrawn the agreement to that.
    """
    if not is_llm(run.planner):
        return None
    model = model_named(run.planner)
    if model.base_url != run.base_url:
        raise BadInput(
            "moved_elsewhere",
            f"The address of {model.planner} is now {model.base_url}, but run {run.pk} was started for {run.base_url}. "
            "Nothing was sent. Start a new run.",
        )
    if run.automatic and not model.agreed:
        raise BadInput(
            "not_agreed",
            f"Automatic planning with {model.planner} is no longer allowed. Nothing was sent. Start a run by hand.",
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
    require_not_cancelled(answers)
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
