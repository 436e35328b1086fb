"""The pages of the lab: experiments, the form that starts one, its figures and exports."""

from __future__ import annotations

from typing import Final

from django.contrib import messages
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_safe
from django_htmx.http import HttpResponseClientRefresh

from compaction_app.planning.model_registry import models
from lab_app.models import Experiment
from lab_app.pure.report import as_csv, as_document
from lab_app.pure.strategies import strategies_named
from sessions_app.sessionlog.errors import RedlineError
from sessions_app.web.pages import acts_on_post, redirect, require_valid, status_of, wants_fragment

from .experiments import delete_experiment, start_experiment, stop_experiment
from .forms import ExperimentForm
from .presenter import about, tried_sessions, view_experiment

PAGE_SIZE: Final = 50
ACTIVE_NAV: Final = {"active_nav": "lab"}


@require_safe
def experiments(request: HttpRequest) -> HttpResponse:
    """All experiments, the newest first."""
    rows = Experiment.objects.with_counts().order_by("-pk")
    page = Paginator(rows, PAGE_SIZE).get_page(request.GET.get("page"))
    return render(request, "lab/list.html", {"page": page, **ACTIVE_NAV})


@require_http_methods(["GET", "HEAD", "POST"])
def new_experiment(request: HttpRequest) -> HttpResponse:
    """The form that starts an experiment; a POST starts it."""
    if request.method != "POST":
        return _show_new(request, ExperimentForm(request.GET, is_new="keep" not in request.GET))
    form = ExperimentForm(request.POST, is_new=False)
    if "show" in request.POST:
        return _show_new(request, form)
    try:
        require_valid(form, "Nothing was measured.")
        form.require_usable_model()
        form.require_disclosure()
        keys = form.cleaned_data["strategy"]
        strategies = strategies_named(keys) if keys or form.model is None else []
        experiment = start_experiment(form.sessions, strategies, form.cleaned_data["keep"], form.model)
    except RedlineError as fault:
        return _show_new(request, form, fault)
    return redirect(experiment)


def _show_new(request: HttpRequest, form: ExperimentForm, fault: RedlineError | None = None) -> HttpResponse:
    template = "lab/new.html#chosen" if wants_fragment(request) else "lab/new.html"
    context = {"form": form, "models": models(), "fault": fault, **ACTIVE_NAV}
    return render(request, template, context, status=status_of(fault))


@require_safe
def experiment(request: HttpRequest, experiment: int) -> HttpResponse:
    """The figures of an experiment, during and after the measurement."""
    found = get_object_or_404(Experiment, pk=experiment)
    if wants_fragment(request) and request.GET.get("part") == "progress" and not found.is_active:
        # It has ended: the page is another one.
        return HttpResponseClientRefresh()
    return _show(request, found)


def _show(request: HttpRequest, found: Experiment, fault: RedlineError | None = None) -> HttpResponse:
    chosen = {name: request.GET.get(name, "") for name in ("keep", "strategy", "other")}
    context = {"experiment": found, "view": view_experiment(found, **chosen), "fault": fault, **ACTIVE_NAV}
    part = request.GET.get("part") if wants_fragment(request) else None
    template = "lab/experiment.html#progress" if part == "progress" else "lab/experiment.html"
    return render(request, template, context, status=status_of(fault))


def _page(experiment: int) -> str:
    return reverse("lab:experiment", args=[experiment])


@acts_on_post(_page)
def stop(request: HttpRequest, experiment: int) -> HttpResponse:
    """Stop an experiment; the measured part is kept."""
    found = get_object_or_404(Experiment, pk=experiment)
    try:
        stop_experiment(found)
    except RedlineError as fault:
        return _show(request, found, fault)
    return redirect(found)


@acts_on_post(_page)
def delete(request: HttpRequest, experiment: int) -> HttpResponse:
    """Delete an experiment that has ended."""
    found = get_object_or_404(Experiment, pk=experiment)
    try:
        delete_experiment(found)
    except RedlineError as fault:
        return _show(request, found, fault)
    messages.success(request, f"Experiment {experiment} was deleted.")
    return redirect("lab:experiments")


@require_safe
def export_csv(request: HttpRequest, experiment: int) -> HttpResponse:
    """The trials as a table, one line each."""
    del request
    found = get_object_or_404(Experiment, pk=experiment)
    answer = HttpResponse(as_csv(tried_sessions(found)), content_type="text/csv; charset=utf-8")
    return _attached(answer, f"redline-experiment-{experiment}.csv")


@require_safe
def export_json(request: HttpRequest, experiment: int) -> HttpResponse:
    """The figures and trials, for programs."""
    del request
    found = get_object_or_404(Experiment, pk=experiment)
    document = as_document(tried_sessions(found), **about(found))
    return _attached(JsonResponse(document), f"redline-experiment-{experiment}.json")


def _attached(answer: HttpResponse, name: str) -> HttpResponse:
    answer["Content-Disposition"] = f'attachment; filename="{name}"'
    return answer
