"""The rows of the audit log. `models` imports them, `audit.service` adds them."""

from __future__ import annotations

from datetime import UTC
from typing import Any

from django.db import models

from sessions_app.models import Session

from .core.audit_chain import ChainLink, link_hash


class AuditEntry(models.Model):
    """One change of a session, in the order in which they were made. Rows are only added: a trigger refuses the rest.

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
    """From 1, without gaps."""
    change = models.TextField(unique=True)
    """Identifies the change, so that it is recorded once. Of appended entries: action, last entry, backup."""
    at = models.DateTimeField()
    session = models.TextField()
    action = models.CharField(max_length=12, choices=Action)
    writer = models.TextField(blank=True, default="")
    targets: models.JSONField[Any, Any] = models.JSONField(default=list)
    """Each as `targets.Target.to_json`."""
    bytes_before = models.BigIntegerField(null=True)
    """Null if there was no file."""
    sha256_before = models.CharField(max_length=64, blank=True, default="")
    bytes_after = models.BigIntegerField(null=True)
    """Of the session, or of the new file; null if not known."""
    sha256_after = models.CharField(max_length=64, blank=True, default="")
    new_file = models.TextField(blank=True, default="")
    """The file that a fork made."""
    restored_from = models.TextField(blank=True, default="")
    """The backup whose content a restore gave the session."""
    backup = models.TextField(blank=True, default="")
    certificate: models.JSONField[Any, Any] = models.JSONField(null=True)
    previous = models.CharField(max_length=64)
    """The hash of the entry before."""
    sha256 = models.CharField(max_length=64)
    """Of its content and `previous`: see `core.audit_chain`."""

    def __str__(self) -> str:
        return f"{self.number} {self.action}"

    @property
    def action_name(self) -> str:
        """What was done, in words."""
        is_fork = self.action == self.Action.COMMIT and self.new_file
        return "fork" if is_fork else self.get_action_display().lower()

    @property
    def content(self) -> dict[str, Any]:
        """What its hash covers, besides the hash before it."""
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
        """The hash that it must have."""
        return link_hash(self.content, self.previous)


def written_by_redline(session: Session) -> frozenset[str]:
    """The last entry of each of Redline's compactions, undos and summaries of a session, by id."""
    summaries = AuditEntry.objects.filter(session=str(session.path), action=AuditEntry.Action.SUMMARY)
    appended = (change.split(" ", 2)[1] for change in summaries.values_list("change", flat=True))
    return frozenset({*session.own_entries, *appended})
