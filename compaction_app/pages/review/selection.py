"""Selections: shown before the decision, with their size, the beginnings of their texts and the units that may not be
deleted; then decided in one step, or made the proposals of a run."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

from django import forms
from django.conf import settings
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from compaction_app.core import selection
from compaction_app.core.effects import Consequences, first_decision, full_effect
from compaction_app.core.embedded import Unit, units_of
from compaction_app.core.file_touches import FileCall, file_calls
from compaction_app.core.gates import Refusal
from compaction_app.core.review_fold import Kind, Review, Reviewer, ReviewItem, ReviewStatus, Step
from compaction_app.core.transcript import Transcript
from compaction_app.entries.links import entry_address
from compaction_app.lookups import known_run, known_session
from compaction_app.models import Run
from compaction_app.planning.plan import MANUAL_PLANNER, effective_parameters
from compaction_app.planning.snapshots import Prepared, mark_of, open_snapshot_texts, prepare_snapshot, snapshot_of
from compaction_app.review.grouped_review import GroupedReview, decision_report
from compaction_app.review.lines import Outline, file_history, target_of, target_words
from compaction_app.runs.commands import require_writable, start_run
from compaction_app.runs.reviews import decide, require_same_plan, reviewed
from compaction_app.runs.unseen_proposals import mark_seen
from sessions_app.models import Session
from sessions_app.sessionlog.context import ContextSize
from sessions_app.sessionlog.entries import Role, Target
from sessions_app.sessionlog.errors import BadInput, Conflict, RedlineError
from sessions_app.web.pages import redirect, require_valid, status_of, wants_fragment

from .presenter import ReviewDesk
from .views import closed, page_context

ROWS: Final = 8
REFUSED_SHOWN: Final = 3
SUGGESTED: Final = 6
PARTS_OF_PATH: Final = 2
TURNS_KEPT: Final = 5
"""The number of last turns that a suggestion of older entries keeps."""
_FATES: Final = {
    ReviewStatus.APPROVED: "ok",
    ReviewStatus.GOES_WITH_PAIR: "ok",
    ReviewStatus.NARROWED: "ok",
    ReviewStatus.REJECTED: "stet",
    ReviewStatus.KEPT_WITH_PAIR: "stet",
    ReviewStatus.REFUSED: "no",
}


Suggestion = tuple[selection.Criterion, str, str, int | None]
"""A suggested selection: its criterion, the query of its address, its words, and its number of units, which is None if
it would have to be searched."""


@dataclass(frozen=True)
class SelectionScope:
    """The source of selections: the transcript of a run, or that of a branch without a run.

    Its methods raise BadInput `cannot_select`, and the errors of `open_snapshot_texts` and its texts.
    """

    session: Session
    prepared: Prepared
    reviewer: Reviewer
    review: Review
    thinking_guard: str
    calls: Sequence[FileCall]
    """The calls on files, for suggestions."""
    version: int = 0
    mark: str = ""

    @property
    def transcript(self) -> Transcript:
        return self.reviewer.transcript

    @property
    def context(self) -> ContextSize:
        """The size of the context, in whose measure all numbers are."""
        return self.prepared.context_size

    @cached_property
    def _consequences(self) -> Consequences:
        return Consequences(self.reviewer, self.review)

    @cached_property
    def _session_address(self) -> str:
        # Resolving an address is far slower than composing a text.
        return self.session.get_absolute_url()

    def targets(self, criterion: selection.Criterion, kind: Kind) -> list[Target]:
        """The targets of a decision about a selection: undecided proposals, or units that were not proposed and may be
        deleted."""
        found = self._selection(criterion)
        if kind is Kind.ADD:
            return [one.target for one in found.addable]
        return [item.target for item in found.proposed if item.standing is ReviewStatus.UNDECIDED]

    def preview(self, criterion: selection.Criterion) -> dict[str, Any]:
        """The content of a selection, and the possible decisions about it, for the page."""
        found = self._selection(criterion)
        counts = Counter(_FATES.get(item.standing, "") for item in found.proposed)
        undecided = [item for item in found.proposed if item.standing is ReviewStatus.UNDECIDED]
        outline = Outline(self.transcript, self.review)
        turns = {outline.turn_number(item.position) for item in found.proposed}
        return {
            "criterion": criterion,
            "version": self.version,
            "mark": self.mark,
            "is_empty": not (found.proposed or found.addable or found.refused),
            "proposed": len(found.proposed),
            "turns": len(turns),
            # The tokens deleted by approving the undecided proposals, and by adding the addable units.
            "tokens": self._effect_tokens(Kind.APPROVE, [item.target for item in undecided]),
            "addable_tokens": self._effect_tokens(Kind.ADD, [one.target for one in found.addable]),
            "undecided": len(undecided),
            "approved": counts["ok"],
            "rejected": counts["stet"],
            "addable": len(found.addable),
            "rows": self._rows(found),
            "more": max(0, len(found.proposed) + len(found.addable) - ROWS),
            "refused": len(found.refused),
            "refusals": [(one, self._address(one.target.entry_id)) for one in found.refused[:REFUSED_SHOWN]],
        }

    def suggestions(self) -> list[Suggestion]:
        """Suggested selections: by tool, by kind, and by file; each with the number of its units."""
        units = list(units_of(self.transcript))
        tools = Counter(unit.tool for unit in units if unit.call is not None and unit.tool)
        reads = Counter(call.touch.path for call in self.calls if call.touch.reads)
        thinking = sum(unit.kind == "reasoning" for unit in units)
        return [
            *(_suggestion(selection.SelectionKind.TOOL, tool, count) for tool, count in tools.most_common(SUGGESTED)),
            *([_suggestion(selection.SelectionKind.THINKING, "", thinking)] if thinking else ()),
            _suggestion(selection.SelectionKind.REPEATED, "", None),
            *self._older(units),
            *(
                _suggestion(selection.SelectionKind.FILE, path, count - 1)
                for path, count in reads.most_common(SUGGESTED)
                if count > 1
            ),
        ]

    def suggestions_like(self, target: Target) -> list[Suggestion]:
        """Suggested selections with a proposal or an entry: by its tool, its file or thinking; and older entries."""
        entry = self.transcript.entry(target.entry_id)
        if entry is None:
            return []
        units = list(units_of(self.transcript))
        found = [unit for unit in units if target in selection.targets_of(unit, self.transcript)]
        reads = {call.order: call.touch.path for call in self.calls if call.touch.reads}
        tools = dict.fromkeys(unit.tool for unit in found if unit.call is not None and unit.tool)
        paths = dict.fromkeys(reads[unit.call] for unit in found if unit.call in reads)
        older = sum(unit.position < entry.position for unit in units)
        called = Counter(unit.tool for unit in units if unit.call is not None)
        read = Counter(reads.values())
        thinking = sum(unit.kind == "reasoning" for unit in units)
        is_thinking = any(unit.kind == "reasoning" for unit in found)
        return [
            *(_suggestion(selection.SelectionKind.TOOL, tool, called[tool]) for tool in tools),
            *(_suggestion(selection.SelectionKind.FILE, path, read[path] - 1) for path in paths),
            *([_suggestion(selection.SelectionKind.THINKING, "", thinking)] if is_thinking else ()),
            _suggestion(selection.SelectionKind.OLDER, entry.entry_id, older, "everything older than this"),
        ]

    def _older(self, units: Sequence[Unit]) -> list[Suggestion]:
        """Everything before the last turns, if there are more."""
        starts = [entry for entry in self.transcript.entries if entry.role == Role.USER]
        if len(starts) <= TURNS_KEPT:
            return []
        first = starts[-TURNS_KEPT]
        older = sum(unit.position < first.position for unit in units)
        words = f"everything before the last {TURNS_KEPT} turns"
        return [_suggestion(selection.SelectionKind.OLDER, first.entry_id, older, words)]

    # ---- pieces -----------------------------------------------------------------------------------------

    def _selection(self, criterion: selection.Criterion) -> selection.ReviewSelection:
        with open_snapshot_texts(self.session.real_path(), self.prepared) as texts:
            units = selection.select(criterion, self.prepared.transcript(texts))
        if isinstance(units, Refusal):
            raise BadInput("cannot_select", units.message)
        in_part = criterion.kind is selection.SelectionKind.PATTERN
        return selection.review_selection(units, self.transcript, self.review, self.thinking_guard, in_part=in_part)

    def _effect_tokens(self, kind: Kind, targets: Sequence[Target]) -> int:
        """The change of the approved tokens by a decision."""
        return self.context.of(abs(self._consequences.of(kind, targets).tokens))

    def _alone(self, target: Target) -> int:
        """The estimated tokens removed by deleting an object with its pair, regardless of other decisions."""
        return full_effect(self.transcript, self.reviewer, target)

    def _number(self, item: ReviewItem) -> int:
        """The number of a proposal, as shown in the review."""
        kind = first_decision(item)
        tokens = self._effect_tokens(kind, [item.target]) if kind is not None else 0
        return tokens or self.context.of(self._alone(item.target))

    def _rows(self, found: selection.ReviewSelection) -> list[tuple[str, str, int, str]]:
        """The largest selected units: the words of each, its address, the tokens that deciding it deletes, and the icon
        before it, which is empty for units that were not proposed."""
        transcript, session = self.transcript, self.session
        units: list[ReviewItem | selection.Addable] = [*found.proposed, *found.addable]
        largest = sorted(units, key=lambda one: -self._alone(one.target))[: 2 * ROWS]
        numbered = [
            (one.target, self._number(one), _FATES.get(one.standing, "open"))
            if isinstance(one, ReviewItem)
            else (one.target, self._effect_tokens(Kind.ADD, [one.target]), "")
            for one in largest
        ]
        rows = []
        with open_snapshot_texts(session.real_path(), self.prepared) as texts:
            for target, tokens, icon in sorted(numbered, key=lambda row: -row[1])[:ROWS]:
                words = target_words(transcript, target, texts, session.cwd)
                rows.append((words, self._address(target.entry_id), tokens, icon))
        return rows

    def _address(self, entry_id: str) -> str:
        return entry_address(self._session_address, entry_id)


def scope_of_run(run: Run) -> SelectionScope:
    """The scope of a run's review at its latest version. Raises BadInput `not_prepared` and the errors of reading."""
    found = reviewed(run)
    return SelectionScope(
        run.session,
        snapshot_of(run, found.mark).prepared,
        found.reviewer,
        found.review,
        run.thinking_guard,
        list(file_history(run, found.mark).calls.values()),
        found.version,
        found.mark,
    )


