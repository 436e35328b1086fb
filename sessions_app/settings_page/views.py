"""The settings page."""

from __future__ import annotations

from pathlib import Path

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from sessions_app.sessionlog.errors import BadInput
from sessions_app.web.redirects import see_other

from .effective_settings import choose_root_reader, effective_settings, index_again


@require_http_methods(["GET", "HEAD", "POST"])
def settings(request: HttpRequest) -> HttpResponse:
    """The settings in effect and their sources; a reader can be chosen for a root, and a session be read again."""
    fault = None
    if request.method == "POST":
        try:
            return see_other(reverse("sessions:settings") + _act(request))
        except BadInput as refused:
            fault = refused
    context = {"shown": effective_settings(Path.home()), "fault": fault, "here": "settings"}
    return render(request, "settings_page/settings.html", context, status=409 if fault is not None else 200)


def _act(request: HttpRequest) -> str:
    """Do what was asked; gives the place on the page where it is seen."""
    if "root" in request.POST:
        choose_root_reader(_number(request.POST["root"]), request.POST.get("reader", ""))
        return "#roots"
    index_again(_number(request.POST.get("session", "")))
    return "#unreadable"


def _number(given: str) -> int:
    if not (given.isascii() and given.isdigit() and len(given) < 19):
        raise BadInput("no_such_number", "The form named nothing that is known. Nothing was done.")
    return int(given)
