"""The commit: under the lock, on the file as it is now, what was approved and nothing else.

    lock → what was added since → the leaf still the same branch? → the airlock again → the plan still exactly
    the approved one? → backup → one line appended by one write → recorded → hooks told, without the lock

Each explicit yes covers one case; without it the commit is refused and says which one is missing. Every
refusal leaves the session as it was.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
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
from sessions_app.services.indexing import index_file
from sessions_app.services.rows import remember_own_write, session_row
from sessions_app.sessionlog.errors import BadInput, Conflict, RedlineError, SystemFailure
from sessions_app.sessionlog.jsjson import parse, stringify

from ..deletion.airlock import ValidatedDeletion
from ..deletion.gates import Restraints
from ..deletion.loop import Origin
from ..deletion.states import REVIEWABLE, State
from ..deletion.targets import Target
from ..models import Backup, Compaction, Run
from .hooking import after_compact
from .judging import Approved, Finding, Yeses, demand_given, demand_version, find
from .reviewing import approved_of
from .runs import change, demand, wrong_state
from .snapshots import session_as_prepared, session_path, snapshot_of

PROMPT_VERSION: Final = 1
BYTES_ARE_LEFT: Final = "append_left"
"""The failure after which bytes of ours are in the session: then its backup stays."""
LINE_IS_WRITTEN: Final = "append_not_tidied"
"""The failure after which the line is in the session: then it is recorded as written."""


@dataclass(frozen=True, slots=True)
class Committed:
    """What was written, and where."""

    entry_id: str
    parent_id: str
    validated: ValidatedDeletion
    backup: BackupFile
    session: Session
    line: bytes
    """What was appended, without its newline."""
    untidy: SystemFailure | None = None
    """What went wrong after it was written, and is raised once everybody is told of it."""


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
    path = approved.loaded.path
    demand_version(approved.loaded)
    with session_lock(settings.REDLINE_DATA_DIR, path, settings.REDLINE.lock_seconds) as locked:
        written = _commit(
            locked, approved, find(approved, continue_loading(approved.loaded), now), yeses, now
        )
    return _tell(approved, written)


def commit_run(run: Run, yeses: Yeses, shown: str, now: datetime) -> Committed:
    """Append what is approved in a run, where it is what was shown: `shown` is the digest of that finding.

    From here to the end nobody else can decide on the run. Raises what `commit` raises, Conflict `plan_differs`
    and `being_committed`, and what `approval` raises.
    """
    path = session_path(run.session)
    with (
        session_lock(settings.REDLINE_DATA_DIR, path, settings.REDLINE.lock_seconds) as locked,
        _committing(run, now),
    ):
        approved = approval(run)
        finding = find(approved, continue_loading(approved.loaded), now)
        if finding.digest() != shown:
            raise Conflict(
                "plan_differs",
                f"What would be written for run {run.pk} is no longer what this page showed. Nothing was written. "
                "Look at it again.",
            )
        written = _commit(locked, approved, finding, yeses, now)
    return _tell(approved, written)


def look_at(run: Run, now: datetime) -> tuple[Approved, Finding]:
    """What a commit of a run would do as things stand. Raises what `commit_run` raises for it."""
    approved = approval(run)
    return approved, find(approved, continue_loading(approved.loaded), now)


@contextmanager
def _committing(run: Run, now: datetime) -> Iterator[None]:
    """Keep everybody from deciding on a run meanwhile. The session's lock is held, so no other commit is on."""
    mine = Run.objects.filter(pk=run.pk, state__in=REVIEWABLE)
    if not mine.update(committing_since=now):
        run.refresh_from_db(fields=["state"])
        raise wrong_state(run, "Nothing was written.")
    try:
        run.refresh_from_db()
        yield
    finally:
        Run.objects.filter(pk=run.pk).update(committing_since=None)


def _commit(
    locked: LockedSession, approved: Approved, finding: Finding, yeses: Yeses, now: datetime
) -> Committed:
    demand_given(finding, yeses)
    return _write(locked, approved, finding.present, finding.parent_id, finding.validated, now)


def _tell(approved: Approved, written: Committed) -> Committed:
    """Let the index follow, and tell the hooks. Raises what went wrong after the line was written."""
    path = approved.loaded.path
    with suppress(RedlineError, DatabaseError):  # it is written: the index can follow later
        index_file(path)
    after_compact(
        path,
        written.session,
        written.line,
        written.validated,
        approved.reason,
        approved.origins,
        written.backup.path,
    )
    if written.untidy is not None:
        raise written.untidy
    return written


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
    return Committed(entry_id, parent_id, validated, copy, session, line, untidy)


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
        change(approved.run.pk, State.COMMITTED, committing_since=None)
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
