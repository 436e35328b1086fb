"""The backups of a session: the list, the deletion of one, and the restore of one.

A restore is separate from the other changes: it replaces a file, even one that is lost, damaged or of an unknown
version, so there is no opened session to plan on and no context to prove. Its plan has the lines that it would remove,
and the required confirmations.
"""

import hashlib
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final, Self

from django.conf import settings
from django.db import DatabaseError

from compaction_app.models import Backup, Compaction
from compaction_app.session_activity import Activity, activity_of, confirmation
from sessions_app.agents.registry import agent_at
from sessions_app.disk.files import CHUNK, FileState, SessionReader, file_state, real_path
from sessions_app.index.index_store import require_name, session_row
from sessions_app.index.indexer import index_file
from sessions_app.index.session_locks import lock_session
from sessions_app.sessionlog.entries import DeletionControl, EntryKind
from sessions_app.sessionlog.errors import BadInput, ConfirmationNeeded, Conflict, RedlineError, SystemFailure
from sessions_app.sessionlog.jsjson import Line, split_lines
from sessions_app.sessionlog.session import LineParser, ParserState
from sessions_app.sessionlog.text import plural
from sessions_app.storage import backups as backup_files
from sessions_app.storage.backups import Restored, restore as restore_session
from sessions_app.storage.rows import DIRECTORY as DIRECTORY_OF_ROWS, list_row_backups

from .change import Confirmations, PlannedChange
from .records import NOT_RECORDED, BackupNote, RestoreNote, record_restore, text_of

NOT_RESTORED: Final = "Nothing was restored."
DAMAGED: Final = "damaged line"


@dataclass(frozen=True, slots=True)
class ListedBackup:
    """A backup of a session, with its expected hash, if Redline recorded one, and the reason for it."""

    file: backup_files.Backup
    recorded: str | None
    reason: str
    compaction: Compaction | None = None
    """The compaction for which it was made, if the database has it."""
    has_rows: bool = False
    """Whether it has rows of an agent's database, which an undo restores. Other backups contain a whole session."""

    @classmethod
    def of(cls, file: backup_files.Backup, row: Backup | None, *, has_rows: bool) -> Self:
        """A backup with its row, if Redline recorded it."""
        if row is None:
            return cls(file, file.recorded_sha256, "", has_rows=has_rows)
        return cls(file, row.sha256, row.reason, getattr(row, "compaction", None), has_rows)

    @property
    def name(self) -> str:
        return self.file.path.name


def list_backups(session: Path) -> list[ListedBackup]:
    """The files beside a session that have the names of its backups, or of those of its rows, newest first."""
    require_name(session)
    data, has_rows = settings.REDLINE_DATA_DIR, agent_at(session).store.database(session) is not None
    found = list_row_backups(data, session) if has_rows else backup_files.list_backups(session)
    rows = {
        row.path: row
        for row in Backup.objects.filter(path__in=[str(one.path) for one in found]).select_related("compaction__run")
    }
    return [ListedBackup.of(one, rows.get(str(one.path)), has_rows=has_rows) for one in found]


def find_backup(session: Path, name: str) -> ListedBackup:
    """The backup of a session with this name. Raises BadInput `no_such_backup`; a name is not a path."""
    for listed in list_backups(session):
        if listed.name == name:
            return listed
    raise BadInput(
        "no_such_backup",
        f"{session.name} has no backup named {name}. Nothing was done. Choose one of the listed backups.",
    )


def delete(session: Path, backup: Path, *, is_only_backup: bool) -> None:
    """Delete a backup of a session permanently. Its row in the database is kept: a compaction keeps the record of its
    backup.

    `is_only_backup`: whether the user confirmed knowing that it is the only one. Raises Conflict `only_backup` if it
    has become the only one since, and the errors of `backups.delete_backup`.
    """
    with lock_session(session) as locked:
        others = [one for one in list_backups(locked.path) if one.name != backup.name]
        if not others and not is_only_backup:
            raise Conflict(
                "only_backup",
                f"{backup} has become the only backup of {locked.path}. It was not deleted. "
                "If it should be deleted anyway, confirm again.",
            )
        backup_files.delete_backup(backup)


# ---- the effect of a restore -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NewerEntry:
    """A line of the session that a restore would remove."""

    number: int
    entry_id: str
    kind: str
    """The role of a message, the agent's name for another entry, or DAMAGED."""
    deletes: bool = False
    """Whether it is a compaction that deletes."""


