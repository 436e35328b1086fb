"""A worker's work on one run: prepare, let the planner work, and keep every step as a row.

    claim → index what was added → snapshot → carry over → planner ⇄ tools ⇄ airlock → state

| event      | says                                                                      |
|------------|---------------------------------------------------------------------------|
| `prepared` | what the run is planned on, with which parameters                         |
| `hooked`   | what a hook said: what it pinned, that it supplied the plan or cancelled  |
| `carried`  | which targets of an earlier attempt or run hold, and which were dropped   |
| `called`   | one tool call: arguments, result or refusal, what it chose, how far it is |
| `nudged`   | the planner stopped too early and was told so                             |
| `ended`    | how it ended, and the last refusal where nothing was validated            |

An LLM planner adds its own: see `planning.llm_planner`.

An event is a row, written in one transaction with the proposals it changes and the run's own row, before it is
announced. A worker that has lost its lease writes nothing more.
"""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Any, Final

import msgspec
from django.conf import settings
from django.db import DatabaseError
from django.utils import timezone

from compaction_app.core.gates import Restraints
from compaction_app.core.loop import Exhausted, Loop, Origin, Planner
from compaction_app.core.states import RunState
from compaction_app.core.store import DeletionStore
from compaction_app.core.targets import Target, request_of
from compaction_app.core.tools import Workbench
from compaction_app.models import Decision, Proposal, Run
from compaction_app.planning.hook_runner import (
    PINNED_SEQ,
    before_compact,
    choose_supplied,
    require_not_cancelled,
    save_pins,
)
from compaction_app.planning.llm_planner import LLMPlanner, Stopped
from compaction_app.planning.plan import effective_parameters, model_of_run, planner_of
from compaction_app.planning.snapshots import (
    prepare_snapshot,
    read_snapshot_texts,
    save_snapshot,
    session_as_prepared,
    session_path,
)
from compaction_app.providers.errors import Overflow, ProviderError
from sessions_app.agents.registry import model_windows
from sessions_app.context_windows import window_of
from sessions_app.index.indexer import index_file
from sessions_app.sessionlog.errors import BadInput, RedlineError
from sessions_app.sqlite import failure_of

from .lease import change_state, claim
from .recorder import KEPT, LostLease, Recorder, Terminated, heartbeat, progress_of, write_transaction
from .reviews import Carried, carried_from, pins_of

STOPPED: Final = "Its worker was stopped. What had been validated is kept."

_log = logging.getLogger("redline")


def work(run_id: int, worker: str, ending: threading.Event | None = None) -> None:
    """Work on a waiting run to its end. Whatever happens, the run's row says so.

    `ending` is set where this process is to end and its main thread is another one: see `Terminated`.
    A bug is raised, and so is a SystemFailure of the database. The run can then be resumed, and reviewed if it was
    prepared.
    """
    run = claim(run_id, worker, timezone.now())
    if run is None:
        return
    recorder = Recorder(run, worker, ending)
    try:
        with heartbeat(recorder):
            _plan(run, recorder)
    except LostLease:
        return
    except RedlineError as fault:
        recorder.end(RunState.FAILED, fault.message)
    except DatabaseError as fault:
        failure = failure_of(fault)
        state, kept = (
            (RunState.INTERRUPTED, KEPT) if recorder.seq else (RunState.FAILED, "Nothing was planned.")
        )
        recorder.end(state, f"{failure.message} {kept}")
        raise failure from fault
    except (Terminated, KeyboardInterrupt):
        recorder.end(RunState.INTERRUPTED, STOPPED)
        raise
    except BaseException as fault:
        failed = f"Redline itself failed ({type(fault).__name__})."
        if recorder.seq:
            recorder.end(
                RunState.INTERRUPTED,
                f"{failed} What had been validated is kept. The log tells where it failed.",
            )
        else:
            recorder.end(RunState.FAILED, f"{failed} Nothing was planned. The log tells where it failed.")
        raise


