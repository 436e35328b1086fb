"""The loss of a summary of an indexed session: computed once, and cached for the last few until the file changes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from django.conf import settings

from compaction_app.core.draft_check import DRAFT_ID, draft_texts
from compaction_app.core.gates import Restraints
from compaction_app.core.summary_loss import Replacement, SummaryLoss, loss_of, replacement_by, summaries_on
from compaction_app.entries.branches import BranchState, branch_state, find_leaf
from compaction_app.models import SummaryDraft
from compaction_app.summaries.drafts import shown_task_of
from sessions_app.document.document import Document, indexed_texts
from sessions_app.models import Session
from sessions_app.sessionlog.context import Tally, model_of
from sessions_app.sessionlog.entries import Entry
from sessions_app.sessionlog.errors import BadInput
from sessions_app.sessionlog.measure import Basis, ContextSize


class BranchSummary(NamedTuple):
    """A summary of a branch with its loss, and the summaries around it."""

    loss: SummaryLoss
    leaf_id: str
    """Empty for the branch from which the agent continues."""
    before: ContextSize
    """The size of the context before it."""
    model: str
    """The model in use when it was written; empty if not recorded."""
    last: Entry
    """The last entry of the branch."""
    earlier: str
    """The summary before it on the branch; empty if there is none."""
    later: str


def loss_at(session: Session, entry_id: str = "") -> BranchSummary:
    """The loss of the summary with this id; without an id, of the newest one of the branch from which the agent
    continues.

    Raises BadInput `unknown_entry` and `not_a_summary`, and the errors of reading the session.
    """
    document, guard = Document.of_index(session), settings.REDLINE.thinking_guard
    return document.derived(("loss", guard, entry_id), lambda: _work_out(session, entry_id))


def loss_of_draft(draft: SummaryDraft) -> BranchSummary:
    """The loss of a draft if it were appended in its present form. Raises the errors of `shown_task_of`."""
    task = shown_task_of(draft)
    session, present = draft.session, task.present
    replacement = task.drafted(draft.text)
    before = present.tree.branch(replacement.before_id)
    recorded = [entry for entry in replacement.sources if entry.id != DRAFT_ID]
    loss = loss_of(
        replacement,
        before,
        {**present.texts(recorded), **draft_texts(task.complete(draft.text))},
        task.present.reading.rules(),
        Restraints(frozenset(), settings.REDLINE.thinking_guard),
        session.cwd,
    )
    size = session.context_size or ContextSize(
        replacement.tokens_before, Basis.ABOUT, estimate=replacement.tokens_before
    )
    return BranchSummary(loss, "", size, draft.planner, before[-1], "", "")


def _work_out(session: Session, entry_id: str) -> BranchSummary:
    leaf_id = find_leaf(session, entry_id) if entry_id else ""
    state = branch_state(session, leaf_id)
    summaries = [entry.id for entry in summaries_on(state.branch, state.reading.reader)]
    replacement = _replacement(state, [entry_id] if entry_id else reversed(summaries))
    if replacement is None and entry_id:
        raise BadInput(
            "not_a_summary",
            f"Entry {entry_id} is not a summary that replaced something as this session is read.",
        )
    if replacement is None:
        raise BadInput("not_a_summary", "No summary has replaced anything on this branch.")
    before = state.tree.branch(replacement.before_id)
    summary = replacement.summary.entry
    place = summaries.index(summary.id) if summary.id in summaries else 0
    model = summary.model or model_of(before)
    loss = loss_of(
        replacement,
        before,
        indexed_texts(session, replacement.sources),
        state.reading.rules(),
        Restraints(frozenset(), settings.REDLINE.thinking_guard),
        session.cwd,
    )
    return BranchSummary(
        loss,
        leaf_id,
        _size(session, state, replacement, before),
        model[1] if model is not None else "",
        state.branch[-1],
        summaries[place - 1] if place else "",
        summaries[place + 1] if place + 1 < len(summaries) else "",
    )


def _replacement(state: BranchState, summaries: Iterable[str]) -> Replacement | None:
    """The messages replaced by the first of these summaries that replaced any."""
    found = (replacement_by(state.tree, state.branch, summary, state.reading.reader) for summary in summaries)
    return next(filter(None, found), None)


def _size(session: Session, state: BranchState, replacement: Replacement, before: Sequence[Entry]) -> ContextSize:
    """The size of the context before; without a report of it, in the measure of the session's context."""
    tally = Tally.of(replacement.before, before, state.reading.reader.rebuild, session.inherited_measure)
    now = session.context_size
    if tally.wants_sample and now is not None:
        return ContextSize(now.of(replacement.tokens_before), Basis.ABOUT, now.ratio)
    return tally.size
