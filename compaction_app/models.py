"""What Redline did to sessions: the compactions it wrote, and the backups it made."""

from __future__ import annotations

from typing import Any

from django.db import models

from sessions_app.models import Session


class Backup(models.Model):
    """A byte-exact copy beside a session, with the hash that it must have."""

    COMPACT, RESTORE = "compact", "restore"

    session = models.ForeignKey(Session, on_delete=models.CASCADE, related_name="backups")
    path = models.TextField(unique=True)
    sha256 = models.CharField(max_length=64)
    size = models.BigIntegerField()
    taken_at = models.DateTimeField()
    reason = models.CharField(max_length=10, choices=[(COMPACT, COMPACT), (RESTORE, RESTORE)])

    def __str__(self) -> str:
        return self.path


class Compaction(models.Model):
    """One `context_compaction` that Redline appended, with what the entry itself does not hold."""

    session = models.ForeignKey(Session, on_delete=models.CASCADE, related_name="compactions")
    backup = models.OneToOneField(Backup, on_delete=models.PROTECT, related_name="compaction")
    entry_id = models.TextField()
    leaf_id = models.TextField()
    planner = models.TextField()
    reason = models.CharField(max_length=10, default="manual")
    written_at = models.DateTimeField()
    parameters: models.JSONField[Any, Any] = models.JSONField()
    stats: models.JSONField[Any, Any] = models.JSONField()
    origins: models.JSONField[Any, Any] = models.JSONField()
    """For each deleted target: which call proposed it, and why."""

    def __str__(self) -> str:
        return self.entry_id
