"""Automatic planning: a session that is due is planned, so that a proposal is ready. Nothing is written.

A session is due for the reasons of its agent: `threshold`, its context exceeds the part of the window that may be used,
or `overflow`, its model reported that the context is too long. If automatic planning is on it is planned, unless

| it is skipped because                             | until                                                    |
|---------------------------------------------------|----------------------------------------------------------|
| it cannot be read or written, or is old           | that changes                                             |
| its agent's settings disable automatic compaction | they do not                                              |
| only Redline has written to it since the last     | an agent continues                                       |
| change, or no process for a day                   |                                                          |
| a run of it is under way, or was made at its leaf | an agent continues                                       |
| an automatic proposal waits to be opened          | you open it                                              |
| an automatic proposal was opened recently         | REST has passed                                          |
| such a run was stopped, or cancelled by a hook    | you start a run of it, or compact it                     |
| such runs failed, one after the other             | REST has passed, doubled for each, up to LONGEST_REST    |

At most AT_ONCE such runs are under way. An LLM planner is used only if you have agreed to that for its provider.
"""

import logging
import math
import os
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import takewhile
from pathlib import Path
from typing import Final

from django.db.models import Exists, OuterRef, QuerySet

from compaction_app.core.states import EventKind, RunState
from compaction_app.models import Run
from compaction_app.planning.model_registry import ResolvedModel, model_named, model_of_session, models
from compaction_app.planning.plan import EMBEDDED, PLANNERS, PRUNE
from sessions_app.agents.registry import READERS
from sessions_app.chosen_settings import value_in_force
from sessions_app.models import WRITTEN_BY_OTHERS, Session
from sessions_app.sessionlog.errors import BadInput, RedlineError

from .commands import start_run

SWITCH: Final = "plan_by_itself"
"""The setting that switches automatic planning on."""
PLANNER: Final = "plan_by_itself_with"
"""The setting that names its planner."""
OWN_MODEL: Final = "session"
"""The value of PLANNER that means each session's model."""
AT_ONCE: Final = 2
REST: Final = timedelta(minutes=10)
LONGEST_REST: Final = timedelta(days=1)
FRESH: Final = timedelta(days=1)
FAILED: Final = (RunState.FAILED, RunState.INTERRUPTED)
FAILURES_COUNTED: Final = 20
"""The maximum number of failures that are counted; more do not lengthen a rest any further."""

_log = logging.getLogger("redline")


@dataclass(frozen=True, slots=True)
class ChosenPlanner:
    """The planner of an automatic run; `note` is the reason if it is not the configured one."""

    planner: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class StartedRuns:
    """The outcome of one check of the sessions that are due."""

    started: list[int]
    """The numbers of the started runs."""
    postponed: bool
    """Whether a due session was left for later, because no more runs may be under way."""


def is_on() -> bool:
    """Whether automatic planning is on."""
    return bool(value_in_force(SWITCH).value)


def chosen_planner() -> str:
    """The planner that is set for automatic planning: `embedded`, `prune`, OWN_MODEL, or `provider/name`."""
    return str(value_in_force(PLANNER).value)


def planners() -> list[tuple[str, str]]:
    """The planners that can be chosen for automatic planning, each with its words: those on this machine, and the
    models whose provider you allowed to plan automatically."""
    return [
        (EMBEDDED, "Built in, offline"),
        (PRUNE, "Old tool results only, offline"),
        (OWN_MODEL, "Each session’s own model"),
        *((one.planner, f"{one.planner}, {one.host}") for one in models() if one.agreed and not one.fault),
    ]


def plan_due(now: datetime, home: Path) -> StartedRuns:
    """Start planning the sessions that are due and not skipped, those last written to first."""
    places = AT_ONCE - Run.objects.active().filter(automatic=True).count()
    started: list[int] = []
    for session in due_sessions(now):
        if skipped_because(session, now, home):
            continue
        if len(started) >= places:
            return StartedRuns(started, postponed=True)
        run = _start(session)
        if run is not None:
            started.append(run.pk)
    return StartedRuns(started, postponed=False)


def due_sessions(now: datetime) -> QuerySet[Session]:
    """The due sessions that their rows do not exclude."""
    since = int((now - FRESH).timestamp() * 1e9)
    runs = Run.objects.filter(session=OuterRef("pk"))
    readable = Session.objects.shown().present().due().filter(fault="")
    found = readable.filter(WRITTEN_BY_OTHERS, mtime_ns__gte=since)
    idle = found.exclude(Exists(runs.active())).exclude(Exists(runs.unseen().filter(automatic=True)))
    return idle.for_display().latest_first()


