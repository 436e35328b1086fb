"""The rows of undos. `models` imports them."""

from __future__ import annotations

from typing import Any

from django.db import models

from sessions_app.models import Session

from .core.undo_ways import UndoWay


class Undo(models.Model):
    """One undo of a compaction, or of a part of it."""

    session = models.ForeignKey(Session, on_delete=models.CASCADE, related_name="undos")
    compaction = models.ForeignKey(
        "compaction_app.Compaction", on_delete=models.CASCADE, null=True, related_name="undos"
    )
    """Null if Redline has no record of it."""
    undone = models.TextField()
    """The entry of the compaction, or the id of the session that it made."""
    way = models.CharField(max_length=10, choices=[(way.value, way.value) for way in UndoWay])
    is_whole = models.BooleanField()
    """Whether everything came back that was still deleted; otherwise only `targets`."""
    targets: models.JSONField[Any, Any] = models.JSONField()
    """What came back, each as `targets.Target.to_json`."""
    entry_id = models.TextField(blank=True, default="")
    """The leaf that it appended, or the id of the new session; empty if a session was deleted."""
    leaf_id = models.TextField()
    """The entry that its lines come after."""
    created = models.TextField(blank=True, default="")
    """The path of the new session, if one was made."""
    server = models.TextField(blank=True, default="")
    """The address of the agent's server that made the change, if one did."""
    backup = models.OneToOneField("compaction_app.Backup", on_delete=models.PROTECT, null=True, related_name="undo")
    """Null if a session was deleted: its original was never changed."""
    written_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.way} {self.entry_id}"
