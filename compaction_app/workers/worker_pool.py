"""The work of one worker process: runs, drafts of summaries and experiments, each in a thread of its own.

Drafts and runs of LLM planners mostly wait for their providers, so many are worked on at a time. A run of the embedded
planner and an experiment need the processor, so there is one of them at a time; runs come first.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from django.db import DatabaseError, connection
from django.db.models import QuerySet

from compaction_app.lab.experiment_lease import EXPERIMENTS
from compaction_app.lab.measuring import measure_experiment
from compaction_app.models import Experiment, Run, SummaryDraft
from compaction_app.runs.heartbeat import Terminated
from compaction_app.runs.lease import RUNS, LeaseWatch, worker_name
from compaction_app.runs.worker import work
from compaction_app.summaries.draft_lease import DRAFTS
from sessions_app.children import end_with_parent
from sessions_app.sessionlog.errors import SystemFailure
from sessions_app.web.server_log import defects_logged

LLM_JOBS: Final = 32
"""The most at a time; the others stay queued."""
LLM_BYTES: Final = 512_000_000
"""The bytes of their sessions: each takes about as much memory. One is always allowed."""
POLL_SECONDS: Final = 0.2
WATCH_SECONDS: Final = 2
"""Seconds between two checks for work whose worker is gone."""
IDLE_SECONDS: Final = 60
"""A process that has been idle for so long ends, unless it works until it is stopped."""
STOP_SECONDS: Final = 8
"""How long an ending process waits until its work is interrupted."""

_log = logging.getLogger("redline")


class WorkerPool:
    """Starts queued work as long as there is room, and interrupts it when the process ends."""

    def __init__(self) -> None:
        self._ending = threading.Event()
        self._threads: dict[str, threading.Thread] = {}
        self._sizes: dict[str, int] = {}
        """By name of the work: the bytes of its session, 0 for what needs the processor."""

    @property
    def is_idle(self) -> bool:
        return not self._threads

    def start_queued(self) -> None:
        """Start the queued rows for which there is room."""
        self.drop_ended()
        waiting = [
            *(_draft(draft_id) for draft_id in SummaryDraft.objects.queued().numbers()),
            *(_run(run_id) for run_id in Run.objects.queued().of_llm().numbers()),
        ]
        for job in waiting:
            if job.name not in self._threads and not self._start_within_limits(job):
                break
        if 0 not in self._sizes.values():
            calculating = [
                *(_run(run_id) for run_id in Run.objects.queued().of_embedded().numbers()[:1]),
                *(_experiment(experiment_id) for experiment_id in Experiment.objects.queued().numbers()[:1]),
            ]
            for job in calculating[:1]:
                self._start(job, 0)

    def drop_ended(self) -> None:
        """Forget what has ended."""
        self._threads = {name: one for name, one in self._threads.items() if one.is_alive()}
        self._sizes = {name: self._sizes[name] for name in self._threads}

    def stop(self) -> None:
        """Interrupt the work, and wait a moment for it."""
        self._ending.set()
        until = time.monotonic() + STOP_SECONDS
        for thread in self._threads.values():
            thread.join(max(0.0, until - time.monotonic()))

    def _start_within_limits(self, job: _Job) -> bool:
        """Start work that mostly waits for a provider, if there is room for it."""
        sizes = [size for size in self._sizes.values() if size]
        size = job.rows.values_list("session__size", flat=True).first() or 1
        if sizes and (len(sizes) >= LLM_JOBS or sum(sizes) + size > LLM_BYTES):
            return False
        self._start(job, size)
        return True

    def _start(self, job: _Job, size: int) -> None:
        # A daemon thread: if it does not end in time, its lease expires.
        thread = threading.Thread(target=self._work, args=(job,), name=job.name, daemon=True)
        self._threads[job.name], self._sizes[job.name] = thread, size
        thread.start()

    def _work(self, job: _Job) -> None:
        try:
            with defects_logged(job.name):
                job.work(worker_name(), self._ending)
        except Terminated:
            return
        except SystemFailure as failure:
            _log.error("The work on %s ended: %s", job.name, failure.message)
        finally:
            connection.close()


class _Job(NamedTuple):
    """A queued row."""

    name: str
    rows: QuerySet[Any]
    work: Callable[[str, threading.Event], None]
    """Works on it under a worker's name until it has ended, or this process has to."""


def _run(run_id: int) -> _Job:
    return _Job(f"run {run_id}", Run.objects.filter(pk=run_id), partial(work, run_id))


def _draft(draft_id: int) -> _Job:
    return _Job(f"draft {draft_id}", SummaryDraft.objects.filter(pk=draft_id), partial(_write_draft, draft_id))


def _write_draft(draft_id: int, worker: str, ending: threading.Event) -> None:
    # The client of a provider is slow to import: an agent that asks waits until this process has started.
    from compaction_app.summaries.drafting import write_draft

    write_draft(draft_id, worker, ending)


def _experiment(experiment_id: int) -> _Job:
    rows = Experiment.objects.filter(pk=experiment_id)
    return _Job(f"experiment {experiment_id}", rows, partial(measure_experiment, experiment_id))


def work_until_idle() -> None:
    """Work on queued rows until there have been none for a while. An interrupt ends the work too.

    When the server that started this process is gone, what has begun continues and nothing else is started: later rows
    may need another address or another key, and belong to the next server.
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
    pool, watches, watched = WorkerPool(), watches_of_all(), 0.0
    try:
        while True:
            if time.monotonic() - watched > WATCH_SECONDS:
                _give_up_dead(watches)
                watched = time.monotonic()
            _look(pool, starts=True)
            time.sleep(POLL_SECONDS)
    finally:
        pool.stop()


def _look(pool: WorkerPool, *, starts: bool) -> None:
    try:
        if starts:
            pool.start_queued()
        else:
            pool.drop_ended()
    except DatabaseError as fault:
        # Another writer blocked the database for too long: the next check comes soon.
        _log.warning("Queued rows could not be read: %s", type(fault).__name__)


def watches_of_all() -> list[LeaseWatch]:
    """A watch of each table whose rows workers have."""
    return [LeaseWatch(RUNS), LeaseWatch(DRAFTS), LeaseWatch(EXPERIMENTS)]


def _give_up_dead(watches: Sequence[LeaseWatch]) -> None:
    try:
        for watch in watches:
            watch.give_up_dead()
    except DatabaseError as fault:
        _log.warning("Leases could not be checked: %s", type(fault).__name__)