def scope_of_branch(session: Session, leaf_id: str) -> SelectionScope:
    """The scope of a branch as it would be planned on now. Raises the errors of `prepare_snapshot` and of reading."""
    own = effective_parameters(session.agent_settings(Path.home()), {})
    prepared = prepare_snapshot(session, leaf_id, own.values)
    with open_snapshot_texts(session.real_path(), prepared) as texts:
        transcript = prepared.transcript(texts)
        calls = list(file_calls(transcript))
    guard = settings.REDLINE.thinking_guard
    reviewer = Reviewer(transcript, [], guard)
    return SelectionScope(session, prepared, reviewer, reviewer.review([]), guard, calls)


def _suggestion(kind: selection.SelectionKind, value: str, count: int | None, words: str = "") -> Suggestion:
    """A suggestion in these words or its own; for a path, the last parts are shown."""
    short = "/".join(value.split("/")[-PARTS_OF_PATH:]) if kind is selection.SelectionKind.FILE else value
    query = urlencode({"by": kind, "what": value})
    return selection.Criterion(kind, value), query, words or selection.Criterion(kind, short).words, count


PREVIEW: Final = "selection/find.html#preview"
NOT_SELECTED: Final = "Nothing was selected."
VALUE_CHARACTERS: Final = 4_096


