"""Starting, stopping and deleting experiments."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version

from django.db import transaction
from django.utils import timezone

from compaction_app.planning.model_registry import ResolvedModel
from lab_app.models import Experiment, MeasuredSession
from lab_app.pure.strategies import Strategy
from sessions_app.jobs.pool import wake_workers
from sessions_app.models import Session
from sessions_app.sessionlog.errors import BadInput, Conflict

State = Experiment.State


def start_experiment(
    sessions: Sequence[Session],
    strategies: Sequence[Strategy],
    keeps: Sequence[float],
    model: ResolvedModel | None = None,
) -> Experiment:
    """Queue an experiment. With a model, its address is the confirmed one. Raises BadInput `no_sessions`."""
    if not sessions:
        raise BadInput("no_sessions", "No session matches. Nothing was measured. Choose others.")
    with transaction.atomic():
        experiment = Experiment.objects.create(
            strategies=[one.key for one in strategies],
            keeps=sorted(set(keeps), reverse=True),
            planner=model.planner if model is not None else "",
            base_url=model.base_url if model is not None else "",
            version=version("redline"),
            created_at=timezone.now(),
        )
        MeasuredSession.objects.bulk_create(
            MeasuredSession(experiment=experiment, session=session) for session in sessions
        )
        transaction.on_commit(wake_workers)
    return experiment


def stop_experiment(experiment: Experiment) -> None:
    """Request that the worker stops, or end a queued experiment. Raises Conflict `wrong_state`."""
    if Experiment.end(experiment.pk, State.STOPPED, leaving={State.QUEUED}):
        return
    if not Experiment.objects.working().filter(pk=experiment.pk).update(stop_requested=True):
        raise Conflict("wrong_state", f"Experiment {experiment.pk} has ended. Nothing was stopped.")


def delete_experiment(experiment: Experiment) -> None:
    """Delete an experiment that has ended. Raises Conflict `wrong_state`."""
    ended = Experiment.objects.exclude(pk__in=Experiment.objects.active().values("pk"))
    if not ended.filter(pk=experiment.pk).delete()[0]:
        raise Conflict(
            "wrong_state",
            f"Experiment {experiment.pk} is being measured. Nothing was deleted. Stop it first.",
        )