def _plan(run: Run, recorder: Recorder) -> None:
    session = index_file(session_path(run.session))
    if session.pk != run.session_id:
        raise BadInput(
            "outside_root", f"{session_path(run.session)} is another session now. Nothing was planned."
        )
    home = Path.home()
    in_force = effective_parameters(session.agent.settings(session.cwd, home), run.requested_parameters)
    windows = model_windows(home)
    window = window_of(session.model, settings.REDLINE.windows, windows) if session.model else None
    carried = _carried(run)
    prepared = prepare_snapshot(
        session, run.leaf_id, in_force.values, window.tokens if window is not None else None
    )
    save_snapshot(run, prepared)
    transcript = prepared.transcript(read_snapshot_texts(session_path(session), prepared))
    heard = before_compact(
        lambda: session_as_prepared(session, prepared), prepared.leaf_id, transcript, run.reason, session
    )
    save_pins(run, heard, timezone.now())
    pins = frozenset(carried.pins) | (heard.pins.keys() - set(carried.unpinned))
    store = DeletionStore(transcript, Restraints(pins=pins, thinking_guard=run.thinking_guard))
    recorder.record(
        "prepared",
        {
            "entries": len(transcript),
            "objects": transcript.objects,
            "tokens": transcript.tokens,
            "protected": len(transcript.protected_entry_ids),
            "leafId": prepared.leaf_id,
            "faults": list(in_force.faults),
        },
        parameters=msgspec.to_builtins(transcript.parameters),
        sources=dict(in_force.sources),
        stats=store.stats.to_json(),
    )
    for word in heard.words:
        recorder.record("hooked", word._asdict())
    require_not_cancelled(heard)
    workbench = Workbench(store, prepared.window)
    origins = _carry_over(run, carried, store, recorder)
    if heard.supplied is not None:
        loop = Loop(workbench, {**origins, **choose_supplied(heard.supplied, store)})
        with write_transaction():
            recorder.propose(loop.origins)
            recorder.step(loop, store, loop.close())
        return
    recorder.start_from(store)
    # An attempt before this one has made calls of this run too.
    workbench.call_count = run.calls
    loop = Loop(workbench, origins)
    planner = planner_of(run.planner, run.thinking, workbench, recorder, run.usage, model_of_run(run))
    if isinstance(planner, LLMPlanner):
        recorder.hide = planner.hide
    while loop.outcome is None:
        if store.target_met:
            recorder.step(loop, store, loop.close())
        elif recorder.is_stopped():
            recorder.step(loop, store, loop.close(), stopped=True)
        else:
            _take_turn(planner, loop, store, recorder)


def _take_turn(planner: Planner, loop: Loop, store: DeletionStore, recorder: Recorder) -> None:
    """Ask the planner, and run its calls. What goes wrong at a provider ends the run where it stands."""
    try:
        turn = planner.next_turn(loop.report)
    except Stopped:
        recorder.step(loop, store, loop.close(), stopped=True)
    except Exhausted as enough:
        recorder.step(loop, store, loop.close(), why=str(enough))
    except Overflow as fault:
        recorder.step(loop, store, loop.close(), why=fault.message)
    except ProviderError as fault:
        recorder.step(loop, store, loop.close(), why=fault.message, failed=True)
    else:
        for index, event in enumerate(loop.take(turn)):
            of_turn = {"turn": planner.turn, "index": index} if isinstance(planner, LLMPlanner) else None
            recorder.step(loop, store, event, place=of_turn)
            if recorder.is_stopped():
                break


# ---- what is carried over --------------------------------------------------------------------------------


def _carried(run: Run) -> Carried:
    """What this run goes on from: its own interrupted attempt, or what was decided on the run it replaces."""
    own = [
        (
            Target(row.entry_id, row.block_index),
            Origin(row.call, row.tool, row.reason, row.source == Proposal.REPAIR),
        )
        for row in Proposal.objects.filter(run=run).order_by("order")
    ]
    if own or run.replaces is None:
        return Carried(own, *pins_of(run))
    return carried_from(run.replaces)


def _carry_over(run: Run, carried: Carried, store: DeletionStore, recorder: Recorder) -> dict[Target, Origin]:
    """Choose again what was chosen before, where it still holds; the others are dropped and listed."""
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
        decided = Decision.objects.filter(run=run, seq__gt=PINNED_SEQ)
        if run.replaces is not None and not decided.exists():
            _decide_again(run, list(wanted), store, pins, carried.unpinned)
        recorder.propose(origins)
        recorder.record(
            "carried",
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


def _supersede(run: Run) -> None:
    """From here on the decisions live in this run; one that was committed stays so."""
    if run.replaces_id is not None:
        change_state(run.replaces_id, RunState.SUPERSEDED)


def _decide_again(
    run: Run, wanted: list[Target], store: DeletionStore, pins: list[Target], unpinned: list[Target]
) -> None:
    held = set(store.targets)
    steps = [
        (Decision.REOPEN, unpinned),
        (Decision.APPROVE, [target for target in wanted if target in held]),
        (Decision.REJECT, pins),
    ]
    for seq, (kind, targets) in enumerate([step for step in steps if step[1]], 1):
        Decision.objects.create(
            run=run, seq=seq, kind=kind, targets=[target.to_json() for target in targets], at=timezone.now()
        )
