"""The commit of a reviewed run, and its result."""

from __future__ import annotations

from typing import Final

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_safe

from compaction_app.lookups import compaction_of, known_run
from compaction_app.models import Compaction, Run
from compaction_app.runs.reviews import review_of
from compaction_app.undo.presenter import undo_rows
from sessions_app.sessionlog.errors import ConfirmationNeeded, RedlineError, TargetNotMet
from sessions_app.web.error_handlers import status_of
from sessions_app.web.forms import require_valid
from sessions_app.web.redirects import acts_on_post, redirect

from .certificate import certify_again
from .forms import CommitForm
from .presenter import handoff_of, other_writers, view_commit, view_result
from .service import CHANGE_IS_MADE, NOT_RECORDED, commit_run

PLAN_AGAIN: Final = frozenset(
    {"plan_changed", "plan_refused", "other_branch", "reader_changed", "session_rewritten"}
)
"""Errors that a new plan on the current session can solve."""
WRITER_FAILS: Final = frozenset(
    {
        "not_writable",
        "unknown_writer",
        "refused_writer",
        "open_in_agent",
        "not_proven",
        "no_line_id",
        "archived_thread",
        "newer_thread",
    }
)
"""The failures of one writer that another one may not have."""
READ_ONLY: Final = "read_only_agent"
"""The failure for an agent to whose sessions nothing can be written."""
WRITTEN: Final = CHANGE_IS_MADE | {NOT_RECORDED}
"""Failures after which the change is made."""


@require_http_methods(["GET", "HEAD", "POST"])
def commit(request: HttpRequest, run: int) -> HttpResponse:
    """What will be written, and the confirmations it requires; with them, it is written."""
    found = known_run(run)
    if Compaction.objects.filter(run=found).exists():
        # A second click, or a second window: show what was written.
        return redirect("compaction:result", found.pk)
    if request.method != "POST":
        return _show(request, found)
    form = CommitForm(request.POST)
    try:
        require_valid(form)
        data = form.cleaned_data
        commit_run(found, data["yes"], data["plan"], timezone.now(), data["writer"])
    except (ConfirmationNeeded, TargetNotMet):
        missing = ConfirmationNeeded("yes_missing", "Confirmation required. Nothing was written.", "")
        return _show(request, found, missing, form)
    except RedlineError as fault:
        return _show(request, found, fault)
    return redirect("compaction:result", found.pk)


def _show(
    request: HttpRequest, run: Run, fault: RedlineError | None = None, form: CommitForm | None = None
) -> HttpResponse:
    view = None
    writer = (request.POST or request.GET).get("writer", "")
    was_written = fault is not None and fault.code in WRITTEN
    if not was_written:
        try:
            view = view_commit(run, timezone.now(), review_of(run).undecided, writer)
        except RedlineError as unshown:
            fault = fault or unshown
    context = {
        "run": run,
        "view": view,
        "fault": fault,
        "can_plan_again": fault is not None and fault.code in PLAN_AGAIN,
        "was_written": was_written,
        "is_read_only": fault is not None and fault.code == READ_ONLY,
        "other_writers": other_writers(run, writer) if fault and fault.code in WRITER_FAILS else (),
        "form": form or CommitForm(),
        "here": "runs",
    }
    return render(request, "commit/commit.html", context, status=status_of(fault))


@require_safe
def handoff(request: HttpRequest, run: int) -> HttpResponse:
    """What the approved plan leaves, as Markdown: for agents to whose sessions nothing can be written."""
    found = known_run(run)
    try:
        text = handoff_of(found)
    except RedlineError as fault:
        return _show(request, found, fault)
    headers = {"Content-Disposition": f'attachment; filename="run-{found.pk}-handoff.md"'}
    return HttpResponse(text.encode("utf-8", "replace"), "text/markdown; charset=utf-8", headers=headers)


@require_safe
def result(request: HttpRequest, run: int) -> HttpResponse:
    """What was written, before and after, and how to undo it."""
    return _show_result(request, known_run(run))


@acts_on_post(lambda run: reverse("compaction:result", args=[run]))
def certify(request: HttpRequest, run: int) -> HttpResponse:
    """Check the written session again, with the agent's own package if it is installed."""
    found = known_run(run)
    try:
        certify_again(compaction_of(found), timezone.now())
    except RedlineError as fault:
        return _show_result(request, found, fault)
    return redirect("compaction:result", found.pk)


def _show_result(request: HttpRequest, run: Run, fault: RedlineError | None = None) -> HttpResponse:
    compaction = compaction_of(run)
    view, rows = view_result(compaction), undo_rows(compaction)
    context = {"run": run, "view": view, "rows": rows, "fault": fault, "here": "runs"}
    return render(request, "commit/result.html", context, status=status_of(fault))
