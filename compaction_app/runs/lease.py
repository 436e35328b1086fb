"""The rows of runs: the only place where the state of a run changes, and the lease of the worker on it.

The row is authoritative. Each change is one conditional update, by the table of `core.states`: if the run is no longer
in a state from which the transition is allowed, nothing changes and the caller gets False.
"""

from __future__ import annotations

import os
import secrets
import socket
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final, NamedTuple

from django.db import transaction
from django.db.models import F, QuerySet
from django.utils import timezone

from compaction_app.core.states import TRANSITIONS, RunState
from compaction_app.models import Run
from sessions_app.sessionlog.errors import Conflict
from sessions_app.web.broadcast import publish, run_group

# A run whose worker was killed is interrupted within 30 seconds, even if the server was killed with it: the next
# server starts, watches the heartbeats for the whole lease, and looks at them every 2 seconds.
LEASE_SECONDS: Final = 18
"""How long a heartbeat may be missing, on the clock of the watching process, before its run is given up."""
BEAT_SECONDS: Final = 3
"""How often a worker sends a heartbeat."""
LONGEST_CHECK_SECONDS: Final = 4
"""The most that counts of the time between two checks: a watcher that was suspended has not watched."""
AT_ONCE_SECONDS: Final = 1
WORKER_IS_GONE: Final = "Its worker is gone. What had been validated is kept."


def change_state(run_id: int, to: RunState, *, held_by: str | None = None, **fields: Any) -> bool:
    """Change a run's state, if the table allows the transition; returns whether it did.

    With `held_by`, only while that worker has the lease.
    """
    leading = [state for state, others in TRANSITIONS.items() if to in others]
    runs = Run.objects.filter(pk=run_id, state__in=leading)
    if held_by is not None:
        runs = runs.filter(worker=held_by)
    if to is not RunState.COMMITTED:
        # While it is being written, it is not planned again or resumed.
        runs = runs.filter(committing_since=None)
    changed = runs.update(state=to, **fields) == 1
    if changed:
        transaction.on_commit(lambda: publish(run_group(run_id), state=to.value))
    return changed


def require_state(run: Run, allowed: frozenset[RunState], not_done: str) -> None:
    """Raise Conflict `wrong_state` if a run is in none of these states."""
    if run.state not in allowed:
        raise wrong_state(run, not_done)


def wrong_state(run: Run, not_done: str) -> Conflict:
    return Conflict("wrong_state", f"Run {run.pk}: {run.sentence}. {not_done}")


def worker_name() -> str:
    """A name that no other worker has."""
    return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"


def claim(run_id: int, worker: str, now: datetime) -> Run | None:
    """Claim a queued run; None if another worker has it, or it is no longer queued."""
    if not change_state(run_id, RunState.RUNNING, worker=worker, heartbeat=now, started_at=now):
        return None
    return Run.objects.with_session().select_related("replaces").get(pk=run_id)


def renew_lease(run_id: int, worker: str, now: datetime, **fields: Any) -> bool | None:
    """Renew the lease, and set `fields` of the run's row.

    Returns whether a stop was requested; None if this worker no longer has the run.
    """
    with transaction.atomic():
        mine = Run.objects.running().filter(pk=run_id, worker=worker)
        if not mine.update(beats=F("beats") + 1, heartbeat=now, **fields):
            return None
        return bool(mine.values_list("stop_requested", flat=True).first())


def is_stop_requested(run_id: int) -> bool:
    """Whether a stop of the run was requested."""
    return Run.objects.filter(pk=run_id, stop_requested=True).exists()


Held = tuple[int, str, int]
"""A row that a worker has: its key, the worker, and the worker's heartbeats so far."""


class LeasedRows(NamedTuple):
    """The rows of one table that workers have."""

    held: Callable[[], QuerySet[Any]]
    """Those that a worker has now. They have the fields `worker` and `beats`."""
    give_up: Callable[[int, str], bool]
    """Ends a row, if this worker still has it; returns whether it did."""


class LeaseWatch:
    """Watches the heartbeats of all rows that workers have, and gives up those whose worker is gone.

    A lease has expired when its counter of heartbeats has not changed for LEASE_SECONDS on the monotonic clock of this
    process. No time of day is compared: clocks jump, and a machine sleeps with all its workers.
    """

    def __init__(self, rows: LeasedRows) -> None:
        self._rows = rows
        self._silent: dict[Held, float] = {}
        """For how many seconds each counter has been seen unchanged."""
        self._looked = time.monotonic()

    def give_up_dead(self) -> list[int]:
        """Give up the rows whose worker is gone; returns their keys. To be called every 2 seconds.

        A check counts only if the database could be written to immediately: otherwise no worker could send a heartbeat.
        """
        began = time.monotonic()
        rows = self._rows.held()
        if not rows.exists():
            self._forget(began)
            return []
        with transaction.atomic():
            now = time.monotonic()
            if now - began > AT_ONCE_SECONDS:
                self._forget(now)
                return []
            passed = min(now - self._looked, LONGEST_CHECK_SECONDS)
            held: list[Held] = list(rows.values_list("pk", "worker", "beats"))
            self._silent = {one: self._silent[one] + passed if one in self._silent else 0.0 for one in held}
            self._looked = now
            dead = [one for one in held if self._silent[one] >= LEASE_SECONDS]
            return [key for key, worker, _ in dead if self._rows.give_up(key, worker)]

    def _forget(self, now: float) -> None:
        self._silent, self._looked = {}, now


def _interrupt(run_id: int, worker: str) -> bool:
    gone = {"failure": WORKER_IS_GONE, "ended_at": timezone.now()}
    return change_state(run_id, RunState.INTERRUPTED, held_by=worker, **gone)


RUNS: Final = LeasedRows(Run.objects.running, _interrupt)


def fail_unstarted(run_id: int, why: str) -> bool:
    """End a queued run because no worker can be started for it; returns whether it was queued.

    If an earlier worker had validated something, the run is interrupted, and can be reviewed as it is.
    """
    with transaction.atomic():
        run = Run.objects.queued().filter(pk=run_id).first()
        if run is None:
            return False
        now = timezone.now()
        failure = f"Its worker could not be started ({why}); the log says why."
        if not run.last_seq:
            return change_state(run_id, RunState.FAILED, failure=f"{failure} Nothing was planned.", ended_at=now)
        # As if a worker had claimed it and died: the table has no other transition.
        change_state(run_id, RunState.RUNNING)
        kept = f"{failure} What had been validated is kept."
        return change_state(run_id, RunState.INTERRUPTED, failure=kept, ended_at=now)
