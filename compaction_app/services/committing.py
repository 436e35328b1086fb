"""The commit: under the lock, on the file as it is now, what was approved and nothing else.

    lock → what was added since → the leaf still the same branch? → the airlock again → the plan still exactly
    the approved one? → backup → one line appended by one write → recorded

Each explicit yes covers one case; without it the commit is refused and says which one is missing. Every
refusal leaves the session as it was.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import msgspec
from django.conf import settings
from django.db import DatabaseError, transaction

from sessions_app.appending import LockedSession, append_line, session_lock
from sessions_app.backups import Backup as BackupFile
from sessions_app.backups import back_up, delete_backup
from sessions_app.loading import LoadedSession, continue_loading
from sessions_app.models import Session
from sessions_app.services.indexing import index_file, remember_own_write, session_row
from sessions_app.services.reading import reading_of
from sessions_app.sessionlog.errors import (
    BadInput,
    ConfirmationNeeded,
    Conflict,
    RedlineError,
    SystemFailure,
    TargetNotMet,
)
from sessions_app.sessionlog.jsjson import parse, stringify
from sessions_app.sessionlog.session import CURRENT_VERSION

from ..deletion.airlock import ValidatedDeletion, validate
from ..deletion.errors import Refusal
from ..deletion.gates import NO_RESTRAINTS, Restraints
from ..deletion.loop import Origin
from ..deletion.parameters import Parameters
from ..deletion.states import REVIEWABLE, State
from ..deletion.targets import Target, request_of
from ..deletion.transcript import prepare
from ..models import Backup, Compaction, Run
from .reviewing import approved_of
from .runs import change, demand
from .snapshots import session_as_prepared, snapshot_of

PROMPT_VERSION: Final = 1
BYTES_ARE_LEFT: Final = "append_left"
"""The failure after which bytes of ours are in the session: then its backup stays."""
LINE_IS_WRITTEN: Final = "append_not_tidied"
"""The failure after which the line is in the session: then it is recorded as written."""


@dataclass(frozen=True, slots=True)
class Yeses:
    """The explicit yeses, each for its own case."""

    live: bool = False
    """The session was written to in the last minutes: an agent may have it open."""
    switch_branch: bool = False
    """The reviewed branch is not the active one, and the commit makes it so."""
    not_honoured: bool = False
    """The agent that reads this session ignores a context_compaction."""
    below_target: bool = False
    """The plan deletes less than was asked for."""


@dataclass(frozen=True, slots=True)
class Approved:
    """What was reviewed: the session as it was judged, the branch, the parameters, and exactly these targets."""

    loaded: LoadedSession
    leaf_id: str
    parameters: Parameters
    targets: Sequence[Target]
    planner: str
    origins: Mapping[Target, Origin]
    restraints: Restraints = NO_RESTRAINTS
    reason: str = "manual"
    run: Run | None = None
    """The run it was reviewed in; it is committed with the line, or not at all."""


@dataclass(frozen=True, slots=True)
class Committed:
    """What was written, and where."""

    entry_id: str
    parent_id: str
    validated: ValidatedDeletion
    backup: BackupFile


def approval(run: Run) -> Approved:
    """What was approved in a run, as `commit` takes it.

    Raises Conflict `wrong_state` and `session_rewritten`, BadInput `nothing_approved`.
    """
    demand(run, REVIEWABLE, "Nothing was written.")
    validated, pins, origins = approved_of(run)
    if validated is None or not validated.targets:
        raise BadInput(
            "nothing_approved",
            f"Nothing is approved in run {run.pk}, so there is nothing to write. Approve what may go first.",
        )
    prepared = snapshot_of(run).prepared
    return Approved(
        loaded=session_as_prepared(run.session, prepared),
        leaf_id=prepared.leaf_id,
        parameters=prepared.parameters,
        targets=validated.targets,
        planner=run.planner,
        origins=_origins(validated.targets, origins),
        restraints=Restraints(pins=frozenset(pins), thinking_guard=run.thinking_guard),
        reason=run.reason,
        run=run,
    )


def _origins(targets: Iterable[Target], known: dict[Target, Origin]) -> dict[Target, Origin]:
    by_pair = Origin(0, "", "", by_repair=True)
    return {target: known.get(target, by_pair) for target in targets}


def commit(approved: Approved, yeses: Yeses, now: datetime) -> Committed:
    """Append one `context_compaction` for what was approved.

    Raises BadInput, Conflict, ConfirmationNeeded, TargetNotMet and SystemFailure; then the session is as it
    was, unless the message says otherwise.
    """
    _demand_version(approved.loaded)
    path = approved.loaded.path
    with session_lock(settings.REDLINE_DATA_DIR, path, settings.REDLINE.lock_seconds) as locked:
        if approved.run is not None:
            approved.run.refresh_from_db(fields=["state"])
            demand(approved.run, REVIEWABLE, "Nothing was written.")
        present = continue_loading(approved.loaded)
        _demand_quiet(present, yeses, now)
        parent_id = _parent_of(approved, present, yeses)
        _demand_reader(present, yeses)
        validated = _validate_again(approved, present, parent_id)
        _demand_target(approved, validated, yeses)
        written = _write(locked, approved, present, parent_id, validated, now)
    with suppress(RedlineError, DatabaseError):  # it is written: the index can follow later
        index_file(path)
    return written


def demand_yeses(approved: Approved, yeses: Yeses, now: datetime) -> None:
    """Raise what `commit` would raise for want of an explicit yes, before anyone is asked for the last one."""
    _demand_version(approved.loaded)
    _demand_quiet(approved.loaded, yeses, now)
    _parent_of(approved, approved.loaded, yeses)
    _demand_reader(approved.loaded, yeses)


def _demand_version(loaded: LoadedSession) -> None:
    version = loaded.log.version
    if version < CURRENT_VERSION:
        raise BadInput(
            "needs_migration",
            f"{loaded.path} is a version {version} session. Nothing was written. "
            "`redline migrate-session` writes a version 3 copy beside it, which can be compacted.",
        )
    if version > CURRENT_VERSION:
        raise BadInput(
            "unknown_version",
            f"{loaded.path} is a version {version} session, which Redline does not know. Nothing was written.",
        )


def is_live(loaded: LoadedSession, now: datetime) -> bool:
    """Whether someone else wrote to the session in the last minutes."""
    written = datetime.fromtimestamp(loaded.state.mtime_ns / 1e9, UTC)
    if now - written >= timedelta(minutes=settings.REDLINE.live_minutes):
        return False
    return session_row(loaded.path).own_write_ns != loaded.state.mtime_ns


def _demand_quiet(present: LoadedSession, yeses: Yeses, now: datetime) -> None:
    if not yeses.live and is_live(present, now):
        raise ConfirmationNeeded(
            "session_live",
            f"{present.path} was written to in the last {settings.REDLINE.live_minutes:g} minutes: an agent may have "
            "it open, and would go on from its own copy, past this compaction. Nothing was written. Close the "
            "session in the agent, or reload it afterwards, and say --live.",
            "--live",
        )


def _parent_of(approved: Approved, present: LoadedSession, yeses: Yeses) -> str:
    """The entry to append to: the reviewed leaf, or what the same branch has grown to since."""
    if approved.leaf_id == approved.loaded.leaf_id:
        if not present.tree.descends(present.leaf_id, approved.leaf_id):
            raise Conflict(
                "other_branch",
                f"{present.path} went on in another branch: its last entry {present.leaf_id} does not follow "
                f"{approved.leaf_id}, which was reviewed. Nothing was written. Plan again.",
            )
        return present.leaf_id
    if not yeses.switch_branch:
        raise ConfirmationNeeded(
            "switches_branch",
            f"{approved.leaf_id} is not the end of the active branch of {present.path}, which is {present.leaf_id}. "
            "Compacting there makes it the active one. Nothing was written. If that is meant, say --switch-branch.",
            "--switch-branch",
        )
    return approved.leaf_id


def _demand_reader(present: LoadedSession, yeses: Yeses) -> None:
    reading = reading_of(present.path, present.log.entries, session_row(present.path).reader_choice)
    if not reading.reader.honours_context_compaction and not yeses.not_honoured:
        raise ConfirmationNeeded(
            "not_honoured",
            f"{present.path} is read as {reading.reader.name}, because {reading.reason}. That agent ignores a "
            "context_compaction. Nothing was written. If it is wanted all the same, say --not-honoured.",
            "--not-honoured",
        )


def _judge(approved: Approved, session: LoadedSession, leaf_id: str) -> ValidatedDeletion | Refusal | None:
    """The airlock's judgement on what was approved; None where too little is left to compact."""
    # The query is given, so no text is needed to judge the plan.
    transcript = prepare(session.tree.branch(leaf_id), {}, msgspec.to_builtins(approved.parameters))
    if transcript is None:
        return None
    return validate(request_of(approved.targets), transcript, approved.restraints)


