"""Summaries on their pages: the range to be replaced, the requests, and the subjects that a draft keeps."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple

from compaction_app.changes.change import RequiredConfirmation
from compaction_app.core.summary_prompt import SummaryKind
from compaction_app.core.summary_ranges import turn_numbers
from compaction_app.entries.lost_subjects import HeldBar, LostList, bars_of, below_project, lost_lists
from compaction_app.entries.view import ShownText, TextSource, whole
from compaction_app.models import SummaryDraft
from compaction_app.planning.model_registry import ResolvedModel
from compaction_app.planning.model_request import request_for_summary
from compaction_app.providers.client import size_of
from compaction_app.providers.types import CHARACTERS_PER_TOKEN, ReportedUsage, dollars
from compaction_app.rendering.code import TextChange, counts, diff_markup, diff_of
from compaction_app.rendering.markup import NO_MARKUP, Markup, sanitized
from sessions_app.agents.pure.formats import FileLists
from sessions_app.models import Session
from sessions_app.sessionlog.context import Basis, ContextSize
from sessions_app.sessionlog.entries import Entry, Role, tokens_of
from sessions_app.sessionlog.jsjson import utf16_length

from .drafts import plan_draft, shown_task_of
from .summary_task import SummaryTask

_PARTS: Final = {
    SummaryKind.BRANCH: "the branch",
    SummaryKind.HISTORY: "the conversation",
    SummaryKind.TURN: "the beginning of the turn that is split",
}


class PartRequest(NamedTuple):
    """One request to a model, as it would be sent."""

    what: str
    characters: int
    tokens: int
    """Estimated: four characters per token, as the agents estimate."""
    output_limit: int


@dataclass(frozen=True, slots=True)
class SentParts:
    """The data that would be sent to a model."""

    parts: Sequence[PartRequest]
    cost: str
    """The cost of the input, if the model's prices are known; otherwise empty."""

    @property
    def characters(self) -> int:
        return sum(part.characters for part in self.parts)

    @property
    def tokens(self) -> int:
        return sum(part.tokens for part in self.parts)


@dataclass(frozen=True, slots=True)
class TaskView:
    """The range that a summary would replace, and the kept part."""

    is_compaction: bool
    entries: int
    turns: str
    """The replaced turns in words, such as `turns 3 to 12`."""
    tokens: int
    """The tokens of the replaced range, in the measure of the context."""
    images: int
    """The number of images in the replaced range, all of which a summary loses."""
    left_out: int
    """The number of older messages that the model does not receive."""
    updates: datetime | None
    """The time of the summary that this one updates; None if there is none, or if it is not recorded."""
    is_update: bool
    kept: int
    """The number of entries kept verbatim after a compaction."""
    kept_turns: str
    first_kept_id: str
    is_split: bool
    """Whether the turn at the cut is split."""
    cut_before: str
    """The role of the first kept message."""
    target_id: str
    """The entry after which the agent continues with the summary of a branch; empty before the first one."""
    files: FileLists
    """The files that the summary lists, relative to the session's directory if they are inside."""
    before: ContextSize
    after: ContextSize
    """The size of the context with the draft, or with an empty summary."""
    limit: int
    """The maximum number of tokens that a model may write."""
    keep: float
    """The kept share in percent of the context: a verbatim plan of the same size keeps as much."""


@dataclass(frozen=True, slots=True)
class Check:
    """The subjects that a draft keeps, those it loses, and its size."""

    bars: Sequence[HeldBar]
    names: LostList
    paths: LostList
    errors: LostList
    characters: int
    tokens: int

    @property
    def missing(self) -> int:
        return self.names.total + self.paths.total + self.errors.total


@dataclass(frozen=True, slots=True)
class DraftView:
    """A draft that can be edited."""

    task: TaskView
    check: Check
    added: int
    """The number of lines added to the generated text."""
    removed: int


@dataclass(frozen=True, slots=True)
class AppendView:
    """The effect of appending a draft."""

    task: TaskView
    check: Check
    shown: ShownText
    """The whole text, rendered."""
    confirmations: list[RequiredConfirmation]
    digest: str


def requests_of(task: SummaryTask, model: ResolvedModel) -> SentParts:
    """The requests that would be sent to a model for this summary."""
    parts = []
    for part in task.parts:
        request = request_for_summary(model, part)
        characters = size_of(request, model.provider.dialect)
        tokens = math.ceil(characters / CHARACTERS_PER_TOKEN)
        parts.append(PartRequest(_PARTS[part.kind], characters, tokens, request.output_limit))
    cost = model.prices.cost(ReportedUsage(input=sum(part.tokens for part in parts), output=0))
    return SentParts(parts, dollars(cost) if cost else "")


