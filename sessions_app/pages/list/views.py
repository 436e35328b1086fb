"""The page with the list of sessions."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_safe

from sessions_app.web.pages import wants_fragment

from .service import ListFilters, browse


@require_safe
def sessions(request: HttpRequest) -> HttpResponse:
    """The list of sessions. htmx requests the same URL and receives only the list."""
    listing = browse(ListFilters.of(request.GET), timezone.now())
    template = "list/list.html#listing" if wants_fragment(request) else "list/list.html"
    return render(request, template, {"listing": listing, "active_nav": "sessions"})