def skipped_because(session: Session, now: datetime, home: Path) -> str:
    """The reason why a due session is not planned automatically, in words; empty if it is planned."""
    if not session.has_header:
        return "it has no session header, so it cannot be written to"
    if session.is_subagent:
        return "it is the session of a subagent, which only the session that started it continues"
    if session.read_only:
        return "nothing can be written for it"
    if session.version != session.agent.format.current_version:
        return f"it is a version {session.version} session, which cannot be written to"
    if session.read_as not in READERS:
        return "it was not yet opened as it is now"
    switched_off = session.agent_settings(home).switched_off_in
    if switched_off is not None:
        return f"{switched_off} disables automatic compaction"
    try:
        path = session.real_path()
    except BadInput as fault:
        return fault.message
    if not os.access(path, os.R_OK | os.W_OK):
        return "its file is not writable"
    return _dealt_with(session, now)


def _dealt_with(session: Session, now: datetime) -> str:
    runs = session.runs.order_by("-pk")
    latest, last = runs.first(), runs.filter(automatic=True).first()
    halted = _halted(last) if last is not None and last == latest else ""
    if halted:
        return f"{halted}; it resumes once you have planned it yourself"
    if any(run is not None and run.was_planned_at(session.leaf_id) for run in (latest, last)):
        return "its current state was already planned"
    if last is None:
        return ""
    written = session.mtime_ns
    if last.parameters is None and written is not None and written <= last.created_at.timestamp() * 1e9:
        return "planning it failed, and it has not changed since"
    if last.reviewed_at is not None and now - last.reviewed_at < REST:
        return "its proposal was looked at a moment ago"
    return _resting(runs, last, now)


def _halted(run: Run) -> str:
    """The person or hook that stopped automatic planning, in words; empty if none did, or if it was compacted since."""
    if run.session.compactions.filter(written_at__gt=run.created_at).exists():
        return ""
    if run.state == RunState.CANCELLED or (run.state in FAILED and run.stop_requested):
        return "automatic planning was stopped"
    # A hook that cancels ends an attempt; another attempt begins with another `prepared`.
    word = run.events.filter(kind__in=(EventKind.PREPARED, EventKind.HOOKED)).order_by("-seq").first()
    if run.state in FAILED and word is not None and word.data.get("cancelled"):
        return "a hook cancelled automatic planning"
    return ""


def _resting(runs: QuerySet[Run], last: Run, now: datetime) -> str:
    """The pause of automatic planning after failures, in words; a run started by hand ends the series of failures."""
    row = takewhile(lambda run: run.automatic and run.state in FAILED, runs[:FAILURES_COUNTED])
    failures = sum(1 for _ in row)
    if not failures:
        return ""
    rest = min(REST * 2 ** (failures - 1), LONGEST_REST)
    left = (last.ended_at or last.created_at) + rest - now
    if left <= timedelta():
        return ""
    times = "" if failures == 1 else f" {failures} times in a row"
    return f"planning it failed{times}; the next attempt is in {_roughly(left)}, if an agent continues it"


def _roughly(time: timedelta) -> str:
    minutes = math.ceil(time.total_seconds() / 60)
    if minutes == 1:
        return "a minute"
    return f"{minutes} minutes" if minutes <= 90 else f"{round(minutes / 60)} hours"


def _start(session: Session) -> Run | None:
    try:
        chosen = automatic_planner(session)
        run = start_run(
            session,
            planner=chosen.planner,
            requested_parameters={},
            reason=session.due,
            automatic=True,
            planner_note=chosen.note,
        )
    except RedlineError as fault:
        # Another process was faster, or the session has changed: the next check will find out.
        _log.warning("Session %d is due and was not planned (%s)", session.pk, fault.code)
        return None
    _log.info("Run %d was started automatically (%s)", run.pk, run.reason)
    return run


def automatic_planner(session: Session) -> ChosenPlanner:
    """The planner configured for automatic planning, if it may be used."""
    return configured_planner(session, chosen_planner())


def configured_planner(session: Session, configured: str) -> ChosenPlanner:
    """The configured planner, if it may be used without the user's choice; otherwise the embedded one."""
    if configured in PLANNERS:
        return ChosenPlanner(configured)
    try:
        model = model_of_session(session) if configured == OWN_MODEL else model_named(configured)
    except BadInput as fault:
        return ChosenPlanner(EMBEDDED, note=fault.message)
    if model is None:
        own = f"{session.provider}/{session.model}" if session.model else "which is not known"
        return ChosenPlanner(EMBEDDED, note=f"The session's own model, {own}, is not configured.")
    note = _kept_from(model)
    return ChosenPlanner(EMBEDDED, note=note) if note else ChosenPlanner(model.planner)


def note_on_planner() -> str:
    """Why the model configured for all sessions is not used automatically, in words; empty if it is."""
    configured = chosen_planner()
    if configured in PLANNERS or configured == OWN_MODEL:
        return ""
    try:
        return _kept_from(model_named(configured))
    except BadInput as fault:
        return fault.message


def _kept_from(model: ResolvedModel) -> str:
    """Why a model is not used automatically, in words."""
    if model.fault:
        return f"{model.planner} cannot be used. {model.fault}"
    if not model.agreed:
        return f"You have not allowed automatic planning with {model.planner}. The Models page has that setting."
    return ""
