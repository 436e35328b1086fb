"""Selections: shown before the decision, and decided in one step, or made the proposals of a run."""

from __future__ import annotations

from typing import Any, Final

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from compaction_app.core.decisions import Kind, Step
from compaction_app.core.selection import Criterion, SelectionKind
from compaction_app.lookups import known_run, known_session
from compaction_app.models import Run
from compaction_app.planning.planners import MANUAL_PLANNER
from compaction_app.planning.snapshots import mark_of
from compaction_app.review.decision_report import decision_report
from compaction_app.review.grouped_review import GroupedReview
from compaction_app.review.target_ref import target_of
from compaction_app.runs.commands import require_writable, start_run
from compaction_app.runs.reviews import decide
from compaction_app.runs.unseen_proposals import mark_seen
from sessions_app.models import Session
from sessions_app.sessionlog.errors import Conflict, RedlineError
from sessions_app.web.error_handlers import status_of
from sessions_app.web.forms import require_valid
from sessions_app.web.redirects import redirect, wants_fragment

from .presenter import SelectionMaker, SelectionScope, scope_of_branch, scope_of_run

NOT_SELECTED: Final = "Nothing was selected."
VALUE_CHARACTERS: Final = 4_096


class SelectionForm(forms.Form):
    """The criterion of a selection."""

    by = forms.ChoiceField(choices=[(kind.value, kind.value) for kind in SelectionKind])
    what = forms.CharField(required=False, max_length=VALUE_CHARACTERS, strip=False)

    @property
    def criterion(self) -> Criterion:
        return Criterion(SelectionKind(self.cleaned_data["by"]), self.cleaned_data["what"])


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
    context = {"run": found, "session": found.session, "active_nav": "runs"}
    try:
        if request.method == "POST":
            return _decide(request, found)
        context |= _preview(request, scope_of_run(found))
    except RedlineError as fault:
        return _render(request, {**context, "fault": fault}, status_of(fault))
    return _render(request, context)


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
    SelectionMaker."""
    maker = SelectionMaker(scope)
    like = target_of(request.GET.get("like", ""))
    if "by" not in request.GET:
        return {"suggestions": maker.suggestions_like(like) if like is not None else maker.suggestions()}
    form = SelectionForm(request.GET)
    require_valid(form, NOT_SELECTED)
    preview = maker.preview(form.criterion)
    return {"preview": preview, "suggestions": () if wants_fragment(request) else maker.suggestions()}


def _render(request: HttpRequest, context: dict[str, Any], status: int = 200) -> HttpResponse:
    asked = {"by": request.GET.get("by", "pattern"), "what": request.GET.get("what", "")}
    context = {"asked": asked, "address": request.path, **context}
    if wants_fragment(request):
        # An error is also shown in place, where it has to replace the last preview.
        return render(request, "selection/selection.html#preview", context)
    return render(request, "selection/selection.html", context, status=status)


def _decide(request: HttpRequest, run: Run) -> HttpResponse:
    form = SelectionDecisionForm(request.POST)
    require_valid(form, "Nothing was decided. Load the page again.")
    values, kind = form.cleaned_data, form.kind
    if values["mark"] != mark_of(run):
        raise Conflict(
            "planned_anew",
            f"Run {run.pk} was resumed and planned again since this page was loaded. Nothing was decided. Reload it.",
        )
    targets = SelectionMaker(scope_of_run(run)).targets(form.criterion, kind)
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
    targets = SelectionMaker(scope_of_branch(session, leaf)).targets(form.criterion, Kind.ADD)
    _require_as_offered(form.cleaned_data["addable"], len(targets), "Nothing was planned.")
    why = f"selected: {form.criterion.words}"
    run = start_run(session, planner=MANUAL_PLANNER, requested_parameters={}, leaf_id=leaf, selected=targets, why=why)
    return redirect(run)


def _require_as_offered(offered: int, found: int, not_done: str) -> None:
    """Raise Conflict `selection_changed` if the page offered another selection than the present one."""
    if offered != found:
        raise Conflict(
            "selection_changed",
            f"The selection has changed since this page was loaded: it offered {offered:,}, and there are {found:,} "
            f"now. {not_done} Load the page again.",
        )
