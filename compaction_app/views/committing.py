"""The commit of a reviewed run, and what came of it."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_safe

from sessions_app.sessionlog.errors import Conflict, RedlineError

from ..models import Run
from ..pages.commit import view_commit, view_result, yeses_of
from ..services.committing import approval
from ..services.committing import commit as write
from ..services.reviewing import review_of
from .finding import compaction_of, known_run


@require_http_methods(["GET", "HEAD", "POST"])
def commit(request: HttpRequest, run: int) -> HttpResponse:
    """What will be written, and the explicit yeses it needs; with them, it is written."""
    found = known_run(run)
    if request.method != "POST":
        return _show(request, found)
    ticked = request.POST.getlist("yes")
    try:
        write(approval(found), yeses_of(ticked), timezone.now())
    except RedlineError as fault:
        return _show(request, found, fault, ticked)
    return redirect("compaction:result", found.pk)


def _show(
    request: HttpRequest, run: Run, fault: RedlineError | None = None, ticked: list[str] | None = None
) -> HttpResponse:
    view = None
    try:
        view = view_commit(run, timezone.now(), review_of(run).undecided)
    except RedlineError as unshown:
        fault = fault or unshown
    context = {
        "run": run,
        "view": view,
        "fault": fault,
        "is_conflict": isinstance(fault, Conflict),
        "ticked": ticked or [],
        "here": "runs",
    }
    return render(request, "runs/commit.html", context, status=200 if fault is None else 409)


@require_safe
def result(request: HttpRequest, run: int) -> HttpResponse:
    """What was written, before and after, and the way back."""
    found = known_run(run)
    view = view_result(compaction_of(found))
    return render(request, "runs/result.html", {"run": found, "view": view, "here": "runs"})