class SelectionForm(forms.Form):
    """The criterion of a selection."""

    by = forms.ChoiceField(choices=[(kind.value, kind.value) for kind in selection.SelectionKind])
    what = forms.CharField(required=False, max_length=VALUE_CHARACTERS, strip=False)

    @property
    def criterion(self) -> selection.Criterion:
        return selection.Criterion(selection.SelectionKind(self.cleaned_data["by"]), self.cleaned_data["what"])


class BranchSelectionForm(SelectionForm):
    """A selection of a branch to be planned; an empty `leaf` means the file's last entry."""

    leaf = forms.CharField(required=False, strip=False)
    addable = forms.IntegerField(min_value=1, max_value=999_999_999)


class SelectionDecisionForm(SelectionForm):
    """The decision about a selection in a review."""

    do = forms.ChoiceField(choices=[(kind.value, kind.value) for kind in (Kind.APPROVE, Kind.REJECT, Kind.ADD)])
    seen = forms.IntegerField(min_value=0, max_value=999_999_999)
    mark = forms.CharField()
    undecided = forms.IntegerField(min_value=0, max_value=999_999_999)
    addable = forms.IntegerField(min_value=0, max_value=999_999_999)

    @property
    def kind(self) -> Kind:
        return Kind(self.cleaned_data["do"])

    @property
    def offered(self) -> int:
        """The number of units that the pressed button stated."""
        offered: int = self.cleaned_data["addable" if self.kind is Kind.ADD else "undecided"]
        return offered


