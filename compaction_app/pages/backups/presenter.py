"""Backups on their pages: the list of one session or of all, with the disk space that they take; the changes of a
restore; and the results of verifications."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from django.utils import timezone

from compaction_app.changes.backups import (
    DAMAGED,
    ListedBackup,
    RestoreDifference,
    difference,
    find_backup,
    keeps_its_bytes,
    list_backups,
    plan_restore,
)
from compaction_app.core.states import RunState
from compaction_app.models import Backup
from sessions_app.agents.registry import agent_at
from sessions_app.disk.discovery import resolve_inside
from sessions_app.disk.files import FileState, file_state, other_names_note
from sessions_app.models import Session
from sessions_app.sessionlog.entries import EntryKind, Role
from sessions_app.sessionlog.errors import RedlineError
from sessions_app.storage import backups as files

COMPARED_BYTES: Final = 256_000_000
"""The maximum number of bytes that the list reads to show the effect of restores: some 0.2 s. Beyond it only each
backup's page shows it."""
NEWER_SHOWN: Final = 50
REMEMBERED: Final = 1_000
"""The number of cached verifications."""

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


# ---- the effect of a restore in words ------------------------------------------------------------------------


def in_words(change: RestoreDifference) -> str:
    """The lines that a restore would remove, such as `2 user messages and the compaction it was made for`."""
    counts: dict[tuple[str, str], int] = dict.fromkeys([*_KINDS.values(), _OTHER], 0)
    for line in change.newer:
        counts[_KINDS.get(EntryKind.DELETION if line.deletes else line.kind, _OTHER)] += 1
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


def verify(listed: ListedBackup, now: datetime) -> Verified:
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


# ---- the list ----------------------------------------------------------------------------------------------


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
    """Why that is unknown, or why the backup could not be verified."""
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


@dataclass(frozen=True, slots=True)
class BackupsView:
    """The backups of a session, newest first."""

    path: str
    size: int | None
    """Of the session; None if it is gone."""
    rows: list[BackupRow]

    @property
    def can_restore(self) -> bool:
        return any(row.can_replace for row in self.rows)

    @property
    def keeps_session(self) -> bool:
        """Whether the session must not lose bytes."""
        return any(row.keeps_session for row in self.rows)

    @property
    def bytes(self) -> int:
        return sum(row.listed.file.size for row in self.rows)


def session_file(session: Session) -> Path:
    """The real path of a session. Raises BadInput `outside_root` if it leads out of its root."""
    return resolve_inside(Path(session.root.path), session.relative_path)


def backup_of(session: Session, name: str) -> ListedBackup:
    """The backup of a session with this name. Raises BadInput `outside_root` and `no_such_backup`."""
    return find_backup(session_file(session), name)


def view_backups(session: Session) -> BackupsView:
    """The list. Raises BadInput `outside_root`, and SystemFailure."""
    path = session_file(session)
    size = _size(path)
    left = COMPARED_BYTES
    rows = []
    for listed in list_backups(path):
        cost = listed.file.size + (size or 0)
        compared = size is None or cost <= left
        left -= cost if compared and size is not None else 0
        rows.append(_row(path, listed, size, compared=compared))
    return BackupsView(str(path), size, rows)


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


# ---- one backup --------------------------------------------------------------------------------------------


def view_restore(session: Session, name: str) -> dict[str, Any]:
    """The effect the restore of a backup would have now, for its page.

    Raises BadInput `no_such_backup` and `backup_of_rows`, Conflict `append_only`, and the errors of reading both files.
    """
    path = session_file(session)
    listed = find_backup(path, name)
    plan = plan_restore(listed.file.path, timezone.now())
    newer = plan.change.newer
    back = _brought_back(plan.change) if plan.present is not None else "the session comes back"
    row = BackupRow(listed, remembered(listed), in_words(plan.change), back)
    more = len(newer[NEWER_SHOWN:])
    # The effect on the hard links of the session, as a sentence; empty if it has none.
    other_names = other_names_note(path)
    return {"row": row, "plan": plan, "newer": newer[:NEWER_SHOWN], "more": more, "other_names": other_names}


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
        verify(listed, timezone.now())
    except RedlineError as fault:
        return BackupRow(listed, None, fault=fault.message)
    return backup_row(listed, path)


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
    found = []
    for session, group in groupby(recorded, lambda row: row.session):
        all_rows = list(group)
        rows = list(_rows(session, all_rows))
        found.append(SessionBackups(session, rows, gone=len(all_rows) - len(rows)))
    return AllBackups(sorted(found, key=lambda one: (-one.bytes, one.session.pk)))


def _rows(session: Session, recorded: list[Backup]) -> Iterator[BackupRow]:
    has_rows = session.agent.store.database(session.path) is not None
    for row in recorded:
        path = Path(row.path)
        state = file_state(path)
        if state is None:
            continue
        file = files.Backup(path, session.path, state.size, row.taken_at, row.sha256)
        listed = ListedBackup.of(file, row, has_rows=has_rows)
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
