"""A plan that is not recorded: made from the session's file, without the index and without a run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from django.conf import settings

from compaction_app.core.gates import Restraints
from compaction_app.core.transcript import prepare
from sessions_app.document.document import Document
from sessions_app.index.context_window_lookup import ContextWindowLookup
from sessions_app.sessionlog.context import model_of, thinking_level_of
from sessions_app.sessionlog.errors import BadInput
from sessions_app.sessionlog.noise import is_noise

from .effective_parameters import effective_parameters
from .hook_runner import before_compact, require_not_cancelled
from .model_registry import level_taken, model_named
from .plan import Plan, PlanListener
from .planners import is_llm, planner_named


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
