"""What a change of a session records in the database: all in one transaction, once the file has changed.

The same record is written by the process that made the change or, if that was killed first, from the note in its intent
record by the process that locks the session next:

    CommitNote ──▶ Backup, Compaction, the run committed        if the change is made
    RestoreNote ──▶ a Backup for each copy that was made; runs whose line is gone `restored`, those back `committed`
    UndoNote ──▶ Backup, Undo, the run restored if everything is back        if the change is made
    EntriesNote ──▶ Backup, and the draft that is appended        if the change is made
    ForkNote ──▶ no row of its own
    all ──▶ an entry of the audit log        if the session was changed

The content of the file decides, not the intention. A change whose line is not in the file leaves no row, and
its backup is deleted, as after any failed one. Only the process that made a commit calls the hooks for it.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Collection
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import msgspec
from django.db import DatabaseError, transaction

from sessions_app.agents.registry import agent_at
from sessions_app.index.index_store import remember_own_write, session_row
from sessions_app.index.indexer import index_file
from sessions_app.models import Session
from sessions_app.sessionlog.errors import RedlineError
from sessions_app.sessionlog.lines import split_lines
from sessions_app.sessionlog.session import ParserState
from sessions_app.storage import backups as files
from sessions_app.storage.files import file_state
from sessions_app.storage.locks import LockedSession, RecoveryKind

from .audit import service as audit
from .change_notes import BackupNote, CommitNote, EntriesNote, ForkNote, Note, RestoreNote, UndoNote
from .core.states import RunState
from .models import AuditEntry, Backup, Compaction, Run, SummaryDraft, Undo

logger = logging.getLogger("redline")

_NOT_COLUMNS: Final = ("measure", "by_agent", "rule")
"""The fields of a note that the row of a compaction does not have."""


def record_commit(path: Path, note: CommitNote, size: int, sha256: str) -> None:
    """Record that a compaction of a session is written. The session, or the new one that was made of it, has `size`
    bytes unless others wrote to it since.

    `sha256` is the digest of those bytes; empty if it is not known. Raises DatabaseError; then nothing is recorded.
    Existing records are left as they are.
    """
    with transaction.atomic():
        session = session_row(path)
        backup = _record_backup(session, note.backup, Backup.Reason.COMPACT)
        run = Run.objects.filter(pk=note.run).first() if note.run is not None else None
        Compaction.objects.get_or_create(
            backup=backup,
            defaults={**_columns(note), "session": session, "backup": backup, "run": run},
        )
        if run is not None:
            Run.change(run.pk, RunState.COMMITTED, committing_since=None)
        audit.append(_commit_facts(path, note, audit.FileContent(size, sha256) if sha256 else None))
    if note.created:
        remember_own_write(Path(note.created), size, note.measure, made_from=path)
    else:
        remember_own_write(path, size, note.measure)


def _columns(note: CommitNote) -> dict[str, Any]:
    """What the row of a compaction has of its note."""
    columns = msgspec.structs.asdict(note)
    for name in _NOT_COLUMNS:
        del columns[name]
    return columns


def record_undo(note: UndoNote, size: int, sha256: str) -> None:
    """Record that a compaction, or a part of it, is undone; `size` and `sha256` are as in `record_commit`."""
    with transaction.atomic():
        session = session_row(Path(note.session))
        backup = _record_backup(session, note.backup, Backup.Reason.UNDO) if note.backup is not None else None
        compaction = session.compactions.filter(entry_id=note.undone).first()
        Undo.objects.get_or_create(
            session=session,
            undone=note.undone,
            entry_id=note.entry_id,
            defaults={
                "compaction": compaction,
                "way": note.way,
                "is_whole": note.is_whole,
                "targets": list(note.targets),
                "leaf_id": note.leaf_id,
                "created": note.created,
                "server": note.server,
                "backup": backup,
                "written_at": note.written_at,
            },
        )
        if note.is_whole and compaction is not None and compaction.run_id is not None:
            Run.change(compaction.run_id, RunState.RESTORED)
        after = None
        if not note.removed:
            after = audit.FileContent(size, sha256) if sha256 else None
        audit.append(_undo_facts(note, after))
        if note.removed:
            session_rows = Session.objects.filter(pk=session_row(Path(note.removed)).pk)
            session_rows.update(missing=True)
    if not note.removed:
        remember_own_write(note.changed, size, made_from=Path(note.session) if note.created else None)


def record_fork(note: ForkNote, size: int, sha256: str) -> None:
    """Record a fork; `size` and `sha256` are as in `record_commit`. Raises DatabaseError."""
    audit.append(
        audit.AuditFacts(
            change=f"fork {note.created}",
            at=note.written_at,
            session=Path(note.session),
            action=AuditEntry.Action.FORK,
            writer=note.writer,
            new_file=note.created,
            after=audit.FileContent(size, sha256) if sha256 else None,
            certificate=note.certificate,
        )
    )
    remember_own_write(Path(note.created), size, made_from=Path(note.session))


def record_entries(note: EntriesNote, size: int, sha256: str) -> None:
    """Record entries that were appended; `size` and `sha256` are as in `record_commit`. Raises DatabaseError."""
    path = Path(note.session)
    with transaction.atomic():
        _record_backup(session_row(path), note.backup, Backup.Reason.ENTRIES)
        if note.draft is not None:
            ready = SummaryDraft.objects.filter(pk=note.draft, state=SummaryDraft.State.READY)
            ready.update(state=SummaryDraft.State.APPENDED, appended_id=note.summary_id)
        audit.append(
            audit.AuditFacts(
                change=f"{note.action} {note.entry_id} {note.backup.path}",
                at=note.written_at,
                session=path,
                action=note.action,
                writer=note.words,
                before=note.backup.content,
                after=audit.FileContent(size, sha256) if sha256 else None,
                backup=note.backup.path,
                certificate=note.certificate,
            )
        )
    remember_own_write(path, size)


def content_written(compaction: Compaction) -> audit.FileContent | None:
    """What the new session of a compaction contained when it was made; None if that is not known."""
    entry = AuditEntry.objects.filter(change=_commit_change(compaction.entry_id, compaction.backup.path)).first()
    if entry is None or entry.bytes_after is None:
        return None
    return audit.FileContent(entry.bytes_after, entry.sha256_after)


def record_backup(path: Path, note: BackupNote) -> None:
    """Record a backup that was made for a change of which only a piece is in the session. Raises DatabaseError."""
    _record_backup(session_row(path), note, Backup.Reason.COMPACT)


def record_restore(path: Path, note: RestoreNote, size: int | None) -> None:
    """Record the backups that a restore made, and which compactions the session contains. Raises DatabaseError.

    `size` is the session's size unless others wrote to it since; None if it was not restored.
    """
    with transaction.atomic():
        session = session_row(path)
        for one in note.backups:
            _record_backup(session, one, Backup.Reason.RESTORE)
        _record_compactions_left(session, path)
        if size is not None and note.restored_at is not None:
            audit.append(_restore_facts(path, note, note.restored_at, size))
    if size is not None:
        remember_own_write(path, size)


def _commit_change(entry_id: str, backup: str) -> str:
    return f"commit {entry_id} {backup}"


def _undo_facts(note: UndoNote, after: audit.FileContent | None) -> audit.AuditFacts:
    return audit.AuditFacts(
        change=f"undo {note.undone} {note.entry_id or note.removed}",
        at=note.written_at,
        session=Path(note.removed or note.session),
        action=AuditEntry.Action.UNDO if note.is_whole else AuditEntry.Action.BRING_BACK,
        writer=_writer_in_words(note),
        new_file=note.created,
        targets=note.targets,
        before=note.content if note.backup is None else note.backup.content,
        after=after,
        backup=note.backup.path if note.backup is not None else "",
        certificate=note.certificate,
    )


def _commit_facts(path: Path, note: CommitNote, after: audit.FileContent | None) -> audit.AuditFacts:
    return audit.AuditFacts(
        change=_commit_change(note.entry_id, note.backup.path),
        at=note.written_at,
        session=path,
        action=AuditEntry.Action.COMMIT,
        writer=_writer_in_words(note),
        new_file=note.created,
        targets=note.targets,
        before=note.backup.content,
        after=after,
        backup=note.backup.path,
        certificate=note.certificate,
    )


def _writer_in_words(note: CommitNote | UndoNote) -> str:
    """The writer, such as `delete, through the server at http://127.0.0.1:4096`, and who approved it, if nobody did."""
    words = [note.writer]
    if note.server:
        words.append(f"through the server at {note.server}")
    if isinstance(note, CommitNote) and note.by_agent:
        words.append("by the running agent")
    if isinstance(note, CommitNote) and note.rule:
        words.append(f"approved automatically: {note.rule}")
    return ", ".join(words)


def _restore_facts(path: Path, note: RestoreNote, restored_at: datetime, size: int) -> audit.AuditFacts:
    # A backup that is made after the step, of bytes written at the same moment, is not in the note of a settled one.
    first = note.backups[0] if note.backups else None
    made = first.path if first is not None else restored_at.isoformat()
    return audit.AuditFacts(
        change=f"restore {note.source} {made}",
        at=restored_at,
        session=path,
        action=AuditEntry.Action.RESTORE,
        before=first.content if first is not None else None,
        after=audit.FileContent(size, note.sha256),
        restored_from=note.source,
        backup=first.path if first is not None else "",
    )


def _record_backup(session: Session, note: BackupNote, reason: str) -> Backup:
    found = {**msgspec.structs.asdict(note), "session": session, "reason": reason}
    backup, _ = Backup.objects.get_or_create(path=note.path, defaults=found)
    return backup


def _record_compactions_left(session: Session, path: Path) -> None:
    """Set the state of the runs of a session's compactions by what is in the file."""
    written = session.compactions.filter(run__isnull=False, created="").values_list("pk", "entry_id", "run_id")
    undone = session.undos.filter(is_whole=True, created="").values_list("compaction_id", "entry_id")
    left = entries_in(path, {entry_id for _, entry_id, _ in written} | {entry_id for _, entry_id in undone})
    taken_back = {compaction for compaction, entry_id in undone if entry_id in left}
    for compaction, entry_id, run_id in written:
        is_in_force = entry_id in left and compaction not in taken_back
        Run.change(run_id, RunState.COMMITTED if is_in_force else RunState.RESTORED)


