"""The database records of a change of a session: written in one transaction, once the file has changed.

The same record is written by the process that made the change or, if that was killed first, from the note in its intent
record by the process that locks the session next:

    CommitNote ──▶ Backup, Compaction, the run committed
    UndoNote ──▶ Backup, Undo, the run restored if everything is back
    EntriesNote ──▶ Backup, and the draft that is appended
    ForkNote ──▶ no row
    each of them ──▶ an entry of the audit log, and the session's own write in the index
    RestoreNote ──▶ a Backup for each copy that was made; runs whose line is gone `restored`, those back `committed`

The content of the file decides, not the intention. A change whose line is not in the file leaves no row, and its backup
is deleted, as after any failed one. Only the process that made a commit calls the hooks for it.

A restore is separate: it makes up to two backups, records them even if the session was not restored, and has no row.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Collection
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple, Self

import msgspec
from django.db import DatabaseError, transaction

from compaction_app.core.states import RunState
from compaction_app.models import AuditEntry, Backup, Compaction, Run, SummaryDraft, Undo
from sessions_app.agents.registry import agent_at
from sessions_app.disk.files import file_state
from sessions_app.index.index_store import remember_own_write, session_row
from sessions_app.index.indexer import index_file
from sessions_app.models import Session
from sessions_app.sessionlog.certificate import Certificate
from sessions_app.sessionlog.context import Measure
from sessions_app.sessionlog.entries import Target
from sessions_app.sessionlog.errors import RedlineError, SystemFailure
from sessions_app.sessionlog.jsjson import split_lines
from sessions_app.sessionlog.session import ParserState
from sessions_app.storage import backups as files
from sessions_app.storage.locks import LockedSession, RecoveryKind

from . import audit

logger = logging.getLogger("redline")

NOT_RECORDED: Final = "not_recorded"
"""The failure after which the change is made and will be recorded with the session's next lock."""
_TARGET: Final = frozenset(Target("", 0).to_json())
_COLUMNS: Final = (
    *("entry_id", "leaf_id", "writer", "created", "server", "certificate", "planner", "reason", "written_at"),
    *("parameters", "stats", "context", "origins"),
)
"""The fields of a note that are also columns of a compaction's row."""
_UNDO_COLUMNS: Final = ("way", "is_whole", "leaf_id", "created", "server", "written_at")
"""The same for an undo's row."""


# ---- notes ---------------------------------------------------------------------------------------------------


class MadeChange(NamedTuple):
    """A change that was made or is about to be made."""

    entry_id: str
    """The new leaf of the session, or the id of the new session."""
    size: int = 0
    """The size of the changed or new session in bytes; 0 before it is made."""
    lines: tuple[bytes, ...] = ()
    """The appended lines, without their newlines."""
    created: Path | None = None
    """The new session, if one was made."""
    sha256: str = ""
    """The digest of the changed or new file; empty if unknown."""
    certificate: Certificate | None = None
    """The result of the checks; None before they ran."""

    @property
    def first_id(self) -> str:
        """The id of the first appended entry: a label from a hook follows the summary that it labels."""
        return str(json.loads(self.lines[0])["id"])


class BackupNote(msgspec.Struct, frozen=True):
    """A backup, with the fields of its row."""

    path: str
    sha256: str
    size: int
    taken_at: datetime

    @classmethod
    def of(cls, backup: files.Backup) -> BackupNote:
        return cls(str(backup.path), backup.recorded_sha256 or "", backup.size, backup.taken_at)

    @property
    def content(self) -> audit.FileContent:
        """The session's content at the time of the backup."""
        return audit.FileContent(self.size, self.sha256)


