"""The rows of what somebody opened in a review. `models` imports them."""

from __future__ import annotations

from typing import Final

from django.db import models

from sessions_app.sessionlog.targets import Target

WHOLE_ENTRY: Final = -1


class Opening(models.Model):
    """That somebody opened an object of a review, and when first. What was only listed was not opened."""

    run = models.ForeignKey("compaction_app.Run", on_delete=models.CASCADE, related_name="openings", db_index=False)
    entry_id = models.TextField()
    block = models.IntegerField(default=WHOLE_ENTRY)
    """The index of the block, or WHOLE_ENTRY. Not null, so that the constraint covers entries as well."""
    at = models.DateTimeField()

    class Meta:
        constraints = (models.UniqueConstraint(fields=("run", "entry_id", "block"), name="opening_by_target"),)

    def __str__(self) -> str:
        return f"{self.run_id}: {self.target}"

    @property
    def target(self) -> Target:
        return Target(self.entry_id, None if self.block == WHOLE_ENTRY else self.block)
