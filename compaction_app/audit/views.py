"""The page of the audit log."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from .presenter import view_audit


@require_safe
def audit(request: HttpRequest) -> HttpResponse:
    """Every change of a session, newest first, and whether the log is whole."""
    view = view_audit(request.GET.get("page"))
    return render(request, "audit/audit.html", {"view": view, "active_nav": "settings"})
