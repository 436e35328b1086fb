"""The heartbeat of a worker on what it has claimed, and the ways in which its work ends early."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Protocol

from django.db import DatabaseError, connection

from .lease import BEAT_SECONDS

STOP_LOOK_SECONDS: Final = 0.15
"""How often to check whether a stop was requested."""
BEAT_AGAIN_SECONDS: Final = 0.5
"""The wait after a heartbeat that another writer blocked."""

_log = logging.getLogger("redline")


class LostLease(Exception):
    """This worker no longer has what it claimed: it stops without writing anything more."""


class Terminated(BaseException):
    """The worker has to end; its work is interrupted. Raised by a signal handler, anywhere."""


class LeaseHolder(Protocol):
    """What a worker has claimed: a run, or the draft of a summary."""

    stop_requested: bool
    lost: bool

    @property
    def name(self) -> str:
        """For the log."""
        ...

    def wants_stop(self) -> bool:
        """Whether its row says that a stop was requested."""
        ...

    def renew(self) -> bool | None:
        """Renew the lease; returns whether a stop was requested, None if this worker no longer has it."""
        ...


@contextmanager
def heartbeat(holder: LeaseHolder) -> Iterator[None]:
    """Renew the lease from another thread, even while the work takes long and others block the database; and notice
    soon that a stop was requested."""
    over = threading.Event()

    def renew() -> None:
        due = time.monotonic() + BEAT_SECONDS
        while not over.wait(STOP_LOOK_SECONDS):
            try:
                if time.monotonic() < due:
                    is_requested: bool | None = holder.wants_stop()
                else:
                    is_requested = holder.renew()
                    due = time.monotonic() + BEAT_SECONDS
            except DatabaseError as fault:
                _log.warning("The lease of %s was not renewed: %s", holder.name, type(fault).__name__)
                due = time.monotonic() + BEAT_AGAIN_SECONDS
                continue
            holder.lost = holder.lost or is_requested is None
            holder.stop_requested = holder.stop_requested or bool(is_requested)
        connection.close()

    thread = threading.Thread(target=renew, name="heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
