"""The records of a run that a worker writes: each step as a row, its proposals, its state, under a lease.

    with under_lease(recorder):                 see `sessions_app.jobs.recorder`
        recorder.step(plan, event)
        recorder.on_event("streamed", {…}, usage)   of an LLM planner

An event is a row, written in one transaction with the proposals it changes and the run's own row, before it is
announced. A worker that has lost its lease writes nothing more: LostLease.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final

from django.db import connection, transaction
from django.utils import timezone

from compaction_app.core.effects import removed_estimate
from compaction_app.core.errors import Refusal
from compaction_app.core.loop import Called, Ended, Event, Nudged, Origin, Outcome
from compaction_app.core.states import EventKind, RunState
from compaction_app.core.store import DeletionStore
from compaction_app.models import Proposal, Run, RunEvent
from compaction_app.planning.plan import Plan, PlanListener
from sessions_app.jobs.recorder import JobRecorder
from sessions_app.models import insert_statement
from sessions_app.sessionlog.jsjson import well_formed
from sessions_app.sessionlog.targets import Target
from sessions_app.web.broadcast import publish, run_group

STATES: Final = {
    Outcome.TARGET_MET: RunState.TARGET_MET,
    Outcome.BELOW_TARGET: RunState.BELOW_TARGET,
    Outcome.FAILED: RunState.FAILED,
}
NOTHING: Final = "The planner found nothing to delete."
ROWS_AT_ONCE: Final = 500
_INSERT: Final = insert_statement(Proposal)


def progress_of(store: DeletionStore) -> dict[str, Any]:
    stats = store.stats
    return {
        "deleted": stats.tokens_before - stats.tokens_after,
        "percent": stats.percent_reduction,
    }


_one_at_a_time = threading.RLock()


@contextmanager
def write_transaction() -> Iterator[None]:
    """A transaction; those of this process's runs are serialised, so that none has to poll for the lock."""
    with _one_at_a_time, transaction.atomic():
        yield


