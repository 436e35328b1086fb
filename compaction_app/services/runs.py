"""The rows of runs: the one place where the state of a run changes, and the lease of who works on it.

The row is the truth. Each change is one conditional update, by the table of `deletion.states`: where the run is
no longer in a state that may become the other, nothing changes and the caller is told.
"""

from __future__ import annotations

import os
import secrets
import socket
import time
from datetime import datetime, timedelta
from typing import Any, Final

from django.db import transaction
from django.utils import timezone

from sessions_app.announcing import announce, run_group
from sessions_app.sessionlog.errors import Conflict

from ..deletion.states import TRANSITIONS, State
from ..models import Run

# A beat may wait for the database as long as any statement, 20 seconds (settings.DATABASES): a lease outlasts that.
# And a run whose worker was killed is interrupted within 30 seconds: the lease, a look of the sweeper, which comes
# every 2 seconds, and APART_SECONDS until the look that gives it up.
LEASE_SECONDS: Final = 21
"""How long a worker may be silent before its run may be given up."""
BEAT_SECONDS: Final = 3
"""How often a worker renews its lease."""
APART_SECONDS: Final = 4
"""Between the two looks that find the same heartbeat: more than a beat, which a worker that lives uses."""
AT_ONCE_SECONDS: Final = 1
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


def is_asked_to_stop(run_id: int) -> bool:
    """Whether somebody wants a run to stop."""
    return Run.objects.filter(pk=run_id, stop_asked=True).exists()


_silent: dict[tuple[int, str, datetime | None], float] = {}
"""The runs whose lease had ended at this process's last look, with worker and heartbeat: since when (monotonic)."""


def give_up_dead_runs() -> list[int]:
    """Say of running runs whose worker is gone that they were interrupted; gives their numbers.

    To be called again and again. A lease that has ended is not enough: after a machine was suspended all have, and
    their workers go on in a moment. So a run is given up at a second look that finds the same heartbeat. A look
    counts only where the database could be written to at once: else no worker could write to it either.
    """
    known = dict(_silent)
    _silent.clear()
    began = time.monotonic()
    ended = Run.objects.filter(state=State.RUNNING, lease_until__lt=timezone.now())
    if not ended.exists():
        return []
    with transaction.atomic():
        looked = time.monotonic()
        if looked - began > AT_ONCE_SECONDS:
            return []
        for held in ended.values_list("pk", "worker", "heartbeat"):
            _silent[held] = known.get(held, looked)
        dead = [held for held, since in _silent.items() if held in known and looked - since >= APART_SECONDS]
        gone = {"failure": WORKER_IS_GONE, "ended_at": timezone.now()}
        return [
            run_id for run_id, worker, _ in dead if change(run_id, State.INTERRUPTED, held_by=worker, **gone)
        ]


def fail_unstarted(run_id: int, why: str) -> bool:
    """Say of a run that still waits that no worker can be started for it; whether it waited.

    What an earlier worker had validated is kept: then it is interrupted, and can be reviewed as it is.
    """
    with transaction.atomic():
        run = Run.objects.filter(pk=run_id, state=State.QUEUED).first()
        if run is None:
            return False
        now = timezone.now()
        failure = f"Its worker could not be started ({why}); the log tells why."
        if not run.last_seq:
            return change(run_id, State.FAILED, failure=f"{failure} Nothing was planned.", ended_at=now)
        # As if one had taken it and gone: the table knows no other way.
        change(run_id, State.RUNNING)
        kept = f"{failure} What had been validated is kept."
        return change(run_id, State.INTERRUPTED, failure=kept, ended_at=now)


def waiting_runs() -> list[int]:
    """The runs that wait for a worker and need the processor, the oldest first."""
    return _waiting(of_models=False)


def waiting_model_runs() -> list[int]:
    """The runs that wait for a worker and then mostly for a model, the oldest first."""
    return _waiting(of_models=True)


def _waiting(*, of_models: bool) -> list[int]:
    # A model is called by its provider's name and its own; no other planner has a slash in its name.
    waiting = Run.objects.filter(state=State.QUEUED)
    waiting = waiting.filter(planner__contains="/") if of_models else waiting.exclude(planner__contains="/")
    return list(waiting.order_by("pk").values_list("pk", flat=True))
