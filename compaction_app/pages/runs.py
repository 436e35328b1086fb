"""The planner's log of a plan, and the actions on a plan that is being made, or was."""

from collections.abc import Callable

from django.http import Http404, HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_safe

from compaction_app.lookups import known_run
from compaction_app.models import Run
from compaction_app.planning.snapshots import snapshot_of
from compaction_app.runs.commands import plan_again, resume_run, stop_run
from compaction_app.runs.presenter import model_turn, transcript_lines, view_run
from compaction_app.runs.streaming import stream
from sessions_app.sessionlog.errors import RedlineError
from sessions_app.web.pages import acts_on_post, redirect, status_of


@require_safe
def run(request: HttpRequest, run: int) -> HttpResponse:
    """A run: each call on arrival, and the plan's progress."""
    found = known_run(run)
    context = {"run": found, "tab": "log", **view_run(found, whole="all" in request.GET), "active_nav": "inbox"}
    return render(request, "runs/run.html", context)


@require_safe
def words(request: HttpRequest, run: int, seq: int) -> HttpResponse:
    """A model's complete answer to one request, of which the page of its run shows the beginning."""
    found = known_run(run)
    turn = model_turn(found, seq)
    if turn is None:
        raise Http404
    return render(request, "runs/words.html", {"run": found, "turn": turn, "active_nav": "inbox"})


def _page(run: int) -> str:
    return reverse("compaction:run", args=[run])


@acts_on_post(_page)
def stop(request: HttpRequest, run: int) -> HttpResponse:
    """Stop a run; validated targets are kept."""
    return _act(request, run, stop_run)


@acts_on_post(_page)
def resume(request: HttpRequest, run: int) -> HttpResponse:
    """Resume an interrupted run."""
    return _act(request, run, resume_run)


@acts_on_post(_page)
def again(request: HttpRequest, run: int) -> HttpResponse:
    """Plan again on the current session, keeping the decisions."""
    return _act(request, run, plan_again)


def _act(request: HttpRequest, run: int, act: Callable[[Run], Run | None]) -> HttpResponse:
    found = known_run(run)
    try:
        later = act(found)
    except RedlineError as fault:
        return refused(request, found, fault)
    return redirect((later or found).log_address)


def refused(request: HttpRequest, run: Run, fault: RedlineError) -> HttpResponse:
    """A page that explains why an action on a run was refused."""
    return render(
        request, "runs/refused.html", {"run": run, "fault": fault, "active_nav": "inbox"}, status=status_of(fault)
    )


@require_safe
def transcript(request: HttpRequest, run: int) -> HttpResponseBase:
    """The prepared transcript as JSONL."""
    found = known_run(run)
    try:
        prepared = snapshot_of(found).prepared
        # The first piece shows whether the file is still the one that was prepared.
        return stream(transcript_lines(found.session.real_path(), prepared), f"run-{found.pk}-transcript.jsonl")
    except RedlineError as fault:
        return refused(request, found, fault)
