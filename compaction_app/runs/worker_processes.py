"""Workers of the serving process: a child for each run that needs the processor, a few at a time, and one for all runs
that wait for models.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from typing import Final

from sessions_app.children import Children

AT_ONCE: Final = max(2, os.cpu_count() or 2)
"""Runs that are worked on at the same time; the others wait in their rows."""
STARTS: Final = 3
"""How often in a row a worker may fail before its run is looked at: one that still waits would wait for ever."""

Unstarted = Callable[[int | None, str], Awaitable[object]]
"""Told the number of a run whose workers failed (None: those of all runs of models), and how the last one did."""

_log = logging.getLogger("redline")


class WorkerProcesses:
    """The workers of one server. All of it happens on the server's loop."""

    def __init__(self, children: Children, unstarted: Unstarted) -> None:
        self._children = children
        self._unstarted = unstarted
        self._failures: dict[int, int] = {}
        self._places = asyncio.Semaphore(AT_ONCE)
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._models: asyncio.Task[None] | None = None
        self._model_failures = 0

    def start(self, run_id: int) -> None:
        """Have a run worked on in a process of its own, as soon as there is a place; never twice at once."""
        if run_id not in self._tasks:
            task = asyncio.create_task(self._work(run_id))
            self._tasks[run_id] = task
            task.add_done_callback(lambda _: self._tasks.pop(run_id, None))

    def start_models(self) -> None:
        """See to it that the process for runs of models is there; it looks for them by itself."""
        if self._models is None or self._models.done():
            self._models = asyncio.create_task(self._work_on_models())

    async def stop(self) -> None:
        """Forget the runs that wait for a place; those that are worked on end with their children."""
        tasks = [*self._tasks.values(), *([self._models] if self._models is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _work_on_models(self) -> None:
        why = await self._worker("--models")
        if not why or self._children.stopping:
            self._model_failures = 0
            return
        self._model_failures += 1
        if self._model_failures >= STARTS:
            self._model_failures = 0
            await self._unstarted(None, why)

    async def _work(self, run_id: int) -> None:
        async with self._places:
            why = await self._worker("--run", str(run_id))
        if not why or self._children.stopping:
            self._failures.pop(run_id, None)
            return
        self._failures[run_id] = self._failures.get(run_id, 0) + 1
        if self._failures[run_id] >= STARTS:
            del self._failures[run_id]
            await self._unstarted(run_id, why)

    async def _worker(self, *what: str) -> str:
        """Have one process work on what is named; how it failed, empty where it did not."""
        try:
            code = await self._children.run("worker", *what)
        except OSError as fault:
            _log.error("A worker (%s) could not be started: %s", " ".join(what), fault.strerror)
            return str(fault.strerror)
        return f"exit code {code}" if code else ""


_workers: WorkerProcesses | None = None


def serve_with(workers: WorkerProcesses | None) -> None:
    """This is the serving process, and these its workers; None when it ends."""
    global _workers  # noqa: PLW0603  # there is one server in a process
    _workers = workers


def start_worker(run_id: int) -> None:
    """Have a run worked on here, where this is the serving process. On its loop."""
    if _workers is not None:
        _workers.start(run_id)


def start_model_worker() -> None:
    """Have the runs of models worked on here, where this is the serving process. On its loop."""
    if _workers is not None:
        _workers.start_models()