@dataclass(frozen=True, slots=True)
class RestoreDifference:
    """The lines of a session that a restore would change."""

    newer: list[NewerEntry]
    """The removed lines, in file order, without the compaction for which the backup was made."""
    made_for: str
    """The id of that compaction, if the session has it: it is also removed."""
    brought_back: int
    """The number of lines that only the backup has."""


def restored_session(backup: Path) -> Path:
    """The session to which a backup can be restored.

    Raises BadInput `backup_of_rows` and `not_a_backup`, and Conflict `link_changed`.
    """
    if real_path(backup.parent) == real_path(Path(settings.REDLINE_DATA_DIR, DIRECTORY_OF_ROWS)):
        raise BadInput(
            "backup_of_rows",
            f"{backup} has rows of an agent's database, not a whole session. Nothing was done. Undo the compaction "
            "that it was made for: that puts them back.",
        )
    return backup_files.backed_up_session(backup)


def keeps_its_bytes(session: Path) -> bool:
    """Whether a session exists and must not lose bytes, so that no backup can replace it."""
    return agent_at(session).store.is_append_only and file_state(session) is not None


def difference(session: Path, backup: Path) -> RestoreDifference:
    """The effect of restoring a backup. Reads both files, and parses only the lines after their common beginning: 0.1 s
    for 100 MB that only grew, 1 s if they differ from the start.
    """
    with SessionReader(session) as present, SessionReader(backup) as kept:
        start, number = _first_difference(present, kept)
        missing = {
            _digest(line) for line in split_lines(kept.chunks(start), offset=start, number=number) if line.raw.strip()
        }
        known = frozenset(missing)
        parser = _parser_at(present, start)
        newer: list[NewerEntry] = []
        made_for = ""
        for line in split_lines(present.chunks(start), offset=start, number=number):
            header = parser.state.header
            entries = [recorded.entry for recorded in parser.read(line)]
            digest = _digest(line)
            missing.discard(digest)
            if digest in known or not line.raw.strip():
                continue
            if not entries:
                kind = DAMAGED if parser.state.header is header else "session"
                newer.append(NewerEntry(line.number, "", kind))
                continue
            entry, control = entries[0], entries[0].control
            # The path in it is compared as text only.
            if isinstance(control, DeletionControl) and Path(control.backup).name == backup.name:
                made_for = entry.id
            else:
                is_compaction = entry.kind is EntryKind.DELETION
                newer.append(NewerEntry(line.number, entry.id, entry.role or entry.type, deletes=is_compaction))
    return RestoreDifference(newer, made_for, len(missing))


def _first_difference(present: SessionReader, kept: SessionReader) -> tuple[int, int]:
    """The offset and the number of the first different line."""
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
    """The length of the common beginning of two byte strings of equal length."""
    if ours == theirs:
        return len(ours)
    return bisect_left(range(len(ours)), True, key=lambda index: ours[: index + 1] != theirs[: index + 1])


def _parser_at(present: SessionReader, start: int) -> LineParser:
    """A parser for the lines from `start` on that knows the version of the session."""
    parser = agent_at(present.path).format.parser(ParserState(), [])
    for line in split_lines(present.chunks(0)):
        if parser.state.version or line.offset >= start:
            break
        parser.read(line)
    return parser


def _digest(line: Line) -> bytes:
    return hashlib.sha256(line.raw).digest()


# ---- the restore -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RestorePlan(PlannedChange):
    """The effect that restoring a backup would have now."""

    NOT_DONE = NOT_RESTORED

    backup: Path
    recorded: str | None
    """The expected hash of the backup; None if Redline did not make it."""
    replaced: Path
    """The session that the backup replaces."""
    present: FileState | None
    """The state of the session's file; None if it is gone."""
    states: str
    """The states of both files before they were compared, so that a later write makes the plan outdated."""
    change: RestoreDifference

    @property
    def session(self) -> Path:
        return self.replaced

    def digest(self) -> str:
        return self.states

    @property
    def words(self) -> dict[str, tuple[str, str]]:
        words = {
            "live": (
                "An agent may have this session open. I have closed it there, or will reload it.",
                f"It {self.activity.sentence}. What a process that has it open writes after the restore goes to the "
                "replaced file and is lost.",
            ),
            "unverified": (
                "Trust this backup, although Redline did not make it.",
                "No hash was recorded for it, so Redline cannot check that it is intact.",
            ),
        }
        if self.change.newer:
            last = self.change.newer[-1]
            words["drop_newer"] = (
                f"Delete the {plural(len(self.change.newer), 'line')} that came after this backup.",
                f"The last of them is line {last.number:,}: {last.entry_id or last.kind}. They are kept in the backup "
                "that is made of the current session.",
            )
        return words

    def require_shown(self, shown: str | None) -> None:
        if shown is not None and shown != self.digest():
            raise Conflict(
                "session_changed",
                f"{self.session}, or its backup, has changed since this was shown. {NOT_RESTORED} Check what would be "
                "removed now, then decide again.",
            )

    def require_confirmed(self, given: Confirmations) -> None:
        elsewhere = self.activity.elsewhere
        if elsewhere is not None and elsewhere.is_certain:
            raise Conflict(
                "open_in_agent",
                f"{self.session} {elsewhere.sentence}. {NOT_RESTORED} Close the session there first.",
            )
        super().require_confirmed(given)


