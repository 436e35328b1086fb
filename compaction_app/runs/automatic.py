"""What Redline does by itself where a session is due: it plans, so that a proposal waits. It never writes.

A session is due for the reasons of its agent: `threshold`, its context is past what is kept free of the window, or
`overflow`, its model said that the context is too long. With `plan_by_itself` such a session is planned, unless

| it is left because                                | until                                                    |
|---------------------------------------------------|----------------------------------------------------------|
| it cannot be read or written, is old, or its      | that changes                                             |
| agent ignores what Redline writes                 |                                                          |
| its agent's settings say `enabled: false`         | they do not                                              |
| nobody but Redline has written to it since it was | an agent goes on                                         |
| last written to, or nobody at all for a day       |                                                          |
| a run of it is under way, or was made at its leaf | an agent goes on                                         |
| what was planned by itself waits to be looked at  | somebody looks                                           |
| what was planned by itself was looked at just now | REST has passed                                          |
| such a run was stopped, or cancelled by a hook    | somebody starts a run of it, or compacts it              |
| such runs failed, one after the other             | REST has passed, doubled for each, up to LONGEST_REST    |

At most AT_ONCE such runs are under way. A model plans only if the user agreed to that for its provider.
"""

from __future__ import annotations

import logging
import math
import os
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import takewhile
from pathlib import Path
from typing import Final

from django.conf import settings
from django.db.models import Exists, OuterRef, QuerySet

from compaction_app.core.states import EventKind, RunState
from compaction_app.models import Run
from compaction_app.planning.model_registry import ResolvedModel, level_for, model_named, model_of_session
from compaction_app.planning.planners import EMBEDDED
from compaction_app.planning.snapshots import session_path
from sessions_app.agents.registry import READERS, reading_by
from sessions_app.models import Session
from sessions_app.querysets import WRITTEN_BY_OTHERS
from sessions_app.sessionlog.errors import BadInput, RedlineError

from .commands import start_run

OWN_MODEL: Final = "session"
"""The value of `plan_by_itself_with` that means each session's own model."""
AT_ONCE: Final = 2
REST: Final = timedelta(minutes=10)
LONGEST_REST: Final = timedelta(days=1)
FRESH: Final = timedelta(days=1)
FAILED: Final = (RunState.FAILED, RunState.INTERRUPTED)
FAILURES_COUNTED: Final = 20
"""More do not lengthen a rest any further."""

_log = logging.getLogger("redline")


@dataclass(frozen=True, slots=True)
class ChosenPlanner:
    """The planner of a run that Redline starts; `note` says why it is another one than is set up."""

    planner: str
    thinking: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class StartedRuns:
    """What came of a look at the sessions that are due."""

    started: list[int]
    """The numbers of the runs that were started."""
    postponed: bool
    """Whether there was no place for one more."""


def plan_due(now: datetime, home: Path) -> StartedRuns:
    """Start planning what is due and not left, the sessions last written to first."""
    places = AT_ONCE - Run.objects.active().filter(automatic=True).count()
    started: list[int] = []
    for session in due_sessions(now):
        if left_because(session, now, home):
            continue
        if len(started) >= places:
            return StartedRuns(started, postponed=True)
        run = _start(session)
        if run is not None:
            started.append(run.pk)
    return StartedRuns(started, postponed=False)


def due_sessions(now: datetime) -> QuerySet[Session]:
    """The sessions that are due and that nothing in their rows speaks against planning."""
    since = int((now - FRESH).timestamp() * 1e9)
    runs = Run.objects.filter(session=OuterRef("pk"))
    readable = Session.objects.shown().due().filter(missing=False, fault="")
    found = readable.filter(WRITTEN_BY_OTHERS, mtime_ns__gte=since)
    idle = found.exclude(Exists(runs.active())).exclude(Exists(runs.unseen()))
    return idle.for_display().latest_first()


def left_because(session: Session, now: datetime, home: Path) -> str:
    """Why a session that is due is not planned by itself, in words; empty if it is."""
    if not session.has_header:
        return "it has no session header, so it cannot be written to"
    if session.version != session.agent.current_version:
        return f"it is a version {session.version} session, which cannot be written to"
    if session.read_as not in READERS:
        return "it was not read yet as it is to be read now"
    if not reading_by(session.read_as, "it was counted so").is_honoured:
        return f"it is read as {session.read_as}, and that agent ignores what Redline writes"
    switched_off = session.agent.settings(session.cwd, home).switched_off_in
    if switched_off is not None:
        return f"{switched_off} says that nothing is compacted by itself (enabled: false)"
    try:
        path = session_path(session)
    except BadInput as fault:
        return fault.message
    if not os.access(path, os.R_OK | os.W_OK):
        return "its file may not be written to"
    return _dealt_with(session, now)