@require_http_methods(["GET", "HEAD", "POST"])
def select(request: HttpRequest, run: int) -> HttpResponse:
    """The units of a review that a criterion selects; a POST decides about them, in one step."""
    found = known_run(run)
    try:
        if request.method == "POST":
            return _decide(request, found)
        shown, status = _preview(request, scope_of_run(found)), 200
    except RedlineError as fault:
        shown, status = {"fault": fault}, status_of(fault)
    context = {"run": found, "session": found.session, **_asked(request), **shown}
    if wants_fragment(request):
        return render(request, PREVIEW, context)
    try:
        desk = ReviewDesk(found)
        context = page_context(desk, desk.page([desk.first_group()])) | context | {"panel": True}
    except RedlineError as fault:
        return closed(request, found, fault)
    return render(request, "review/review.html", context, status=status)


@require_http_methods(["GET", "HEAD", "POST"])
def select_for_plan(request: HttpRequest, root: int, path: str) -> HttpResponse:
    """The units of a branch that a criterion selects; a POST starts a run that proposes them."""
    session = known_session(root, path)
    leaf = (request.POST if request.method == "POST" else request.GET).get("leaf", "")
    context = {"session": session, "leaf": leaf, "active_nav": "sessions"}
    try:
        require_writable(session)
        if request.method == "POST":
            return _start(request, session)
        context |= _preview(request, scope_of_branch(session, leaf))
    except RedlineError as fault:
        return _render(request, {**context, "fault": fault}, status_of(fault))
    return _render(request, context)


def _preview(request: HttpRequest, scope: SelectionScope) -> dict[str, Any]:
    """The selection that an address names, if it has a criterion. Raises FormInvalid and the errors of
    SelectionScope."""
    like = target_of(request.GET.get("like", ""))
    if "by" not in request.GET:
        return {"suggestions": scope.suggestions_like(like) if like is not None else scope.suggestions()}
    form = SelectionForm(request.GET)
    require_valid(form, NOT_SELECTED)
    preview = scope.preview(form.criterion)
    return {"preview": preview, "suggestions": () if wants_fragment(request) else scope.suggestions()}


def _asked(request: HttpRequest) -> dict[str, Any]:
    """The criterion that an address names, and the address without it."""
    asked = {"by": request.GET.get("by", "pattern"), "what": request.GET.get("what", "")}
    return {"asked": asked, "address": request.path}


def _render(request: HttpRequest, context: dict[str, Any], status: int = 200) -> HttpResponse:
    context = {**_asked(request), **context}
    if wants_fragment(request):
        # An error is also shown in place, where it has to replace the last preview.
        return render(request, PREVIEW, context)
    return render(request, "selection/selection.html", context, status=status)


def _decide(request: HttpRequest, run: Run) -> HttpResponse:
    form = SelectionDecisionForm(request.POST)
    require_valid(form, "Nothing was decided. Load the page again.")
    values, kind = form.cleaned_data, form.kind
    require_same_plan(run, values["mark"], mark_of(run))
    targets = scope_of_run(run).targets(form.criterion, kind)
    _require_as_offered(form.offered, len(targets), "Nothing was decided.")
    before = GroupedReview(run)
    decide(run, kind, targets, timezone.now(), seen=values["seen"], scope=targets)
    mark_seen(run)
    report = decision_report(before, GroupedReview(run), Step(kind, tuple(targets)))
    messages.success(request, f"{report} You selected {form.criterion.words}. One undo takes it back.")
    return redirect(reverse("compaction:review", args=[run.pk]))


def _start(request: HttpRequest, session: Session) -> HttpResponse:
    form = BranchSelectionForm(request.POST)
    require_valid(form, "Nothing was planned. Load the page again.")
    leaf = form.cleaned_data["leaf"]
    targets = scope_of_branch(session, leaf).targets(form.criterion, Kind.ADD)
    _require_as_offered(form.cleaned_data["addable"], len(targets), "Nothing was planned.")
    why = f"selected: {form.criterion.words}"
    run = start_run(session, planner=MANUAL_PLANNER, requested_parameters={}, leaf_id=leaf, selected=targets, why=why)
    return redirect("compaction:run", run.pk)


def _require_as_offered(offered: int, found: int, not_done: str) -> None:
    """Raise Conflict `selection_changed` if the page offered another selection than the present one."""
    if offered != found:
        raise Conflict(
            "selection_changed",
            f"The selection has changed since this page was loaded: it offered {offered:,}, and there are {found:,} "
            f"now. {not_done} Load the page again.",
        )
