"""Backups and the way back: what there is, what a restore would take away, and the restore itself."""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from django.conf import settings
from django.db import DatabaseError

from sessions_app import backups as files
from sessions_app.appending import session_lock
from sessions_app.files import CHUNK, SessionReader, file_state
from sessions_app.services.indexing import index_file
from sessions_app.services.rows import demand_name, remember_own_write, session_row
from sessions_app.sessionlog.entries import Entry
from sessions_app.sessionlog.errors import (
    BadInput,
    ConfirmationNeeded,
    Conflict,
    RedlineError,
    SystemFailure,
)
from sessions_app.sessionlog.lines import Line, split_lines
from sessions_app.sessionlog.session import SessionParser

from ..models import Backup, Compaction

NOT_RESTORED: Final = "Nothing was restored."
DAMAGED: Final = "damaged line"


@dataclass(frozen=True, slots=True)
class ListedBackup:
    """A backup beside a session, with the hash it must have, where Redline recorded one, and why it was made."""

    file: files.Backup
    recorded: str | None
    reason: str
    compaction: Compaction | None = None
    """The compaction it was made for, where the database knows it."""

    @property
    def name(self) -> str:
        return self.file.path.name


@dataclass(frozen=True, slots=True)
class Newer:
    """A line of the session that a restore would take away."""

    number: int
    entry_id: str
    kind: str


@dataclass(frozen=True, slots=True)
class Difference:
    """What a restore would change in the lines of a session."""

    newer: list[Newer]
    """What it would take away, in file order, without the compaction that the backup was made for."""
    made_for: str
    """The id of that compaction, where the session has it: it goes with them."""
    brought_back: int
    """How many lines the backup has and the session has not."""


@dataclass(frozen=True, slots=True)
class RestoreYeses:
    """The explicit yeses of a restore, each for its own case."""

    drop_newer: bool = False
    unverified: bool = False


def list_backups(session: Path) -> list[ListedBackup]:
    """What lies beside a session and is named like a backup, newest first."""
    demand_name(session)
    found = files.list_backups(session)
    rows = {
        row.path: row
        for row in Backup.objects.filter(path__in=[str(one.path) for one in found]).select_related(
            "compaction"
        )
    }
    return [_listed(one, rows.get(str(one.path))) for one in found]


def _listed(found: files.Backup, row: Backup | None) -> ListedBackup:
    if row is None:
        return ListedBackup(found, found.recorded_sha256, "")
    compaction = row.compaction if hasattr(row, "compaction") else None
    return ListedBackup(found, row.sha256, row.reason, compaction)


def find_backup(session: Path, name: str) -> ListedBackup:
    """The backup of a session with this name. Raises BadInput `no_such_backup`; a name is no path."""
    for listed in list_backups(session):
        if listed.name == name:
            return listed
    raise BadInput(
        "no_such_backup",
        f"{session.name} has no backup named {name}. Nothing was done. Look at those that are listed.",
    )


def recorded_hash(backup: Path) -> str | None:
    """The hash that a backup must have: from the database, else from the record beside it."""
    row = Backup.objects.filter(path=str(backup)).first()
    return row.sha256 if row is not None else files.recorded_sha256(backup)


def newer_lines(session: Path, backup: Path) -> list[Newer]:
    """The lines of a session that its backup does not have, but for the compaction the backup was made for."""
    return difference(session, backup).newer


def difference(session: Path, backup: Path) -> Difference:
    """What the restore of a backup would change. Reads both files, and parses only what follows the bytes that
    they have in common: 0.1 s for 100 MB that only grew, 1 s where they differ from the start."""
    with SessionReader(session) as present, SessionReader(backup) as kept:
        start, number = _first_difference(present, kept)
        missing = {
            _digest(line)
            for line in split_lines(kept.chunks(start), offset=start, number=number)
            if line.raw.strip()
        }
        known = frozenset(missing)
        parser = _parser_at(present, start)
        newer: list[Newer] = []
        made_for = ""
        for line in split_lines(present.chunks(start), offset=start, number=number):
            header = parser.state.header
            recorded = parser.read(line)
            digest = _digest(line)
            missing.discard(digest)
            if digest in known or not line.raw.strip():
                continue
            if recorded is None:
                kind = DAMAGED if parser.state.header is header else "session"
                newer.append(Newer(line.number, "", kind))
            elif _is_made_for(recorded.entry, backup):
                made_for = recorded.entry.id
            else:
                entry = recorded.entry
                newer.append(Newer(line.number, entry.id, entry.role or entry.type))
    return Difference(newer, made_for, len(missing))


