"""Logging out."""

from __future__ import annotations

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_POST

from .credentials import COOKIE, Credentials
from .launch_tokens import end_session


@require_POST
def log_out(request: HttpRequest) -> HttpResponse:
    """Log this browser out, including copies of its cookie."""
    session = Credentials.of_request(request).launch_session()
    if session is not None:
        end_session(settings.REDLINE_DATA_DIR, session.id)
    response = render(request, "web/launch.html", {"why": "ended"})
    response.delete_cookie(COOKIE, samesite="Strict")
    return response
