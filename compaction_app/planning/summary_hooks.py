"""The answers of hooks before a summary is drafted, and their notification after one was written.

    prepared ──ask_summary_hooks──▶ SummaryAnswers ─┬─ cancelled: nothing is drafted
                                                    └─ supplied: the draft, in place of the model's
    written ──after_summary──▶ each receiver, once

A summary that would replace a hook's pin is refused: pinned objects are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from compaction_app.core.hook_answers import Cancel, Pin, SupplySummary
from compaction_app.core.transcript import Transcript
from compaction_app.hooks import (
    SUMMARIES,
    SummaryPreparation,
    ask_hooks,
    notify_hooks,
    require_loaded,
    session_before_compact,
    session_compact,
)
from sessions_app.agents.pure.summary_format import FileLists
from sessions_app.models import Session
from sessions_app.sessionlog.entries import Role
from sessions_app.sessionlog.errors import BadInput
from sessions_app.sessionlog.jsjson import parse, well_formed
from sessions_app.storage.session_loader import LoadedSession

from .hook_runner import because, never

NOTHING_SUMMARISED: Final = "Nothing was summarised"


@dataclass(frozen=True, slots=True)
class HookSummary:
    """A summary that a hook supplies. It is a draft: a human reads and edits it before it is written."""

    text: str
    files: FileLists
    first_kept_id: str
    """For a compaction: the first entry that it keeps. Empty for the summary of a branch."""
    why: str
    """The hook, and its reason."""


@dataclass(frozen=True, slots=True)
class SummaryAnswers:
    """The combined answers of all hooks for one summary."""

    supplied: HookSummary | None = None
    cancelled: str = ""
    """The hook that cancelled, and its reason; empty if none did."""
    messages: tuple[str, ...] = ()
    """The answer of each hook, in words."""


def ask_summary_hooks(
    loaded: LoadedSession,
    leaf_id: str,
    transcript: Transcript,
    preparation: SummaryPreparation,
    reason: str = "manual",
    session: Session | None = None,
    stop: Callable[[], bool] = never,
) -> SummaryAnswers:
    """Call the hooks before a summary that is a compaction. They also receive the transcript of the branch.

    `stop` returns whether it was stopped meanwhile, and raises nothing. Raises BadInput `hook_not_loaded`,
    `bad_answer`, `hook_refused` and `pinned_by_hook`, and SystemFailure `hook_failed`; then the caller must not
    continue.
    """
    require_loaded()
    sent: dict[str, Any] = {
        "path": loaded.path,
        "session": session,
        "loaded": loaded,
        "branch": tuple(loaded.tree.branch(leaf_id)),
        "preparation": transcript,
        "parameters": transcript.parameters,
        "reason": reason,
        "summary": preparation,
        "stop": stop,
    }
    supplied, cancelled, messages = None, "", []
    pins: dict[str, str] = {}
    for answered in ask_hooks(session_before_compact, SUMMARIES, NOTHING_SUMMARISED, sent):
        why = because(answered)
        if isinstance(answered.answer, Pin):
            pins |= {target.entry_id: why for target in answered.answer.targets if target.entry_id not in pins}
        elif isinstance(answered.answer, SupplySummary):
            supplied = _compaction(answered.hook, answered.answer, why, preparation)
            messages.append(f"Summary supplied by {why}. No model is asked.")
        elif isinstance(answered.answer, Cancel):
            cancelled = why
            messages.append(f"Cancelled by {why}.")
    if not cancelled:
        first_kept = supplied.first_kept_id if supplied is not None else preparation.first_kept_id
        _require_not_pinned(pins, preparation, first_kept)
    return SummaryAnswers(supplied, cancelled, tuple(messages))


def require_summary_not_cancelled(answers: SummaryAnswers) -> None:
    """Raise BadInput `cancelled_by_hook` if a hook cancelled."""
    if answers.cancelled:
        raise BadInput("cancelled_by_hook", f"Cancelled by {answers.cancelled}. {NOTHING_SUMMARISED}.")


def after_summary(
    path: Path,
    session: Session,
    lines: Sequence[bytes],
    summary: str,
    reason: str,
    backup: Path,
    *,
    from_hook: bool,
    created: Path | None = None,
) -> None:
    """Notify the hooks of a summary that is a compaction and was written. Their actions do not change it."""
    notify_hooks(
        session_compact,
        "a compaction",
        path=path,
        session=session,
        result=None,
        parameters=None,
        entries=[parse(line) for line in lines],
        reason=reason,
        from_hook=from_hook,
        backup=backup,
        created=created,
        summary=summary,
    )


def file_lists(answer: SupplySummary) -> FileLists:
    """The files of a summary: no file is in both lists."""
    modified = frozenset(answer.modified_files)
    return FileLists(tuple(sorted(set(answer.read_files) - modified)), tuple(sorted(modified)))


def _compaction(hook: str, answer: SupplySummary, why: str, preparation: SummaryPreparation) -> HookSummary:
    """A supplied compaction. An unknown first entry would make the agent drop everything before it."""
    first_kept = answer.first_kept_id or preparation.first_kept_id
    entries = (*preparation.messages, *preparation.prefix, *preparation.kept)
    found = next((entry for entry in entries if entry.id == first_kept), None)
    if found is None or found.role == Role.TOOL_RESULT:
        fault = "is not in the range of the summary" if found is None else "is a result, which needs its call"
        raise BadInput(
            "hook_refused",
            f"The summary of the hook {hook} was refused. Its first entry to keep {fault}. {NOTHING_SUMMARISED}.",
        )
    return HookSummary(well_formed(answer.text), file_lists(answer), first_kept, why)


def _require_not_pinned(pins: dict[str, str], preparation: SummaryPreparation, first_kept_id: str) -> None:
    for entry in (*preparation.messages, *preparation.prefix, *preparation.kept):
        if entry.id == first_kept_id:
            return
        if entry.id in pins:
            raise BadInput(
                "pinned_by_hook",
                f"The summary would replace entry {entry.id}, which is pinned by {pins[entry.id]}. "
                f"{NOTHING_SUMMARISED}. Keep more of the conversation, or delete without a summary.",
            )
