"""The pages of session files."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_safe

from ..services.browsing import Choice, browse
from .answering import wants_fragment


@require_safe
def sessions(request: HttpRequest) -> HttpResponse:
    """The list of sessions. htmx asks for the same address and gets the list alone."""
    listing = browse(Choice.of(request.GET), timezone.now())
    template = "sessions/list.html#listing" if wants_fragment(request) else "sessions/list.html"
    return render(request, template, {"listing": listing, "here": "sessions"})