class ChangeNote(msgspec.Struct, frozen=True, kw_only=True):
    """A change of a session, in its intent record, with which another process can record it."""

    REASON: ClassVar[str] = ""
    """The `Backup.Reason` of its backup."""
    KEY: ClassVar[str]
    """Identifies the change in the audit log, so that it is recorded once: a pattern of the note's fields."""
    SUMMARY: ClassVar[str]
    """The change as the subject of a sentence, as in "The undo of e4": a pattern likewise."""
    ACTION: ClassVar[str] = ""
    """The `AuditEntry.Action` of this kind of change, if all changes of the kind have the same one."""

    written_at: datetime
    session: str = ""
    """The path of the session; empty if it is the one whose lock is held."""
    backup: BackupNote | None = None
    entry_id: str = ""
    """The new leaf of the session, or the id of the new session; empty if no entry proves the change."""
    writer: str = ""
    server: str = ""
    """The address of the agent's server that made the change, if any."""
    created: str = ""
    """The path of the new session, if one was made."""
    removed: str = ""
    """The path of the deleted session, if any."""
    certificate: dict[str, Any] | None = None
    measure: Measure | None = None
    """The measure of the context from which it deleted; None if it deleted nothing."""

    def of_made(self, made: MadeChange) -> Self:
        """The note, completed with the change that was made."""
        certificate = made.certificate.to_json() if made.certificate is not None else None
        created = str(made.created or "")
        return msgspec.structs.replace(self, entry_id=made.entry_id, created=created, certificate=certificate)

    def changed_path(self, session: Path) -> Path:
        """The file that was made or deleted, otherwise the session that was changed."""
        return Path(self.created or self.removed or session)

    @property
    def key(self) -> str:
        return self.KEY.format(note=self)

    @property
    def summary(self) -> str:
        return self.SUMMARY.format(note=self)

    @property
    def audit_action(self) -> str:
        """The action in the audit log, an `AuditEntry.Action`."""
        return self.ACTION

    @property
    def audit_writer(self) -> str:
        """The writer, such as `delete, through the server at http://127.0.0.1:4096`."""
        return f"{self.writer}, through the server at {self.server}" if self.server else self.writer

    @property
    def targets(self) -> tuple[dict[str, Any], ...]:
        """The entries and blocks that were deleted or brought back, each as `targets.Target.to_json`."""
        return ()

    @property
    def content_before(self) -> audit.FileContent | None:
        """The previous content of the session; None if it was not changed."""
        return self.backup.content if self.backup is not None else None

    def save(self, session: Session, backup: Backup | None) -> None:
        """Write only the rows of this kind of change, unless they exist. Raises DatabaseError."""


class CommitNote(ChangeNote, frozen=True, kw_only=True, tag="commit"):
    """The data of a compaction's rows."""

    REASON = Backup.Reason.COMPACT
    KEY = "commit {note.entry_id} {note.backup.path}"
    SUMMARY = "The compaction {note.entry_id}"
    ACTION = AuditEntry.Action.COMMIT

    backup: BackupNote
    run: int | None
    leaf_id: str
    planner: str
    reason: str
    parameters: dict[str, Any]
    stats: dict[str, Any]
    origins: list[dict[str, Any]]
    writer: str = "context-compaction"
    context: dict[str, Any] | None = None
    """The size of the context before it."""
    by_agent: bool = False
    """Whether the running agent made the change itself, in a handshake."""
    rule: str = ""
    """The rule by which it was approved without a review, in words; empty if a human approved it."""
    struck_estimate: int | None = None
    """The deleted tokens, estimated, for its run; None if unknown."""

    @property
    def audit_writer(self) -> str:
        words = [super().audit_writer]
        if self.by_agent:
            words.append("by the running agent")
        if self.rule:
            words.append(f"approved automatically: {self.rule}")
        return ", ".join(words)

    @property
    def targets(self) -> tuple[dict[str, Any], ...]:
        return tuple({key: origin[key] for key in _TARGET if key in origin} for origin in self.origins)

    def save(self, session: Session, backup: Backup | None) -> None:
        run = Run.objects.filter(pk=self.run).first() if self.run is not None else None
        fields = msgspec.structs.asdict(self)
        columns = {name: fields[name] for name in _COLUMNS}
        Compaction.objects.get_or_create(backup=backup, defaults={**columns, "session": session, "run": run})
        if run is not None:
            struck = run.struck_estimate if self.struck_estimate is None else self.struck_estimate
            Run.change(run.pk, RunState.COMMITTED, committing_since=None, struck_estimate=struck)


