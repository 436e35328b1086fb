"""What is handed to the tasks backend: a run, by its number."""

from __future__ import annotations

from django_tasks import task

from .services.running import work, worker_name


@task()
def plan(run_id: int) -> None:
    """Work on a run, unless someone else does."""
    work(run_id, worker_name())
