"""Imported sessions: stored byte for byte in the managed root, and deleted from it again; and the pages for both.

An import is validated before it gets a name there by a hard link, so that the stored bytes are those that were
validated. Only files in the managed root itself are ever deleted.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from django import forms
from django.contrib import messages
from django.core.files.uploadedfile import UploadedFile
from django.db import DatabaseError
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.template.loader import render_to_string
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from sessions_app.agents.registry import agent_at
from sessions_app.disk.files import SESSION_SUFFIX, opened, real_path, reported, sync, sync_directory
from sessions_app.disk.rendered import DOCUMENT_SUFFIX
from sessions_app.index.index_store import only_indexer, remember_own_write, remove_entries
from sessions_app.index.indexer import index_file
from sessions_app.index.roots import configured_roots, managed_path, managed_root
from sessions_app.index.session_locks import lock_session
from sessions_app.models import Entry as EntryRow, Session
from sessions_app.sessionlog.errors import BadInput, Conflict, RedlineError
from sessions_app.sessionlog.jsjson import split_lines
from sessions_app.sessionlog.session import ParserState, require_session
from sessions_app.sessionlog.text import plural
from sessions_app.storage.backups import Backup, delete_backup, list_backups
from sessions_app.web.pages import redirect, require_valid, status_of
from sessions_app.web.uploads import NO_ROOM, StoredUpload, takes_uploads

LONGEST_NAME: Final = 120
"""The maximum length of a name in the managed root, including its suffix, in characters."""
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._-]+")
_NOT_IMPORTED: Final = "It was not imported."


@dataclass(frozen=True, slots=True)
class ImportResult:
    """The result of importing one file."""

    name: str
    """The name of the uploaded file."""
    session: Session | None = None
    known: bool = False
    """Whether an identical file had been imported before."""
    refusal: str = ""
    """Why it was not imported; empty if it was."""


@dataclass(frozen=True, slots=True)
class ImportedFile:
    """A session file in the managed root. The size is in bytes."""

    name: str
    size: int
    session: Session | None
    """None if it is not indexed yet."""


@dataclass(frozen=True, slots=True)
class ImportRemoval:
    """Everything that is deleted with an imported session, and the records that remain."""

    name: str
    size: int
    session: Session | None
    backups: list[Backup]
    recorded: list[str]
    """Records about it, as text: `3 runs`, `1 compaction`."""

    @property
    def backup_bytes(self) -> int:
        return sum(backup.size for backup in self.backups)


def import_session(upload: Path, name: str) -> ImportResult:
    """Import a session; `upload` is a private file on the disk of the data directory, `name` the name of the user's
    file.

    An identical file is not stored twice. Raises BadInput `not_a_session` and the errors of reading, storing and
    indexing; then nothing is stored.
    """
    upload = real_path(upload)
    digest = _validated_digest(upload, name)
    root = managed_root()
    for path in _files():
        if path.stat().st_size == upload.stat().st_size and _digest_of(path) == digest:
            return ImportResult(name, index_file(path), known=True)
    configured_roots()
    path = _keep(upload, root, safe_name(name))
    try:
        session = index_file(path)
    except (RedlineError, DatabaseError):
        path.unlink()
        raise
    remember_own_write(path, upload.stat().st_size)
    Session.objects.filter(pk=session.pk).update(imported_at=timezone.now())
    return ImportResult(name, session)


def _validated_digest(upload: Path, name: str) -> str:
    """The digest of a session file. Raises BadInput `not_a_session`."""
    agent = agent_at(upload)
    parser = agent.format.parser(ParserState(), [])
    with agent.store.open(upload) as reader:
        for line in split_lines(reader.chunks(0)):
            parser.read(line)
            if parser.state.recognised:
                # It is a session; its other lines are left to the index.
                break
        require_session(parser.state, name, reader.head)
    return _digest_of(upload)


def _digest_of(path: Path) -> str:
    with opened(path, os.O_RDONLY, _NOT_IMPORTED) as fd, os.fdopen(os.dup(fd), "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def safe_name(name: str) -> str:
    """A file name of ASCII letters, digits and `._-` only, ending in .jsonl or .json, at most LONGEST_NAME long."""
    name = name.replace("\\", "/").rpartition("/")[2]
    suffix = DOCUMENT_SUFFIX if name.endswith(DOCUMENT_SUFFIX) else SESSION_SUFFIX
    stem = _UNSAFE.sub("-", name.removesuffix(suffix)).strip(".-")[: LONGEST_NAME - len(suffix)]
    return f"{stem or 'session'}{suffix}"


def _keep(upload: Path, root: Path, name: str) -> Path:
    """Give the file a unique name in the root. Raises SystemFailure."""
    with opened(upload, os.O_RDONLY, _NOT_IMPORTED) as fd, reported(upload, _NOT_IMPORTED):
        os.fchmod(fd, 0o600)
        sync(fd)
    path, number = root / name, 1
    stem, suffix = path.stem, path.suffix
    with reported(root, _NOT_IMPORTED):
        while not _linked(path, upload):
            number += 1
            ending = f"-{number}{suffix}"
            path = root / f"{stem[: LONGEST_NAME - len(ending)]}{ending}"
        sync_directory(root)
    return path


def _linked(path: Path, upload: Path) -> bool:
    try:
        path.hardlink_to(upload)
    except FileExistsError:
        return False
    return True


# ---- the managed root --------------------------------------------------------------------------------------


def _files() -> list[Path]:
    """The session files directly in the managed root, without links."""
    root = managed_path()
    if not root.exists():
        return []
    with reported(root, "It was not listed."), os.scandir(root) as entries:
        return sorted(
            root / entry.name
            for entry in entries
            if entry.name.endswith((SESSION_SUFFIX, DOCUMENT_SUFFIX)) and entry.is_file(follow_symlinks=False)
        )


def imported_sessions() -> list[ImportedFile]:
    """The sessions in the managed root, latest import first. Raises SystemFailure."""
    rows = {row.relative_path: row for row in _rows()}
    kept = [ImportedFile(path.name, path.stat().st_size, rows.get(path.name)) for path in _files()]
    return sorted(kept, key=_imported_at, reverse=True)


def _imported_at(kept: ImportedFile) -> datetime:
    at = kept.session.imported_at if kept.session is not None else None
    return at or datetime.min.replace(tzinfo=UTC)


def _rows() -> Iterator[Session]:
    return Session.objects.shown().filter(root__path=str(managed_path())).for_display().iterator()


# ---- removing ----------------------------------------------------------------------------------------------


def import_removal(name: str) -> ImportRemoval:
    """Everything that would be deleted with the session of that name. Raises BadInput `no_such_import`."""
    path = next((path for path in _files() if path.name == name), None)
    if path is None:
        raise BadInput(
            "no_such_import",
            f"There is no imported session {name}. Nothing was deleted. It may have been deleted already.",
        )
    session = next((row for row in _rows() if row.relative_path == name), None)
    recorded = _recorded(session) if session is not None else []
    return ImportRemoval(name, path.stat().st_size, session, list_backups(path), recorded)


def _recorded(session: Session) -> list[str]:
    """Records that refer to a session, from any app: users' decisions are never deleted."""
    found = []
    for relation in Session._meta.related_objects:
        model = relation.related_model
        if model is EntryRow:
            continue
        number = model._default_manager.filter(**{relation.field.name: session}).count()
        if number:
            name = model._meta.verbose_name if number == 1 else model._meta.verbose_name_plural
            found.append(f"{number} {name}")
    return found


