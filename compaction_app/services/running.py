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

Beside these there are those of a planner that is a model: see `thinking`.

An event is a row, written in one transaction with the proposals it changes and the run's own row, before it is
announced. A worker that has lost its lease writes nothing more.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import msgspec
from django.conf import settings
from django.db import DatabaseError, OperationalError, connection, transaction
from django.utils import timezone

from sessions_app.agents import model_windows
from sessions_app.announcing import announce, run_group
from sessions_app.services.indexing import index_file
from sessions_app.sessionlog.errors import BadInput, RedlineError
from sessions_app.sessionlog.jsjson import well_formed
from sessions_app.windows import window_of

from ..deletion.errors import Refusal
from ..deletion.gates import Restraints
from ..deletion.loop import Called, Ended, Event, Loop, Nudged, Origin, Outcome, Planner
from ..deletion.states import State
from ..deletion.store import DeletionStore
from ..deletion.targets import Target, request_of
from ..deletion.tools import Workbench
from ..models import Decision, Proposal, Run, RunEvent
from ..providers.errors import Overflow, ProviderError
from .hooking import PINNED_SEQ, before_compact, choose_supplied, demand_not_cancelled, keep_pins
from .planning import planner_of, settings_in_force
from .reviewing import Carried, carried_from, pins_of
from .runs import BEAT_SECONDS, LEASE_SECONDS, beat, change, claim, is_asked_to_stop
from .snapshots import (
    keep_snapshot,
    prepare_snapshot,
    read_snapshot_texts,
    session_as_prepared,
    session_path,
)
from .thinking import Exhausted, ModelPlanner, Stopped

STOP_LOOK_SECONDS: Final = 0.15
"""How often it is looked whether somebody wants the run to stop."""
BEAT_AGAIN_SECONDS: Final = 0.5
"""After a beat that another writer kept from the database."""
END_TRIES: Final = 3
"""The statement that ends a run waits for the database so often, each time as long as any statement."""
STATES: Final = {
    Outcome.TARGET_MET: State.TARGET_MET,
    Outcome.BELOW_TARGET: State.BELOW_TARGET,
    Outcome.FAILED: State.FAILED,
}
NOTHING: Final = "The planner found nothing that may be deleted."
STOPPED: Final = "Its worker was stopped. What had been validated is kept."
KEPT: Final = "What had been validated is kept."

_log = logging.getLogger("redline")


class LostLease(Exception):
    """Somebody else has the run now, or nobody: this worker stops without another word."""


class Terminated(BaseException):
    """The worker was told to end; its run is interrupted. Raised by a signal handler, anywhere."""


def work(run_id: int, worker: str, ending: threading.Event | None = None) -> None:
    """Work on a waiting run to its end. Whatever happens, the run's row says so.

    `ending` is set where this process is to end and its main thread is another one: see `Terminated`.
    What is no failure in words is a defect, or a database that is out of order: it is raised, and the run can be
    resumed and reviewed where it was prepared.
    """
    run = claim(run_id, worker, timezone.now())
    if run is None:
        return
    recorder = _Recorder(run, worker, ending)
    try:
        with _beating(recorder):
            _plan(run, recorder)
    except LostLease:
        return
    except RedlineError as fault:
        recorder.end(State.FAILED, fault.message)
    except (Terminated, KeyboardInterrupt):
        recorder.end(State.INTERRUPTED, STOPPED)
        raise
    except BaseException as fault:
        failed = f"Redline itself failed ({type(fault).__name__})."
        if recorder.seq:
            recorder.end(
                State.INTERRUPTED, f"{failed} What had been validated is kept. The log tells where it failed."
            )
        else:
            recorder.end(State.FAILED, f"{failed} Nothing was planned. The log tells where it failed.")
        raise


