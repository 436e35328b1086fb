"""Changes of sessions: backups, compactions, undos, and the audit log."""

from __future__ import annotations

from datetime import UTC
from typing import Any

from django.db import models

from compaction_app.core.audit_chain import ChainLink, link_hash
from compaction_app.core.undo_ways import UndoWay
from sessions_app.models import Session

from .runs import Run


class Backup(models.Model):
    """A byte-exact copy beside a session, with its expected hash."""

    class Reason(models.TextChoices):
        COMPACT = "compact"
        RESTORE = "restore"
        UNDO = "undo"
        ENTRIES = "entries"

    session = models.ForeignKey(Session, on_delete=models.CASCADE, related_name="backups")
    path = models.TextField(unique=True)
    sha256 = models.CharField(max_length=64)
    size = models.BigIntegerField()
    taken_at = models.DateTimeField()
    reason = models.CharField(max_length=10, choices=Reason)

    def __str__(self) -> str:
        return self.path


class Compaction(models.Model):
    """One compaction that Redline wrote, with the facts that the session itself lacks."""

    session = models.ForeignKey(Session, on_delete=models.CASCADE, related_name="compactions")
    backup = models.OneToOneField(Backup, on_delete=models.PROTECT, related_name="compaction")
    run = models.OneToOneField(Run, on_delete=models.SET_NULL, null=True, blank=True, related_name="compaction")
    """The run that planned it; null for early compactions of the command line, which had no runs."""
    writer = models.CharField(max_length=30, default="context-compaction")
    entry_id = models.TextField()
    """The leaf that it appended, or the id of the new session."""
    leaf_id = models.TextField()
    """The entry after which it was written."""
    created = models.TextField(blank=True, default="")
    """The path of the new session, if one was made."""
    server = models.TextField(blank=True, default="")
    """The address of the agent's server that made the change, if any."""
    certificate: models.JSONField[Any, Any] = models.JSONField(null=True)
    """The results of the checks before the write, or of the latest later ones, as
    `sessionlog.certificate.Certificate`."""
    planner = models.TextField()
    reason = models.CharField(max_length=10, choices=Run.Reason, default=Run.Reason.MANUAL)
    written_at = models.DateTimeField()
    parameters: models.JSONField[Any, Any] = models.JSONField()
    stats: models.JSONField[Any, Any] = models.JSONField()
    context: models.JSONField[Any, Any] = models.JSONField(null=True)
    """The size of the context before it, as `sessionlog.context.ContextSize`; null for old compactions."""
    origins: models.JSONField[Any, Any] = models.JSONField()
    """For each deleted target: the call that proposed it, and the reason."""

    def __str__(self) -> str:
        return self.entry_id


class Undo(models.Model):
    """One undo of a compaction, or of a part of it."""

    session = models.ForeignKey(Session, on_delete=models.CASCADE, related_name="undos")
    compaction = models.ForeignKey(Compaction, on_delete=models.CASCADE, null=True, related_name="undos")
    """The undone compaction; null if Redline has no record of it."""
    undone = models.TextField()
    """The entry of the compaction, or the id of the session that it made."""
    way = models.CharField(max_length=10, choices=[(way.value, way.value) for way in UndoWay])
    is_whole = models.BooleanField()
    """Whether everything still deleted came back; otherwise only `targets`."""
    targets: models.JSONField[Any, Any] = models.JSONField()
    """The targets brought back, each as `entries.Target.to_json`."""
    entry_id = models.TextField(blank=True, default="")
    """The leaf that it appended, or the id of the new session; empty if a session was deleted."""
    leaf_id = models.TextField()
    """The entry before its lines."""
    created = models.TextField(blank=True, default="")
    """The path of the new session, if one was made."""
    server = models.TextField(blank=True, default="")
    """The address of the agent's server that made the change, if any."""
    backup = models.OneToOneField(Backup, on_delete=models.PROTECT, null=True, related_name="undo")
    """The backup made before it; null if a session was deleted, because its original was never changed."""
    written_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.way} {self.entry_id}"


class AuditEntry(models.Model):
    """One change of a session, in the order of the changes. Rows are only added: a trigger refuses anything else.

    It names sessions and files by path, because it outlives their rows.
    """

    class Action(models.TextChoices):
        COMMIT = "commit", "compaction"
        UNDO = "undo"
        BRING_BACK = "bring_back", "entries brought back"
        RESTORE = "restore"
        FORK = "fork"
        MOVE = "move"
        LABEL = "label"
        SUMMARY = "summary"

    number = models.PositiveIntegerField(primary_key=True)
    """The number of the entry, from 1, without gaps."""
    change = models.TextField(unique=True)
    """Identifies the change, so that it is recorded once. For appended entries: action, last entry, backup."""
    at = models.DateTimeField()
    session = models.TextField()
    action = models.CharField(max_length=12, choices=Action)
    writer = models.TextField(blank=True, default="")
    targets: models.JSONField[Any, Any] = models.JSONField(default=list)
    """The deleted or restored targets, each as `entries.Target.to_json`."""
    bytes_before = models.BigIntegerField(null=True)
    """The size of the session before the change; null if there was no file."""
    sha256_before = models.CharField(max_length=64, blank=True, default="")
    bytes_after = models.BigIntegerField(null=True)
    """The size of the session, or of the new file, after the change; null if unknown."""
    sha256_after = models.CharField(max_length=64, blank=True, default="")
    new_file = models.TextField(blank=True, default="")
    """The file that a fork made."""
    restored_from = models.TextField(blank=True, default="")
    """The backup that a restore copied to the session."""
    backup = models.TextField(blank=True, default="")
    certificate: models.JSONField[Any, Any] = models.JSONField(null=True)
    previous = models.CharField(max_length=64)
    """The hash of the previous entry."""
    sha256 = models.CharField(max_length=64)
    """The hash of its content and `previous`: see `core.audit_chain`."""

    def __str__(self) -> str:
        return f"{self.number} {self.action}"

    @property
    def action_name(self) -> str:
        """The action, in words."""
        is_fork = self.action == self.Action.COMMIT and self.new_file
        return "fork" if is_fork else self.get_action_display().lower()

    @property
    def content(self) -> dict[str, Any]:
        """The content covered by its hash, besides the previous hash."""
        return {
            "number": self.number,
            "change": self.change,
            "at": self.at.astimezone(UTC).isoformat(),
            "session": self.session,
            "action": self.action,
            "writer": self.writer,
            "targets": self.targets,
            "before": {"bytes": self.bytes_before, "sha256": self.sha256_before},
            "after": {"bytes": self.bytes_after, "sha256": self.sha256_after},
            "newFile": self.new_file,
            "restoredFrom": self.restored_from,
            "backup": self.backup,
            "certificate": self.certificate,
        }

    @property
    def link(self) -> ChainLink:
        return ChainLink(self.content, self.previous, self.sha256)

    def hash(self) -> str:
        """The expected hash."""
        return link_hash(self.content, self.previous)


def written_by_redline(session: Session) -> frozenset[str]:
    """The last entry of each of Redline's compactions, undos and summaries of a session, by id."""
    summaries = AuditEntry.objects.filter(session=str(session.path), action=AuditEntry.Action.SUMMARY)
    appended = (change.split(" ", 2)[1] for change in summaries.values_list("change", flat=True))
    return frozenset({*session.own_entries, *appended})
