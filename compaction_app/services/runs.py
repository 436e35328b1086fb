"""The rows of runs: the one place where the state of a run changes, and the lease of who works on it.

The row is the truth. Each change is one conditional update, by the table of `deletion.states`: where the run is
no longer in a state that may become the other, nothing changes and the caller is told.
"""

from __future__ import annotations

import os
import secrets
import socket
from datetime import datetime, timedelta
from typing import Any, Final

from django.db import transaction
from django.utils import timezone

from sessions_app.announcing import announce, run_group
from sessions_app.sessionlog.errors import Conflict

from ..deletion.states import TRANSITIONS, State
from ..models import Run

LEASE_SECONDS: Final = 12
"""How long a worker may be silent before its run is given up."""
WORKER_IS_GONE: Final = "Its worker is gone. What had been validated is kept."


def change(run_id: int, to: State, *, held_by: str | None = None, **fields: Any) -> bool:
    """Bring a run into a state, where the table allows it from the one it is in; whether that was so.

    With `held_by`, only while that worker has the lease.
    """
    leading = [state for state, others in TRANSITIONS.items() if to in others]
    runs = Run.objects.filter(pk=run_id, state__in=leading)
    if held_by is not None:
        runs = runs.filter(worker=held_by)
    if to is not State.COMMITTED:
        # While it is being written, nobody plans it again or resumes it.
        runs = runs.filter(committing_since=None)
    changed = runs.update(state=to, **fields) == 1
    if changed:
        transaction.on_commit(lambda: announce(run_group(run_id), state=to.value))
    return changed


def demand(run: Run, allowed: frozenset[State], not_done: str) -> None:
    """Raise Conflict `wrong_state` where a run is in none of these states."""
    if run.state not in allowed:
        raise wrong_state(run, not_done)


def wrong_state(run: Run, not_done: str) -> Conflict:
    return Conflict("wrong_state", f"Run {run.pk}: {State(run.state).sentence}. {not_done}")


def worker_name() -> str:
    """A name that no other worker has."""
    return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"


def claim(run_id: int, worker: str, now: datetime) -> Run | None:
    """Take a waiting run; None where somebody else has it, or it does not wait any more."""
    lease = now + timedelta(seconds=LEASE_SECONDS)
    if not change(run_id, State.RUNNING, worker=worker, heartbeat=now, lease_until=lease, started_at=now):
        return None
    return Run.objects.select_related("session__root", "replaces").get(pk=run_id)


def beat(run_id: int, worker: str, now: datetime) -> bool | None:
    """Renew the lease. Whether the run was asked to stop; None where this worker does not have it any more."""
    lease = now + timedelta(seconds=LEASE_SECONDS)
    with transaction.atomic():
        mine = Run.objects.filter(pk=run_id, worker=worker, state=State.RUNNING)
        if not mine.update(heartbeat=now, lease_until=lease):
            return None
        return bool(mine.values_list("stop_asked", flat=True).first())


def give_up_dead_runs() -> list[int]:
    """Say of running runs whose lease has ended that they were interrupted; gives their numbers."""
    now = timezone.now()
    dead = Run.objects.filter(state=State.RUNNING, lease_until__lt=now).values_list("pk", "worker")
    return [
        run_id
        for run_id, worker in list(dead)
        if change(run_id, State.INTERRUPTED, held_by=worker, failure=WORKER_IS_GONE, ended_at=now)
    ]


def waiting_runs() -> list[int]:
    """The runs that wait for a worker, the oldest first."""
    return list(Run.objects.filter(state=State.QUEUED).order_by("pk").values_list("pk", flat=True))