class UndoNote(ChangeNote, frozen=True, kw_only=True, tag="undo"):
    """The data of an undo's row."""

    REASON = Backup.Reason.UNDO
    KEY = "undo {note.undone} {note.made}"
    SUMMARY = "The undo of {note.undone}"

    undone: str
    """The entry of the compaction, or the id of the session that it made."""
    way: str
    is_whole: bool
    targets: tuple[dict[str, Any], ...]
    leaf_id: str
    content: audit.FileContent | None = None
    """The content of the deleted session."""

    @property
    def made(self) -> str:
        """The entry or session that it made, or the session that it deleted."""
        return self.entry_id or self.removed

    @property
    def audit_action(self) -> str:
        return AuditEntry.Action.UNDO if self.is_whole else AuditEntry.Action.BRING_BACK

    @property
    def content_before(self) -> audit.FileContent | None:
        return self.content if self.backup is None else self.backup.content

    def save(self, session: Session, backup: Backup | None) -> None:
        compaction = session.compactions.filter(entry_id=self.undone).first()
        Undo.objects.get_or_create(
            session=session,
            undone=self.undone,
            entry_id=self.entry_id,
            defaults={name: getattr(self, name) for name in _UNDO_COLUMNS}
            | {"compaction": compaction, "targets": list(self.targets), "backup": backup},
        )
        if self.is_whole and compaction is not None and compaction.run_id is not None:
            Run.change(compaction.run_id, RunState.RESTORED)
        if self.removed:
            Session.objects.filter(pk=session_row(Path(self.removed)).pk).update(missing=True)


class ForkNote(ChangeNote, frozen=True, kw_only=True, tag="fork"):
    """A new session that was made from another one without deleting anything."""

    KEY = "fork {note.created}"
    SUMMARY = "The fork {note.created}"
    ACTION = AuditEntry.Action.FORK

    leaf_id: str
    """The entry at which it was made."""


class EntriesNote(ChangeNote, frozen=True, kw_only=True, tag="entries"):
    """Entries that were appended without deleting anything, such as a label."""

    REASON = Backup.Reason.ENTRIES
    KEY = "{note.action} {note.entry_id} {note.backup.path}"
    SUMMARY = "The {note.action}"

    backup: BackupNote
    action: str
    """The action in the audit log, an `AuditEntry.Action`."""
    words: str
    """A description for the audit log."""
    draft: int | None = None
    """The draft whose summary is the first of them; None if there is no draft."""
    summary_id: str = ""
    """The id of that summary."""

    def of_made(self, made: MadeChange) -> Self:
        summary_id = made.first_id if self.draft is not None else ""
        return msgspec.structs.replace(super().of_made(made), summary_id=summary_id)

    @property
    def audit_action(self) -> str:
        return self.action

    @property
    def audit_writer(self) -> str:
        return self.words

    def save(self, session: Session, backup: Backup | None) -> None:
        del session, backup
        if self.draft is not None:
            ready = SummaryDraft.objects.filter(pk=self.draft, state=SummaryDraft.State.READY)
            ready.update(state=SummaryDraft.State.APPENDED, appended_id=self.summary_id)


class RestoreNote(msgspec.Struct, frozen=True, tag="restore"):
    """The backups that were made before a restore, and the restored content."""

    backups: tuple[BackupNote, ...]
    source: str = ""
    """The path of the backup that was restored."""
    sha256: str = ""
    """The digest of its content."""
    restored_at: datetime | None = None


Note = CommitNote | RestoreNote | UndoNote | ForkNote | EntriesNote


