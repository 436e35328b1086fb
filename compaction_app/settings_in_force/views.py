"""The page of a session's compaction settings. It changes nothing: agents' files are never written."""

from __future__ import annotations

from pathlib import Path

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from compaction_app.lookups import known_session

from .presenter import view_settings


@require_safe
def compaction_settings(request: HttpRequest, root: int, path: str) -> HttpResponse:
    """The settings in force for the compaction of a session, each with its default and the file that sets it."""
    session = known_session(root, path)
    context = {"session": session, "view": view_settings(session, Path.home()), "active_nav": "sessions"}
    return render(request, "settings_in_force/settings.html", context)
