"""What is handed to the tasks backend: a run, by its number."""

from __future__ import annotations

from django_tasks import task

from .running import work
from .runs import worker_name


@task()
def plan(run_id: int) -> None:
    """Work on a run, unless someone else does."""
    work(run_id, worker_name())