def _demand_target(approved: Approved, validated: ValidatedDeletion, yeses: Yeses) -> None:
    if yeses.below_target or validated.target_met:
        return
    reviewed = _judge(approved, approved.loaded, approved.leaf_id)
    if isinstance(reviewed, ValidatedDeletion) and reviewed.target_met:
        return  # it was met when it was approved; the session has only grown since
    raise target_not_met(validated)


def target_not_met(validated: ValidatedDeletion) -> TargetNotMet:
    return TargetNotMet(
        "target_not_met",
        f"The plan deletes {validated.stats.percent_reduction}% of the tokens, less than was asked for. "
        "Nothing was written. To write it all the same, say --allow-below-target.",
    )


def _validate_again(approved: Approved, present: LoadedSession, leaf_id: str) -> ValidatedDeletion:
    judged = _judge(approved, present, leaf_id)
    if not isinstance(judged, ValidatedDeletion):
        reason = "Too little is left to compact."
        if isinstance(judged, Refusal):
            reason = f"{judged.target or 'The whole'} is refused now ({judged.code})."
        raise Conflict(
            "plan_refused",
            f"{present.path} has changed so that the approved plan does not hold any more. {reason} Nothing was "
            "written. Plan again.",
        )
    if set(judged.targets) != set(approved.targets):
        more = [str(target) for target in judged.targets if target not in set(approved.targets)]
        raise Conflict(
            "plan_changed",
            f"{present.path} has changed: with what was approved, {', '.join(more[:5])} would have to go as well. "
            "Nothing was written. Plan again.",
        )
    return judged


