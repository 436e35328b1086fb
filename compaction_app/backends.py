"""Where runs are worked on, behind the interface of django-tasks.

The row of a run is the queue and the truth: a backend only says who looks at it first. So a task that is lost,
or that comes twice, does no harm: a worker claims a run's row, and only one can.
"""

from __future__ import annotations

from typing import Any

from django.utils import timezone
from django_tasks import DEFAULT_TASK_QUEUE_NAME
from django_tasks.backends.base import BaseTaskBackend
from django_tasks.base import Task, TaskResult, TaskResultStatus
from django_tasks.utils import get_random_id

from sessions_app.web.broadcast import serving_loop

from .runs.worker_processes import start_model_worker, start_worker


class RowBackend(BaseTaskBackend):
    """Leaves a run in its row, for the processes of `redline worker`."""

    def enqueue(self, task: Task[Any, Any], args: Any, kwargs: Any) -> TaskResult[Any]:
        self.validate_task(task)
        return TaskResult(
            task=task,
            id=get_random_id(),
            status=TaskResultStatus.READY,
            enqueued_at=timezone.now(),
            started_at=None,
            last_attempted_at=None,
            finished_at=None,
            args=list(args),
            kwargs=kwargs,
            backend=self.alias,
            errors=[],
            worker_ids=[],
        )


class ServingBackend(RowBackend):
    """Starts child processes of the serving process; elsewhere the row waits for a server.

    A run that needs the processor has a child to itself, those that wait for models share one.
    """

    def enqueue(self, task: Task[Any, Any], args: Any, kwargs: Any) -> TaskResult[Any]:
        result = super().enqueue(task, args, kwargs)
        loop = serving_loop()
        if loop is not None and task.queue_name == DEFAULT_TASK_QUEUE_NAME:
            loop.call_soon_threadsafe(start_worker, int(args[0]))
        elif loop is not None:
            loop.call_soon_threadsafe(start_model_worker)
        return result