@dataclass
class Recorder(JobRecorder[Run]):
    """Writes a run's events, proposals and state, as long as its worker has the lease.

    `listener` gets each event once it is a row.
    """

    listener: PlanListener | None = None
    seq: int = 0
    _proposed: dict[Target, int] = field(default_factory=dict)
    """The chosen targets that have a row, in order, each with the `order` of its row."""
    _before: dict[str, Any] = field(default_factory=dict)
    _since: float = field(default_factory=time.perf_counter)

    def __post_init__(self) -> None:
        self.seq = self.job.last_seq

    def begin(self, plan: Plan) -> None:
        """Exclude the targets chosen before the first call from the gain of that call."""
        self._before = progress_of(plan.store)
        if self.listener is not None:
            self.listener.begin(plan)

    def on_event(self, kind: str, data: dict[str, Any], usage: dict[str, Any]) -> None:
        """Store an event of an LLM planner, with the totals of the data sent and received."""
        self.record(kind, data, usage=usage)
        self._since = time.perf_counter()
        if self.listener is not None:
            self.listener.on_event(kind, data, usage)

    def step(self, plan: Plan, event: Event, place: Mapping[str, int] | None = None) -> None:
        """Store one event of the loop, with its changes."""
        now = progress_of(plan.store)
        with write_transaction():
            self.propose(plan.origins)
            if isinstance(event, Called):
                called = {
                    **_called(event),
                    "before": self._before.get("percent", 0),
                    "ms": round((time.perf_counter() - self._since) * 1000),
                    **now,
                    **(place or {}),
                    "gain": now["deleted"] - self._before.get("deleted", 0),
                }
                self.record(EventKind.CALLED, plan.hide(called), calls=event.number, stats=plan.store.stats.to_json())
            elif isinstance(event, Nudged):
                self.record(EventKind.NUDGED, {"text": event.text, **now})
            else:
                self._end(plan, event, now)
        self._before, self._since = now, time.perf_counter()
        if self.listener is not None:
            self.listener.step(plan, event, place)

    def _end(self, plan: Plan, event: Ended, now: dict[str, Any]) -> None:
        """Store the end. The provider's message comes last, after the last refusal."""
        state = STATES[event.outcome]
        if plan.is_stopped or plan.has_failed:
            state = RunState.CANCELLED if plan.is_stopped else RunState.FAILED
        refusal = _refusal(event.refusal)
        text = f"{refusal.get('message', '')} {plan.why}".strip()
        message = {"message": text} if text else {}
        ended = {"state": state.value, **refusal, **message, **now}
        self.record(
            EventKind.ENDED,
            plan.hide(ended),
            stats=plan.store.stats.to_json(),
            struck_estimate=removed_estimate(plan.transcript, plan.store.targets),
        )
        if state is not RunState.FAILED:
            self.end(state, plan.why)
        elif event.outcome is not Outcome.FAILED:
            self.end(state, f"{text} {Run.KEPT}")
        elif plan.why:
            self.end(state, f"{text} {Run.NOTHING_DONE}")
        else:
            self.end(state, f"{NOTHING} {text}".strip())

    def record(self, kind: str, data: dict[str, Any], **fields: Any) -> None:
        """Add a row, and update the run's own. Raises LostLease."""
        seq = self.seq + 1
        with write_transaction():
            self.store(last_seq=seq, **fields)
            RunEvent.objects.create(run=self.job, seq=seq, kind=kind, at=timezone.now(), data=data)
        self.seq = seq
        transaction.on_commit(lambda: publish(run_group(self.job.pk), seq=seq))

    def propose(self, origins: Mapping[Target, Origin]) -> None:
        """Update the proposals to the present choice: new ones are added after the remaining ones."""
        rows, proposed = self.job.proposals, self._proposed
        gone = [proposed.pop(target) for target in list(proposed) if target not in origins]
        if not proposed or any(one != other for one, other in zip(proposed, origins, strict=False)):
            rows.all().delete()
            proposed.clear()
        for start in range(0, len(gone), ROWS_AT_ONCE) if proposed else ():
            rows.filter(order__in=gone[start : start + ROWS_AT_ONCE]).delete()
        added = [target for target in origins if target not in proposed]
        proposed.update(zip(added, count(max(proposed.values(), default=-1) + 1), strict=False))
        with connection.cursor() as cursor:
            cursor.executemany(_INSERT, [_row(self.job, proposed[one], one, origins[one]) for one in added])

    def broke_off(self, why: str) -> None:
        """End the run: it can be resumed if it was prepared, otherwise it failed."""
        if self.seq:
            self.end(RunState.INTERRUPTED, f"{why} {Run.KEPT}")
        else:
            self.failed(f"{why} {Run.NOTHING_DONE}")

    def terminated(self) -> None:
        """Interrupt the run: it can be resumed even if it was not prepared."""
        self.end(RunState.INTERRUPTED, f"Its worker was stopped. {Run.KEPT}")


def _row(run: Run, order: int, target: Target, origin: Origin) -> tuple[int | str | None, ...]:
    """The columns of a proposal, of which a long session has thousands. SQLite chooses its key."""
    source = Proposal.Source.REPAIR if origin.by_repair else Proposal.Source.PLANNER
    if origin.tool == Proposal.Source.HUMAN:
        source = Proposal.Source.HUMAN
    elif origin.tool == Proposal.Source.HOOK and not origin.by_repair:
        source = Proposal.Source.HOOK
    return None, run.pk, order, *target, source.value, origin.call, origin.tool, well_formed(origin.reason)


def _called(event: Called) -> dict[str, Any]:
    return {
        "call": event.number,
        "tool": event.result.name,
        "arguments": event.planned.call.arguments,
        "sentence": event.result.sentence,
        "details": dict(event.result.details),
        "added": [target.to_json() for target in event.added],
        **_refusal(event.result.refusal),
    }


def _refusal(refusal: Refusal | None) -> dict[str, Any]:
    if refusal is None:
        return {}
    target = refusal.target.to_json() if refusal.target is not None else None
    return {"code": refusal.code.value, "message": refusal.message, "target": target}
