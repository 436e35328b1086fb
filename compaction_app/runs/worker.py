"""A worker's work on one run: prepare, let the planner work, and store every step as a row, under a lease.

    claim → index new entries → snapshot → carry over → planner ⇄ tools ⇄ airlock → state

    with under_lease(recorder):                         see `sessions_app.jobs.recorder`
        recorder.step(plan, event)
        recorder.on_event("streamed", {…}, usage)       of an LLM planner

| event      | reports                                                                   |
|------------|---------------------------------------------------------------------------|
| `prepared` | the basis of the plan, and its parameters                                 |
| `hooked`   | a hook's answer: its pins, a supplied plan, or a cancellation             |
| `carried`  | the targets of an earlier attempt or run that are kept, and those dropped |
| `called`   | one tool call: arguments, result or refusal, new targets, progress        |
| `nudged`   | the planner stopped too early and was sent its progress                   |
| `ended`    | the outcome, and the last refusal if nothing was validated                |

An LLM planner adds events: see `planning.llm_planner`.

An event is a row, written in one transaction with the proposals it changes and the run's own row, before it is
announced. A worker that has lost its lease writes nothing more: LostLease.
"""

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Final

import msgspec
from django.db import connection, transaction
from django.utils import timezone

from compaction_app.core.effects import removed_estimate
from compaction_app.core.gates import Refusal, Restraints
from compaction_app.core.loop import Called, Ended, Event, Nudged, Origin, Outcome
from compaction_app.core.review_fold import Kind
from compaction_app.core.states import EventKind, RunState
from compaction_app.core.store import DeletionStore
from compaction_app.models import Proposal, Run, RunEvent
from compaction_app.planning import snapshots
from compaction_app.planning.hook_runner import PINNED_SEQ, before_compact, save_pins
from compaction_app.planning.plan import MANUAL_PLANNER, Plan, PlanListener, effective_parameters, planner_of_run
from sessions_app.index.context_window_lookup import ContextWindowLookup
from sessions_app.index.indexer import index_file
from sessions_app.jobs.job import worker_name
from sessions_app.jobs.recorder import JobRecorder, LostLease, under_lease, work_under_lease
from sessions_app.models import Session, insert_statement
from sessions_app.server.broadcast import publish, run_group
from sessions_app.sessionlog.entries import Target, request_of
from sessions_app.sessionlog.errors import BadInput, Conflict
from sessions_app.sessionlog.jsjson import well_formed

from .commands import begin_run
from .reviews import Carried, carried_from, pins_of

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
    """A transaction, serialised with those of this process's other runs, so that none has to poll for the lock."""
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
        "arguments": event.call.arguments,
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


# ---- the work --------------------------------------------------------------------------------------------


def work(run_id: int, worker: str, ending: threading.Event | None = None) -> None:
    """Work on a queued run to its end, unless another worker has it. Every outcome is recorded in the run's row.

    `ending` is set if this process must end and its main thread is another one: see `Terminated`. A bug is raised, as
    is a SystemFailure of the database.
    """
    run = Run.claim(run_id, worker, started_at=timezone.now())
    if run is not None:
        recorder = Recorder(run, worker, ending)
        work_under_lease(recorder, lambda: _plan(recorder))


def work_here(run: Run, listener: PlanListener) -> Plan:
    """Work on a new run in this process, for a caller that waits for the plan.

    Raises the errors of planning, and Conflict `run_stopped` and `run_given_up`.
    """
    worker = worker_name()
    begin_run(run, worker)
    try:
        recorder = Recorder(run, worker, listener=listener)
        with under_lease(recorder):
            plan = _plan(recorder)
    except LostLease as fault:
        raise Conflict(
            "run_given_up",
            f"Plan {run.pk} was given up, because this process was suspended for too long. Nothing was written. "
            f"{Run.KEPT}",
        ) from fault
    if plan.is_stopped:
        raise Conflict("run_stopped", f"Plan {run.pk} was stopped. Nothing was written. {Run.KEPT}")
    return plan


def _plan(recorder: Recorder) -> Plan:
    run = recorder.job
    session = index_file(run.session.real_path())
    if session.pk != run.session_id:
        raise BadInput("outside_root", f"{run.session.real_path()} is now another session. Nothing was planned.")
    carried = _carried(run)
    plan = _prepare(run, session, carried, recorder)
    carried = _without_replaced(carried, run)
    transcript = plan.transcript
    recorder.record(
        EventKind.PREPARED,
        {
            "entries": len(transcript),
            "objects": transcript.objects,
            "tokens": transcript.tokens,
            "protected": len(transcript.protected_entry_ids),
            "leafId": plan.leaf_id,
            "faults": list(plan.effective.faults),
        },
        parameters=msgspec.to_builtins(transcript.parameters),
        sources=dict(plan.effective.sources),
        stats=plan.store.stats.to_json(),
    )
    for message in plan.answers.messages:
        recorder.record(EventKind.HOOKED, message._asdict())
    plan.answers.require_not_cancelled()
    plan.start_with(_carry_over(run, carried, plan.store, recorder))
    if run.planner == MANUAL_PLANNER and run.replaces is not None:
        plan.start_with({**plan.origins, **_selected_before(run, run.replaces, plan.store)})
    # An earlier attempt has also made calls of this run.
    plan.workbench.call_count = run.calls
    plan.complete(lambda: planner_of_run(run, plan, recorder), recorder)
    return plan