def _plan(run: Run, recorder: _Recorder) -> None:
    session = index_file(session_path(run.session))
    if session.pk != run.session_id:
        raise BadInput(
            "outside_root", f"{session_path(run.session)} is another session now. Nothing was planned."
        )
    in_force = settings_in_force(session.cwd, run.asked, Path.home())
    windows = model_windows(Path.home())
    window = window_of(session.model, settings.REDLINE.windows, windows) if session.model else None
    carried = _carried(run)
    prepared = prepare_snapshot(
        session, run.leaf_id, in_force.values, window.tokens if window is not None else None
    )
    keep_snapshot(run, prepared)
    transcript = prepared.transcript(read_snapshot_texts(session_path(session), prepared))
    heard = before_compact(
        lambda: session_as_prepared(session, prepared), prepared.leaf_id, transcript, run.reason, session
    )
    keep_pins(run, heard, timezone.now())
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
    demand_not_cancelled(heard)
    workbench = Workbench(store, prepared.window)
    origins = _carry_over(run, carried, store, recorder)
    if heard.supplied is not None:
        loop = Loop(workbench, {**origins, **choose_supplied(heard.supplied, store)})
        with _writing():
            recorder.propose(loop.origins)
            recorder.step(loop, store, loop.close())
        return
    loop = Loop(workbench, origins)
    planner = planner_of(run.planner, run.thinking, workbench, recorder, run.usage)
    while loop.outcome is None:
        if store.targets and store.target_met:
            recorder.step(loop, store, loop.close())
        elif recorder.is_stopped():
            recorder.step(loop, store, loop.close(), stopped=True)
        else:
            _take_turn(planner, loop, store, recorder)


def _take_turn(planner: Planner, loop: Loop, store: DeletionStore, recorder: _Recorder) -> None:
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
            of_turn = {"turn": planner.turn, "index": index} if isinstance(planner, ModelPlanner) else None
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


def _carry_over(
    run: Run, carried: Carried, store: DeletionStore, recorder: _Recorder
) -> dict[Target, Origin]:
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
    with _writing():
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
                **_progress(store),
            },
            stats=store.stats.to_json(),
        )
    return origins


def _supersede(run: Run) -> None:
    """From here on the decisions live in this run; one that was committed stays so."""
    if run.replaces_id is not None:
        change(run.replaces_id, State.SUPERSEDED)


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


# ---- rows ------------------------------------------------------------------------------------------------


def _progress(store: DeletionStore) -> dict[str, Any]:
    stats = store.stats
    return {
        "deleted": stats.tokens_before - stats.tokens_after,
        "percent": stats.percent_reduction,
    }


_one_at_a_time = threading.RLock()


@contextmanager
def _writing() -> Iterator[None]:
    """A transaction; those of this process's runs come one after the other, and none waits by looking again."""
    with _one_at_a_time, transaction.atomic():
        yield


