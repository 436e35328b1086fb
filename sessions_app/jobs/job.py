"""The base of every kind of work in the background: a row with a state, and the lease of its worker.

The row is authoritative. Each change is one conditional update, by the kind's table of transitions: if the row is no
longer in a state from which the transition is allowed, nothing changes and the caller gets False. Workers that are gone
are detected by the heartbeats of the jobs that they have claimed.
"""

from __future__ import annotations

import os
import secrets
import socket
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any, ClassVar, Final, Self, TypeVar, cast

from django.apps import apps
from django.db import models, transaction
from django.db.models import F
from django.utils import timezone
from django.utils.module_loading import import_string

QUEUED: Final = "queued"
Transitions = Mapping[Any, frozenset[Any]]
"""For each state, the states that may follow it."""


def change_rows(
    rows: models.QuerySet[Any],
    transitions: Transitions,
    to: str,
    leaving: Collection[str] | None = None,
    **fields: Any,
) -> int:
    """Change the state of the rows for which the table allows it; returns their number.

    `leaving` limits the change to rows in these states.
    """
    leading = [state for state, others in transitions.items() if to in others and (leaving is None or state in leaving)]
    return rows.filter(state__in=leading).update(state=to, **fields)


AnyJob = TypeVar("AnyJob", bound="Job")


class JobQuerySet(models.QuerySet[AnyJob]):
    def shown(self) -> Self:
        """Jobs of sessions in configured roots: pages and the API show no others."""
        return self.filter(session__root__configured=True)

    def with_session(self) -> Self:
        return self.select_related("session__root")

    def queued(self) -> Self:
        return self.filter(state=QUEUED)

    def working(self) -> Self:
        """Jobs that a worker has claimed."""
        return self.filter(state=self.model.WORKING)

    def active(self) -> Self:
        """Jobs that are queued, or that a worker has claimed."""
        return self.filter(state__in=(QUEUED, self.model.WORKING))

    def of_llm(self) -> Self:
        """Jobs that mostly wait for a provider."""
        return self

    def of_embedded(self) -> Self:
        """Jobs that need the processor."""
        return self.none()

    def session_bytes(self) -> int:
        """The size of the first job's session in bytes; at least 1."""
        rows: models.QuerySet[Any] = self
        return rows.values_list("session__size", flat=True).first() or 1

    def numbers(self) -> list[int]:
        """The keys of the jobs, oldest first."""
        return list(self.order_by("pk").values_list("pk", flat=True))


class Job(models.Model):
    """One piece of work: queued, claimed by a worker, ended."""

    NOUN: ClassVar[str]
    TRANSITIONS: ClassVar[Transitions]
    WORKING: ClassVar[str]
    """The state of a job that a worker has claimed."""
    ABANDONED: ClassVar[str]
    """The final state of a job whose worker is gone."""
    FAILED: ClassVar[str]
    NOTHING_DONE: ClassVar[str]
    """A sentence for a job that no worker has begun: nothing was done."""
    KEPT: ClassVar[str]
    """A sentence about the results kept of a job that broke off."""
    WORK: ClassVar[str]
    """The dotted path of the function that works on a job; it is imported when it is needed."""
    PRIORITY: ClassVar[int] = 0
    """Kinds with a smaller number are started first."""

    state = models.CharField(max_length=12)
    failure = models.TextField(blank=True, default="")
    """Why it failed or broke off, in words."""
    stop_requested = models.BooleanField(default=False)
    worker = models.TextField(blank=True, default="")
    """The worker that has the lease."""
    beats = models.PositiveBigIntegerField(default=0)
    """The number of heartbeats. If it stops changing, the worker is gone: see `LeaseWatch`."""
    created_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)

    class Meta:
        abstract = True

    def __str__(self) -> str:
        return f"{self.NOUN} {self.pk}"

    @property
    def is_active(self) -> bool:
        return self.state in (QUEUED, self.WORKING)

    @classmethod
    def rows(cls) -> JobQuerySet[Self]:
        """All jobs of this kind."""
        return cast("JobQuerySet[Self]", cls._default_manager.all())

    @classmethod
    def kinds(cls) -> list[type[Job]]:
        """All kinds of work, in the order in which they are started."""
        kinds = [model for model in apps.get_models() if issubclass(model, Job)]
        return sorted(kinds, key=lambda kind: kind.PRIORITY)

    @classmethod
    def work_on(cls) -> Callable[..., None]:
        """The function that works on a job until it has ended. Its arguments: the job's key, the worker's name, and an
        event that is set if the process must end."""
        found: Callable[..., None] = import_string(cls.WORK)
        return found

    # ---- its state -----------------------------------------------------------------------------------------

    @classmethod
    def change(
        cls,
        key: int,
        to: str,
        *,
        leaving: Collection[str] | None = None,
        held_by: str | None = None,
        **fields: Any,
    ) -> bool:
        """Change the state, if the table allows it; returns whether it did.

        `leaving` limits the change to these states, and `held_by` to jobs of which that worker has the lease.
        """
        rows = cls._changeable(cls.rows().filter(pk=key), to)
        if held_by is not None:
            rows = rows.filter(worker=held_by)
        changed = change_rows(rows, cls.TRANSITIONS, to, leaving, **fields) == 1
        if changed:
            transaction.on_commit(lambda: cls._announce(key, to))
        return changed

    @classmethod
    def end(cls, key: int, to: str, failure: str = "", **fields: Any) -> bool:
        """Change the state as `change` does, with its arguments, and record why and when it ended."""
        return cls.change(key, to, **{"failure": failure, "ended_at": timezone.now(), **fields})

    @classmethod
    def fail_unstarted(cls, key: int, why: str) -> bool:
        """End a queued job because no worker can be started for it; returns whether it was queued."""
        failure = f"Its worker could not be started ({why}); the log says why. {cls.NOTHING_DONE}"
        return cls.end(key, cls.FAILED, failure, leaving={QUEUED})

    @classmethod
    def _changeable(cls, rows: models.QuerySet[Any], to: str) -> models.QuerySet[Any]:
        """The rows that may be changed to a state: for rules that a table cannot express."""
        del to
        return rows

    @classmethod
    def _announce(cls, key: int, to: str) -> None:
        """Notify open pages of a new state."""

    # ---- the lease -----------------------------------------------------------------------------------------

    @classmethod
    def claim(cls, key: int, worker: str, **fields: Any) -> Self | None:
        """Claim a queued job; None if another worker has it, or it is no longer queued."""
        if not cls.change(key, cls.WORKING, leaving={QUEUED}, worker=worker, **fields):
            return None
        return cls.to_work_on().get(pk=key)

    @classmethod
    def to_work_on(cls) -> models.QuerySet[Self]:
        """The rows, with the related rows that a worker needs."""
        return cls.rows()

    @classmethod
    def renew(cls, key: int, worker: str, **fields: Any) -> bool | None:
        """Renew the lease, and set fields of the row.

        Returns whether a stop was requested; None if this worker no longer has it.
        """
        with transaction.atomic():
            held = cls.rows().filter(pk=key, state=cls.WORKING, worker=worker)
            if not held.update(beats=F("beats") + 1, **fields):
                return None
            return bool(held.values_list("stop_requested", flat=True).first())

    @classmethod
    def give_up(cls, key: int, worker: str) -> bool:
        """End a job whose worker is gone, if that worker still has it; returns whether it was ended."""
        failure = f"Its worker ended. {cls.KEPT}"
        return cls.end(key, cls.ABANDONED, failure, leaving={cls.WORKING}, held_by=worker)


