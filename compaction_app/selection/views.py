"""Selections: shown before anything is selected, and decided in one step."""

from __future__ import annotations

from typing import Final

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from compaction_app.core.decisions import Kind
from compaction_app.lookups import known_run
from compaction_app.models import Run
from compaction_app.planning.snapshots import mark_of
from compaction_app.runs.reviews import decide
from compaction_app.runs.unseen_proposals import mark_seen
from sessions_app.sessionlog.errors import Conflict, RedlineError
from sessions_app.web.error_handlers import status_of
from sessions_app.web.forms import require_valid
from sessions_app.web.redirects import redirect, wants_fragment

from .forms import NOT_SELECTED, SelectionDecisionForm, SelectionForm
from .presenter import SelectionMaker

DONE: Final = {Kind.APPROVE: "Approved", Kind.REJECT: "Rejected", Kind.ADD: "Added"}


@require_http_methods(["GET", "HEAD", "POST"])
def select(request: HttpRequest, run: int) -> HttpResponse:
    """What a criterion selects in a review; a POST decides about it, in one step."""
    found = known_run(run)
    try:
        if request.method == "POST":
            return _decide(request, found)
        maker = SelectionMaker(found)
        context: dict[str, object] = {"preview": None, "suggestions": maker.suggestions()}
        if "by" in request.GET:
            form = SelectionForm(request.GET)
            require_valid(form, NOT_SELECTED)
            context["preview"] = maker.preview(form.criterion)
    except RedlineError as fault:
        return _render(request, found, {"fault": fault}, status_of(fault))
    return _render(request, found, context)


def _render(request: HttpRequest, run: Run, context: dict[str, object], status: int = 200) -> HttpResponse:
    asked = {"by": request.GET.get("by", "pattern"), "what": request.GET.get("what", "")}
    context = {"run": run, "asked": asked, "here": "runs", **context}
    if wants_fragment(request):
        # What cannot be used is an answer too: in place it has to replace the last preview.
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
    targets = SelectionMaker(run).targets(form.criterion, kind)
    if len(targets) != form.offered:
        raise Conflict(
            "selection_changed",
            f"The selection has changed since this page was loaded: it offered {form.offered:,}, and there are "
            f"{len(targets):,} now. Nothing was decided. Reload the page.",
        )
    review = decide(run, kind, targets, timezone.now(), seen=values["seen"], scope=targets)
    mark_seen(run)
    refused = sum(review.items[target].refusal is not None for target in targets if target in review.items)
    more = f" {refused:,} of them may not go, and say why." if refused else ""
    messages.success(
        request, f"{DONE[kind]} {len(targets):,}: {form.criterion.words}.{more} One undo takes it back."
    )
    return redirect(reverse("compaction:review", args=[run.pk]))
