"""The processes that work on queued jobs, and the work of one of them: each job in a separate thread.

    row (queued) ─▶ wake ─▶ `redline worker --until-idle` ─▶ WorkerPool ─▶ claim

Many jobs that mostly wait for a provider run at the same time, but only one job that needs the processor. The server
has as many processes as the queued rows need. The database row is authoritative: waking the server only makes it check
sooner than it would anyway, and a lost or repeated call does no harm.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from asgiref.sync import sync_to_async
from django.db import DatabaseError, connection

from sessions_app.server.children import Children, end_with_parent
from sessions_app.sessionlog.errors import SystemFailure
from sessions_app.web.server_log import defects_logged

from .job import Job, watches, worker_name
from .recorder import Terminated

LLM_JOBS: Final = 32
"""The maximum number of jobs that wait for a provider at the same time; the others stay queued."""
LLM_BYTES: Final = 512_000_000
"""The total size of their sessions in bytes, which is about the memory that they take. One job is always allowed."""
POLL_SECONDS: Final = 0.2
WATCH_SECONDS: Final = 2
"""Seconds between two checks for work whose worker is gone."""
IDLE_SECONDS: Final = 60
"""A process ends after this idle time, unless it works until it is stopped."""
STOP_SECONDS: Final = 8
"""How long an ending process waits for its interrupted work."""

_log = logging.getLogger("redline")


class WorkerPool:
    """Starts queued work as long as there is room, and interrupts it when the process ends."""

    def __init__(self) -> None:
        self._ending = threading.Event()
        self._threads: dict[_QueuedJob, threading.Thread] = {}
        self._sizes: dict[_QueuedJob, int] = {}
        """The sizes of their sessions in bytes; 0 for jobs that need the processor."""

    @property
    def is_idle(self) -> bool:
        return not self._threads

    def start_queued(self) -> None:
        """Start the queued rows for which there is room."""
        self.drop_ended()
        for job in _queued(of_llm=True):
            if job in self._threads:
                continue
            sizes = [size for size in self._sizes.values() if size]
            size = job.kind.rows().filter(pk=job.key).session_bytes()
            if sizes and (len(sizes) >= LLM_JOBS or sum(sizes) + size > LLM_BYTES):
                break
            self._start(job, size)
        if 0 not in self._sizes.values():
            for job in _queued(of_llm=False)[:1]:
                self._start(job, 0)

    def drop_ended(self) -> None:
        """Forget the jobs that have ended."""
        self._threads = {job: one for job, one in self._threads.items() if one.is_alive()}
        self._sizes = {job: self._sizes[job] for job in self._threads}

    def stop(self) -> None:
        """Interrupt the work, and wait up to STOP_SECONDS for it to end."""
        self._ending.set()
        until = time.monotonic() + STOP_SECONDS
        for thread in self._threads.values():
            thread.join(max(0.0, until - time.monotonic()))

    def _start(self, job: _QueuedJob, size: int) -> None:
        # A daemon thread: if it does not end in time, its lease expires.
        thread = threading.Thread(target=self._work, args=(job,), name=str(job), daemon=True)
        self._threads[job], self._sizes[job] = thread, size
        thread.start()

    def _work(self, job: _QueuedJob) -> None:
        try:
            with defects_logged(str(job)):
                job.kind.work_on()(job.key, worker_name(), self._ending)
        except Terminated:
            return
        except SystemFailure as failure:
            _log.error("The work on %s ended: %s", job, failure.message)
        finally:
            connection.close()


class _QueuedJob(NamedTuple):
    """A queued row."""

    kind: type[Job]
    key: int

    def __str__(self) -> str:
        return f"{self.kind.NOUN} {self.key}"


def _queued(*, of_llm: bool) -> list[_QueuedJob]:
    """The queued rows, in the order in which they are started."""
    found = []
    for kind in Job.kinds():
        rows = kind.rows().queued()
        found += [_QueuedJob(kind, key) for key in (rows.of_llm() if of_llm else rows.of_embedded()).numbers()]
    return found


def work_until_idle() -> None:
    """Work on queued rows until there have been none for a while. An interrupt ends the work too.

    If the server that started this process is gone, running jobs continue and no others are started: later rows may
    need another address or another key, and belong to the next server.
    """
    gone = threading.Event()
    end_with_parent(gone.set)
    pool, since = WorkerPool(), time.monotonic()
    try:
        while time.monotonic() - since < IDLE_SECONDS and not (gone.is_set() and pool.is_idle):
            _look(pool, starts=not gone.is_set())
            if not pool.is_idle:
                since = time.monotonic()
            time.sleep(POLL_SECONDS)
    finally:
        pool.stop()


def work_until_stopped() -> None:
    """Work on queued rows, and give up those whose worker is gone, until this is interrupted."""
    pool, watched_kinds, watched = WorkerPool(), watches(), 0.0
    try:
        while True:
            if time.monotonic() - watched > WATCH_SECONDS:
                with _logged("Leases could not be checked"):
                    for watch in watched_kinds:
                        watch.give_up_dead()
                watched = time.monotonic()
            _look(pool, starts=True)
            time.sleep(POLL_SECONDS)
    finally:
        pool.stop()


def _look(pool: WorkerPool, *, starts: bool) -> None:
    with _logged("Queued rows could not be read"):
        if starts:
            pool.start_queued()
        else:
            pool.drop_ended()


@contextlib.contextmanager
def _logged(failed: str) -> Iterator[None]:
    """Log a failure of the database: another writer blocked it for too long, and the next check comes soon."""
    try:
        yield
    except DatabaseError as fault:
        _log.warning("%s: %s", failed, type(fault).__name__)


# ---- the processes of the server -------------------------------------------------------------------------

PROCESSES: Final = max(2, os.cpu_count() or 2)
"""The maximum number of processes at the same time; further rows stay queued."""
STARTS: Final = 3
"""The number of consecutive process failures after which a row that is still queued is given up."""


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
        """Wait until something is queued, at most for this many seconds."""
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
    """Make this the serving process: `wake` starts its workers. Pass None when the server ends."""
    global _wake  # noqa: PLW0603  # there is one server in a process
    _wake = wake


def wake_workers() -> None:
    """Start queued work soon, if this is the serving process; otherwise the server finds the rows when it polls."""
    if _wake is not None:
        _wake()
