"""What a worker records about a job that it has claimed, its heartbeat, and the ways in which a job ends early."""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from django.db import DatabaseError, OperationalError, connection

from sessions_app.database.sqlite import failure_of
from sessions_app.sessionlog.errors import RedlineError, Stopped

from .job import BEAT_SECONDS, Job

STOP_LOOK_SECONDS: Final = 0.15
"""How often to check whether a stop was requested."""
BEAT_AGAIN_SECONDS: Final = 0.5
"""The wait after a heartbeat that another writer blocked."""
END_TRIES: Final = 3
"""How many times the statement that ends a job is tried, each time with the usual database timeout."""

_log = logging.getLogger("redline")

AnyJob = TypeVar("AnyJob", bound=Job)


class LostLease(Exception):
    """This worker has lost its lease: it stops without writing anything more."""


class Terminated(BaseException):
    """The worker must end; its work is interrupted. Raised by a signal handler, anywhere."""


@dataclass
class JobRecorder(Generic[AnyJob]):
    """Writes the progress and the end of a job, as long as its worker has the lease."""

    job: AnyJob
    worker: str
    ending: threading.Event | None = None
    """Set if this process must end and its main thread is another one: see `Terminated`."""
    stop_requested: bool = False
    lost: bool = False

    def wants_stop(self) -> bool:
        """Whether its row has a request to stop."""
        return type(self.job).rows().filter(pk=self.job.pk, stop_requested=True).exists()

    def renew(self, **fields: Any) -> bool | None:
        """Renew the lease, and set fields of the row; see `Job.renew`."""
        return type(self.job).renew(self.job.pk, self.worker, **fields)

    def store(self, **fields: Any) -> None:
        """Set fields of the row. Raises LostLease."""
        stop_requested = None if self.lost else self.renew(**fields)
        if stop_requested is None:
            raise LostLease
        self.stop_requested = self.stop_requested or stop_requested

    def end(self, to: str, failure: str = "", **fields: Any) -> None:
        """End the job; does nothing if the lease is lost."""
        leaving = {self.job.WORKING}
        for tries_left in reversed(range(END_TRIES)):
            try:
                type(self.job).end(self.job.pk, to, failure, leaving=leaving, held_by=self.worker, **fields)
            except OperationalError:
                # Busy. Ending a job twice is harmless; but a failed transaction cannot be continued.
                if connection.in_atomic_block or not tries_left:
                    raise
            else:
                return

    def stopped(self) -> None:
        """End the job because a stop was requested."""
        self.failed(f"You stopped it. {self.job.KEPT}")

    def failed(self, failure: str) -> None:
        """End the job because it cannot be done."""
        self.end(self.job.FAILED, failure)

    def broke_off(self, why: str) -> None:
        """End the job because its worker cannot continue."""
        self.failed(f"{why} {self.job.KEPT}")

    def terminated(self) -> None:
        """End the job because its worker must end."""
        self.broke_off("Its worker was stopped.")

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


def work_under_lease(recorder: JobRecorder[Any], work: Callable[[], object]) -> None:
    """Do the work on a job, and record how it ended. A bug is raised, and so is a SystemFailure of the database."""
    try:
        with under_lease(recorder):
            work()
    except (LostLease, Stopped, RedlineError):
        return
    except DatabaseError as fault:
        raise failure_of(fault) from fault


@contextmanager
def under_lease(recorder: JobRecorder[Any]) -> Iterator[None]:
    """Keep the lease during the block. Every error ends the job, unless the lease is lost, and is raised."""
    try:
        with _heartbeat(recorder):
            yield
    except LostLease:
        raise
    except Stopped:
        recorder.stopped()
        raise
    except RedlineError as fault:
        recorder.failed(fault.message)
        raise
    except DatabaseError as fault:
        recorder.broke_off(failure_of(fault).message)
        raise
    except (Terminated, KeyboardInterrupt):
        recorder.terminated()
        raise
    except BaseException as fault:
        # A bug: its row must not wait for a lease to expire. It is logged with its traceback.
        recorder.broke_off(f"Redline failed because of a bug ({type(fault).__name__}). The log says where.")
        raise


@contextmanager
def _heartbeat(recorder: JobRecorder[Any]) -> Iterator[None]:
    """Renew the lease from another thread, even while the work takes long and others block the database; and notice
    soon that a stop was requested."""
    over = threading.Event()

    def beat() -> None:
        due = time.monotonic() + BEAT_SECONDS
        while not over.wait(STOP_LOOK_SECONDS):
            try:
                if time.monotonic() < due:
                    is_requested: bool | None = recorder.wants_stop()
                else:
                    is_requested = recorder.renew()
                    due = time.monotonic() + BEAT_SECONDS
            except DatabaseError as fault:
                _log.warning("The lease of %s was not renewed: %s", recorder.job, type(fault).__name__)
                due = time.monotonic() + BEAT_AGAIN_SECONDS
                continue
            recorder.lost = recorder.lost or is_requested is None
            recorder.stop_requested = recorder.stop_requested or bool(is_requested)
        connection.close()

    thread = threading.Thread(target=beat, name="heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
