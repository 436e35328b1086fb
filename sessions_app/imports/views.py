"""Importing session files, and removing imported ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.core.files.uploadedfile import UploadedFile
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from sessions_app.models import Session
from sessions_app.sessionlog.errors import BadInput, RedlineError
from sessions_app.web.error_handlers import status_of
from sessions_app.web.forms import require_valid
from sessions_app.web.redirects import redirect
from sessions_app.web.uploads import NO_ROOM, StoredUpload, takes_uploads

from .forms import ImportForm, ImportRemovalForm
from .service import ImportResult, import_session, imported_by_key, kept_sessions, removal_of
from .service import remove as remove_import

MOST_KEYS = 100


@takes_uploads
@require_http_methods(["GET", "HEAD", "POST"])
def imported(request: HttpRequest) -> HttpResponse:
    """The sessions in the managed root, and the form that imports more."""
    if request.method == "POST":
        return _import(request)
    results = [ImportResult(row.relative_path, row) for row in _named(request, "new")]
    results += [ImportResult(row.relative_path, row, known=True) for row in _named(request, "known")]
    return _page(request, results)


def _import(request: HttpRequest) -> HttpResponse:
    form = ImportForm(request.POST, request.FILES)
    results = [_outcome(upload) for upload in form.cleaned_data["sessions"]] if form.is_valid() else []
    fault = request.META.get(NO_ROOM) or " ".join(map(str, form["sessions"].errors))
    if fault or any(one.refusal for one in results):
        return _page(request, results, fault, status=422)
    if len(results) == 1 and not results[0].known and results[0].session is not None:
        return redirect(results[0].session)
    keys = {
        "new": ".".join(str(one.session.pk) for one in results if one.session is not None and not one.known),
        "known": ".".join(str(one.session.pk) for one in results if one.session is not None and one.known),
    }
    query = {name: value for name, value in keys.items() if value}
    return redirect(reverse("sessions:import", query=query))


def _outcome(upload: UploadedFile[Any]) -> ImportResult:
    name = upload.name or "session.jsonl"
    assert isinstance(upload, StoredUpload)  # noqa: S101  # there is no other handler
    try:
        return import_session(Path(upload.temporary_file_path()), name)
    except RedlineError as fault:
        return ImportResult(name, refusal=fault.message)


def _named(request: HttpRequest, name: str) -> list[Session]:
    parts = request.GET.get(name, "").split(".")[:MOST_KEYS]
    keys = [int(part) for part in parts if part.isascii() and part.isdigit() and len(part) < 19]
    return imported_by_key(keys) if keys else []


def _page(
    request: HttpRequest, results: list[ImportResult], fault: str = "", status: int = 200
) -> HttpResponse:
    context = {"results": results, "fault": fault, "kept": kept_sessions(), "here": "sessions"}
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
        removal = removal_of(name)
    except BadInput as missing:
        raise Http404(missing.message) from missing
    context = {"removal": removal, "fault": fault, "here": "sessions"}
    return render(request, "imports/remove.html", context, status=status_of(fault))
