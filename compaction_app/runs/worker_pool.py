"""Many runs in one process, each in a thread of its own: those of models mostly wait for their providers.

A run of the embedded planner needs the processor, so there is one of these at a time, and only where it is asked for.
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

from .lease import LeaseWatch, queued_llm_runs, queued_runs, worker_name
from .recorder import Terminated
from .worker import work

AT_ONCE: Final = 32
"""Runs of models that are worked on at the same time; the others wait in their rows."""
BYTES_AT_ONCE: Final = 512_000_000
"""And so many bytes of sessions, which a run holds about as many of in memory; one run always."""
LOOK_SECONDS: Final = 0.2
GIVE_UP_SECONDS: Final = 2
"""Between two looks for runs whose worker is gone."""
IDLE_SECONDS: Final = 60
"""A process that has had nothing to do for so long ends, where it may."""
END_SECONDS: Final = 8
"""How long an ending process waits for its runs to be interrupted."""

_log = logging.getLogger("redline")


class RunPool:
    """The runs of one process. `look` starts what waits; `end` interrupts what is going on."""

    def __init__(self, *, with_embedded: bool = False) -> None:
        self._with_embedded = with_embedded
        self._ending = threading.Event()
        self._threads: dict[int, threading.Thread] = {}
        self._sizes: dict[int, int] = {}
        """By run: the bytes of its session, 0 where it is no model's."""

    @property
    def is_idle(self) -> bool:
        return not self._threads

    def look(self) -> None:
        """Begin to work on the runs that wait, as many as there is room for."""
        self.forget()
        for run_id in queued_llm_runs():
            if run_id not in self._threads and not self._begin_within_limits(run_id):
                break
        if self._with_embedded and 0 not in self._sizes.values():
            for run_id in queued_runs()[:1]:
                self._begin(run_id, 0)

    def forget(self) -> None:
        """Let go of the runs that are over."""
        self._threads = {run_id: one for run_id, one in self._threads.items() if one.is_alive()}
        self._sizes = {run_id: self._sizes[run_id] for run_id in self._threads}

    def _begin_within_limits(self, run_id: int) -> bool:
        """Begin with a run of a model where there is room for it."""
        sizes = [size for size in self._sizes.values() if size]
        size = Run.objects.filter(pk=run_id).values_list("session__size", flat=True).first() or 1
        if sizes and (len(sizes) >= AT_ONCE or sum(sizes) + size > BYTES_AT_ONCE):
            return False
        self._begin(run_id, size)
        return True

    def _begin(self, run_id: int, size: int) -> None:
        # A daemon: should one not end when it is told to, its lease ends instead.
        thread = threading.Thread(target=self._work, args=(run_id,), name=f"run {run_id}", daemon=True)
        self._threads[run_id], self._sizes[run_id] = thread, size
        thread.start()

    def end(self) -> None:
        """Interrupt the runs that are worked on, and wait a moment for them."""
        self._ending.set()
        until = time.monotonic() + END_SECONDS
        for thread in self._threads.values():
            thread.join(max(0.0, until - time.monotonic()))

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
    """Work on runs of models until there have been none for a while. Ends them when it is interrupted itself.

    When the server that started this process is gone, what is worked on goes on, and nothing more is begun: what
    comes later may be asked elsewhere, with another key, and belongs to the next server.
    """
    gone = threading.Event()
    end_with_parent(gone.set)
    together, since = RunPool(), time.monotonic()
    try:
        while time.monotonic() - since < IDLE_SECONDS and not (gone.is_set() and together.is_idle):
            _look(together, begins=not gone.is_set())
            if not together.is_idle:
                since = time.monotonic()
            time.sleep(LOOK_SECONDS)
    finally:
        together.end()


def work_until_stopped() -> None:
    """Work on all runs that wait, and give up those whose worker is gone, until this is interrupted."""
    together, watch, looked = RunPool(with_embedded=True), LeaseWatch(), 0.0
    try:
        while True:
            if time.monotonic() - looked > GIVE_UP_SECONDS:
                _give_up(watch)
                looked = time.monotonic()
            _look(together, begins=True)
            time.sleep(LOOK_SECONDS)
    finally:
        together.end()


def _look(together: RunPool, *, begins: bool) -> None:
    try:
        if begins:
            together.look()
        else:
            together.forget()
    except DatabaseError as fault:
        # Another writer held the database for too long: the next look comes soon.
        _log.warning("Waiting runs could not be looked for: %s", type(fault).__name__)


def _give_up(watch: LeaseWatch) -> None:
    try:
        watch.give_up_dead_runs()
    except DatabaseError as fault:
        _log.warning("Runs could not be looked after: %s", type(fault).__name__)
