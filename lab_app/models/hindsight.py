"""The rows of compaction costs, for the evaluated sessions.

They can be computed again from the sessions at any time.
"""

from typing import Self

from django.db import models

from compaction_app.providers.types import dollars
from sessions_app.models import Session


class CompactionCostQuerySet(models.QuerySet["CompactionCost"]):
    def shown(self) -> Self:
        """The rows of sessions that pages show."""
        return self.filter(session__root__configured=True, session__missing=False)


class CompactionCost(models.Model):
    """A compaction that was followed by a request, and the content that came back after it. Tokens are in the session's
    measure."""

    session = models.ForeignKey(Session, on_delete=models.CASCADE, related_name="compaction_costs", db_index=False)
    entry_id = models.TextField()
    at = models.DateTimeField(null=True)
    """Its recorded time; null if it records none."""
    agent = models.CharField(max_length=20, blank=True, default="")
    by_redline = models.BooleanField()
    requests = models.PositiveIntegerField()
    saved = models.BigIntegerField()
    """Tokens saved: the deleted tokens times the number of following requests."""
    again = models.BigIntegerField()
    """Deleted tokens that were fetched again."""
    sent = models.BigIntegerField()
    """Deleted tokens that were fetched again, counted once for each request that sent them."""
    files = models.PositiveIntegerField()
    memory = models.PositiveIntegerField(null=True)
    """References that were written again from memory; null if that cannot be known."""
    dollars_saved = models.FloatField(null=True)
    """Null without prices for the session's model; the same applies to `dollars_cost`."""
    dollars_cost = models.FloatField(null=True)

    objects = CompactionCostQuerySet.as_manager()

    class Meta:
        db_table = "compaction_app_compactioncost"
        constraints = (models.UniqueConstraint(fields=("session", "entry_id"), name="cost_by_compaction"),)

    def __str__(self) -> str:
        return self.entry_id

    @property
    def percent(self) -> float | None:
        """The tokens sent again, in percent of those not sent; None if nothing was saved."""
        return 100 * self.sent / self.saved if self.saved else None

    @property
    def cost(self) -> str:
        return "" if self.dollars_cost is None else dollars(self.dollars_cost)


class HindsightCheck(models.Model):
    """The evaluation of a session's compactions: the state of the session, and the version of the figures."""

    session = models.OneToOneField(Session, on_delete=models.CASCADE, primary_key=True, related_name="hindsight_check")
    indexed_at = models.DateTimeField(null=True)
    version = models.PositiveSmallIntegerField()
    fault = models.TextField(blank=True, default="")
    """Why it could not be read; empty if it could."""

    class Meta:
        db_table = "compaction_app_hindsightcheck"

    def __str__(self) -> str:
        return f"{self.session_id}, version {self.version}"
