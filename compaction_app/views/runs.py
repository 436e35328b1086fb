"""The pages of runs: the form that starts one, the run itself, the list of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, StreamingHttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_POST, require_safe

from sessions_app.models import Session
from sessions_app.sessionlog.errors import BadInput, RedlineError

from ..models import Run
from ..services.compact_form import Given, compact_form
from ..services.run_page import standing_of, view_run
from ..services.snapshots import session_path, snapshot_of
from ..services.starting import plan_again, resume_run, start_run, stop_run
from ..services.transcripts import transcript_lines
from .session import known_session

PAGE_SIZE: Final = 60


def known_run(run: int) -> Run:
    """The run of an address, of a session in a configured root."""
    runs = Run.objects.select_related("session__root", "replaces")
    return get_object_or_404(runs, pk=run, session__root__configured=True)


@require_safe
def runs(request: HttpRequest) -> HttpResponse:
    """All runs, the latest first."""
    found = Run.objects.filter(session__root__configured=True).select_related("session__root").order_by("-pk")
    page = Paginator(found, PAGE_SIZE).get_page(request.GET.get("page"))
    rows = [standing_of(run) for run in page.object_list]
    return render(request, "runs/list.html", {"rows": rows, "page": page, "here": "runs"})


def compact(request: HttpRequest, root: int, path: str) -> HttpResponse:
    """The form that starts a run, and its start."""
    session = known_session(root, path)
    if request.method == "POST":
        return _start(request, session)
    given = Given(leaf_id=request.GET.get("leaf", ""))
    return _show_form(request, session, given)


def _show_form(
    request: HttpRequest, session: Session, given: Given, fault: RedlineError | None = None
) -> HttpResponse:
    form = compact_form(session, given, Path.home())
    context = {"session": session, "form": form, "fault": fault, "here": "runs"}
    return render(request, "runs/compact.html", context, status=200 if fault is None else 409)


def _start(request: HttpRequest, session: Session) -> HttpResponse:
    given = Given.of(request.POST)
    try:
        asked = given.asked(compact_form(session, Given(), Path.home()))
        run = start_run(session, planner=given.planner, asked=asked, leaf_id=given.leaf_id)
    except RedlineError as fault:
        return _show_form(request, session, given, fault)
    return redirect("compaction:run", run.pk)


@require_safe
def run(request: HttpRequest, run: int) -> HttpResponse:
    """A run: each call as it comes, and how far the plan is."""
    found = known_run(run)
    view = view_run(found, whole="all" in request.GET)
    return render(
        request, "runs/run.html", {"run": found, "view": view, "standing": view.standing, "here": "runs"}
    )


@require_POST
def stop(request: HttpRequest, run: int) -> HttpResponse:
    """Stop a run; what was validated stays."""
    return _act(request, run, stop_run)


@require_POST
def resume(request: HttpRequest, run: int) -> HttpResponse:
    """Go on with an interrupted run."""
    return _act(request, run, resume_run)


@require_POST
def again(request: HttpRequest, run: int) -> HttpResponse:
    """Plan again from where the session stands now, with the decisions kept."""
    try:
        later = plan_again(known_run(run))
    except RedlineError as fault:
        return _refused(request, run, fault)
    return redirect("compaction:run", later.pk)


def _act(request: HttpRequest, run: int, act: object) -> HttpResponse:
    found = known_run(run)
    assert callable(act)  # noqa: S101
    try:
        act(found)
    except RedlineError as fault:
        return _refused(request, run, fault)
    return HttpResponseRedirect(request.POST.get("next") or f"/runs/{run}")


def _refused(request: HttpRequest, run: int, fault: RedlineError) -> HttpResponse:
    return render(
        request, "runs/refused.html", {"run": known_run(run), "fault": fault, "here": "runs"}, status=409
    )


@require_safe
def transcript(request: HttpRequest, run: int) -> HttpResponse | StreamingHttpResponse:
    """The prepared transcript as JSONL, made when it is asked for."""
    found = known_run(run)
    try:
        prepared = snapshot_of(found).prepared
        lines: Iterator[str] = transcript_lines(session_path(found.session), prepared)
    except BadInput as fault:
        return _refused(request, run, fault)
    answer = StreamingHttpResponse(lines, content_type="application/x-ndjson")
    answer["Content-Disposition"] = f'attachment; filename="run-{found.pk}-transcript.jsonl"'
    return answer
