"""The page of a branch's timeline."""

from __future__ import annotations

from django.http import Http404, HttpRequest, HttpResponse, QueryDict
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_safe

from compaction_app.changes.fork import fork_session
from compaction_app.lookups import known_session
from sessions_app.models import Session
from sessions_app.sessionlog.errors import BadInput, RedlineError
from sessions_app.web.error_handlers import status_of
from sessions_app.web.redirects import acts_on_post, redirect

from .presenter import view_timeline


@require_safe
def timeline(request: HttpRequest, root: int, path: str) -> HttpResponse:
    """The changes of a branch's context, point by point, and the entries that the selected point removed."""
    return _show(request, known_session(root, path), request.GET)


@acts_on_post(lambda root, path: reverse("compaction:timeline", args=(root, path)))
def fork(request: HttpRequest, root: int, path: str) -> HttpResponse:
    """Make a new session that continues from an entry, and go there."""
    found = known_session(root, path)
    try:
        made = fork_session(found.real_path(), request.POST.get("entry", ""), timezone.now(), is_leaf=True)
    except RedlineError as fault:
        return _show(request, found, request.POST, fault)
    return redirect(made)


def _show(request: HttpRequest, found: Session, query: QueryDict, fault: RedlineError | None = None) -> HttpResponse:
    leaf, view = query.get("leaf", ""), None
    try:
        view = view_timeline(found, leaf, query.get("at", ""))
    except RedlineError as failure:
        if isinstance(failure, BadInput) and failure.code == "unknown_entry":
            raise Http404(failure.message) from failure
        fault = fault or failure
    context = {"session": found, "view": view, "leaf": leaf, "fault": fault, "active_nav": "sessions"}
    return render(request, "timeline/timeline.html", context, status=status_of(fault))
