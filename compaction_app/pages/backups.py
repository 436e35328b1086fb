"""The pages of backups: those of all sessions with the disk space that they take, the list of one session, the restore,
the actions on one backup, and downloads.

Downloads are byte for byte as stored on disk, and never whole in memory. Verifications are cached until the file
changes.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections import Counter, OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

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

from compaction_app.changes.backups import (
    DAMAGED,
    ListedBackup,
    NewerEntry,
    RestoreDifference,
    delete as delete_backup,
    difference,
    find_backup,
    keeps_its_bytes,
    list_backups,
    plan_restore,
    restore as restore_backup,
)
from compaction_app.changes.forms import ConfirmForm
from compaction_app.changes.history import view_history
from compaction_app.core.states import RunState
from compaction_app.lookups import known_session
from compaction_app.models import Backup
from compaction_app.runs.streaming import disposition
from sessions_app.agents.registry import agent_at
from sessions_app.disk.discovery import resolve_inside
from sessions_app.disk.files import CHUNK, FileState, file_state, open_regular, other_names_note, reported
from sessions_app.disk.rendered import DOCUMENT_SUFFIX
from sessions_app.models import Session
from sessions_app.sessionlog.entries import EntryKind, Role
from sessions_app.sessionlog.errors import Conflict, RedlineError
from sessions_app.storage import backups as files
from sessions_app.templatetags.formatting import escape_line
from sessions_app.web.pages import acts_on_post, number_in, redirect, require_valid, status_of, wants_fragment

COMPARED_BYTES: Final = 256_000_000
"""The maximum number of bytes that the list reads to show the effect of restores: about 0.2 s. Beyond that, only the
page of each backup shows its effect."""
NEWER_SHOWN: Final = 60
REMEMBERED: Final = 1_000
"""The number of cached verifications."""
STEP_BYTES: Final = 400_000_000
"""The bytes after which a step of a verification ends: about a second."""
SESSIONS_SHOWN: Final = 100
"""The number of sessions on one page."""
NOT_SENT: Final = "It was not sent."
NOT_THERE: Final = frozenset({"no_such_backup", "no_such_file", "outside_root"})
WHY: Final[Mapping[str, str]] = {
    Backup.Reason.COMPACT: "before a compaction",
    Backup.Reason.RESTORE: "before a restore",
    Backup.Reason.UNDO: "before an undo",
    Backup.Reason.ENTRIES: "before a label or a move",
}
_KINDS: Final[Mapping[object, tuple[str, str]]] = {
    Role.USER: ("user message", "user messages"),
    Role.ASSISTANT: ("assistant message", "assistant messages"),
    Role.TOOL_RESULT: ("tool result", "tool results"),
    Role.COMMAND: ("bash command", "bash commands"),
    Role.CUSTOM: ("custom message", "custom messages"),
    EntryKind.DELETION: ("compaction", "compactions"),
    DAMAGED: ("damaged line", "damaged lines"),
}
_OTHER: Final = ("other entry", "other entries")
_LINES: Final = ("line", "lines")


# ---- the pages ---------------------------------------------------------------------------------------------


class BackupDeletionForm(forms.Form):
    """Whether the page stated that this was the only backup."""

    only = forms.BooleanField(required=False)


@require_safe
def overview(request: HttpRequest) -> HttpResponse:
    """The backups of all sessions."""
    return _show_overview(request, number_in(request.GET.get("done", "")) or 0)


@acts_on_post(lambda: reverse("compaction:all_backups"))
def verify_all(request: HttpRequest) -> HttpResponse:
    """Verify the backups of all sessions in steps. htmx requests the next step itself."""
    done, faults = verify_from(number_in(request.POST.get("from", "")) or 0, timezone.now())
    for fault in faults:
        messages.error(request, fault)
    if wants_fragment(request):
        return _show_overview(request, done)
    return redirect(reverse("compaction:all_backups") + (f"?done={done}" if done else ""))


def _show_overview(request: HttpRequest, done: int) -> HttpResponse:
    """`done`: the number of backups that the current verification has read; 0 if none is under way."""
    sessions, page = all_backups(), number_in(request.GET.get("page", "")) or 0
    rows = [row for one in sessions for row in one.rows]
    context = {
        "sessions": sessions,
        "rows": rows,
        "bytes": sum(one.bytes for one in sessions),
        "gone": sum(one.gone for one in sessions),
        "shown": sessions[page * SESSIONS_SHOWN : (page + 1) * SESSIONS_SHOWN],
        "later": page + 1 if len(sessions) > (page + 1) * SESSIONS_SHOWN else 0,
        "standings": Counter(row.standing for row in rows),
        "done": min(done, len(rows)),
        "is_asked_by_script": wants_fragment(request),
        "head": view_history(),
        "active_nav": "history",
    }
    part = "backups/overview.html#all" if wants_fragment(request) else "backups/overview.html"
    return render(request, part, context)


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
    """Show the effect of a restore and the required confirmations; restore the session once they are given."""
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
        view = view_restore(session, name, request.GET.get("rows", ""))
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


# ---- the backups of one session ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BackupRow:
    """One backup in the list."""

    listed: ListedBackup
    verified: Verified | None
    takes: str = ""
    """The lines that a restore would remove, in words; empty if the list does not show them."""
    back: str = ""
    """The lines that it would bring back, in words."""
    fault: str = ""
    """Why the effect of a restore is unknown, or why the backup could not be verified."""
    keeps_session: bool = False
    """Whether the session must not lose bytes, so that an undo replaces a restore."""

    @property
    def name(self) -> str:
        return self.listed.name

    @property
    def undo_of(self) -> int | None:
        """The run whose undo brings back the content of the backup; None if there is none, or a restore does that."""
        compaction = self.listed.compaction
        is_open = compaction is not None and not self.can_replace and not self.is_undone
        return compaction.run_id if compaction is not None and is_open else None

    @property
    def is_undone(self) -> bool:
        """Whether the compaction for which it was made is no longer in effect."""
        run = self.listed.compaction.run if self.listed.compaction is not None else None
        return run is not None and run.state == RunState.RESTORED

    @property
    def can_replace(self) -> bool:
        """Whether it can replace the session."""
        return not (self.listed.has_rows or self.keeps_session)

    @property
    def anchor(self) -> str:
        """Its id on the page: a session has at most one backup of a kind per millisecond."""
        return f"backup-{self.listed.file.taken_at:%Y%m%dT%H%M%S%f}-{self.listed.file.label}"

    @property
    def why(self) -> str:
        if self.listed.reason in WHY:
            return WHY[self.listed.reason]
        if self.listed.recorded:
            return "by Redline, for a reason that is not recorded"
        return f"not made by Redline: {self.listed.file.label}"

    @property
    def standing(self) -> str:
        """`holds`, `broken`, `unchecked`, or `unverified` if there is no hash to compare with."""
        if self.listed.recorded is None:
            return "unverified"
        if self.verified is None:
            return "unchecked"
        return "holds" if self.verified.holds else "broken"

    @property
    def hash_start(self) -> str:
        """The first digits of the expected hash, otherwise of the actual one."""
        sha256 = self.listed.recorded or (self.verified.sha256 if self.verified else "")
        return sha256[:12]


def session_file(session: Session) -> Path:
    """The real path of a session. Raises BadInput `outside_root` if it leads out of its root."""
    return resolve_inside(Path(session.root.path), session.relative_path)


def backup_of(session: Session, name: str) -> ListedBackup:
    """The backup of a session with this name. Raises BadInput `outside_root` and `no_such_backup`."""
    return find_backup(session_file(session), name)


def view_backups(session: Session) -> dict[str, Any]:
    """The list, newest first, for its page. Raises BadInput `outside_root`, and SystemFailure."""
    path = session_file(session)
    size = _size(path)
    left = COMPARED_BYTES
    rows = []
    for listed in list_backups(path):
        cost = listed.file.size + (size or 0)
        compared = size is None or cost <= left
        left -= cost if compared and size is not None else 0
        rows.append(_row(path, listed, size, compared=compared))
    return {
        "path": str(path),
        "size": size,
        "rows": rows,
        "bytes": sum(row.listed.file.size for row in rows),
        "can_restore": any(row.can_replace for row in rows),
        # Whether the session must not lose bytes.
        "keeps_session": any(row.keeps_session for row in rows),
    }


def backup_row(listed: ListedBackup, path: Path) -> BackupRow:
    """One row of the list."""
    size = _size(path)
    return _row(path, listed, size, compared=listed.file.size + (size or 0) <= COMPARED_BYTES)


def _size(session: Path) -> int | None:
    state = agent_at(session).store.state(session)
    return state.size if state is not None else None


def _row(path: Path, listed: ListedBackup, size: int | None, *, compared: bool) -> BackupRow:
    if listed.has_rows:
        return BackupRow(listed, remembered(listed))
    if size is None:
        return BackupRow(listed, remembered(listed), "nothing", "the session comes back")
    if keeps_its_bytes(path):
        return BackupRow(listed, remembered(listed), keeps_session=True)
    if not compared:
        return BackupRow(listed, remembered(listed))
    try:
        change = difference(path, listed.file.path)
    except RedlineError as fault:
        return BackupRow(listed, None, fault=fault.message)
    return BackupRow(listed, remembered(listed), in_words(change), _brought_back(change))


def view_restore(session: Session, name: str, rows: str = "") -> dict[str, Any]:
    """The effect that restoring a backup would have now, for its page; `rows` is the number of lines that each group
    shows, as its address has it.

    Raises BadInput `no_such_backup` and `backup_of_rows`, Conflict `append_only`, and the errors of reading both files.
    """
    path = session_file(session)
    listed = find_backup(path, name)
    plan = plan_restore(listed.file.path, timezone.now())
    shown = int(rows) if rows.isascii() and rows.isdigit() and len(rows) < 8 else NEWER_SHOWN
    back = _brought_back(plan.change) if plan.present is not None else "the session comes back"
    row = BackupRow(listed, remembered(listed), in_words(plan.change), back)
    return {
        "row": row,
        "plan": plan,
        "groups": newer_groups(plan.change, shown),
        "next_rows": shown + NEWER_SHOWN,
        # The effect on the hard links of the session, as a sentence; empty if it has none.
        "other_names": other_names_note(path),
    }


class NewerGroup(NamedTuple):
    """Lines of one kind that a restore would delete."""

    title: str
    """Their number and kind, such as `53 user messages`."""
    lines: Sequence[NewerEntry]
    """Those that are shown."""
    left: int


def newer_groups(change: RestoreDifference, shown: int) -> list[NewerGroup]:
    """The lines that a restore would delete, by kind in the order of `in_words`."""
    found: dict[tuple[str, str], list[NewerEntry]] = {names: [] for names in (*_KINDS.values(), _OTHER)}
    for line in change.newer:
        found[_kind_of(line)].append(line)
    return [
        NewerGroup(_counted(len(lines), names), lines[:shown], max(0, len(lines) - shown))
        for names, lines in found.items()
        if lines
    ]


def _kind_of(line: NewerEntry) -> tuple[str, str]:
    return _KINDS.get(EntryKind.DELETION if line.deletes else line.kind, _OTHER)


def view_deletion(session: Session, name: str) -> dict[str, Any]:
    """The effect of a deletion, for its page. Raises BadInput `no_such_backup`."""
    path = session_file(session)
    listed = find_backup(path, name)
    others = len(list_backups(path)) - 1
    row, is_there = BackupRow(listed, remembered(listed)), _size(path) is not None
    return {"row": row, "session": path.name, "others": others, "there": is_there, "is_the_only_one": not others}


def verified_row(session: Session, name: str) -> BackupRow:
    """The row of a backup after its verification, with the reason if that failed."""
    path = session_file(session)
    listed = find_backup(path, name)
    try:
        verify_listed(listed, timezone.now())
    except RedlineError as fault:
        return BackupRow(listed, None, fault=fault.message)
    return backup_row(listed, path)


# ---- the effect of a restore in words ----------------------------------------------------------------------


def in_words(change: RestoreDifference) -> str:
    """The lines that a restore would delete, such as `2 user messages and the compaction it was made for`."""
    counts: dict[tuple[str, str], int] = dict.fromkeys([*_KINDS.values(), _OTHER], 0)
    for line in change.newer:
        counts[_kind_of(line)] += 1
    parts = [_counted(number, names) for names, number in counts.items() if number]
    if change.made_for:
        parts.append("the compaction it was made for")
    if not parts:
        return "nothing"
    *before, last = parts
    return f"{', '.join(before)} and {last}" if before else last


def _counted(number: int, names: tuple[str, str]) -> str:
    return f"{number:,} {names[number != 1]}"


def _brought_back(change: RestoreDifference) -> str:
    if not change.brought_back:
        return ""
    return f"{_counted(change.brought_back, _LINES)} {'comes' if change.brought_back == 1 else 'come'} back"


# ---- verification ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Verified:
    """The actual hash of a backup, and the time. `holds` is None if no expected hash was recorded."""

    holds: bool | None
    sha256: str
    at: datetime


_verified: OrderedDict[tuple[str, FileState | None, str | None], Verified] = OrderedDict()
_verified_lock = threading.Lock()


def verify_listed(listed: ListedBackup, now: datetime) -> Verified:
    """Read a whole backup and compare its hash. The result is cached until the file changes."""
    path = listed.file.path
    before = file_state(path)
    checked = files.verify(path, listed.recorded)
    found = Verified(checked.holds, checked.sha256, now)
    if before is not None and file_state(path) == before:
        with _verified_lock:
            _verified[str(path), before, listed.recorded] = found
            while len(_verified) > REMEMBERED:
                _verified.popitem(last=False)
    return found


def remembered(listed: ListedBackup) -> Verified | None:
    """The last verification of a backup, if its file has not changed since."""
    path = listed.file.path
    with _verified_lock:
        return _verified.get((str(path), file_state(path), listed.recorded))


# ---- the backups of all sessions ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SessionBackups:
    """The backups of one session, newest first."""

    session: Session
    rows: list[BackupRow]
    """The backups whose file exists."""
    gone: int
    """The number of files that no longer exist."""

    @property
    def bytes(self) -> int:
        return sum(row.listed.file.size for row in self.rows)

    @property
    def broken(self) -> int:
        """The number of backups whose content has changed."""
        return sum(row.standing == "broken" for row in self.rows)


def all_backups() -> list[SessionBackups]:
    """The recorded backups of all shown sessions, those that take most space first, in the order of verification."""
    recorded = (
        Backup.objects.filter(session__root__configured=True)
        .select_related("session__root", "compaction__run")
        .order_by("session_id", "-taken_at", "-pk")
    )
    found = []
    for session, group in groupby(recorded, lambda row: row.session):
        all_rows = list(group)
        rows = list(_rows(session, all_rows))
        found.append(SessionBackups(session, rows, gone=len(all_rows) - len(rows)))
    return sorted(found, key=lambda one: (-one.bytes, one.session.pk))


def _rows(session: Session, recorded: list[Backup]) -> Iterator[BackupRow]:
    has_rows = session.agent.store.database(session.path) is not None
    for row in recorded:
        path = Path(row.path)
        state = file_state(path)
        if state is not None:
            file = files.Backup(path, session.path, state.size, row.taken_at, row.sha256)
            listed = ListedBackup.of(file, row, has_rows=has_rows)
            yield BackupRow(listed, remembered(listed))


def verify_from(start: int, now: datetime) -> tuple[int, list[str]]:
    """Verify backups in their order, from this one on, until STEP_BYTES were read.

    The number of backups that were reached, or 0 after the last, and why some could not be read.
    """
    rows = [row for one in all_backups() for row in one.rows]
    done, read, faults = start, 0, []
    for row in rows[start:]:
        if read > STEP_BYTES:
            break
        try:
            verify_listed(row.listed, now)
        except RedlineError as fault:
            faults.append(fault.message)
        read += row.listed.file.size
        done += 1
    return (done if done < len(rows) else 0), faults


# ---- downloads ---------------------------------------------------------------------------------------------


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