def entries_in(path: Path, sought: Collection[str]) -> set[str]:
    """Which entries with these ids are in a session; none if it is gone. Reads the file and parses their lines."""
    if not sought or file_state(path) is None:
        return set()
    named = re.compile(b"|".join(re.escape(entry_id.encode()) for entry_id in sought))
    agent = agent_at(path)
    parser = agent.parser(ParserState(), [])
    with agent.open(path) as reader:
        lines = (line for line in split_lines(reader.chunks(0)) if line.number == 1 or named.search(line.raw))
        recorded = [found.entry.id for line in lines for found in parser.read(line)]
    return {entry_id for entry_id in recorded if entry_id in sought}


# ---- after a killed process ----------------------------------------------------------------------------------


def settle(locked: LockedSession) -> None:
    """Record the outcome of an interrupted change, so that the runs of the session can be decided on again.

    Raises DatabaseError and what reading the session raises; then the next lock does it.
    """
    note = _read(locked)
    if locked.recovery.kind is RecoveryKind.UNRESOLVED:
        logger.warning("%s: %s; its record is kept", locked.path, RecoveryKind.UNRESOLVED.value)
    if isinstance(note, CommitNote):
        _settle_commit(locked, note)
    elif isinstance(note, UndoNote):
        _settle_undo(locked, note)
    elif isinstance(note, EntriesNote):
        _settle_entries(locked, note)
    elif isinstance(note, ForkNote):
        if locked.recovery.kind is RecoveryKind.MADE:
            size = locked.recovery.size
            record_fork(note, size, _digest(Path(note.created), size))
    elif isinstance(note, RestoreNote):
        is_restored = locked.recovery.kind is RecoveryKind.MADE
        record_restore(locked.path, note, locked.recovery.size if is_restored else None)
    for run in Run.objects.being_committed().with_session():
        # The lock is held here, so the process that was writing its plan is gone.
        if run.session.path == locked.path:
            Run.objects.filter(pk=run.pk).update(committing_since=None)
    if note is not None and agent_at(locked.path).state(locked.path) is not None:
        # It is recorded, or was not made: the index can follow later.
        with suppress(RedlineError, DatabaseError):
            created = "" if isinstance(note, RestoreNote | EntriesNote) else note.created
            made = Path(created) if created else locked.path
            index_file(made, rebuild=isinstance(note, RestoreNote))