def view_task(session: Session, task: SummaryTask, text: str = "") -> TaskView:
    """The range that a summary would replace, for its page; `text` is the draft, if there is one."""
    branch = task.present.tree.branch(task.present.leaf_id)
    numbers = turn_numbers(branch)
    replacement = task.drafted(text) if text else task.replacement
    before = session.context_size or ContextSize(
        replacement.tokens_before, Basis.ABOUT, estimate=replacement.tokens_before
    )
    kept = _kept(task, branch)
    previous = task.preparation is not None and bool(task.previous)
    summaries = [entry for entry in branch if entry.role == Role.COMPACTION_SUMMARY]
    first = next((entry for entry in kept if entry.id == task.first_kept_id), None)
    share = replacement.tokens_after / max(1, replacement.tokens_before)
    return TaskView(
        is_compaction=task.is_compaction,
        entries=replacement.entries,
        turns=_turns(numbers[entry.id] for entry in task.replaced if entry.id in numbers),
        tokens=before.of(replacement.tokens_replaced),
        images=replacement.images,
        left_out=task.left_out,
        updates=summaries[-1].moment if previous and summaries else None,
        is_update=previous,
        kept=len(kept),
        kept_turns=_turns(numbers[entry.id] for entry in kept if entry.id in numbers),
        first_kept_id=task.first_kept_id,
        is_split=any(part.kind is SummaryKind.TURN for part in task.parts),
        cut_before=first.role if first is not None else "",
        target_id=task.leaf_id or "",
        files=FileLists(*(tuple(below_project(name, session.cwd) for name in names) for names in task.files)),
        before=before,
        after=before.without(replacement.tokens_before - replacement.tokens_after),
        limit=sum(part.output_limit for part in task.parts),
        keep=min(99.9, max(0.1, round(100 * share, 1))),
    )


def check_of(session: Session, task: SummaryTask, text: str) -> Check:
    """The subjects that a draft keeps."""
    judged = task.judge(text)
    numbers = turn_numbers(task.present.tree.branch(task.present.leaf_id))
    lost = lost_lists(judged.lost, numbers, session.cwd)
    whole_text = task.complete(text)
    return Check(
        bars_of(judged.subjects, judged.still, judged.in_context),
        lost["names"],
        lost["paths"],
        lost["errors"],
        len(whole_text),
        tokens_of(utf16_length(whole_text)),
    )


def view_draft(draft: SummaryDraft) -> DraftView:
    """A draft to be edited. Raises the errors of `shown_task_of`."""
    task = shown_task_of(draft)
    added, removed = counts(diff_of([TextChange(draft.generated, draft.text)]))
    return DraftView(
        view_task(draft.session, task, draft.text),
        check_of(draft.session, task, draft.text),
        added,
        removed,
    )


def changes_of_draft(draft: SummaryDraft) -> Markup:
    """The edits, as a diff; empty if there are none."""
    if not draft.is_edited:
        return NO_MARKUP
    return sanitized(diff_markup(diff_of([TextChange(draft.generated, draft.text)])))


def preview_of(task: SummaryTask, text: str) -> ShownText:
    """The whole text as the model will see it, rendered."""
    return whole(TextSource("text", task.complete(text)))


def view_append(draft: SummaryDraft, now: datetime) -> AppendView:
    """The effect that appending a draft would have now. Raises the errors of `plan_draft`."""
    plan = plan_draft(draft, now)
    return AppendView(
        view_task(draft.session, plan.task, draft.text),
        check_of(draft.session, plan.task, draft.text),
        preview_of(plan.task, draft.text),
        plan.append.confirmations,
        plan.digest,
    )


def _kept(task: SummaryTask, branch: Sequence[Entry]) -> list[Entry]:
    if task.kept_ids is None:
        return task.present.tree.branch(task.leaf_id) if task.leaf_id is not None else []
    return [entry for entry in branch if entry.id in task.kept_ids]


def _turns(numbers: Iterable[int]) -> str:
    found = sorted(set(numbers) - {0})
    if not found:
        return "no turn"
    return f"turn {found[0]:,}" if len(found) == 1 else f"turns {found[0]:,} to {found[-1]:,}"
