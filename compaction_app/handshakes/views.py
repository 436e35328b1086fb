"""The pages about waiting agents: one handshake, and the part of every page that lists them."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus

from django.contrib import messages
from django.forms import BaseForm
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_safe

from compaction_app.core.handshake_states import NextStep
from compaction_app.models import Handshake
from sessions_app.sessionlog.errors import BadInput, RedlineError
from sessions_app.web.error_handlers import status_of
from sessions_app.web.forms import FormInvalid, require_valid
from sessions_app.web.redirects import acts_on_post, redirect

from .forms import DeclineForm, pass_forms, wait_forms
from .lifecycle import decline, shown_now
from .outcomes import cancel_approved
from .presenter import asked_lately, asking_agents, view_handshake, waiting_agents


def _known(number: int) -> Handshake:
    """The handshake of an address. Raises Http404."""
    return get_object_or_404(Handshake.objects.shown().with_session(), pk=number)


def _page(handshake: int) -> str:
    return reverse("compaction:handshake", args=(handshake,))


@require_safe
def handshake(request: HttpRequest, handshake: int) -> HttpResponse:
    """A review request and what can be done about it; nothing for a page that already shows its state."""
    found = _known(handshake)
    shown = request.GET.get("shown")
    if shown is not None and shown == shown_now(found, timezone.now()).state:
        return HttpResponse(status=HTTPStatus.NO_CONTENT)
    return _show(request, found)


def _show(request: HttpRequest, found: Handshake, fault: RedlineError | None = None) -> HttpResponse:
    shown = view_handshake(shown_now(found, timezone.now()))
    context = {**shown, "fault": fault, "active_nav": "agents"}
    return render(request, "handshakes/handshake.html", context, status=status_of(fault))


@acts_on_post(_page)
def decline_handshake(request: HttpRequest, handshake: int) -> HttpResponse:
    """The agent gets no plan."""
    found, form = _known(handshake), DeclineForm(request.POST)
    try:
        require_valid(form, "It was not declined.")
        decline(found, NextStep(form.cleaned_data["step"]), timezone.now())
    except RedlineError as fault:
        return _show(request, found, fault)
    return redirect("compaction:handshake", found.pk)


@acts_on_post(_page)
def take_back(request: HttpRequest, handshake: int) -> HttpResponse:
    """Withdraw an approval that is not written yet."""
    found = _known(handshake)
    try:
        cancel_approved(found, timezone.now())
    except RedlineError as fault:
        return _show(request, found, fault)
    return redirect("compaction:handshake", found.pk)


@require_safe
def waiting(request: HttpRequest) -> HttpResponse:
    """The banner, for pages that are open."""
    return render(request, "handshakes/waiting.html", {"waiting_agents": waiting_agents()})


def _misfilled(wrong: Sequence[BaseForm]) -> BadInput:
    count = sum(len(one.errors) for one in wrong)
    if count == 1:
        return FormInvalid(wrong[0])
    return BadInput("misfilled", f"Nothing was changed. Correct the {count} errors below.")


@require_http_methods(["GET", "HEAD", "POST"])
def handshakes(request: HttpRequest) -> HttpResponse:
    """The latest review requests, how long agents may wait, and which plans pass without a review."""
    is_of_waits = "waits" in request.POST
    agents = asking_agents()
    waits = wait_forms(agents, request.POST if is_of_waits else None)
    passes = pass_forms(agents, request.POST if "passes" in request.POST else None)
    fault = None
    if request.method == "POST":
        sent = waits if is_of_waits else passes
        wrong = [one for one in sent if one.errors]
        if not wrong:
            for one in sent:
                one.save()
            messages.success(request, "Saved. It applies from the next question.")
            return redirect("compaction:handshakes")
        fault = _misfilled(wrong)
    context = {
        "asked": asked_lately(),
        "waits": waits,
        "passes": passes,
        "fault": fault,
        "active_nav": "agents",
    }
    return render(request, "handshakes/handshakes.html", context, status=status_of(fault))