def remove_import(name: str, backups: int) -> ImportRemoval:
    """Delete an imported session and its backups; returns what was deleted.

    `backups` is the number shown to the user. Raises BadInput `no_such_import`, Conflict `other_backups` if the number
    has changed, `session_locked`, and SystemFailure.
    """
    path = managed_path() / import_removal(name).name
    with lock_session(path):
        removal = import_removal(name)
        if len(removal.backups) != backups:
            raise Conflict(
                "other_backups",
                f"{name} now has {plural(len(removal.backups), 'backup')} instead of {backups}. Nothing was deleted. "
                "Check the new number, then confirm again.",
            )
        with reported(path, "Not all of it was deleted."):
            path.unlink()
            for backup in removal.backups:
                delete_backup(backup.path)
            sync_directory(path.parent)
    if removal.session is not None:
        with only_indexer(path):
            _forget(removal.session, gone=not removal.recorded)
    return removal


def _forget(session: Session, *, gone: bool) -> None:
    """Remove a deleted session from the index; if there are records about it, its row stays, marked as missing."""
    remove_entries(session, 0)
    if gone:
        session.delete()
    else:
        Session.objects.filter(pk=session.pk).update(missing=True, state=None, fingerprint=None)


LISTED: Final = 10
"""The maximum number of imported files listed in a message, because a cookie has no room for more. The others are
counted."""


class SessionFilesInput(forms.FileInput):
    """Accepts any number of files."""

    allow_multiple_selected = True


class ImportForm(forms.Form):
    """The files to import. Each gets its own result."""

    sessions = forms.Field(
        widget=SessionFilesInput, error_messages={"required": "No file was chosen. Nothing was imported."}
    )


class ImportRemovalForm(forms.Form):
    """The number of backups that the page said would be deleted with the session."""

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
    """Delete an imported session, after a page that lists what is deleted with it."""
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
