"""The states of experiments, and the lease of the worker on one. Each change is one conditional update."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from django.db import transaction
from django.db.models import F
from django.utils import timezone

from compaction_app.models import Experiment
from compaction_app.runs.lease import LeasedRows

State = Experiment.State
KEPT: Final = "What was measured by then is kept."


def change_experiment(
    experiment_id: int, states: Collection[str], to: str, *, held_by: str | None = None, **fields: Any
) -> bool:
    """Change an experiment that is in one of these states; returns whether it was.

    With `held_by`, only while that worker has the lease.
    """
    rows = Experiment.objects.filter(pk=experiment_id, state__in=states)
    if held_by is not None:
        rows = rows.filter(worker=held_by)
    return rows.update(state=to, **fields) == 1


def claim_experiment(experiment_id: int, worker: str) -> Experiment | None:
    """Claim a queued experiment; None if another worker has it, or it is no longer queued."""
    if not change_experiment(experiment_id, {State.QUEUED}, State.MEASURING, worker=worker):
        return None
    return Experiment.objects.get(pk=experiment_id)


def renew_experiment(experiment_id: int, worker: str, **fields: Any) -> bool | None:
    """Renew the lease, and set `fields` of the row; returns whether a stop was requested, None if the lease is lost."""
    with transaction.atomic():
        mine = Experiment.objects.measuring().filter(pk=experiment_id, worker=worker)
        if not mine.update(beats=F("beats") + 1, **fields):
            return None
        return bool(mine.values_list("stop_requested", flat=True).first())


def end_experiment(
    experiment_id: int, to: str, failure: str = "", *, states: Collection[str], held_by: str | None = None
) -> bool:
    """End an experiment that is in one of these states; returns whether it was."""
    return change_experiment(experiment_id, states, to, held_by=held_by, failure=failure, ended_at=timezone.now())


def fail_unstarted_experiment(experiment_id: int, why: str) -> bool:
    """End a queued experiment because no worker can be started for it; returns whether it was queued."""
    failure = f"Its worker could not be started ({why}); the log says why. Nothing was measured."
    return end_experiment(experiment_id, State.FAILED, failure, states={State.QUEUED})


def _give_up(experiment_id: int, worker: str) -> bool:
    failure = f"Its worker is gone. {KEPT}"
    return end_experiment(experiment_id, State.FAILED, failure, states={State.MEASURING}, held_by=worker)


EXPERIMENTS: Final = LeasedRows(Experiment.objects.measuring, _give_up)
"""The rows of experiments that workers have."""
