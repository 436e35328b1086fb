"""Detection of workers that are gone, by the heartbeats of the work that they have claimed."""

from __future__ import annotations

import time
from typing import Final

from django.db import transaction

from .job import Job

# Work whose worker was killed is given up within 30 seconds, even if the server was killed with it: the next server
# starts, watches the heartbeats for the whole lease, and looks at them every 2 seconds.
LEASE_SECONDS: Final = 18
"""How long a heartbeat may be missing, on the clock of the watching process, before its work is given up."""
BEAT_SECONDS: Final = 3
"""How often a worker sends a heartbeat."""
LONGEST_CHECK_SECONDS: Final = 4
"""The most that counts of the time between two checks: a suspended process has seen no heartbeats."""
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
