"""The evidence for the reason of one proposal: within the review, or as a page."""

from __future__ import annotations

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from compaction_app.lookups import known_run
from compaction_app.review.target_ref import ref_of, target_of
from sessions_app.sessionlog.errors import RedlineError
from sessions_app.web.error_handlers import status_of
from sessions_app.web.redirects import wants_fragment

from .presenter import EvidenceMaker


@require_safe
def evidence(request: HttpRequest, run: int) -> HttpResponse:
    """The evidence for the proposal that `of` names; with `all`, every line of it."""
    found = known_run(run)
    target = target_of(request.GET.get("of", ""))
    if target is None:
        raise Http404("The address names no proposal.")
    template = "evidence/evidence.html#evidence" if wants_fragment(request) else "evidence/evidence.html"
    whole = "all" in request.GET
    context = {"run": found, "key": ref_of(target), "whole": whole, "active_nav": "runs"}
    try:
        shown = EvidenceMaker(found).evidence(target, whole=whole)
    except RedlineError as fault:
        return render(request, template, {**context, "fault": fault}, status=status_of(fault))
    if shown is None:
        raise Http404("The run has no such proposal.")
    return render(request, template, {**context, "evidence": shown})
