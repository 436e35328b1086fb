"""The page of a session's diagnosis. Its form writes the repaired copy."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_http_methods

from compaction_app.lookups import known_session
from sessions_app.index.session_copies import RepairedCopy, write_repaired_copy
from sessions_app.models import Session
from sessions_app.sessionlog.errors import RedlineError
from sessions_app.sessionlog.printable import plural
from sessions_app.storage.examination import diagnose
from sessions_app.templatetags.formatting import escape_line
from sessions_app.web.error_handlers import status_of
from sessions_app.web.redirects import redirect

from .presenter import view_diagnosis


@require_http_methods(["GET", "HEAD", "POST"])
def doctor(request: HttpRequest, root: int, path: str) -> HttpResponse:
    """What is wrong with a session; with POST, a repaired copy is written beside it."""
    session = known_session(root, path)
    if request.method != "POST":
        return _page(request, session)
    try:
        real = session.real_path()
        repaired = write_repaired_copy(real, diagnose(real))
    except RedlineError as fault:
        return _page(request, session, fault)
    messages.success(request, _written(repaired))
    return redirect("compaction:doctor", root, path)


def _page(request: HttpRequest, session: Session, fault: RedlineError | None = None) -> HttpResponse:
    view = None
    try:
        view = view_diagnosis(session)
    except RedlineError as unreadable:
        fault = fault or unreadable
    context = {"session": session, "view": view, "fault": fault, "here": "sessions"}
    return render(request, "doctor/doctor.html", context, status=status_of(fault))


def _written(repaired: RepairedCopy) -> str:
    account = repaired.account
    copy = f"Wrote {escape_line(repaired.path.name)}, {plural(account.copy_size, 'byte')}"
    if repaired.lost_path is None:
        return f"{copy}. Nothing of the session is lost."
    return f"{copy}, and {escape_line(repaired.lost_path.name)}, {plural(account.lost_size, 'byte')}."
