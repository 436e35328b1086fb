"""The answers of hooks before a move in the tree of a session, and their notification after it was written.

chosen ──ask_tree_hooks──▶ TreeAnswers ─┬─ cancelled: nothing moves
                                        ├─ focus, label: as the hooks changed them
                                        └─ supplied: the draft of the summary, if one is wanted
written ──after_move──▶ each receiver, once
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from compaction_app.core.hook_answers import FINAL, Adjust, Cancel, SupplySummary
from compaction_app.core.summary_ranges import BranchLeft
from compaction_app.hooks import (
    MOVES,
    ask_hooks,
    notify_hooks,
    require_loaded,
    session_before_tree,
    session_tree,
)
from sessions_app.models import Session
from sessions_app.sessionlog.errors import BadInput
from sessions_app.sessionlog.jsjson import parse, well_formed
from sessions_app.storage.session_loader import LoadedSession

from .hook_runner import because, never
from .summary_hooks import HookSummary, file_lists

NOT_MOVED: Final = "Nothing was moved"


@dataclass(frozen=True, slots=True)
class TreeMove:
    """A move that is about to be made."""

    target_id: str
    """The entry that was chosen."""
    old_leaf_id: str
    new_leaf_id: str | None
    """None before the first entry."""
    left: BranchLeft
    wants_summary: bool = False
    focus: str = ""
    label: str = ""


@dataclass(frozen=True, slots=True)
class TreeAnswers:
    """The combined answers of all hooks for one move."""

    focus: str
    """What the summary should emphasise: from the user, or from the last hook that changed it."""
    label: str
    """The label, likewise."""
    supplied: HookSummary | None = None
    """Also None if no summary is requested."""
    cancelled: str = ""
    """The hook that cancelled, and its reason; empty if none did."""
    messages: tuple[str, ...] = ()
    """The answer of each hook, in words."""


def ask_tree_hooks(
    loaded: LoadedSession,
    move: TreeMove,
    session: Session | None = None,
    stop: Callable[[], bool] = never,
) -> TreeAnswers:
    """Call the hooks before a move, whether or not a summary is requested.

    `stop` returns whether it was stopped meanwhile, and raises nothing. Raises BadInput `hook_not_loaded` and
    `bad_answer`, and SystemFailure `hook_failed`; then the caller must not continue.
    """
    require_loaded()
    sent: dict[str, Any] = {
        "path": loaded.path,
        "session": session,
        "loaded": loaded,
        "target_id": move.target_id,
        "new_leaf_id": move.new_leaf_id,
        "old_leaf_id": move.old_leaf_id,
        "common_ancestor_id": move.left.ancestor_id,
        "entries": move.left.entries,
        "wants_summary": move.wants_summary,
        "focus": move.focus,
        "label": move.label,
        "stop": stop,
    }
    supplied, cancelled, messages = None, "", []
    final = FINAL if move.wants_summary else (Cancel,)
    for answered in ask_hooks(session_before_tree, MOVES, NOT_MOVED, sent, final):
        why = because(answered)
        if isinstance(answered.answer, Adjust):
            messages += _adjust(answered.answer, why, sent)
        elif isinstance(answered.answer, SupplySummary) and move.wants_summary:
            supplied = HookSummary(well_formed(answered.answer.text), file_lists(answered.answer), "", why)
            messages.append(f"Summary supplied by {why}. No model is asked.")
        elif isinstance(answered.answer, SupplySummary):
            messages.append(f"Summary supplied by {why}. It is not used, because none is wanted.")
        elif isinstance(answered.answer, Cancel):
            cancelled = why
            messages.append(f"Cancelled by {why}.")
    return TreeAnswers(sent["focus"], sent["label"], supplied, cancelled, tuple(messages))


def require_move_not_cancelled(answers: TreeAnswers) -> None:
    """Raise BadInput `cancelled_by_hook` if a hook cancelled."""
    if answers.cancelled:
        raise BadInput("cancelled_by_hook", f"Cancelled by {answers.cancelled}. {NOT_MOVED}.")


def after_move(
    path: Path,
    session: Session,
    move: TreeMove,
    lines: Sequence[bytes],
    backup: Path,
    *,
    summary: str | None = None,
    from_hook: bool = False,
) -> None:
    """Notify the hooks of a move that was written, with the text of its summary if there is one. Their actions do not
    change it."""
    notify_hooks(
        session_tree,
        "a move",
        path=path,
        session=session,
        new_leaf_id=move.new_leaf_id,
        old_leaf_id=move.old_leaf_id,
        entries=[parse(line) for line in lines],
        summary=summary,
        from_hook=from_hook,
        backup=backup,
    )


def _adjust(answer: Adjust, why: str, sent: dict[str, Any]) -> list[str]:
    """Change the move that later hooks receive; returns the changes, in words."""
    changed = []
    for name, value in (("focus", answer.focus), ("label", answer.label)):
        if value is not None and value != sent[name]:
            sent[name] = well_formed(value)
            changed.append(f"{name.capitalize()} changed by {why}.")
    return changed
