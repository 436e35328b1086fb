"""Runs of models in one process: each in a thread of its own, where it mostly waits for its provider."""

from __future__ import annotations

import threading
import time
from typing import Final

from django.db import connection

from sessions_app.logs import defects_logged

from .recording import Terminated
from .running import work
from .runs import waiting_model_runs, worker_name

AT_ONCE: Final = 32
"""Runs that are worked on at the same time; the others wait in their rows."""
LOOK_SECONDS: Final = 0.2
IDLE_SECONDS: Final = 60
"""A process that has had nothing to do for so long ends, where it may."""
END_SECONDS: Final = 8
"""How long an ending process waits for its runs to be interrupted."""


class Together:
    """The model runs of one process. `look` starts what waits; `end` interrupts what is going on."""

    def __init__(self) -> None:
        self._ending = threading.Event()
        self._threads: dict[int, threading.Thread] = {}

    @property
    def is_idle(self) -> bool:
        return not self._threads

    def look(self) -> None:
        """Begin to work on the runs that wait, as many as there is room for."""
        self._threads = {run_id: one for run_id, one in self._threads.items() if one.is_alive()}
        waiting = [run_id for run_id in waiting_model_runs() if run_id not in self._threads]
        for run_id in waiting[: AT_ONCE - len(self._threads)]:
            # A daemon: should one not end when it is told to, its lease ends instead.
            thread = threading.Thread(target=self._work, args=(run_id,), name=f"run {run_id}", daemon=True)
            self._threads[run_id] = thread
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
        finally:
            connection.close()


def work_until_idle() -> None:
    """Work on runs of models until there have been none for a while. Ends them when it is interrupted itself."""
    together, since = Together(), time.monotonic()
    try:
        while time.monotonic() - since < IDLE_SECONDS:
            together.look()
            if not together.is_idle:
                since = time.monotonic()
            time.sleep(LOOK_SECONDS)
    finally:
        together.end()
