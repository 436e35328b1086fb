"""The worker processes of the server: as many as the queued rows need.

    row (queued) ─▶ wake ─▶ `redline worker --until-idle` ─▶ WorkerPool ─▶ claim

The database row is authoritative. Waking the server only makes it check sooner than it would anyway: a lost or repeated
call does no harm.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections import Counter
from collections.abc import Callable
from typing import Final

from asgiref.sync import sync_to_async
from django.db import DatabaseError

from sessions_app.children import Children

from .job import Job

PROCESSES: Final = max(2, os.cpu_count() or 2)
"""The most processes at the same time; further rows stay queued."""
STARTS: Final = 3
"""A row that is still queued after this many consecutive failures of its processes is given up."""

_log = logging.getLogger("redline")


class WorkerProcesses:
    """The worker processes of one server. Only `wake` may be called outside the server's loop."""

    def __init__(self, children: Children) -> None:
        self._children = children
        self._loop = asyncio.get_running_loop()
        self._woken = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._failures: Counter[tuple[type[Job], int]] = Counter()
        """The number of consecutive failures, by queued row."""

    def wake(self) -> None:
        """Signal that something is queued."""
        self._loop.call_soon_threadsafe(self._woken.set)

    async def wait(self, seconds: float) -> None:
        """Wait until something is queued, at most for so many seconds."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._woken.wait(), seconds)
        self._woken.clear()

    async def start_needed(self) -> None:
        """Start as many processes as are needed in addition to the running ones. Raises DatabaseError."""
        needed = await sync_to_async(needed_processes)()
        for _ in range(needed - len(self._tasks)):
            task = asyncio.create_task(self._run())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def stop(self) -> None:
        """Forget the processes, which end with the children of the server."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _run(self) -> None:
        """Run one process to its end. After repeated failures, give up what is still queued."""
        why = await self._failure()
        if self._children.stopping:
            return
        if not why:
            self._failures.clear()
            return
        try:
            await sync_to_async(self._count_failure)(why)
        except DatabaseError as fault:
            # They are still queued, so another process is started.
            _log.error("Queued rows could not be given up: %s", type(fault).__name__)

    async def _failure(self) -> str:
        """Run one process; returns how it failed, empty if it did not."""
        try:
            code = await self._children.run("worker", "--until-idle")
        except OSError as fault:
            _log.error("A worker process could not be started: %s", fault.strerror)
            return str(fault.strerror)
        return f"exit code {code}" if code else ""

    def _count_failure(self, why: str) -> None:
        for kind in Job.kinds():
            for key in kind.rows().queued().numbers():
                self._failures[kind, key] += 1
                if self._failures[kind, key] >= STARTS and kind.fail_unstarted(key, why):
                    name = kind.NOUN.capitalize()
                    _log.error("%s %d was given up: its worker could not be started (%s)", name, key, why)


def needed_processes() -> int:
    """How many processes are needed: one for each job that needs the processor, and at least one; none while nothing is
    queued."""
    kinds = [kind.rows() for kind in Job.kinds()]
    if not any(rows.queued().exists() for rows in kinds):
        return 0
    calculating = sum(rows.active().of_embedded().count() for rows in kinds)
    return min(PROCESSES, max(1, calculating))


_wake: Callable[[], object] | None = None


def wake_by(wake: Callable[[], object] | None) -> None:
    """Make this the serving process: `wake` starts its workers. None when the server ends."""
    global _wake  # noqa: PLW0603  # there is one server in a process
    _wake = wake


def wake_workers() -> None:
    """Start queued work soon, if this is the serving process; otherwise the server finds the rows when it polls."""
    if _wake is not None:
        _wake()
