"""The pages of backups: those of all sessions, the list of one session, the restore, the actions on one backup, and
downloads."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import BinaryIO, Final

from asgiref.sync import sync_to_async
from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html
from django.views.decorators.http import require_http_methods, require_safe
from django_htmx.http import HttpResponseClientRedirect

from compaction_app.changes.backups import delete as delete_backup
from compaction_app.changes.backups import restore as restore_backup
from compaction_app.changes.forms import ConfirmForm
from compaction_app.lookups import known_session
from compaction_app.runs.streaming import disposition
from sessions_app.agents.registry import agent_at
from sessions_app.disk.files import CHUNK, open_regular, reported
from sessions_app.disk.rendered import DOCUMENT_SUFFIX
from sessions_app.models import Session
from sessions_app.sessionlog.errors import Conflict, RedlineError
from sessions_app.templatetags.formatting import escape_line
from sessions_app.web.pages import acts_on_post, redirect, require_valid, status_of, wants_fragment

from .presenter import (
    SESSIONS_SHOWN,
    all_backups,
    backup_of,
    session_file,
    verified_row,
    verify_from,
    view_backups,
    view_deletion,
    view_restore,
)

NOT_SENT: Final = "It was not sent."


class SentFile:
    """The bytes of a file at the time of opening, in pieces, without bytes appended during the download.

    If the file shrinks meanwhile a Conflict is raised: the connection is cut off, and a browser then reports that the
    download failed.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = path.name
        # A file object, so that it is closed even if a response is discarded before it is sent.
        self._file = self._open()
        with reported(path, NOT_SENT):
            self.size = os.fstat(self._file.fileno()).st_size
        self._sent = 0

    def _open(self) -> BinaryIO:
        export = agent_at(self.path).store.export(self.path)
        if export is None:
            return os.fdopen(open_regular(self.path, os.O_RDONLY, NOT_SENT), "rb", buffering=0)
        self.name = f"{self.path.stem}{DOCUMENT_SUFFIX}"
        copy = tempfile.TemporaryFile()  # noqa: SIM115  # a transaction would last as long as the download
        copy.writelines(export)
        copy.flush()
        return copy

    def __aiter__(self) -> SentFile:
        return self

    async def __anext__(self) -> bytes:
        piece = await sync_to_async(self._next)()
        if not piece:
            raise StopAsyncIteration
        return piece

    def _next(self) -> bytes:
        with reported(self.path, "It was sent only in part."):
            piece = os.pread(self._file.fileno(), min(CHUNK, self.size - self._sent), self._sent)
        if not piece and self._sent < self.size:
            raise Conflict(
                "session_rewritten",
                f"{self.path} shrank while it was sent. It was sent only in part. Download it again.",
            )
        self._sent += len(piece)
        return piece

    def close(self) -> None:
        self._file.close()


def download(path: Path, method: str) -> HttpResponseBase:
    """A response that sends a file as a download. Raises the errors of opening it; a link is not followed."""
    sent = SentFile(path)
    answer: HttpResponseBase
    if method == "HEAD":
        sent.close()
        answer = HttpResponse()
    else:
        answer = StreamingHttpResponse(sent)
    is_document = sent.name.endswith(DOCUMENT_SUFFIX)
    answer["Content-Type"] = "application/json" if is_document else "application/x-ndjson"
    answer["Content-Length"] = str(sent.size)
    answer["Content-Disposition"] = disposition(sent.name)
    answer["X-Content-Type-Options"] = "nosniff"
    return answer


NOT_THERE: Final = frozenset({"no_such_backup", "no_such_file", "outside_root"})


@require_safe
def overview(request: HttpRequest) -> HttpResponse:
    """The backups of all sessions."""
    return _show_overview(request, _number(request.GET.get("done", "")))


@acts_on_post(lambda: reverse("compaction:all_backups"))
def verify_all(request: HttpRequest) -> HttpResponse:
    """Verify the backups of all sessions in steps. htmx requests the next step itself."""
    step = verify_from(_number(request.POST.get("from", "")), timezone.now())
    for fault in step.faults:
        messages.error(request, fault)
    if wants_fragment(request):
        return _show_overview(request, 0 if step.is_last else step.done)
    return redirect(reverse("compaction:all_backups") + ("" if step.is_last else f"?done={step.done}"))


def _show_overview(request: HttpRequest, done: int) -> HttpResponse:
    """`done`: the number of backups that the current verification has read; 0 if none is under way."""
    found, page = all_backups(), _number(request.GET.get("page", ""))
    shown = found.sessions[page * SESSIONS_SHOWN : (page + 1) * SESSIONS_SHOWN]
    context = {
        "found": found,
        "shown": shown,
        "later": page + 1 if len(found.sessions) > (page + 1) * SESSIONS_SHOWN else 0,
        "standings": {name: found.count(name) for name in ("holds", "broken", "unchecked")},
        "done": min(done, len(found.rows)),
        "is_asked_by_script": wants_fragment(request),
        "active_nav": "backups",
    }
    part = "backups/overview.html#all" if wants_fragment(request) else "backups/overview.html"
    return render(request, part, context)


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0