def text_of(note: Note | ChangeNote) -> str:
    """A note in the form of an intent record. Lone surrogates, which any text of a session may contain, are
    preserved."""
    return json.dumps(msgspec.to_builtins(note))


# ---- records -------------------------------------------------------------------------------------------------


def record(session: Path, note: ChangeNote, size: int, sha256: str) -> None:
    """Record a change of a session. The file that it made, otherwise the session, has `size` bytes unless others wrote
    to it since; `sha256` is the digest of those bytes, empty if unknown.

    Existing records stay unchanged. Raises DatabaseError; then nothing is recorded.
    """
    with transaction.atomic():
        row = session_row(session)
        backup = _record_backup(row, note.backup, note.REASON) if note.backup is not None else None
        note.save(row, backup)
        entry = AuditEntry(
            change=note.key,
            at=note.written_at,
            session=note.removed or str(session),
            action=note.audit_action,
            writer=note.audit_writer,
            targets=list(note.targets),
            new_file=note.created,
            backup=note.backup.path if note.backup is not None else "",
            certificate=note.certificate,
        )
        audit.append(entry, note.content_before, audit.FileContent(size, sha256) if sha256 else None)
    if not note.removed:
        made_from = session if note.created else None
        remember_own_write(note.changed_path(session), size, note.measure, made_from=made_from)


def record_made(session: Path, note: ChangeNote, size: int, sha256: str) -> None:
    """Like `record`, for a change that was just made. Raises SystemFailure `not_recorded`; the next lock records it."""
    try:
        record(session, note, size, sha256)
    except DatabaseError as fault:
        backup = f", and {note.backup.path} is its backup" if note.backup is not None else ""
        raise SystemFailure(
            NOT_RECORDED,
            f"{note.summary} of {session} was written{backup}, but Redline's own database failed: {fault}. Nothing is "
            "lost: it is recorded when the session is next locked.",
        ) from fault


def content_written(compaction: Compaction) -> audit.FileContent | None:
    """The initial content of the new session of a compaction; None if unknown."""
    entry = AuditEntry.objects.filter(change=CommitNote.KEY.format(note=compaction)).first()
    if entry is None or entry.bytes_after is None:
        return None
    return audit.FileContent(entry.bytes_after, entry.sha256_after)


def record_backup(path: Path, note: BackupNote) -> None:
    """Record a backup for a change of which only a part is in the session. Raises DatabaseError."""
    _record_backup(session_row(path), note, Backup.Reason.COMPACT)


def record_restore(path: Path, note: RestoreNote, size: int | None) -> None:
    """Record the backups of a restore, and which compactions the session contains. Raises DatabaseError.

    `size` is the session's size unless others wrote to it since; None if it was not restored.
    """
    with transaction.atomic():
        session = session_row(path)
        for one in note.backups:
            _record_backup(session, one, Backup.Reason.RESTORE)
        _record_compactions_left(session, path)
        if size is not None and note.restored_at is not None:
            # A backup that is made after the step, of bytes written at the same moment, is missing from the note of a
            # settled one.
            first = note.backups[0] if note.backups else None
            backup = first.path if first is not None else ""
            entry = AuditEntry(
                change=f"restore {note.source} {backup or note.restored_at.isoformat()}",
                at=note.restored_at,
                session=str(path),
                action=AuditEntry.Action.RESTORE,
                restored_from=note.source,
                backup=backup,
            )
            before = first.content if first is not None else None
            audit.append(entry, before, audit.FileContent(size, note.sha256))
    if size is not None:
        remember_own_write(path, size)


def _record_backup(session: Session, note: BackupNote, reason: str) -> Backup:
    found = {**msgspec.structs.asdict(note), "session": session, "reason": reason}
    backup, _ = Backup.objects.get_or_create(path=note.path, defaults=found)
    return backup