def _read(locked: LockedSession) -> Note | None:
    if not locked.recovery.note:
        return None
    try:
        found: Note = msgspec.convert(json.loads(locked.recovery.note), Note)
    except (ValueError, msgspec.ValidationError) as fault:
        logger.warning("%s: the note of an interrupted change cannot be read: %s", locked.path, fault)
        return None
    return found


def _settle_commit(locked: LockedSession, note: CommitNote) -> None:
    kind, size = locked.recovery.kind, locked.recovery.size
    if kind is RecoveryKind.MADE:
        changed = Path(note.created) if note.created else locked.path
        record_commit(locked.path, note, size, _digest(changed, size))
    elif kind is RecoveryKind.UNRESOLVED and entries_in(locked.path, {note.entry_id}):
        record_commit(locked.path, note, size, "")
    elif kind is not RecoveryKind.UNRESOLVED:
        _delete_backup(note.backup)


def _settle_undo(locked: LockedSession, note: UndoNote) -> None:
    kind, size = locked.recovery.kind, locked.recovery.size
    if kind is RecoveryKind.MADE:
        record_undo(note, size, _digest(note.changed, size) if not note.removed else "")
    elif kind is RecoveryKind.UNRESOLVED and entries_in(locked.path, {note.entry_id} - {""}):
        record_undo(note, size, "")
    elif kind is not RecoveryKind.UNRESOLVED and note.backup is not None:
        _delete_backup(note.backup)


def _settle_entries(locked: LockedSession, note: EntriesNote) -> None:
    kind, size = locked.recovery.kind, locked.recovery.size
    if kind is RecoveryKind.MADE:
        record_entries(note, size, _digest(locked.path, size))
    elif kind is RecoveryKind.UNRESOLVED and entries_in(locked.path, {note.entry_id}):
        record_entries(note, size, "")
    elif kind is not RecoveryKind.UNRESOLVED:
        _delete_backup(note.backup)


def _digest(path: Path, size: int) -> str:
    """The digest of what a change left; empty if others have shortened or removed the file since."""
    with suppress(RedlineError):
        return files.digest_up_to(path, size)
    return ""


def _delete_backup(note: BackupNote) -> None:
    """Delete the backup of a change that is not in the session, unless the change was recorded with it."""
    if file_state(Path(note.path)) is not None and not Backup.objects.filter(path=note.path).exists():
        files.delete_backup(Path(note.path))


def unsettled() -> list[Path]:
    """The sessions of runs whose commit has begun and is still under way, or was killed."""
    return [run.session.path for run in Run.objects.being_committed().with_session()]