def _prepare(run: Run, session: Session, carried: Carried, recorder: Recorder) -> Plan:
    """Prepare a run from the index, store its snapshot, and call the hooks."""
    home = Path.home()
    effective = effective_parameters(session.agent_settings(home), run.requested_parameters)
    window = ContextWindowLookup(home).window_of_session(session)
    prepared = snapshots.prepare_snapshot(
        session,
        run.leaf_id,
        effective.values,
        window.value if window is not None else None,
        run.writer,
    )
    snapshots.save_snapshot(run, prepared)
    Run.objects.filter(pk=run.pk).update(context=msgspec.to_builtins(prepared.context_size))
    transcript = prepared.transcript(snapshots.read_snapshot_texts(session.real_path(), prepared))
    answers = before_compact(
        lambda: snapshots.session_as_prepared(session, prepared),
        prepared.leaf_id,
        transcript,
        run.reason,
        session,
        recorder.has_to_end,
    )
    save_pins(run, answers.pins, timezone.now())
    pins = frozenset(carried.pins) | (answers.pins.keys() - set(carried.unpinned))
    restraints = Restraints(pins=pins, thinking_guard=run.thinking_guard)
    return Plan(prepared.leaf_id, transcript, effective, restraints, answers, prepared.window)


# ---- continuing earlier work -----------------------------------------------------------------------------


def _carried(run: Run) -> Carried:
    """The source from which this run continues: its own interrupted attempt, or the decisions on the run that it
    replaces."""
    own = [(proposal.target, proposal.origin) for proposal in run.proposals.order_by("order")]
    if own or run.replaces is None:
        return Carried(own, *pins_of(run))
    return carried_from(run.replaces)


def _without_replaced(carried: Carried, run: Run) -> Carried:
    """The carried targets, without blocks of entries whose content was replaced since: the indexes now name other
    blocks."""
    if run.replaces is None or not snapshots.is_prepared(run.replaces):
        return carried
    before, after = snapshots.snapshot_of(run.replaces).prepared, snapshots.snapshot_of(run).prepared
    return Carried(
        [(target, origin) for target, origin in carried.targets if snapshots.is_unchanged(target, before, after)],
        [target for target in carried.pins if snapshots.is_unchanged(target, before, after)],
        [target for target in carried.unpinned if snapshots.is_unchanged(target, before, after)],
    )


def _carry_over(run: Run, carried: Carried, store: DeletionStore, recorder: Recorder) -> dict[Target, Origin]:
    """Choose again the earlier targets that are still valid; the others are dropped and listed."""
    if not carried.targets and not carried.pins and not carried.unpinned:
        _supersede(run)
        return {}
    wanted = dict(carried.targets)
    dropped: list[dict[str, Any]] = []
    if store.delete(request_of(wanted)) is not None:
        for target in wanted:
            found = store.transcript.find(target)
            if found is not None and found in store:
                continue
            refusal = store.delete(request_of([target]))
            if refusal is not None:
                dropped.append({**target.to_json(), "code": refusal.code, "message": refusal.message})
    pins = [pin for pin in carried.pins if store.transcript.find(pin) is not None]
    origins = {target: wanted.get(target, Origin(0, "", "", by_repair=True)) for target in store.targets}
    with write_transaction():
        _supersede(run)
        decided = run.decisions.filter(seq__gt=PINNED_SEQ)
        if run.replaces is not None and not decided.exists():
            _decide_again(run, list(wanted), store, pins, carried.unpinned)
        recorder.propose(origins)
        recorder.record(
            EventKind.CARRIED,
            {
                "from": run.replaces_id,
                "kept": len(store.targets),
                "pinned": len(pins),
                "dropped": dropped,
                **progress_of(store),
            },
            stats=store.stats.to_json(),
        )
    return origins


def _selected_before(run: Run, replaced: Run, store: DeletionStore) -> dict[Target, Origin]:
    """Choose again the undecided selection of the run that this one replaces; returns the new origins."""
    before, after = snapshots.snapshot_of(replaced).prepared, snapshots.snapshot_of(run).prepared
    known = set(store.targets)
    wanted = {one.target: one.origin for one in replaced.proposals.order_by("order")}
    for target in wanted:
        if snapshots.is_unchanged(target, before, after):
            store.delete(request_of([target]))
    return {
        target: wanted.get(target, Origin(0, "", "", by_repair=True)) for target in store.targets if target not in known
    }


def _supersede(run: Run) -> None:
    """From here on this run has the decisions; a committed run stays committed."""
    if run.replaces_id is not None:
        Run.change(run.replaces_id, RunState.SUPERSEDED)


def _decide_again(
    run: Run, wanted: list[Target], store: DeletionStore, pins: list[Target], unpinned: list[Target]
) -> None:
    held = set(store.targets)
    steps = [
        (Kind.REOPEN, unpinned),
        (Kind.APPROVE, [target for target in wanted if target in held]),
        (Kind.REJECT, pins),
    ]
    for seq, (kind, targets) in enumerate([step for step in steps if step[1]], 1):
        run.decisions.create(seq=seq, kind=kind, targets=[target.to_json() for target in targets], at=timezone.now())
