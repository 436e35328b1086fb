"""The pages of what compactions cost: all sessions, one session, and the part of other pages for one compaction."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_safe

from compaction_app.lookups import known_session
from sessions_app.sessionlog.errors import RedlineError
from sessions_app.web.pages import status_of, wants_fragment

from .presenter import view_overview, view_session


@require_safe
def overview(request: HttpRequest) -> HttpResponse:
    """The costs of compactions, by agent and by month."""
    view, fault = None, None
    try:
        view = view_overview(timezone.now(), request.GET.get("agent", ""), request.GET.get("month", ""))
    except RedlineError as failure:
        fault = failure
    context = {"view": view, "fault": fault, "active_nav": "lab"}
    return render(request, "hindsight/overview.html", context, status=status_of(fault))


@require_safe
def session(request: HttpRequest, root: int, path: str) -> HttpResponse:
    """The messages that followed the compactions of one branch, and their costs; for one compaction, if another page
    requests that part."""
    found = known_session(root, path)
    view, fault = None, None
    try:
        view = view_session(found, request.GET.get("entry", ""), request.GET.get("leaf", ""))
    except RedlineError as failure:
        fault = failure
    context = {"session": found, "view": view, "fault": fault, "active_nav": "sessions"}
    template = "hindsight/session.html"
    if wants_fragment(request):
        return render(request, f"{template}#since", context)
    return render(request, template, context, status=status_of(fault))
