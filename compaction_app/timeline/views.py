"""The page of a branch's timeline."""

from __future__ import annotations

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from compaction_app.lookups import known_session
from sessions_app.sessionlog.errors import BadInput, RedlineError
from sessions_app.web.error_handlers import status_of

from .presenter import view_timeline


@require_safe
def timeline(request: HttpRequest, root: int, path: str) -> HttpResponse:
    """How the context of a branch changed, point by point, and what the selected point removed."""
    found = known_session(root, path)
    leaf = request.GET.get("leaf", "")
    view, fault = None, None
    try:
        view = view_timeline(found, leaf, request.GET.get("at", ""))
    except RedlineError as failure:
        if isinstance(failure, BadInput) and failure.code == "unknown_entry":
            raise Http404(failure.message) from failure
        fault = failure
    context = {"session": found, "view": view, "leaf": leaf, "fault": fault, "here": "sessions"}
    return render(request, "timeline/timeline.html", context, status=status_of(fault))
