"""Compact…: a panel beside the conversation, which asks three questions, and then shows how planning goes on."""

import time
from typing import Any, Final

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from compaction_app.core.prompt import PREVIEW_LENGTH
from compaction_app.core.states import FINISHED, RunState
from compaction_app.lookups import known_session
from compaction_app.models import Run
from compaction_app.planning.model_registry import model_of_session, models
from compaction_app.planning.snapshots import known_torn_line
from compaction_app.runs.commands import start_run
from compaction_app.runs.forms import CompactForm, repeated_fields
from compaction_app.runs.presenter import planning_steps
from sessions_app.models import Session
from sessions_app.sessionlog.errors import RedlineError
from sessions_app.web.pages import number_in, redirect, require_valid, status_of, wants_fragment

from .views import session_context

PARTS: Final = ("planning", "size", "target")
"""The parts of the form that htmx requests."""
READY_SECONDS: Final = 1.0
"""How long the start of a plan waits for its end, so that a quick planner leads to the review at once."""
TAKEN_SECONDS: Final = 0.5
"""How long it waits for a worker to take the plan."""
LOOK_SECONDS: Final = 0.05


@require_http_methods(["GET", "HEAD", "POST"])
def compact(request: HttpRequest, root: int, path: str) -> HttpResponse:
    """The form that starts a plan, its start, and its progress."""
    session = known_session(root, path)
    if request.method == "POST":
        return _start(request, session)
    number = number_in(request.GET.get("plan", ""))
    if "plan" in request.GET:
        run = session.runs.filter(pk=number or 0).first()
        if run is None:
            raise Http404("This session has no such plan.")
        return _show_progress(request, session, run)
    active = session.runs.active().first()
    if active is not None and not wants_fragment(request):
        return _show_progress(request, session, active)
    return _show_form(request, CompactForm(session, request.GET, model_of_session(session)))


def _start(request: HttpRequest, session: Session) -> HttpResponse:
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
    if not run.is_by_llm and _is_ready(run):
        return redirect(run)
    return redirect(address_of_progress(run))


def address_of_progress(run: Run) -> str:
    """The panel on which a plan is watched."""
    session = run.session
    page = reverse("compaction:compact", args=(session.root_id, session.relative_path))
    return f"{page}?plan={run.pk}"


def _is_ready(run: Run) -> bool:
    """Whether a quick planner ends while its user waits. It is not waited for if no worker takes the plan."""
    began = time.monotonic()
    while (waited := time.monotonic() - began) < READY_SECONDS:
        run.refresh_from_db(fields=("state",))
        if not run.is_active:
            return run.state in FINISHED
        if run.state == RunState.QUEUED and waited > TAKEN_SECONDS:
            return False
        time.sleep(LOOK_SECONDS)
    return False


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
    }
    if part in PARTS:
        return render(request, f"runs/panel.html#{part}", context, status=status_of(fault))
    return _beside_conversation(request, form.session, "runs/panel.html", context, status_of(fault))


def _show_progress(request: HttpRequest, session: Session, run: Run) -> HttpResponse:
    """The progress of a plan. Once there is something to review, that opens."""
    if run.state in FINISHED or run.is_written:
        return redirect(run)
    context = {"run": run, "steps": planning_steps(run), "seq": run.last_seq, "fields": repeated_fields(run)}
    return _beside_conversation(request, session, "runs/planning.html", context)


def _beside_conversation(
    request: HttpRequest, session: Session, panel: str, context: dict[str, Any], status: int = 200
) -> HttpResponse:
    """The page of a session with a panel; if the session cannot be read, the panel alone."""
    try:
        page = session_context(request, session)
    except RedlineError:
        page = {"session": session, "active_nav": "sessions"}
    template = "session_page/session.html" if "shown" in page else "runs/compact.html"
    return render(request, template, {**page, "panel": panel, **context}, status=status)
