"""The settings page."""

from __future__ import annotations

from pathlib import Path

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from sessions_app.web.error_handlers import status_of
from sessions_app.web.forms import FormInvalid
from sessions_app.web.redirects import redirect

from .effective_settings import effective_settings
from .forms import RereadForm, RootReaderForm


@require_http_methods(["GET", "HEAD", "POST"])
def settings(request: HttpRequest) -> HttpResponse:
    """The settings in effect and their sources; the reader of a root can be chosen, and a session be read again."""
    fault = None
    if request.method == "POST":
        is_for_root = "root" in request.POST
        form = RootReaderForm(request.POST) if is_for_root else RereadForm(request.POST)
        if form.is_valid():
            form.save()
            return redirect(reverse("sessions:settings", fragment="roots" if is_for_root else "unreadable"))
        fault = FormInvalid(form)
    context = {"shown": effective_settings(Path.home()), "fault": fault, "here": "settings"}
    return render(request, "settings_page/settings.html", context, status=status_of(fault))
