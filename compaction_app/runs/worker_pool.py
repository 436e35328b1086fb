"""The runs of one worker process, each in a thread of its own.

Runs of LLM planners mostly wait for their providers, so many run at a time. A run of the embedded planner needs the
processor, so there is one at a time.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Final

from django.db import DatabaseError, connection

from compaction_app.models import Run
from sessions_app.children import end_with_parent
from sessions_app.sessionlog.errors import SystemFailure
from sessions_app.web.server_log import defects_logged

from .lease import LeaseWatch, worker_name
from .recorder import Terminated
from .worker import work

LLM_RUNS: Final = 32
"""The most at a time; the others stay queued."""
LLM_BYTES: Final = 512_000_000
"""The bytes of the sessions of these runs: each takes about as much memory. One run is always allowed."""
POLL_SECONDS: Final = 0.2
WATCH_SECONDS: Final = 2
"""Seconds between two checks for runs whose worker is gone."""
IDLE_SECONDS: Final = 60
"""A process that has been idle for so long ends, unless it works until it is stopped."""
STOP_SECONDS: Final = 8
"""How long an ending process waits until its runs are interrupted."""

_log = logging.getLogger("redline")


class RunPool:
    """Starts queued runs as long as there is room, and interrupts them when the process ends."""

    def __init__(self) -> None:
        self._ending = threading.Event()
        self._threads: dict[int, threading.Thread] = {}
        self._sizes: dict[int, int] = {}
        """By run: the bytes of its session, 0 for a run of the embedded planner."""

    @property
    def is_idle(self) -> bool:
        return not self._threads

    def start_queued(self) -> None:
        """Start the queued runs for which there is room."""
        self.drop_ended()
        for run_id in Run.objects.queued().of_llm().numbers():
            if run_id not in self._threads and not self._start_within_limits(run_id):
                break
        if 0 not in self._sizes.values():
            for run_id in Run.objects.queued().of_embedded().numbers()[:1]:
                self._start(run_id, 0)

    def drop_ended(self) -> None:
        """Forget finished runs."""
        self._threads = {run_id: one for run_id, one in self._threads.items() if one.is_alive()}
        self._sizes = {run_id: self._sizes[run_id] for run_id in self._threads}

    def stop(self) -> None:
        """Interrupt the runs, and wait a moment for them."""
        self._ending.set()
        until = time.monotonic() + STOP_SECONDS
        for thread in self._threads.values():
            thread.join(max(0.0, until - time.monotonic()))

    def _start_within_limits(self, run_id: int) -> bool:
        """Start the run of an LLM planner if there is room for it."""
        sizes = [size for size in self._sizes.values() if size]
        size = Run.objects.filter(pk=run_id).values_list("session__size", flat=True).first() or 1
        if sizes and (len(sizes) >= LLM_RUNS or sum(sizes) + size > LLM_BYTES):
            return False
        self._start(run_id, size)
        return True

    def _start(self, run_id: int, size: int) -> None:
        # A daemon thread: if it does not end in time, its lease expires.
        thread = threading.Thread(target=self._work, args=(run_id,), name=f"run {run_id}", daemon=True)
        self._threads[run_id], self._sizes[run_id] = thread, size
        thread.start()

    def _work(self, run_id: int) -> None:
        try:
            with defects_logged(f"run {run_id}"):
                work(run_id, worker_name(), self._ending)
        except Terminated:
            return
        except SystemFailure as failure:
            _log.error("Run %d ended: %s", run_id, failure.message)
        finally:
            connection.close()


def work_until_idle() -> None:
    """Work on queued runs until there have been none for a while. An interrupt ends them too.

    When the server that started this process is gone, running runs continue and no others are started: later ones
    may need another address or another key, and belong to the next server.
    """
    gone = threading.Event()
    end_with_parent(gone.set)
    pool, since = RunPool(), time.monotonic()
    try:
        while time.monotonic() - since < IDLE_SECONDS and not (gone.is_set() and pool.is_idle):
            _look(pool, starts=not gone.is_set())
            if not pool.is_idle:
                since = time.monotonic()
            time.sleep(POLL_SECONDS)
    finally:
        pool.stop()


def work_until_stopped() -> None:
    """Work on queued runs, and give up those whose worker is gone, until this is interrupted."""
    pool, watch, watched = RunPool(), LeaseWatch(), 0.0
    try:
        while True:
            if time.monotonic() - watched > WATCH_SECONDS:
                _give_up_dead_runs(watch)
                watched = time.monotonic()
            _look(pool, starts=True)
            time.sleep(POLL_SECONDS)
    finally:
        pool.stop()


def _look(pool: RunPool, *, starts: bool) -> None:
    try:
        if starts:
            pool.start_queued()
        else:
            pool.drop_ended()
    except DatabaseError as fault:
        # Another writer blocked the database for too long: the next check comes soon.
        _log.warning("Queued runs could not be read: %s", type(fault).__name__)


def _give_up_dead_runs(watch: LeaseWatch) -> None:
    try:
        watch.give_up_dead_runs()
    except DatabaseError as fault:
        _log.warning("Leases could not be checked: %s", type(fault).__name__)