def worker_name() -> str:
    """A name that no other worker has."""
    return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"


# Work whose worker was killed is given up within 30 seconds, even if the server was killed with it: the next server
# starts, watches the heartbeats for the whole lease, and looks at them every 2 seconds.
LEASE_SECONDS: Final = 18
"""The time without a heartbeat, on the clock of the watching process, after which a job is given up."""
BEAT_SECONDS: Final = 3
"""How often a worker sends a heartbeat."""
LONGEST_CHECK_SECONDS: Final = 4
"""The maximum time counted between two checks: while a process is suspended, it sees no heartbeats."""
AT_ONCE_SECONDS: Final = 1

LeasedRow = tuple[int, str, int]
"""A row that a worker has: its key, the worker, and the worker's heartbeats so far."""


class LeaseWatch:
    """Watches the heartbeats of one kind of work, and gives up the rows of workers that are gone.

    A lease has expired when its counter of heartbeats has not changed for LEASE_SECONDS on the monotonic clock of this
    process. No time of day is compared: clocks jump, and a machine sleeps with all its workers.
    """

    def __init__(self, kind: type[Job]) -> None:
        self._kind = kind
        self._silent: dict[LeasedRow, float] = {}
        """For how many seconds each counter has been seen unchanged."""
        self._looked = time.monotonic()

    def give_up_dead(self) -> list[int]:
        """Give up the rows whose worker is gone; returns their keys. To be called every 2 seconds.

        A check counts only if the database could be written to immediately: otherwise no worker could send a heartbeat.
        """
        began = time.monotonic()
        rows = self._kind.rows().working()
        if not rows.exists():
            self._forget(began)
            return []
        with transaction.atomic():
            now = time.monotonic()
            if now - began > AT_ONCE_SECONDS:
                self._forget(now)
                return []
            passed = min(now - self._looked, LONGEST_CHECK_SECONDS)
            leased: list[LeasedRow] = list(rows.values_list("pk", "worker", "beats"))
            self._silent = {one: self._silent[one] + passed if one in self._silent else 0.0 for one in leased}
            self._looked = now
            dead = [one for one in leased if self._silent[one] >= LEASE_SECONDS]
            return [key for key, worker, _ in dead if self._kind.give_up(key, worker)]

    def _forget(self, now: float) -> None:
        self._silent, self._looked = {}, now


def watches() -> list[LeaseWatch]:
    """A watch of each kind of work."""
    return [LeaseWatch(kind) for kind in Job.kinds()]
