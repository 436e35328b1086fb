"""What is handed to the tasks backend: a run, by its number."""

from __future__ import annotations

from typing import Final

from django_tasks import task

from compaction_app.models import Run
from compaction_app.planning.plan import is_llm
from compaction_app.runs.lease import worker_name
from compaction_app.runs.worker import work

MODELS: Final = "models"
"""The queue of runs that mostly wait for a model: many of them share a process."""


@task()
def plan(run_id: int) -> None:
    """Work on a run, unless someone else does."""
    work(run_id, worker_name())


@task(queue_name=MODELS)
def plan_with_model(run_id: int) -> None:
    """Work on a run of a model, unless someone else does."""
    work(run_id, worker_name())


def enqueue(run: Run) -> None:
    """Hand a run to whoever works on its kind."""
    (plan_with_model if is_llm(run.planner) else plan).enqueue(run.pk)