def _record_compactions_left(session: Session, path: Path) -> None:
    """Set the state of the runs of a session's compactions from the content of the file."""
    written = session.compactions.filter(run__isnull=False, created="").values_list("pk", "entry_id", "run_id")
    undone = session.undos.filter(is_whole=True, created="").values_list("compaction_id", "entry_id")
    left = entries_in(path, {entry_id for _, entry_id, _ in written} | {entry_id for _, entry_id in undone})
    taken_back = {compaction for compaction, entry_id in undone if entry_id in left}
    for compaction, entry_id, run_id in written:
        is_in_force = entry_id in left and compaction not in taken_back
        Run.change(run_id, RunState.COMMITTED if is_in_force else RunState.RESTORED)


def entries_in(path: Path, sought: Collection[str]) -> set[str]:
    """The ids among `sought` that a session contains; none if it is gone. Reads the file and parses the lines of these
    entries."""
    if not sought or file_state(path) is None:
        return set()
    named = re.compile(b"|".join(re.escape(entry_id.encode()) for entry_id in sought))
    agent = agent_at(path)
    parser = agent.format.parser(ParserState(), [])
    with agent.store.open(path) as reader:
        lines = (line for line in split_lines(reader.chunks(0)) if line.number == 1 or named.search(line.raw))
        recorded = [found.entry.id for line in lines for found in parser.read(line)]
    return {entry_id for entry_id in recorded if entry_id in sought}


# ---- after a killed process ----------------------------------------------------------------------------------


def settle(locked: LockedSession) -> None:
    """Record the outcome of an interrupted change, so that the runs of the session accept decisions again.

    Raises DatabaseError and the errors of reading the session; then the next lock does it.
    """
    note, kind = _read(locked), locked.recovery.kind
    if kind is RecoveryKind.UNRESOLVED:
        logger.warning("%s: %s; its record is kept", locked.path, RecoveryKind.UNRESOLVED.value)
    if isinstance(note, RestoreNote):
        record_restore(locked.path, note, locked.recovery.size if kind is RecoveryKind.MADE else None)
    elif note is not None:
        _settle(locked, note)
    for run in Run.objects.being_committed().with_session():
        # The lock is held here, so the process that was writing its plan has ended.
        if run.session.path == locked.path:
            Run.objects.filter(pk=run.pk).update(committing_since=None)
    if note is not None and agent_at(locked.path).store.state(locked.path) is not None:
        # It is recorded, or was not made: the index can follow later.
        with suppress(RedlineError, DatabaseError):
            created = "" if isinstance(note, RestoreNote) else note.created
            index_file(Path(created or locked.path), rebuild=isinstance(note, RestoreNote))


def _read(locked: LockedSession) -> Note | None:
    if not locked.recovery.note:
        return None
    try:
        found: Note = msgspec.convert(json.loads(locked.recovery.note), Note)
    except (ValueError, msgspec.ValidationError) as fault:
        logger.warning("%s: the note of an interrupted change cannot be read: %s", locked.path, fault)
        return None
    return found


def _settle(locked: LockedSession, note: ChangeNote) -> None:
    session, recovery = Path(note.session or locked.path), locked.recovery
    if recovery.kind is RecoveryKind.MADE:
        sha256 = ""
        if not note.removed:
            with suppress(RedlineError):  # others may have shortened or removed the file since
                sha256 = files.digest_up_to(note.changed_path(session), recovery.size)
        record(session, note, recovery.size, sha256)
    elif recovery.kind is RecoveryKind.UNRESOLVED:
        if entries_in(session, {note.entry_id} - {""}):
            record(session, note, recovery.size, "")
    elif note.backup is not None:
        # The change is not in the session, and was not recorded with its backup.
        path = Path(note.backup.path)
        if file_state(path) is not None and not Backup.objects.filter(path=note.backup.path).exists():
            files.delete_backup(path)


def unsettled() -> list[Path]:
    """The sessions of runs whose commit is under way or was killed."""
    return [run.session.path for run in Run.objects.being_committed().with_session()]
