"""The pages of backups: the list, the way back, and what can be done with a copy. Downloads are here too."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_safe

from compaction_app.lookups import known_session
from sessions_app.models import Session
from sessions_app.sessionlog.errors import ConfirmationNeeded, RedlineError
from sessions_app.web.redirects import acts_on_post, see_other, wants_fragment

from .download import download
from .presenter import (
    RestoreView,
    backup_of,
    session_file,
    verified_row,
    view_backups,
    view_deletion,
    view_restore,
    yeses_of,
)
from .service import delete as delete_backup
from .service import restore as restore_backup

NOT_THERE: Final = frozenset({"no_such_backup", "no_such_file", "outside_root"})


@require_safe
def backups(request: HttpRequest, root: int, path: str) -> HttpResponse:
    """The backups of a session, newest first, and what was just done with one."""
    session = known_session(root, path)
    try:
        view = view_backups(session, request.GET.dict())
    except RedlineError as fault:
        return _refused(request, session, fault)
    context = {"session": session, "view": view, "told": view.told, "here": "sessions"}
    return render(request, "backups/list.html", context)


@require_http_methods(["GET", "HEAD", "POST"])
def restore(request: HttpRequest, root: int, path: str, name: str) -> HttpResponse:
    """What a restore would change, and the explicit yeses it needs; with them, it is done."""
    session = known_session(root, path)
    if request.method != "POST":
        return _show_restore(request, session, name)
    ticked = request.POST.getlist("yes")
    try:
        listed = backup_of(session, name)
        shown = request.POST.get("shown", "")
        restored = restore_backup(listed.file.path, yeses_of(ticked), timezone.now(), shown=shown)
    except RedlineError as fault:
        return _show_restore(request, session, name, fault, ticked)
    done = {"restored": name}
    if restored.previous_backup is not None:
        done["back"] = restored.previous_backup.path.name
    if restored.overtaken:
        done["overtaken"] = "1"
    if restored.writers:
        done["open"] = "1"
    return see_other(_address(session, **done))


def _show_restore(
    request: HttpRequest,
    session: Session,
    name: str,
    fault: RedlineError | None = None,
    ticked: list[str] | None = None,
) -> HttpResponse:
    try:
        view = view_restore(session, name)
    except RedlineError as unshown:
        return _refused(request, session, fault or unshown)
    # What was ticked for another state of the session is no yes to this one.
    same = request.POST.get("shown", view.shown) == view.shown
    context = {
        "session": session,
        "view": view,
        "fault": fault,
        "ticked": (ticked or []) if same else [],
        "missing": _missing(view, ticked or []) if isinstance(fault, ConfirmationNeeded) else [],
        "here": "sessions",
    }
    return render(request, "backups/restore.html", context, status=200 if fault is None else 409)


def _missing(view: RestoreView, ticked: list[str]) -> list[str]:
    return [yes.name for yes in view.yeses if yes.name not in ticked]


@require_http_methods(["GET", "HEAD", "POST"])
def delete(request: HttpRequest, root: int, path: str, name: str) -> HttpResponse:
    """Delete a backup, after a page that says what goes with it."""
    session = known_session(root, path)
    fault = None
    try:
        if request.method == "POST":
            listed = backup_of(session, name)
            try:
                delete_backup(listed.file.path, as_the_only_one=request.POST.get("only") == "yes")
                return see_other(_address(session, deleted=name))
            except RedlineError as failure:
                fault = failure
        view = view_deletion(session, name)
    except RedlineError as unshown:
        return _refused(request, session, fault or unshown)
    context = {"session": session, "view": view, "fault": fault, "here": "sessions"}
    return render(request, "backups/delete.html", context, status=200 if fault is None else 409)


def _page(root: int, path: str, name: str) -> str:
    del name
    return reverse("compaction:backups", args=(root, path))


@acts_on_post(_page)
def verify(request: HttpRequest, root: int, path: str, name: str) -> HttpResponse:
    """Read a backup whole and compare its hash. htmx gets its row, and anyone else the list."""
    session = known_session(root, path)
    try:
        row = verified_row(session, name)
    except RedlineError as fault:
        return _refused(request, session, fault)
    if wants_fragment(request):
        return render(request, "backups/list.html#row", {"session": session, "row": row})
    return see_other(f"{_address(session)}#{row.anchor}")


@require_safe
def download_backup(request: HttpRequest, root: int, path: str, name: str) -> HttpResponseBase:
    """The bytes of a backup."""
    session = known_session(root, path)
    try:
        return download(backup_of(session, name).file.path, request.method or "")
    except RedlineError as fault:
        return _refused(request, session, fault)


@require_safe
def download_session(request: HttpRequest, root: int, path: str) -> HttpResponseBase:
    """The bytes of a session, as many as it has now."""
    session = known_session(root, path)
    try:
        return download(session_file(session), request.method or "")
    except RedlineError as fault:
        return _refused(request, session, fault)


def _address(session: Session, **done: str) -> str:
    address = reverse("compaction:backups", args=(session.root_id, session.relative_path))
    return f"{address}?{urlencode(done)}" if done else address


def _refused(request: HttpRequest, session: Session, fault: RedlineError) -> HttpResponse:
    """A page that says why something could not be shown or done; htmx is sent to the list as it is now."""
    context = {"session": session, "fault": fault, "here": "sessions"}
    answer = render(request, "backups/refused.html", context, status=404 if fault.code in NOT_THERE else 409)
    if wants_fragment(request):
        answer["HX-Redirect"] = _address(session)
    return answer
