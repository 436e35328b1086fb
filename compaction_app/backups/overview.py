"""The backups of all sessions on one page: their disk space, and whether each has the content that was written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from pathlib import Path
from typing import Final

from compaction_app.models import Backup
from sessions_app.models import Session
from sessions_app.sessionlog.errors import RedlineError
from sessions_app.storage import backups as files
from sessions_app.storage.files import file_state

from .presenter import BackupRow, remembered, verify
from .service import ListedBackup

STEP_BYTES: Final = 400_000_000
"""The bytes after which a step of a verification ends: about a second."""
SESSIONS_SHOWN: Final = 100
"""Sessions on one page."""


@dataclass(frozen=True, slots=True)
class SessionBackups:
    """The backups of one session, newest first."""

    session: Session
    rows: list[BackupRow]
    """Those whose file exists."""
    gone: int
    """The number of files that no longer exist."""

    @property
    def bytes(self) -> int:
        return sum(row.listed.file.size for row in self.rows)

    @property
    def broken(self) -> int:
        """The number of backups whose content has changed."""
        return sum(row.standing == "broken" for row in self.rows)


@dataclass(frozen=True, slots=True)
class AllBackups:
    """The backups of all shown sessions, those that take most space first."""

    sessions: list[SessionBackups]

    @property
    def rows(self) -> list[BackupRow]:
        """All backups whose file exists, in the order of verification."""
        return [row for one in self.sessions for row in one.rows]

    @property
    def bytes(self) -> int:
        return sum(one.bytes for one in self.sessions)

    @property
    def gone(self) -> int:
        return sum(one.gone for one in self.sessions)

    def count(self, standing: str) -> int:
        """The number of backups with this standing: see `BackupRow.standing`."""
        return sum(row.standing == standing for row in self.rows)


@dataclass(frozen=True, slots=True)
class VerificationStep:
    """The result of a verification step: the last backup reached, and the unreadable ones."""

    done: int
    total: int
    faults: list[str]

    @property
    def is_last(self) -> bool:
        return self.done >= self.total


def all_backups() -> AllBackups:
    """The recorded backups of all shown sessions."""
    recorded = (
        Backup.objects.filter(session__root__configured=True)
        .select_related("session__root", "compaction__run")
        .order_by("session_id", "-taken_at", "-pk")
    )
    found = [_of_session(session, list(rows)) for session, rows in groupby(recorded, lambda row: row.session)]
    return AllBackups(sorted(found, key=lambda one: (-one.bytes, one.session.pk)))


def _of_session(session: Session, recorded: list[Backup]) -> SessionBackups:
    rows = list(_rows(session, recorded))
    return SessionBackups(session, rows, gone=len(recorded) - len(rows))


def _rows(session: Session, recorded: list[Backup]) -> Iterator[BackupRow]:
    has_rows = session.agent.store.database(session.path) is not None
    for row in recorded:
        path = Path(row.path)
        state = file_state(path)
        if state is None:
            continue
        file = files.Backup(path, session.path, state.size, row.taken_at, row.sha256)
        compaction = row.compaction if hasattr(row, "compaction") else None
        listed = ListedBackup(file, row.sha256, row.reason, compaction, has_rows)
        yield BackupRow(listed, remembered(listed))


def verify_from(start: int, now: datetime) -> VerificationStep:
    """Verify backups in their order, from this one on, until STEP_BYTES were read."""
    rows = all_backups().rows
    done, read, faults = start, 0, []
    for row in rows[start:]:
        if read > STEP_BYTES:
            break
        try:
            verify(row.listed, now)
        except RedlineError as fault:
            faults.append(fault.message)
        read += row.listed.file.size
        done += 1
    return VerificationStep(done, len(rows), faults)
