"""The pages of runs: the form that starts one, the run itself, the list of them."""

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Final

from django.core.paginator import Paginator
from django.db.models import Count
from django.http import Http404, HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_safe

from compaction_app.core.prompt import PREVIEW_LENGTH
from compaction_app.core.states import ACTIVE, FINISHED, WRITTEN, RunState
from compaction_app.lookups import known_run, known_session
from compaction_app.models import Run, SummaryDraft
from compaction_app.planning.model_registry import model_of_session, models
from compaction_app.planning.snapshots import known_torn_line, snapshot_of
from compaction_app.runs.commands import plan_again, resume_run, start_run, stop_run
from compaction_app.runs.forms import CompactForm
from compaction_app.runs.presenter import automatic_planning, model_turn, transcript_lines, view_run
from compaction_app.runs.streaming import stream
from sessions_app.sessionlog.errors import RedlineError
from sessions_app.web.pages import acts_on_post, redirect, require_valid, status_of, wants_fragment

_FILTERS: Final[dict[str, tuple[str, Collection[RunState]]]] = {
    "": ("All", frozenset(RunState)),
    "waiting": ("Wait for a decision", FINISHED),
    "active": ("At work", ACTIVE),
    "stopped": ("Stopped or failed", frozenset({RunState.CANCELLED, RunState.INTERRUPTED, RunState.FAILED})),
    "written": ("Committed", WRITTEN),
    "replaced": ("Replaced", frozenset({RunState.SUPERSEDED})),
}


PAGE_SIZE: Final = 60
DRAFTS_SHOWN: Final = 20
PARTS: Final = ("planning", "size", "target")
"""The parts of the form that htmx requests."""


@require_safe
def runs(request: HttpRequest) -> HttpResponse:
    """The runs that a filter shows, the latest first."""
    asked = request.GET.get("show", "")
    chosen = asked if asked in _FILTERS else ""
    shown = Run.objects.shown()
    by_state = shown.order_by().values_list("state").annotate(number=Count("pk"))
    counts = {RunState(state): number for state, number in by_state}
    found = shown.with_session().filter(state__in=_FILTERS[chosen][1]).order_by("-pk")
    context = {
        "page": Paginator(found, PAGE_SIZE).get_page(request.GET.get("page")),
        # Each with the number of runs that it shows.
        "filters": [
            (name, words, sum(counts.get(state, 0) for state in states)) for name, (words, states) in _FILTERS.items()
        ],
        "total": sum(counts.values()),
        "chosen": chosen,
        "chosen_words": _FILTERS[chosen][0],
        "waiting": Run.objects.unseen().numbers(),
        "drafts": SummaryDraft.objects.shown().unfinished().with_session().order_by("-pk")[:DRAFTS_SHOWN],
        "automatic": automatic_planning(timezone.now(), Path.home()),
        "active_nav": "inbox",
    }
    return render(request, "runs/list.html", context)


@require_http_methods(["GET", "HEAD", "POST"])
def compact(request: HttpRequest, root: int, path: str) -> HttpResponse:
    """The form that starts a run, and its start."""
    session = known_session(root, path)
    if request.method != "POST":
        return _show_form(request, CompactForm(session, request.GET, model_of_session(session)))
    form = CompactForm(session, request.POST)
    if "show" in request.POST:
        return _show_form(request, form)
    try:
        require_valid(form, "Nothing was planned.")
        form.require_disclosure("Nothing was sent and nothing planned.")
        run = start_run(
            session,
            planner=form.planner_name,
            thinking=form.level,
            writer=form.cleaned_data["writer"],
            requested_parameters=form.requested_parameters,
            leaf_id=form.leaf_id,
        )
    except RedlineError as fault:
        return _show_form(request, form, fault)
    return redirect("compaction:run", run.pk)


def _show_form(request: HttpRequest, form: CompactForm, fault: RedlineError | None = None) -> HttpResponse:
    """The form, or the requested part of it.

    Every whole page states how much would be sent, so that no model is started before the user has seen it. For another
    planner it is a separate part, because it takes a moment.
    """
    part = request.GET.get("part", "") if wants_fragment(request) else ""
    context = {
        "session": form.session,
        "form": form,
        "models": models(),
        "in_flight": form.session.runs.active().first(),
        "torn": known_torn_line(form.session),
        "preview_length": PREVIEW_LENGTH,
        "first": None if part in ("planning", "target") else form.first_request(),
        "part": part,
        "fault": fault,
        "active_nav": "sessions",
    }
    template = f"runs/compact.html#{part}" if part in PARTS else "runs/compact.html"
    return render(request, template, context, status=status_of(fault))


@require_safe
def run(request: HttpRequest, run: int) -> HttpResponse:
    """A run: each call on arrival, and the plan's progress."""
    found = known_run(run)
    context = {"run": found, **view_run(found, whole="all" in request.GET), "active_nav": "inbox"}
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
    return redirect(later or found)


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
