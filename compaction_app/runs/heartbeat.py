"""The heartbeat of a worker on what it has claimed, and the ways in which its work ends early."""

from __future__ import annotations

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from django.db import DatabaseError, connection

from compaction_app.core.loop import Stopped
from sessions_app.sessionlog.errors import RedlineError
from sessions_app.sqlite import failure_of

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


class LeaseHolder(ABC):
    """What a worker has claimed: a run, or the draft of a summary."""

    ending: threading.Event | None
    """Set if this process must end and its main thread is another one: see `Terminated`."""
    stop_requested: bool
    lost: bool

    @property
    @abstractmethod
    def name(self) -> str:
        """For the log."""

    @abstractmethod
    def wants_stop(self) -> bool:
        """Whether its row says that a stop was requested."""

    @abstractmethod
    def renew(self) -> bool | None:
        """Renew the lease; returns whether a stop was requested, None if this worker no longer has it."""

    def is_stopped(self) -> bool:
        """Whether a stop was requested. Raises Terminated and LostLease."""
        if self.ending is not None and self.ending.is_set():
            raise Terminated
        if self.lost:
            raise LostLease
        return self.stop_requested

    def has_to_end(self) -> bool:
        """Whether `is_stopped` would be true or raise anything: for code that must not be interrupted."""
        return self.stop_requested or self.lost or (self.ending is not None and self.ending.is_set())


def work_under_lease(
    holder: LeaseHolder,
    work: Callable[[], None],
    stopped: Callable[[], None],
    failed: Callable[[str], None],
    kept: str,
) -> None:
    """Do the work on what a worker has claimed, with its heartbeat, and record every outcome but a good one.

    `stopped` and `failed` end the row, unless the lease is lost; `kept` says what a failure leaves. A bug is raised,
    and so is a SystemFailure of the database.
    """
    try:
        with heartbeat(holder):
            work()
    except LostLease:
        return
    except Stopped:
        stopped()
    except RedlineError as fault:
        failed(fault.message)
    except DatabaseError as fault:
        failure = failure_of(fault)
        failed(f"{failure.message} {kept}")
        raise failure from fault
    except (Terminated, KeyboardInterrupt):
        failed(f"Its worker was stopped. {kept}")
        raise
    except BaseException as fault:
        # A bug: its row must not wait for a lease to expire. It is raised, and logged with its traceback.
        failed(f"Redline failed because of a bug ({type(fault).__name__}). The log says where. {kept}")
        raise


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
