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
from .forms import FORMS, AddRootForm, RereadForm


@require_http_methods(["GET", "HEAD", "POST"])
def settings(request: HttpRequest) -> HttpResponse:
    """The settings in effect and their sources; roots and windows can be changed, and a session be read again."""
    fault, form = None, None
    if request.method == "POST":
        kind, section = FORMS.get(request.POST.get("do", ""), (RereadForm, "unreadable"))
        form = kind(request.POST)
        if form.is_valid():
            form.save()
            return redirect(reverse("sessions:settings", fragment=section))
        fault = FormInvalid(form)
    adding = form if isinstance(form, AddRootForm) else AddRootForm()
    context = {"shown": effective_settings(Path.home()), "adding": adding, "fault": fault, "active_nav": "settings"}
    return render(request, "settings_page/settings.html", context, status=status_of(fault))
