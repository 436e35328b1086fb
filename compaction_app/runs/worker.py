"""A worker's work on one run: prepare, let the planner work, and store every step as a row.

    claim → index new entries → snapshot → carry over → planner ⇄ tools ⇄ airlock → state

| event      | reports                                                                   |
|------------|---------------------------------------------------------------------------|
| `prepared` | the basis of the plan, and its parameters                                 |
| `hooked`   | a hook's answer: its pins, a supplied plan, or a cancellation             |
| `carried`  | the targets of an earlier attempt or run that are kept, and those dropped  |
| `called`   | one tool call: arguments, result or refusal, new targets, progress        |
| `nudged`   | the planner stopped too early and was sent its progress                   |
| `ended`    | the outcome, and the last refusal if nothing was validated                |

An LLM planner adds events: see `planning.llm_planner`.

An event is a row, written in one transaction with the proposals it changes and the run's own row, before it is
announced. A worker that has lost its lease writes nothing more.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import msgspec
from django.utils import timezone

from compaction_app.core.decisions import Kind
from compaction_app.core.gates import Restraints
from compaction_app.core.loop import Origin
from compaction_app.core.states import EventKind, RunState
from compaction_app.core.store import DeletionStore
from compaction_app.models import Run
from compaction_app.planning.effective_parameters import effective_parameters
from compaction_app.planning.hook_runner import (
    PINNED_SEQ,
    before_compact,
    require_not_cancelled,
    save_pins,
)
from compaction_app.planning.plan import Plan, PlanListener
from compaction_app.planning.planners import MANUAL_PLANNER, planner_of_run
from compaction_app.planning.snapshots import (
    is_prepared,
    is_unchanged,
    prepare_snapshot,
    read_snapshot_texts,
    save_snapshot,
    session_as_prepared,
    snapshot_of,
)
from sessions_app.index.context_window_lookup import ContextWindowLookup
from sessions_app.index.indexer import index_file
from sessions_app.jobs.job import worker_name
from sessions_app.jobs.recorder import LostLease, under_lease, work_under_lease
from sessions_app.models import Session
from sessions_app.sessionlog.errors import BadInput, Conflict
from sessions_app.sessionlog.targets import Target, request_of

from .commands import begin_run
from .recorder import Recorder, progress_of, write_transaction
from .reviews import Carried, carried_from, pins_of


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
            f"Run {run.pk} was given up, because this process was suspended for too long. Nothing was written. "
            f"{Run.KEPT}",
        ) from fault
    if plan.is_stopped:
        raise Conflict("run_stopped", f"Run {run.pk} was stopped. Nothing was written. {Run.KEPT}")
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
    require_not_cancelled(plan.answers)
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
    prepared = prepare_snapshot(
        session,
        run.leaf_id,
        effective.values,
        window.value if window is not None else None,
        run.writer,
    )
    save_snapshot(run, prepared)
    Run.objects.filter(pk=run.pk).update(context=msgspec.to_builtins(prepared.context_size))
    transcript = prepared.transcript(read_snapshot_texts(session.real_path(), prepared))
    answers = before_compact(
        lambda: session_as_prepared(session, prepared),
        prepared.leaf_id,
        transcript,
        run.reason,
        session,
        recorder.has_to_end,
    )
    save_pins(run, answers, timezone.now())
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
    if run.replaces is None or not is_prepared(run.replaces):
        return carried
    before, after = snapshot_of(run.replaces).prepared, snapshot_of(run).prepared
    return Carried(
        [(target, origin) for target, origin in carried.targets if is_unchanged(target, before, after)],
        [target for target in carried.pins if is_unchanged(target, before, after)],
        [target for target in carried.unpinned if is_unchanged(target, before, after)],
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
            found = store.airlock.find(target)
            if found is not None and found in store:
                continue
            refusal = store.delete(request_of([target]))
            if refusal is not None:
                dropped.append({**target.to_json(), "code": refusal.code, "message": refusal.message})
    pins = [pin for pin in carried.pins if store.airlock.find(pin) is not None]
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
    before, after = snapshot_of(replaced).prepared, snapshot_of(run).prepared
    known = set(store.targets)
    wanted = {one.target: one.origin for one in replaced.proposals.order_by("order")}
    for target in wanted:
        if is_unchanged(target, before, after):
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
