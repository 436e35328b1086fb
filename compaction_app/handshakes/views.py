"""The pages about running agents that wait: one handshake, and the part of every page that names those who wait."""

from __future__ import annotations

from django import forms
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_safe

from compaction_app.core.handshake_states import OUTCOMES, NextStep
from compaction_app.models import Handshake
from sessions_app.web.forms import require_valid
from sessions_app.web.redirects import acts_on_post, redirect

from .lifecycle import decline, shown_now
from .outcomes import cancel_approved
from .presenter import view_handshake, waiting_agents


class DeclineForm(forms.Form):
    """What the agent does without an approved plan."""

    step = forms.ChoiceField(choices=[(one.value, one.sentence) for one in OUTCOMES])


def _known(number: int) -> Handshake:
    """The handshake of an address. Raises Http404."""
    return get_object_or_404(Handshake.objects.shown().with_session(), pk=number)


def _page(handshake: int) -> str:
    return reverse("compaction:handshake", args=(handshake,))


@require_safe
def handshake(request: HttpRequest, handshake: int) -> HttpResponse:
    """What became of a question, and what can be done about it."""
    found = shown_now(_known(handshake), timezone.now())
    return render(request, "handshakes/handshake.html", {**view_handshake(found), "here": "runs"})


@acts_on_post(_page)
def decline_handshake(request: HttpRequest, handshake: int) -> HttpResponse:
    """The agent gets no plan."""
    form = DeclineForm(request.POST)
    require_valid(form)
    found = _known(handshake)
    decline(found, NextStep(form.cleaned_data["step"]), timezone.now())
    return redirect("compaction:handshake", found.pk)


@acts_on_post(_page)
def take_back(request: HttpRequest, handshake: int) -> HttpResponse:
    """An approval that is not written yet does not count any more."""
    del request
    found = _known(handshake)
    cancel_approved(found, timezone.now())
    return redirect("compaction:handshake", found.pk)


@require_safe
def waiting(request: HttpRequest) -> HttpResponse:
    """The banner, for pages that are open."""
    return render(request, "handshakes/waiting.html", {"waiting_agents": waiting_agents()})