@dataclass
class _Recorder:
    """Writes a run's events, proposals and state, as long as its worker has the lease."""

    run: Run
    worker: str
    ending: threading.Event | None = None
    seq: int = 0
    stop_asked: bool = False
    lost: bool = False
    _proposed: list[Target] = field(default_factory=list)
    _before: dict[str, Any] = field(default_factory=dict)
    _since: float = field(default_factory=time.perf_counter)

    def __post_init__(self) -> None:
        self.seq = self.run.last_seq

    def is_stopped(self) -> bool:
        """Whether the run was asked to stop. Raises Terminated and LostLease."""
        if self.ending is not None and self.ending.is_set():
            raise Terminated
        if self.lost:
            raise LostLease
        return self.stop_asked

    def tell(self, kind: str, data: dict[str, Any], usage: dict[str, Any] | None = None) -> None:
        """Keep what a planner that is a model tells, with the sums of what it has sent and received."""
        self.record(kind, data, **({} if usage is None else {"usage": usage}))
        self._since = time.perf_counter()

    def step(
        self,
        loop: Loop,
        store: DeletionStore,
        event: Event,
        *,
        stopped: bool = False,
        failed: bool = False,
        why: str = "",
        place: Mapping[str, int] | None = None,
    ) -> None:
        """Keep one event of the loop, with what it changed; a call with its place in an answer, an end with its why."""
        now = _progress(store)
        took = round((time.perf_counter() - self._since) * 1000)
        with _writing():
            if isinstance(event, Called):
                self.propose(loop.origins)
                self.record(
                    "called",
                    {
                        **_called(event),
                        "before": self._before.get("percent", 0),
                        "ms": took,
                        **now,
                        **(place or {}),
                    }
                    | {"gain": now["deleted"] - self._before.get("deleted", 0)},
                    calls=event.number,
                    stats=store.stats.to_json(),
                )
            elif isinstance(event, Nudged):
                self.record("nudged", {"text": event.text, **now})
            else:
                state = State.CANCELLED if stopped else State.FAILED if failed else STATES[event.outcome]
                self._ended(event, now, state, why, store.stats.to_json())
        self._before, self._since = now, time.perf_counter()

    def _ended(
        self, event: Ended, now: dict[str, Any], state: State, why: str, stats: dict[str, Any]
    ) -> None:
        """Keep the end. A provider's own words come last, behind the refusal that nothing came of."""
        refusal = _refusal(event.refusal)
        said = f"{refusal.get('message', '')} {why}".strip()
        said_too = {"message": said} if said else {}
        self.record("ended", {"state": state.value, **refusal, **said_too, **now}, stats=stats)
        if state is not State.FAILED:
            self.end(state, why)
        elif event.outcome is Outcome.FAILED:
            self.end(state, f"{NOTHING} {said}".strip())
        else:
            self.end(state, f"{said} {KEPT}")

    def record(self, kind: str, data: dict[str, Any], **fields: Any) -> None:
        """One more row, and the run's own with it. Raises LostLease."""
        if self.lost:
            raise LostLease
        seq, now = self.seq + 1, timezone.now()
        with _writing():
            mine = Run.objects.filter(pk=self.run.pk, worker=self.worker, state=State.RUNNING)
            lease = now + timedelta(seconds=LEASE_SECONDS)
            if not mine.update(last_seq=seq, heartbeat=now, lease_until=lease, **fields):
                raise LostLease
            RunEvent.objects.create(run=self.run, seq=seq, kind=kind, at=now, data=data)
            self.stop_asked = self.stop_asked or bool(mine.values_list("stop_asked", flat=True).first())
        self.seq = seq
        transaction.on_commit(lambda: announce(run_group(self.run.pk), seq=seq))

    def propose(self, origins: Mapping[Target, Origin]) -> None:
        """Bring the proposals up to what is chosen now; mostly that adds some at the end."""
        chosen = list(origins)
        known = len(self._proposed)
        rows = Proposal.objects.filter(run=self.run)
        if not known or chosen[:known] != self._proposed:
            rows.delete()
            known = 0
        Proposal.objects.bulk_create(
            [_proposal(self.run, order, target, origins[target]) for order, target in enumerate(chosen)][
                known:
            ],
            batch_size=500,
        )
        self._proposed = chosen

    def end(self, state: State, failure: str) -> None:
        """The run's last state under this worker; nothing where it has lost its lease."""
        ended = {"failure": failure, "ended_at": timezone.now(), "lease_until": None}
        for tries_left in reversed(range(END_TRIES)):
            try:
                change(self.run.pk, state, held_by=self.worker, **ended)
            except OperationalError:
                # Busy. To end a run twice is to end it once; but a transaction that failed is over.
                if connection.in_atomic_block or not tries_left:
                    raise
            else:
                return


def _proposal(run: Run, order: int, target: Target, origin: Origin) -> Proposal:
    source = Proposal.REPAIR if origin.by_repair else Proposal.PLANNER
    if origin.tool == Proposal.HUMAN:
        source = Proposal.HUMAN
    elif origin.tool == Proposal.HOOK and not origin.by_repair:
        source = Proposal.HOOK
    return Proposal(
        run=run,
        order=order,
        entry_id=target.entry_id,
        block_index=target.block_index,
        source=source,
        call=origin.call,
        tool=origin.tool,
        reason=well_formed(origin.reason),
    )


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


# ---- the lease -------------------------------------------------------------------------------------------


@contextmanager
def _beating(recorder: _Recorder) -> Iterator[None]:
    """Renew the lease from another thread, also while the planner thinks and whoever else holds the database; and see
    soon that somebody wants the run to stop."""
    over = threading.Event()

    def renew() -> None:
        due = time.monotonic() + BEAT_SECONDS
        while not over.wait(STOP_LOOK_SECONDS):
            try:
                if time.monotonic() < due:
                    asked: bool | None = is_asked_to_stop(recorder.run.pk)
                else:
                    asked = beat(recorder.run.pk, recorder.worker, timezone.now())
                    due = time.monotonic() + BEAT_SECONDS
            except DatabaseError as fault:
                _log.warning("The lease of run %d was not renewed: %s", recorder.run.pk, type(fault).__name__)
                due = time.monotonic() + BEAT_AGAIN_SECONDS
                continue
            recorder.lost = recorder.lost or asked is None
            recorder.stop_asked = recorder.stop_asked or bool(asked)
        connection.close()

    thread = threading.Thread(target=renew, name="heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
