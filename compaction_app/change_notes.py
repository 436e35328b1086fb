"""What an intent record says about a change of a session, so that another process can record it."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from sessions_app.sessionlog.measure import Measure
from sessions_app.sessionlog.targets import Target
from sessions_app.storage import backups as files

from .audit import service as audit


class BackupNote(msgspec.Struct, frozen=True):
    """A backup, as its row has it."""

    path: str
    sha256: str
    size: int
    taken_at: datetime

    @classmethod
    def of(cls, backup: files.Backup) -> BackupNote:
        return cls(str(backup.path), backup.recorded_sha256 or "", backup.size, backup.taken_at)

    @property
    def content(self) -> audit.FileContent:
        """What the session contained when it was made."""
        return audit.FileContent(self.size, self.sha256)


class CommitNote(msgspec.Struct, frozen=True, tag="commit"):
    """Everything that the rows of a compaction contain."""

    backup: BackupNote
    run: int | None
    entry_id: str
    leaf_id: str
    planner: str
    reason: str
    written_at: datetime
    parameters: dict[str, Any]
    stats: dict[str, Any]
    origins: list[dict[str, Any]]
    writer: str = "context-compaction"
    created: str = ""
    """The path of the new session, if one was made."""
    server: str = ""
    """The address of the agent's server that made the change, if one did."""
    certificate: dict[str, Any] | None = None
    context: dict[str, Any] | None = None
    """The size of the context before it."""
    measure: Measure | None = None
    by_agent: bool = False
    """Whether the running agent made the change itself, in a handshake."""
    rule: str = ""
    """The rule by which it was approved without a review, in words; empty if a human approved it."""

    @property
    def targets(self) -> tuple[dict[str, Any], ...]:
        """The deleted entries and blocks."""
        return tuple({key: origin[key] for key in _TARGET if key in origin} for origin in self.origins)


class RestoreNote(msgspec.Struct, frozen=True, tag="restore"):
    """The backups that were made before a restore, and what was restored."""

    backups: tuple[BackupNote, ...]
    source: str = ""
    """The path of the backup whose content the session was given."""
    sha256: str = ""
    """The digest of that content."""
    restored_at: datetime | None = None


class UndoNote(msgspec.Struct, frozen=True, tag="undo"):
    """Everything that the row of an undo contains."""

    session: str
    """The path of the session that was compacted."""
    backup: BackupNote | None
    undone: str
    """The entry of the compaction, or the id of the session that it made."""
    way: str
    is_whole: bool
    targets: tuple[dict[str, Any], ...]
    entry_id: str
    leaf_id: str
    written_at: datetime
    writer: str
    created: str = ""
    """The path of the new session, if one was made."""
    removed: str = ""
    """The path of the session that was deleted, if one was."""
    content: audit.FileContent | None = None
    """What that session contained."""
    server: str = ""
    """The address of the agent's server that made the change, if one did."""
    certificate: dict[str, Any] | None = None

    @property
    def changed(self) -> Path:
        """The file that was appended to, made or deleted."""
        return Path(self.created or self.removed or self.session)


class ForkNote(msgspec.Struct, frozen=True, tag="fork"):
    """A new session that was made of another one without deleting anything."""

    session: str
    created: str
    leaf_id: str
    """The entry at which it was made."""
    writer: str
    written_at: datetime
    certificate: dict[str, Any] | None = None


class EntriesNote(msgspec.Struct, frozen=True, tag="entries"):
    """Entries that were appended without deleting anything, such as a label."""

    session: str
    backup: BackupNote
    action: str
    """An `AuditEntry.Action`."""
    words: str
    """What they do, for the audit log."""
    entry_id: str
    """The last of them."""
    written_at: datetime
    certificate: dict[str, Any] | None = None
    draft: int | None = None
    """The draft whose summary the first of them is; None if it is of no draft."""
    summary_id: str = ""
    """The id of that summary."""


Note = CommitNote | RestoreNote | UndoNote | ForkNote | EntriesNote
_TARGET: Final = frozenset(Target("", 0).to_json())


def text_of(note: Note) -> str:
    """A note in the form of an intent record. Lone surrogates, which any text of a session may contain, survive."""
    return json.dumps(msgspec.to_builtins(note))