def _dealt_with(session: Session, now: datetime) -> str:
    runs = session.runs.order_by("-pk")
    latest, last = runs.first(), runs.filter(automatic=True).first()
    halted = _halted(last) if last is not None and last == latest else ""
    if halted:
        return f"{halted}; that is done again once you have started a run of it yourself"
    if any(run is not None and run.was_planned_at(session.leaf_id) for run in (latest, last)):
        return "it was planned already as it is now"
    if last is None:
        return ""
    if last.parameters is None and session.last_used is not None and session.last_used <= last.created_at:
        return "planning it failed, and it is as it was then"
    if last.reviewed_at is not None and now - last.reviewed_at < REST:
        return "its proposal was just looked at"
    return _resting(runs, last, now)


def _halted(run: Run) -> str:
    """Who said no to a planning by itself, in words; empty if nobody did, or it was compacted since."""
    if run.session.compactions.filter(written_at__gt=run.created_at).exists():
        return ""
    if run.state == RunState.CANCELLED or (run.state in FAILED and run.stop_requested):
        return "planning it by itself was stopped"
    if run.state in FAILED and _cancelled_by_hook(run):
        return "a hook cancelled planning it by itself"
    return ""


def _cancelled_by_hook(run: Run) -> bool:
    # A hook that cancels has the last word of an attempt; another attempt begins with another `prepared`.
    word = run.events.filter(kind__in=(EventKind.PREPARED, EventKind.HOOKED)).order_by("-seq").first()
    return word is not None and bool(word.data.get("cancelled"))


def _resting(runs: QuerySet[Run], last: Run, now: datetime) -> str:
    """That the planning by itself rests after failures, in words; a run that somebody started ends the row of them."""
    row = takewhile(lambda run: run.automatic and run.state in FAILED, runs[:FAILURES_COUNTED])
    failures = sum(1 for _ in row)
    if not failures:
        return ""
    rest = min(REST * 2 ** (failures - 1), LONGEST_REST)
    left = (last.ended_at or last.created_at) + rest - now
    if left <= timedelta():
        return ""
    times = "" if failures == 1 else f" {failures} times in a row"
    return f"planning it failed{times}; that is tried again in {_roughly(left)}, where it goes on"


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
            thinking=chosen.thinking,
            requested_parameters={},
            reason=session.due,
            automatic=True,
        )
    except RedlineError as fault:
        # Somebody was faster, or the session is another one now: the next look knows.
        _log.warning("Session %d is due and was not planned (%s)", session.pk, fault.code)
        return None
    if chosen.note:
        Run.objects.filter(pk=run.pk).update(planner_note=chosen.note)
    _log.info("Run %d was started by itself (%s)", run.pk, run.reason)
    return run


def automatic_planner(session: Session) -> ChosenPlanner:
    """The planner that is set up for what Redline plans by itself, if it may plan; else the embedded one.

    Raises what reading the session raises, if the level at which its own model thinks is to be found out.
    """
    asked = settings.REDLINE.plan_by_itself_with
    if asked == EMBEDDED:
        return ChosenPlanner(EMBEDDED)
    try:
        model = model_of_session(session) if asked == OWN_MODEL else model_named(asked)
    except BadInput as fault:
        return ChosenPlanner(EMBEDDED, note=fault.message)
    if model is None:
        own = f"{session.provider}/{session.model}" if session.model else "which is not known"
        return ChosenPlanner(EMBEDDED, note=f"The session's own model, {own}, is not configured.")
    note = _kept_from(model)
    return (
        ChosenPlanner(EMBEDDED, note=note)
        if note
        else ChosenPlanner(model.planner, level_for(session, model))
    )


def note_on_planner() -> str:
    """Why the model that is set up for all sessions does not plan by itself, in words; empty if nothing does."""
    asked = settings.REDLINE.plan_by_itself_with
    if asked in (EMBEDDED, OWN_MODEL):
        return ""
    try:
        return _kept_from(model_named(asked))
    except BadInput as fault:
        return fault.message


def _kept_from(model: ResolvedModel) -> str:
    """Why a model does not plan by itself, in words."""
    if model.fault:
        return f"{model.planner} cannot be asked. {model.fault}"
    if not model.agreed:
        return (
            f"You have not agreed that {model.planner} plans without being asked. The Models page asks you."
        )
    return ""
