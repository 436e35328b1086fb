"""The user's actions on a run: start it, stop it, resume it, plan it again on the current session, open its proposals.

The page before a commit names the objects that were approved but never opened.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import partial
from pathlib import Path

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from compaction_app.core.states import REVIEWABLE, WRITTEN, RunState
from compaction_app.models import WHOLE_ENTRY, Opening, Proposal, Run
from compaction_app.planning.model_registry import level_for, model_named
from compaction_app.planning.plan import effective_parameters, is_llm, model_of_run, require_planner
from compaction_app.planning.snapshots import snapshot_of
from sessions_app.index.session_reading import indexed_reading
from sessions_app.jobs.pool import wake_workers
from sessions_app.models import Session
from sessions_app.server.broadcast import publish, run_group
from sessions_app.sessionlog.entries import Target
from sessions_app.sessionlog.errors import BadInput, Conflict
from sessions_app.sessionlog.jsjson import well_formed


def require_writable(session: Session) -> None:
    """Raise BadInput if a plan for a session could never be written to it."""
    if not session.has_header:
        raise BadInput(
            "no_header",
            f"{session.real_path()} has no session header: agents reject such a file, and Atomic before 0.9.4 "
            "empties it on opening. Nothing was planned. Make a copy with a header on its page, and compact that.",
        )
    if session.is_subagent:
        raise BadInput(
            "subagent",
            f"{session.real_path()} is the session of a subagent, which only the session that started it continues. "
            "Nothing was planned. Compact the session that started it.",
        )
    current = session.agent.format.current_version
    # 0: it is being indexed right now, and the worker checks again.
    if session.version not in (0, current):
        raise BadInput(
            "needs_migration",
            f"{session.real_path()} is a version {session.version} session, and only version {current} can "
            "be written to. Nothing was planned. Make a version 3 copy on its page, and compact that.",
        )


def start_run(
    session: Session,
    *,
    planner: str,
    requested_parameters: Mapping[str, object],
    leaf_id: str = "",
    thinking: str | None = None,
    writer: str = "",
    reason: str = "manual",
    automatic: bool = False,
    planner_note: str = "",
    replaces: Run | None = None,
    selected: Iterable[Target] = (),
    why: str = "",
) -> Run:
    """Queue a run for a branch; an empty `leaf_id` means the file's last entry.

    `planner` is `embedded`, `prune`, a model as `provider/name`, or `hand` with the targets that a human `selected`,
    and `why`; `thinking` is one of the model's levels, empty for none; None means the session's level, as far as the
    model supports it. Raises BadInput `unknown_planner`, `bad_thinking`, `unknown_writer`, `refused_writer`, and the
    errors of `level_for` and `require_writable`, and Conflict `run_in_flight` if one is under way for this session.
    """
    run = new_run(session, planner, requested_parameters, leaf_id, thinking, writer)
    require_writable(session)
    reading = indexed_reading(session)
    if writer and reading is not None:
        reading.writer(writer)
    run.reason, run.automatic, run.planner_note, run.replaces = reason, automatic, planner_note, replaces
    with transaction.atomic():
        _require_no_active_run(session)
        run.save()
        human = {"source": Proposal.Source.HUMAN, "tool": Proposal.Source.HUMAN, "reason": well_formed(why), "call": 0}
        Proposal.objects.bulk_create(
            Proposal(run=run, order=order, entry_id=entry_id, block_index=block_index, **human)
            for order, (entry_id, block_index) in enumerate(selected)
        )
        transaction.on_commit(wake_workers)
    return run


def begin_run(run: Run, worker: str) -> None:
    """Save a new run as claimed by `worker`: no other process ever sees it queued."""
    run.state, run.worker = RunState.RUNNING, worker
    run.started_at = run.heartbeat = run.created_at
    run.save()


def new_run(
    session: Session,
    planner: str,
    requested_parameters: Mapping[str, object],
    leaf_id: str = "",
    thinking: str | None = None,
    writer: str = "",
) -> Run:
    """A run that is not saved yet. Raises BadInput `unknown_planner`, `bad_thinking`, and the errors of `level_for`."""
    planner = require_planner(planner, thinking)
    model = model_named(planner) if is_llm(planner) else None
    if thinking is None:
        thinking = level_for(session, model, leaf_id) if model is not None else ""
    given = {name: value for name, value in requested_parameters.items() if value is not None}
    agent_settings = session.agent_settings(Path.home())
    return Run(
        session=session,
        leaf_id=leaf_id,
        planner=planner,
        thinking=thinking,
        writer=writer,
        base_url=model.base_url if model is not None else "",
        requested_parameters=given,
        sources=dict(effective_parameters(agent_settings, given).sources),
        thinking_guard=settings.REDLINE.thinking_guard,
        created_at=timezone.now(),
    )


def stop_run(run: Run) -> None:
    """Request that a run stops. A queued run is cancelled immediately. Validated targets are kept.

    Raises Conflict `wrong_state` if it has ended.
    """
    with transaction.atomic():
        if Run.objects.working().filter(pk=run.pk).update(stop_requested=True):
            transaction.on_commit(partial(publish, run_group(run.pk), state=RunState.RUNNING.value))
        elif not Run.end(run.pk, RunState.CANCELLED, leaving={RunState.QUEUED}):
            run.refresh_from_db()
            raise run.wrong_state("There was nothing to stop.")


def _require_no_active_run(session: Session) -> None:
    """Raise Conflict `run_in_flight` if a run of this session is under way."""
    other = session.runs.active().first()
    if other is not None:
        raise Conflict(
            "run_in_flight",
            f"Plan {other.pk} is being made for {session.real_path()} already. No other was started. Stop it first.",
        )


def resume_run(run: Run) -> None:
    """Continue an interrupted run. Raises Conflict `wrong_state`, and BadInput if its model may not be used."""
    model_of_run(run)
    with transaction.atomic():
        if not run.is_active:
            _require_no_active_run(run.session)
        if not Run.change(run.pk, RunState.QUEUED, worker="", stop_requested=False, failure="", ended_at=None):
            run.refresh_from_db()
            raise run.wrong_state("It was not resumed.")
        transaction.on_commit(wake_workers)


def plan_again(run: Run) -> Run:
    """A new run on the current file, which keeps the decisions on an earlier run.

    The earlier run is superseded once its decisions are carried over. A committed run stays committed: its plan is
    needed again because an agent continued past it, or a restore removed it. Raises Conflict.
    """
    run.require_state(REVIEWABLE | WRITTEN, "It was not planned again.")
    model_of_run(run)
    prepared = snapshot_of(run).prepared
    return start_run(
        run.session,
        planner=run.planner,
        thinking=run.thinking,
        requested_parameters=run.requested_parameters,
        leaf_id="" if prepared.leaf_id == prepared.file_leaf_id else prepared.leaf_id,
        reason=run.reason,
        writer=run.writer,
        replaces=run,
    )


def record_opened(run: Run, targets: Iterable[Target], now: datetime) -> None:
    """Record that a user opened these objects; those opened before keep their time."""
    rows = [
        Opening(run=run, entry_id=entry_id, block=WHOLE_ENTRY if block is None else block, at=now)
        for entry_id, block in dict.fromkeys(targets)
    ]
    Opening.objects.bulk_create(rows, ignore_conflicts=True)


def opened_targets(run: Run) -> frozenset[Target]:
    """The objects that a user opened in the review of a run."""
    return frozenset(opening.target for opening in run.openings.all())
