"""Experiments of the lab, with the sessions that they measure."""

from __future__ import annotations

from typing import Any, Self

from django.db import models
from django.urls import reverse

from compaction_app.models.model_jobs import ModelJob
from sessions_app.jobs.job import JobQuerySet
from sessions_app.models import Session


class ExperimentQuerySet(JobQuerySet["Experiment"]):
    def of_llm(self) -> Self:
        return self.none()

    def of_embedded(self) -> Self:
        return self

    def with_counts(self) -> Self:
        """Annotate with `total`, the number of sessions, and `done`, the number of those tried."""
        tried = models.Count("measured", filter=models.Q(measured__measured_at__isnull=False))
        return self.annotate(total=models.Count("measured"), done=tried)


class Experiment(ModelJob):
    """Strategies tried on sessions at several shares, in the background.

    queued ──▶ measuring ──▶ done
       ╲           ╲──▶ failed, stopped: what was measured by then stays
        ╲──────────────▶
    """

    class State(models.TextChoices):
        QUEUED = "queued", "waiting for a worker"
        MEASURING = "measuring", "being tested"
        DONE = "done", "tested"
        STOPPED = "stopped", "stopped"
        FAILED = "failed", "failed"

    NOUN = "benchmark"
    TRANSITIONS = {
        State.QUEUED: frozenset({State.MEASURING, State.STOPPED, State.FAILED}),
        State.MEASURING: frozenset({State.DONE, State.STOPPED, State.FAILED}),
        State.DONE: frozenset(),
        State.STOPPED: frozenset(),
        State.FAILED: frozenset(),
    }
    WORKING = State.MEASURING
    ABANDONED = FAILED = State.FAILED
    NOTHING_DONE = "Nothing was tested."
    KEPT = "What was tested by then is kept."
    WORK = "lab_app.lab.experiments.measure_experiment"
    PRIORITY = 1

    strategies: models.JSONField[Any, Any] = models.JSONField(default=list)
    """The keys of `pure.strategies`."""
    keeps: models.JSONField[Any, Any] = models.JSONField(default=list)
    """The shares of the tokens that are kept."""
    planner = models.TextField(blank=True, default="")
    """The model that is also tried, as `provider/name`; empty if there is none."""
    version = models.TextField()
    """The version of Redline that measured it."""

    state = models.CharField(max_length=10, choices=State, default=State.QUEUED)
    trials = models.PositiveIntegerField(default=0)
    """The number of trials so far."""

    objects = ExperimentQuerySet.as_manager()

    class Meta:
        db_table = "compaction_app_experiment"
        indexes = [models.Index(fields=["state"], name="experiment_by_state")]

    def get_absolute_url(self) -> str:
        return reverse("lab:experiment", args=(self.pk,))


class MeasuredSession(models.Model):
    """A session of an experiment, with its trials."""

    experiment = models.ForeignKey(Experiment, on_delete=models.CASCADE, related_name="measured")
    session = models.ForeignKey(Session, on_delete=models.CASCADE, related_name="measured")
    measured_at = models.DateTimeField(null=True)
    """The time at which it was tried; null before."""
    failure = models.TextField(blank=True, default="")
    """Why it could not be read."""
    trials: models.JSONField[Any, Any] = models.JSONField(default=list)
    """JSON values of `pure.trials.Trial`; empty if the session is too short."""

    class Meta:
        db_table = "compaction_app_measuredsession"
        constraints = [models.UniqueConstraint(fields=["experiment", "session"], name="measured_once")]

    def __str__(self) -> str:
        return f"{self.session} in {self.experiment}"
