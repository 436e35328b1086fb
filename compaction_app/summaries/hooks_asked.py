"""The answers of hooks before a summary is drafted, and before a human's summary is appended."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from compaction_app.core.transcript import prepare
from compaction_app.planning.effective_parameters import effective_parameters
from compaction_app.planning.hook_runner import never
from compaction_app.planning.summary_hooks import (
    HookSummary,
    after_summary,
    ask_summary_hooks,
    require_summary_not_cancelled,
)
from compaction_app.planning.tree_hooks import ask_tree_hooks, require_move_not_cancelled
from sessions_app.index.index_store import session_row
from sessions_app.sessionlog.errors import BadInput
from sessions_app.sessionlog.noise import is_noise

from .summary_task import SummaryTask


class AskedHooks(NamedTuple):
    """The task as changed by the hooks, and their answers."""

    task: SummaryTask
    supplied: HookSummary | None
    """The draft of a hook; then no model is used."""
    messages: tuple[str, ...]
    label: str | None = None
    """The label that the hooks request for a move; None if no hooks were called for one."""


def ask_hooks_about(task: SummaryTask, stop: Callable[[], bool] = never) -> AskedHooks:
    """Call the hooks for a summary. Raises the errors of `ask_tree_hooks` and `ask_summary_hooks`, and BadInput
    `cancelled_by_hook`."""
    present = task.present
    session = session_row(present.path)
    if task.move is not None:
        answers = ask_tree_hooks(present, task.move, session, stop)
        require_move_not_cancelled(answers)
        changed = keeping(task.with_focus(answers.focus), answers.supplied)
        return AskedHooks(changed, answers.supplied, answers.messages, answers.label)
    branch = present.tree.branch(present.leaf_id)
    settings = task.present.reading.agent.settings.for_project(present.log.cwd, Path.home())
    transcript = prepare(
        branch,
        present.texts(branch),
        effective_parameters(settings, {}).values,
        task.present.reading.rules(),
        is_noise,
    )
    if transcript is None or task.preparation is None:
        raise BadInput("nothing_to_summarise", f"{present.path} has nothing to summarise. Nothing was appended.")
    found = ask_summary_hooks(present, present.leaf_id, transcript, task.preparation, session=session, stop=stop)
    require_summary_not_cancelled(found)
    return AskedHooks(keeping(task, found.supplied), found.supplied, found.messages)


def keeping(task: SummaryTask, supplied: HookSummary | None) -> SummaryTask:
    """The task with the kept entries and the files of a hook's summary."""
    if supplied is None:
        return task
    return replace(task.keeping_from(supplied.first_kept_id), files=supplied.files, from_hook=True)


def tell_hooks(task: SummaryTask, lines: tuple[bytes, ...], text: str, backup: Path) -> None:
    """Notify the hooks of a compaction that was appended; those of a move are notified when it is appended."""
    if task.is_compaction:
        path = task.present.path
        after_summary(
            path,
            session_row(path),
            lines,
            task.complete(text),
            "manual",
            backup,
            from_hook=task.from_hook,
        )