def plan_restore(backup: Path, now: datetime) -> RestorePlan:
    """The effect that a restore would have now. Raises the errors of `restored_session`, Conflict `append_only`, and
    the errors of reading both files.
    """
    session = restored_session(backup)
    require_name(session)
    if keeps_its_bytes(session):
        raise Conflict(
            "append_only",
            f"{agent_at(session).label} and other sessions refer to positions in {session}, so it must not lose bytes. "
            f"{NOT_RESTORED} Undo the compaction instead, which appends what it deleted.",
        )
    states = " ".join(
        f"{state.device}.{state.inode}.{state.size}.{state.mtime_ns}" if state is not None else "gone"
        for state in (file_state(session), file_state(backup))
    )
    row = Backup.objects.filter(path=str(backup)).first()
    recorded = row.sha256 if row is not None else backup_files.recorded_sha256(backup)
    present = file_state(session)
    change = difference(session, backup) if present is not None else RestoreDifference([], "", 0)
    activity = activity_of(session_row(session), present, now)
    needs = dict(_needs(session, backup, recorded, change, activity))
    return RestorePlan(activity, needs, backup, recorded, session, present, states, change)


def _needs(
    session: Path, backup: Path, recorded: str | None, change: RestoreDifference, activity: Activity
) -> Iterator[tuple[str, ConfirmationNeeded]]:
    if activity.is_live:
        yield confirmation(
            "live",
            "session_live",
            f"{session} {activity.sentence}: an agent may have it open, and would continue from its own copy. What "
            "a process that has it open writes after the restore goes to the replaced file and is lost. Nothing "
            "was restored. Close the session there, and use --live.",
        )
    if recorded is None:
        yield confirmation(
            "unverified",
            "unverified_backup",
            f"Redline did not make {backup}, so it cannot check whether it is complete. Nothing was restored. "
            "If you trust it, use --unverified.",
        )
    if change.newer:
        last = change.newer[-1]
        yield confirmation(
            "drop_newer",
            "newer_entries",
            f"{session} has {plural(len(change.newer), 'line')} that came after {backup.name}, the last one "
            f"{last.entry_id or last.kind} (line {last.number}). A restore removes them. "
            "Nothing was restored. If that is intended, use --drop-newer.",
        )


def restore(backup: Path, confirmations: Confirmations, now: datetime, *, shown: str | None = None) -> Restored:
    """Replace a session with its backup, after backing up its current content.

    `shown` is the digest of the plan for which the confirmations were given, if that was some time ago. Raises the
    errors of `plan_restore`, Conflict `session_changed`, ConfirmationNeeded, and the errors of
    `storage.restore.restore`; then the session is unchanged.
    """
    with lock_session(restored_session(backup)) as locked:
        plan = plan_restore(backup, now)
        plan.require_shown(shown)
        plan.require_confirmed(confirmations)
        size = backup.stat().st_size
        restored = restore_session(
            locked,
            backup,
            plan.recorded,
            plan.present,
            now,
            note=lambda previous, sha256: text_of(_note(previous, backup, sha256, now)),
            record=lambda done: _record(done, backup, size, now),
        )
    with suppress(RedlineError, DatabaseError):  # it is restored: the index can follow later
        index_file(plan.session, rebuild=True)
    return restored


def _note(previous: Iterable[backup_files.Backup], backup: Path, sha256: str, now: datetime) -> RestoreNote:
    return RestoreNote(tuple(map(BackupNote.of, previous)), str(backup), sha256, now)


def _record(restored: Restored, backup: Path, size: int, now: datetime) -> None:
    try:
        record_restore(restored.path, _note(restored.previous, backup, restored.sha256, now), size)
    except DatabaseError as fault:
        previous = restored.previous_backup
        before = f" Its previous content is in {previous.path}." if previous is not None else ""
        raise SystemFailure(
            NOT_RECORDED,
            f"{restored.path} was restored from {backup}, but Redline's own database failed: {fault}.{before} "
            "It is recorded when the session is next locked.",
        ) from fault
