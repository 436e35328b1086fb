"""The page of a summary's loss, and the same as a self-contained report."""

from __future__ import annotations

import re

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from compaction_app.lookups import known_draft, known_session
from compaction_app.models import SummaryDraft
from compaction_app.summaries.presenter import view_draft
from sessions_app.sessionlog.errors import BadInput, RedlineError
from sessions_app.web.error_handlers import status_of
from sessions_app.web.redirects import redirect

from .presenter import view_draft_loss, view_loss


@require_safe
def lost(request: HttpRequest, root: int, path: str) -> HttpResponse:
    """The messages that a summary replaced, beside it, with the subjects still mentioned; by default for the newest
    summary."""
    return _show(request, root, path, "losses/lost.html")


@require_safe
def report(request: HttpRequest, root: int, path: str) -> HttpResponse:
    """The same as a file: one page without scripts, pictures or external resources."""
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
    view, fault = None, None
    try:
        view = view_draft_loss(found)
    except RedlineError as failure:
        fault = failure
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
    view, fault = None, None
    try:
        view = view_loss(session, request.GET.get("entry", ""))
    except RedlineError as failure:
        if isinstance(failure, BadInput) and failure.code == "unknown_entry":
            raise Http404(failure.message) from failure
        fault = failure
    context = {"session": session, "view": view, "fault": fault, "active_nav": "sessions"}
    if view is None:
        return render(request, "losses/lost.html", context, status=status_of(fault))
    return render(request, template, context)
