"""Importing session files, and removing imported ones."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from django import forms
from django.contrib import messages
from django.core.files.uploadedfile import UploadedFile
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.template.loader import render_to_string
from django.views.decorators.http import require_http_methods

from sessions_app.sessionlog.errors import BadInput, RedlineError
from sessions_app.web.pages import redirect, require_valid, status_of
from sessions_app.web.uploads import NO_ROOM, StoredUpload, takes_uploads

from .service import ImportResult, import_removal, import_session, imported_sessions
from .service import remove_import

LISTED: Final = 10
"""The most imported files that a message lists, because a cookie has no room for more. The others are counted."""


class SessionFilesInput(forms.FileInput):
    """Accepts any number of files."""

    allow_multiple_selected = True


class ImportForm(forms.Form):
    """The files to import. Each gets its own result."""

    sessions = forms.Field(
        widget=SessionFilesInput, error_messages={"required": "No file was chosen. Nothing was imported."}
    )


class ImportRemovalForm(forms.Form):
    """The number of backups that the page said would be removed with the session."""

    backups = forms.IntegerField(min_value=0)


@takes_uploads
@require_http_methods(["GET", "HEAD", "POST"])
def imported(request: HttpRequest) -> HttpResponse:
    """The sessions in the managed root, and the form that imports more."""
    if request.method == "POST":
        return _import(request)
    return _page(request)


def _import(request: HttpRequest) -> HttpResponse:
    form = ImportForm(request.POST, request.FILES)
    results = [_outcome(upload) for upload in form.cleaned_data["sessions"]] if form.is_valid() else []
    fault = request.META.get(NO_ROOM) or " ".join(map(str, form["sessions"].errors))
    if fault or any(one.refusal for one in results):
        return _page(request, results, fault, status=422)
    if len(results) == 1 and not results[0].known and results[0].session is not None:
        return redirect(results[0].session)
    results.sort(key=lambda one: one.known)
    done = {"results": results[:LISTED], "more": len(results[LISTED:]), "is_message": True}
    messages.success(request, render_to_string("imports/results.html", done), extra_tags="done")
    return redirect("sessions:import")


def _outcome(upload: UploadedFile[Any]) -> ImportResult:
    name = upload.name or "session.jsonl"
    assert isinstance(upload, StoredUpload)  # noqa: S101  # there is no other handler
    try:
        return import_session(Path(upload.temporary_file_path()), name)
    except RedlineError as fault:
        return ImportResult(name, refusal=fault.message)


def _page(
    request: HttpRequest, results: Sequence[ImportResult] = (), fault: str = "", status: int = 200
) -> HttpResponse:
    context = {"results": results, "fault": fault, "kept": imported_sessions(), "active_nav": "sessions"}
    return render(request, "imports/import.html", context, status=status)


@require_http_methods(["GET", "HEAD", "POST"])
def remove(request: HttpRequest, name: str) -> HttpResponse:
    """Remove an imported session, after a page that lists what is removed with it."""
    fault = None
    if request.method == "POST":
        form = ImportRemovalForm(request.POST)
        try:
            require_valid(form)
            remove_import(name, form.cleaned_data["backups"])
            return redirect("sessions:import")
        except RedlineError as failure:
            fault = failure
    try:
        removal = import_removal(name)
    except BadInput as missing:
        raise Http404(missing.message) from missing
    context = {"removal": removal, "fault": fault, "active_nav": "sessions"}
    return render(request, "imports/remove.html", context, status=status_of(fault))
