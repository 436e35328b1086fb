"""Experiments of the lab, with the sessions that they measure."""

from __future__ import annotations

from typing import Any, Self
from urllib.parse import urlsplit

import msgspec
from django.db import models
from django.urls import reverse

from compaction_app.planning.usage import UsageTotals
from sessions_app.models import Session


class ExperimentQuerySet(models.QuerySet["Experiment"]):
    def queued(self) -> Self:
        return self.filter(state=Experiment.State.QUEUED)

    def measuring(self) -> Self:
        return self.filter(state=Experiment.State.MEASURING)

    def active(self) -> Self:
        return self.filter(state__in=(Experiment.State.QUEUED, Experiment.State.MEASURING))

    def numbers(self) -> list[int]:
        """Their keys, the oldest first."""
        return list(self.order_by("pk").values_list("pk", flat=True))

    def with_counts(self) -> Self:
        """With `total`, the number of their sessions, and `done`, of those that were tried."""
        tried = models.Count("measured", filter=models.Q(measured__measured_at__isnull=False))
        return self.annotate(total=models.Count("measured"), done=tried)


class Experiment(models.Model):
    """Strategies tried on sessions at several shares, in the background.

    queued ──▶ measuring ──▶ done
       ╲           ╲──▶ failed, stopped: what was measured by then stays
        ╲──────────────▶
    """

    class State(models.TextChoices):
        QUEUED = "queued", "waiting for a worker"
        MEASURING = "measuring", "being measured"
        DONE = "done", "measured"
        STOPPED = "stopped", "stopped"
        FAILED = "failed", "failed"

    strategies: models.JSONField[Any, Any] = models.JSONField(default=list)
    """The keys of `lab.strategies`."""
    keeps: models.JSONField[Any, Any] = models.JSONField(default=list)
    """The shares of the tokens that are kept."""
    planner = models.TextField(blank=True, default="")
    """The model that is tried as well, as `provider/name`; empty if none is."""
    base_url = models.TextField(blank=True, default="")
    """The model's address, as confirmed before the first request."""
    version = models.TextField()
    """The version of Redline that measured it."""

    state = models.CharField(max_length=10, choices=State, default=State.QUEUED)
    failure = models.TextField(blank=True, default="")
    stop_requested = models.BooleanField(default=False)
    worker = models.TextField(blank=True, default="")
    """The worker that has the lease."""
    beats = models.PositiveBigIntegerField(default=0)
    """The number of heartbeats: see `runs.lease.LeaseWatch`."""
    created_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)
    trials = models.PositiveIntegerField(default=0)
    """How many trials were made so far."""
    usage: models.JSONField[Any, Any] = models.JSONField(null=True)
    """What the model was sent and returned, as `planning.usage.UsageTotals.to_json`; null if nothing left the
    machine."""

    objects = ExperimentQuerySet.as_manager()

    class Meta:
        indexes = [models.Index(fields=["state"], name="experiment_by_state")]

    def __str__(self) -> str:
        return f"experiment {self.pk}"

    def get_absolute_url(self) -> str:
        return reverse("compaction:experiment", args=(self.pk,))

    @property
    def is_active(self) -> bool:
        return self.state in (self.State.QUEUED, self.State.MEASURING)

    @property
    def model_host(self) -> str:
        """Host and port to which its requests go; empty without a model."""
        return urlsplit(self.base_url).netloc

    @property
    def traffic(self) -> UsageTotals | None:
        """What was sent and received; None if nothing has left the machine."""
        return msgspec.convert(self.usage, UsageTotals) if self.usage else None


class MeasuredSession(models.Model):
    """A session of an experiment, with its trials."""

    experiment = models.ForeignKey(Experiment, on_delete=models.CASCADE, related_name="measured")
    session = models.ForeignKey(Session, on_delete=models.CASCADE, related_name="measured")
    measured_at = models.DateTimeField(null=True)
    """When it was tried; null before."""
    failure = models.TextField(blank=True, default="")
    """Why it could not be read."""
    trials: models.JSONField[Any, Any] = models.JSONField(default=list)
    """Each as `lab.trials.Trial`; none if the session is too short."""

    class Meta:
        constraints = [models.UniqueConstraint(fields=["experiment", "session"], name="measured_once")]

    def __str__(self) -> str:
        return f"{self.session} in {self.experiment}"