class BackupDeletionForm(forms.Form):
    """Whether the page stated that this was the only backup."""

    only = forms.BooleanField(required=False)


@require_safe
def backups(request: HttpRequest, root: int, path: str) -> HttpResponse:
    """The backups of a session, newest first."""
    session = known_session(root, path)
    try:
        view = view_backups(session)
    except RedlineError as fault:
        return _refused(request, session, fault)
    return render(request, "backups/list.html", {"session": session, "view": view, "active_nav": "sessions"})


@require_http_methods(["GET", "HEAD", "POST"])
def restore(request: HttpRequest, root: int, path: str, name: str) -> HttpResponse:
    """The effect of a restore, and the required confirmations; with them, it is done."""
    session = known_session(root, path)
    if request.method != "POST":
        return _show_restore(request, session, name)
    form = ConfirmForm(request.POST)
    try:
        require_valid(form)
        listed = backup_of(session, name)
        confirmed, shown = form.cleaned_data["yes"], form.cleaned_data["plan"]
        restored = restore_backup(listed.file.path, confirmed, timezone.now(), shown=shown)
    except RedlineError as fault:
        return _show_restore(request, session, name, fault, form)
    done = {"session": session, "taken_at": listed.file.taken_at, "restored": restored}
    messages.success(request, render_to_string("backups/restored.html", done), extra_tags="done")
    return redirect(_address(session))


def _show_restore(
    request: HttpRequest,
    session: Session,
    name: str,
    fault: RedlineError | None = None,
    form: ConfirmForm | None = None,
) -> HttpResponse:
    try:
        view = view_restore(session, name)
    except RedlineError as unshown:
        return _refused(request, session, fault or unshown)
    form = (form or ConfirmForm()).of_shown(view["plan"])
    context = {
        "session": session,
        "view": view,
        "fault": fault,
        "form": form,
        "missing": form.missing(view["plan"], fault),
        "active_nav": "sessions",
    }
    return render(request, "backups/restore.html", context, status=status_of(fault))


@require_http_methods(["GET", "HEAD", "POST"])
def delete(request: HttpRequest, root: int, path: str, name: str) -> HttpResponse:
    """Delete a backup, after a page that shows what is lost with it."""
    session = known_session(root, path)
    fault = None
    try:
        if request.method == "POST":
            form = BackupDeletionForm(request.POST)
            listed = backup_of(session, name)
            try:
                require_valid(form)
                delete_backup(session_file(session), listed.file.path, is_only_backup=form.cleaned_data["only"])
            except RedlineError as failure:
                fault = failure
            else:
                messages.success(request, format_html('Deleted: <span class="mono">{}</span>', escape_line(name)))
                return redirect(_address(session))
        view = view_deletion(session, name)
    except RedlineError as unshown:
        return _refused(request, session, fault or unshown)
    context = {"session": session, "view": view, "fault": fault, "active_nav": "sessions"}
    return render(request, "backups/delete.html", context, status=status_of(fault))


def _page(root: int, path: str, name: str) -> str:
    del name
    return reverse("compaction:backups", args=(root, path))


@acts_on_post(_page)
def verify(request: HttpRequest, root: int, path: str, name: str) -> HttpResponse:
    """Read a whole backup and compare its hash. htmx gets its row, other clients the list."""
    session = known_session(root, path)
    try:
        row = verified_row(session, name)
    except RedlineError as fault:
        return _refused(request, session, fault)
    if wants_fragment(request):
        return render(request, "backups/list.html#row", {"session": session, "row": row})
    return redirect(_address(session, row.anchor))


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
    """The current bytes of a session."""
    session = known_session(root, path)
    try:
        return download(session_file(session), request.method or "")
    except RedlineError as fault:
        return _refused(request, session, fault)


def _address(session: Session, fragment: str | None = None) -> str:
    args = (session.root_id, session.relative_path)
    return reverse("compaction:backups", args=args, fragment=fragment)


def _refused(request: HttpRequest, session: Session, fault: RedlineError) -> HttpResponse:
    """A page that explains why something could not be shown or done; htmx is redirected to the current list."""
    if wants_fragment(request):
        return HttpResponseClientRedirect(_address(session))
    context = {"session": session, "fault": fault, "active_nav": "sessions"}
    status = 404 if fault.code in NOT_THERE else status_of(fault)
    return render(request, "backups/refused.html", context, status=status)
