"""Backups and the way back: what there is, what a restore would take away, and the restore itself."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from django.conf import settings
from django.db import DatabaseError

from sessions_app import backups as files
from sessions_app.appending import session_lock
from sessions_app.files import SessionReader, file_state, real_path
from sessions_app.services.indexing import index_file, known_name, remember_own_write, session_row
from sessions_app.sessionlog.errors import ConfirmationNeeded, RedlineError, SystemFailure
from sessions_app.sessionlog.lines import Line, split_lines
from sessions_app.sessionlog.session import SessionParser

from ..models import Backup


@dataclass(frozen=True, slots=True)
class ListedBackup:
    """A backup beside a session, with the hash it must have, where Redline recorded one, and why it was made."""

    file: files.Backup
    recorded: str | None
    reason: str


@dataclass(frozen=True, slots=True)
class Newer:
    """A line of the session that a restore would take away."""

    number: int
    entry_id: str
    kind: str


@dataclass(frozen=True, slots=True)
class RestoreYeses:
    """The explicit yeses of a restore, each for its own case."""

    drop_newer: bool = False
    unverified: bool = False


def list_backups(session: Path) -> list[ListedBackup]:
    """What lies beside a session and is named like a backup, newest first."""
    known_name(session)
    return [_listed(found) for found in files.list_backups(session)]


def _listed(found: files.Backup) -> ListedBackup:
    row = Backup.objects.filter(path=str(found.path)).first()
    if row is None:
        return ListedBackup(found, found.recorded_sha256, "")
    return ListedBackup(found, row.sha256, row.reason)


def recorded_hash(backup: Path) -> str | None:
    """The hash that a backup must have: from the database, else from the record beside it."""
    row = Backup.objects.filter(path=str(real_path(backup.parent) / backup.name)).first()
    return row.sha256 if row is not None else files.recorded_sha256(backup)


def newer_lines(session: Path, backup: Path) -> list[Newer]:
    """The lines of a session that its backup does not have, but for the compaction the backup was made for."""
    known = {_digest(line) for line in _lines(backup)}
    parser = SessionParser()
    newer = []
    for line in _lines(session):
        recorded = parser.read(line)
        if _digest(line) in known or not line.raw.strip():
            continue
        if recorded is None:
            newer.append(Newer(line.number, "", "damaged line"))
            continue
        entry = recorded.entry
        made_for = (entry.control or {}).get("backupPath") if entry.type == "context_compaction" else None
        if not isinstance(made_for, str) or Path(made_for).name != backup.name:
            newer.append(Newer(line.number, entry.id, entry.role or entry.type))
    return newer


def _lines(path: Path) -> Iterator[Line]:
    with SessionReader(path) as reader:
        yield from split_lines(reader.chunks(0))


def _digest(line: Line) -> bytes:
    return hashlib.sha256(line.raw).digest()


def demand_restore_yeses(session: Path, backup: Path, yeses: RestoreYeses) -> None:
    """Raise ConfirmationNeeded `unverified_backup` or `newer_entries` where that yes is missing."""
    if recorded_hash(backup) is None and not yeses.unverified:
        raise ConfirmationNeeded(
            "unverified_backup",
            f"Redline did not make {backup}, so nothing tells whether it is whole. Nothing was restored. "
            "If you trust it, say --unverified.",
            "--unverified",
        )
    newer = newer_lines(session, backup) if file_state(session) is not None else []
    if newer and not yeses.drop_newer:
        raise ConfirmationNeeded(
            "newer_entries",
            f"{session} holds {len(newer)} lines that came after {backup.name}, the last one "
            f"{newer[-1].entry_id or newer[-1].kind} (line {newer[-1].number}). A restore takes them away. "
            "Nothing was restored. If that is meant, say --drop-newer.",
            "--drop-newer",
        )


def restore(backup: Path, yeses: RestoreYeses, now: datetime) -> files.Restored:
    """Give a session the bytes of its backup, after backing up what it holds now.

    Raises ConfirmationNeeded `newer_entries` and `unverified_backup`, and what `backups.restore` raises; then
    the session is as it was.
    """
    session = files.session_of(backup)
    known_name(session)
    with session_lock(settings.REDLINE_DATA_DIR, session, settings.REDLINE.lock_seconds) as locked:
        recorded = recorded_hash(backup)
        present = file_state(locked.path)
        demand_restore_yeses(locked.path, backup, yeses)
        size = backup.stat().st_size
        restored = files.restore(locked, backup, recorded, present, now)
        try:
            _record(restored, size)
        except DatabaseError as fault:
            previous = restored.previous_backup
            before = f" What it held before is in {previous.path}." if previous is not None else ""
            raise SystemFailure(
                "not_recorded",
                f"{locked.path} was restored from {backup}, but Redline's own database failed: {fault}.{before}",
            ) from fault
    with suppress(RedlineError, DatabaseError):  # it is restored: the index can follow later
        index_file(session, rebuild=True)
    return restored


def _record(restored: files.Restored, size: int) -> None:
    previous = restored.previous_backup
    if previous is not None:
        Backup.objects.create(
            session=session_row(restored.path),
            path=str(previous.path),
            sha256=previous.recorded_sha256 or "",
            size=previous.size,
            taken_at=previous.taken_at,
            reason=Backup.RESTORE,
        )
    remember_own_write(restored.path, size)
