"""A summary's loss as a page, and as a self-contained report: bars, lost subjects, and turns beside the text.

The loss of a summary of an indexed session is computed once, and cached for the last few until the file changes.
"""

import re
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import Any, Final, NamedTuple

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from compaction_app.core import summary_loss
from compaction_app.core.gates import Restraints
from compaction_app.core.mentions import MEASURES
from compaction_app.core.summary_ranges import FileTouch
from compaction_app.entries.branches import BranchState, branch_state, find_leaf
from compaction_app.entries.lost_subjects import bars_of, below_project, lost_lists
from compaction_app.entries.view import TextSource, whole
from compaction_app.lookups import known_draft, known_session
from compaction_app.models import SummaryDraft, written_by_redline
from compaction_app.summaries.drafts import shown_task_of
from compaction_app.summaries.presenter import view_draft
from sessions_app.document.document import Document, indexed_texts
from sessions_app.models import Session
from sessions_app.sessionlog.context import Basis, ContextSize, Tally, model_of
from sessions_app.sessionlog.entries import Entry, moment_of, tokens_of
from sessions_app.sessionlog.errors import BadInput
from sessions_app.sessionlog.jsjson import utf16_length
from sessions_app.web.pages import redirect, status_of, view_or_fault


class BranchSummary(NamedTuple):
    """A summary of a branch with its loss, and the summaries around it."""

    loss: summary_loss.SummaryLoss
    leaf_id: str
    """The leaf of the branch; empty for the branch from which the agent continues."""
    before: ContextSize
    """The size of the context before the summary."""
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
    recorded = [entry for entry in replacement.sources if entry.id != summary_loss.DRAFT_ID]
    loss = summary_loss.loss_of(
        replacement,
        before,
        {**present.texts(recorded), **summary_loss.draft_texts(task.complete(draft.text))},
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
    summaries = [entry.id for entry in summary_loss.summaries_on(state.branch, state.reading.reader)]
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
    loss = summary_loss.loss_of(
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


def _replacement(state: BranchState, summaries: Iterable[str]) -> summary_loss.Replacement | None:
    """The messages replaced by the first of these summaries that replaced any."""
    found = (
        summary_loss.replacement_by(state.tree, state.branch, summary, state.reading.reader) for summary in summaries
    )
    return next(filter(None, found), None)


def _size(
    session: Session, state: BranchState, replacement: summary_loss.Replacement, before: Sequence[Entry]
) -> ContextSize:
    """The size of the context before; without a report of it, in the measure of the session's context."""
    tally = Tally.of(replacement.before, before, state.reading.reader.rebuild, session.inherited_measure)
    now = session.context_size
    if tally.wants_sample and now is not None:
        return ContextSize(now.of(replacement.tokens_before), Basis.ABOUT, now.ratio)
    return tally.size


TURNS_SHOWN: Final = 200
FILES_SHOWN: Final = 4
SUMMARY_SHOWN: Final = 60_000
"""Characters of the summary that are shown."""


def view_loss(session: Session, found: BranchSummary) -> dict[str, Any]:
    """The loss of a summary or of a draft, for its page. Token counts are in the measure of the context before it."""
    loss, replacement = found.loss, found.loss.replacement
    plan, summary, before = loss.plan, replacement.summary, found.before
    when, ended = summary.entry.moment, found.last.moment
    text = loss.text[:SUMMARY_SHOWN]
    bars = bars_of(loss.subjects, loss.still, loss.in_context)
    plan_bars = bars_of(loss.subjects, plan.still, plan.in_context) if plan is not None else []
    lost = lost_lists(loss.lost, loss.turn_numbers, session.cwd)
    tokens = before.shares([turn.tokens for turn in loss.turns])
    return {
        "found": found,
        "loss": loss,
        "replaced": replacement,
        "by_redline": summary.entry.id in written_by_redline(session),
        "when": when,
        # How long the session continued after it; None if that is not recorded, or it did not.
        "went_on": ended - when if when is not None and ended is not None and ended > when else None,
        "window_percent": round(100 * before.tokens / session.window) if session.window else None,
        "after": before.without(replacement.tokens_before - replacement.tokens_after),
        "tokens_replaced": before.of(replacement.tokens_replaced),
        "bars": bars,
        "plan_bars": plan_bars,
        "rows": list(zip_longest(bars, plan_bars)),
        "plan_tokens": before.of(plan.tokens_after) if plan is not None else None,
        # The tokens that the plan keeps, in percent of those before.
        "plan_keep": min(
            99.9, max(0.1, round(100 * (replacement.tokens_after / max(1, replacement.tokens_before)), 1))
        ),
        # Whether a plan must keep more than the summary left.
        "is_plan_larger": plan is not None and plan.tokens_after > 1.05 * replacement.tokens_after,
        "lost": lost,
        "lost_by_title": [(measure.capitalize(), lost[measure]) for measure in MEASURES],
        "is_complete": not any(one.total for one in lost.values()),
        "turns": [
            (turn, share, moment_of(turn.timestamp), _files(turn.files, session.cwd))
            for turn, share in zip(loss.turns[:TURNS_SHOWN], tokens, strict=False)
        ],
        "more_turns": max(0, len(loss.turns) - TURNS_SHOWN),
        "text": text,
        "shown": whole(TextSource("text", text)),
        "left_out": max(0, len(loss.text) - SUMMARY_SHOWN),
        "tokens": before.of(tokens_of(utf16_length(loss.text))),
    }


def _files(files: Sequence[FileTouch], project: str) -> str:
    """The files with their changes, relative to the project's directory: `edit src/a.py ×3, src/b.py, 2 more`."""
    words = []
    tool = ""
    for file in files[:FILES_SHOWN]:
        path = below_project(file.path, project)
        named = path if file.tool == tool else f"{file.tool} {path}"
        words.append(f"{named} ×{file.times}" if file.times > 1 else named)
        tool = file.tool
    more = len(files) - FILES_SHOWN
    return ", ".join([*words, f"{more:,} more"] if more > 0 else words)


@require_safe
def lost(request: HttpRequest, root: int, path: str) -> HttpResponse:
    """The messages that a summary replaced, beside it, with the subjects still mentioned; by default for the newest
    summary."""
    return _show(request, root, path, "losses/lost.html")


@require_safe
def report(request: HttpRequest, root: int, path: str) -> HttpResponse:
    """The page of a summary's loss as a file, without scripts, pictures or external resources."""
    answer = _show(request, root, path, "losses/report.html")
    if answer.status_code == 200:
        name = re.sub(r"[^A-Za-z0-9._-]+", "-", f"{path.rsplit('/', 1)[-1]}-lost")[:120]
        answer["Content-Disposition"] = f'attachment; filename="{name}.html"'
    return answer


@require_safe
def draft_lost(request: HttpRequest, draft: int) -> HttpResponse:
    """The messages that a draft would replace, beside its text."""
    found = known_draft(draft)
    if found.state != SummaryDraft.State.READY:
        return redirect(found)
    view, fault = view_or_fault(lambda: view_loss(found.session, loss_of_draft(found)))
    context = {
        "session": found.session,
        "draft": found,
        "draft_view": view_draft(found) if view is not None else None,
        "view": view,
        "fault": fault,
        "active_nav": "sessions",
    }
    return render(request, "losses/lost.html", context, status=status_of(fault))


def _show(request: HttpRequest, root: int, path: str, template: str) -> HttpResponse:
    session = known_session(root, path)
    entry_id = request.GET.get("entry", "")
    view, fault = view_or_fault(lambda: view_loss(session, loss_at(session, entry_id)), not_found="unknown_entry")
    context = {"session": session, "view": view, "fault": fault, "active_nav": "sessions"}
    if view is None:
        return render(request, "losses/lost.html", context, status=status_of(fault))
    return render(request, template, context)