def _write(
    locked: LockedSession,
    approved: Approved,
    present: LoadedSession,
    parent_id: str,
    validated: ValidatedDeletion,
    now: datetime,
) -> Committed:
    session = session_row(locked.path)
    copy = back_up(locked, present.fingerprint, now)
    entry_id = _new_id(present)
    untidy: SystemFailure | None = None
    end = 0
    try:
        backup = Backup.objects.create(
            session=session,
            path=str(copy.path),
            sha256=copy.recorded_sha256 or "",
            size=copy.size,
            taken_at=copy.taken_at,
            reason=Backup.COMPACT,
        )
        line = compaction_line(entry_id, parent_id, validated, copy.path, now)
        appended = append_line(locked, line, present.state, _is_complete)
        end = appended.offset + appended.length + 1
    except (RedlineError, DatabaseError) as failure:
        if isinstance(failure, SystemFailure) and failure.code == LINE_IS_WRITTEN:
            untidy = failure
        else:
            if not isinstance(failure, SystemFailure) or failure.code != BYTES_ARE_LEFT:
                delete_backup(copy.path)
                Backup.objects.filter(path=str(copy.path)).delete()
            raise
    try:
        with transaction.atomic():
            _record(approved, session, backup, entry_id, parent_id, validated, now)
        remember_own_write(locked.path, end)
    except DatabaseError as fault:
        raise SystemFailure(
            "not_recorded",
            f"The compaction {entry_id} was appended to {locked.path}, and {copy.path} is its backup, but "
            f"Redline's own database failed: {fault}. Nothing is lost: the backup can be restored by its path.",
        ) from fault
    if untidy is not None:
        raise untidy
    return Committed(entry_id, parent_id, validated, copy)


def _record(
    approved: Approved,
    session: Session,
    backup: Backup,
    entry_id: str,
    parent_id: str,
    validated: ValidatedDeletion,
    now: datetime,
) -> None:
    if approved.run is not None:
        change(approved.run.pk, State.COMMITTED)
    Compaction.objects.create(
        session=session,
        backup=backup,
        run=approved.run,
        entry_id=entry_id,
        leaf_id=parent_id,
        planner=approved.planner,
        reason=approved.reason,
        written_at=now,
        parameters=msgspec.to_builtins(approved.parameters),
        stats=validated.stats.to_json(),
        origins=[
            {**target.to_json(), "call": origin.call, "tool": origin.tool, "reason": origin.reason}
            for target, origin in approved.origins.items()
        ],
    )


def compaction_line(
    entry_id: str, parent_id: str, validated: ValidatedDeletion, backup: Path, now: datetime
) -> bytes:
    """The line that is appended, without its newline."""
    entry: dict[str, Any] = {
        "type": "context_compaction",
        "id": entry_id,
        "parentId": parent_id,
        "timestamp": now.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "promptVersion": PROMPT_VERSION,
        "deletedTargets": [target.to_json() for target in validated.targets],
        "protectedEntryIds": list(validated.protected_entry_ids),
        "stats": validated.stats.to_json(),
        "backupPath": str(backup),
    }
    return stringify(entry).encode("utf-8")


def _new_id(present: LoadedSession) -> str:
    """Eight hex digits that no entry of the session has."""
    while (entry_id := secrets.token_hex(4)) in present.tree:
        pass
    return entry_id


def _is_complete(line: bytes) -> bool:
    try:
        return isinstance(parse(line), dict)
    except ValueError:
        return False