def _first_difference(present: SessionReader, kept: SessionReader) -> tuple[int, int]:
    """Where the first line begins that is not the same in both, and its number."""
    end = min(present.stat().st_size, kept.stat().st_size)
    offset = line_start = 0
    number = 1
    while offset < end:
        ours = present.read_at(offset, min(CHUNK, end - offset))
        theirs = kept.read_at(offset, len(ours))
        same = ours[: _common(ours, theirs)]
        if b"\n" in same:
            number += same.count(b"\n")
            line_start = offset + same.rfind(b"\n") + 1
        if len(same) < len(ours):
            break
        offset += len(ours)
    return line_start, number


def _common(ours: bytes, theirs: bytes) -> int:
    """How many bytes of two pieces of one length are the same from the start."""
    if ours == theirs:
        return len(ours)
    return bisect_left(range(len(ours)), True, key=lambda index: ours[: index + 1] != theirs[: index + 1])


def _parser_at(present: SessionReader, start: int) -> SessionParser:
    """A parser that knows the version of the session whose lines it reads from `start` on."""
    parser = SessionParser()
    for line in split_lines(present.chunks(0)):
        if parser.state.version or line.offset >= start:
            break
        parser.read(line)
    return parser


def _is_made_for(entry: Entry, backup: Path) -> bool:
    """Whether it is the compaction that the backup was made for; what it calls a path is only text."""
    made_for = (entry.control or {}).get("backupPath") if entry.type == "context_compaction" else None
    return isinstance(made_for, str) and Path(made_for).name == backup.name


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


def state_of(session: Path, backup: Path) -> str:
    """Session and backup as they lie on disk now, in a word that changes when one of them does."""
    states = (file_state(session), file_state(backup))
    return " ".join(
        f"{state.device}.{state.inode}.{state.size}.{state.mtime_ns}" if state is not None else "gone"
        for state in states
    )


def restore(backup: Path, yeses: RestoreYeses, now: datetime, *, shown: str | None = None) -> files.Restored:
    """Give a session the bytes of its backup, after backing up what it holds now.

    `shown` is the `state_of` both that the yeses were given for, where they were given some time before. Raises
    Conflict `session_changed` where it is another one now, ConfirmationNeeded `newer_entries` and
    `unverified_backup`, and what `backups.restore` raises; then the session is as it was.
    """
    session = files.session_of(backup)
    demand_name(session)
    with session_lock(settings.REDLINE_DATA_DIR, session, settings.REDLINE.lock_seconds) as locked:
        recorded = recorded_hash(backup)
        present = file_state(locked.path)
        if shown is not None and shown != state_of(locked.path, backup):
            raise Conflict(
                "session_changed",
                f"{locked.path}, or its backup, is not as it was when this was shown. {NOT_RESTORED} "
                "Look at what would be taken away now, then decide again.",
            )
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


def delete(backup: Path, *, as_the_only_one: bool) -> None:
    """Remove a backup for good. What the database says of it stays: a compaction keeps what it was made with.

    `as_the_only_one` says whether that was known when it was decided. Raises Conflict `only_backup` where it has
    become the only one since, and what `backups.delete_backup` raises.
    """
    session = files.session_of(backup)
    with session_lock(settings.REDLINE_DATA_DIR, session, settings.REDLINE.lock_seconds) as locked:
        others = [one for one in files.list_backups(locked.path) if one.path.name != backup.name]
        if not others and not as_the_only_one:
            raise Conflict(
                "only_backup",
                f"{backup} has become the only backup of {locked.path}. It was not deleted. "
                "If it may go all the same, decide again.",
            )
        files.delete_backup(backup)


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
