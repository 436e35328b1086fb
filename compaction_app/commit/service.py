"""The commit: under the lock, on the current file, what was approved and nothing else.

    lock → what was added since → is the leaf still on the same branch? → the airlock again → is the plan exactly the
    approved one? → backup → the writer's change → proof → announced → made by one step → recorded → hooks called,
    without the lock

A change appends lines by one write, or gives a complete new session its name.

If a process is killed between the announcement and the record, the next lock does both (`change_records`).

Each confirmation covers one case; without it the commit is refused and names the missing one. Every
refusal leaves the session as it was.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Final

import msgspec
from django.db import DatabaseError

from compaction_app.change_notes import BackupNote, CommitNote, text_of
from compaction_app.change_records import record_backup, record_commit
from compaction_app.changes.plan import Confirmations
from compaction_app.core.airlock import ValidatedDeletion
from compaction_app.core.effects import removed_estimate
from compaction_app.core.gates import Restraints
from compaction_app.core.loop import Origin
from compaction_app.core.states import REVIEWABLE
from compaction_app.models import Run
from compaction_app.planning.hook_runner import after_compact
from compaction_app.planning.snapshots import session_as_prepared, snapshot_of
from compaction_app.runs.reviews import approved_of, pins_of
from sessions_app.index.indexer import index_file
from sessions_app.index.session_locks import lock_session
from sessions_app.models import Session
from sessions_app.sessionlog.certificate import Certificate
from sessions_app.sessionlog.context import Tally
from sessions_app.sessionlog.entries import NO_TEXTS
from sessions_app.sessionlog.errors import BadInput, Conflict, RedlineError, SystemFailure
from sessions_app.sessionlog.targets import Target
from sessions_app.sqlite import failure_of
from sessions_app.storage.backups import Backup as BackupFile
from sessions_app.storage.backups import back_up, delete_backup, digest_up_to
from sessions_app.storage.locks import LockedSession
from sessions_app.storage.rows import back_up_rows
from sessions_app.storage.token_sample import tally_of

from .change import MadeChange, file_fingerprint, make_change
from .preflight import Approved, Preflight, check_plan, require_writable
from .row_change import make_row_change, plan_rows

logger = logging.getLogger("redline")

BYTES_ARE_LEFT: Final = "append_left"
"""The failure after which a part of the line is in the session: its backup is kept."""
CHANGE_IS_MADE: Final = frozenset({"append_not_tidied", "line_stays"})
"""The failures after which the change is made, and recorded."""
NOT_RECORDED: Final = "not_recorded"
"""The failure after which the change is made, and is recorded with the session's next lock."""


@dataclass(frozen=True, slots=True)
class Committed:
    """What was written, and where."""

    entry_id: str
    parent_id: str
    validated: ValidatedDeletion
    backup: BackupFile
    session: Session
    writer: str
    lines: tuple[bytes, ...] = ()
    """What was appended, without the newlines."""
    created: Path | None = None
    """The new session, if one was made."""
    certificate: Certificate | None = None
    late_failure: SystemFailure | None = None
    """An error after the write, which is raised once the hooks were called."""


def approval(run: Run) -> Approved:
    """The approved plan of a run, in the form that `commit` takes.

    Raises Conflict `wrong_state` and `session_rewritten`, BadInput `nothing_approved`.
    """
    run.require_state(REVIEWABLE, "Nothing was written.")
    validated, pins, origins = approved_of(run)
    if validated is None or not validated.targets:
        raise BadInput(
            "nothing_approved",
            f"Nothing is approved in run {run.pk}, so there is nothing to write. Approve some deletions first.",
        )
    prepared = snapshot_of(run).prepared
    return Approved(
        document=session_as_prepared(run.session, prepared),
        leaf_id=prepared.leaf_id,
        parameters=prepared.parameters,
        targets=validated.targets,
        planner=run.planner,
        origins=_origins(validated.targets, origins),
        reader=prepared.reader,
        writer=prepared.writer,
        restraints=Restraints(pins=frozenset(pins), thinking_guard=run.thinking_guard),
        reason=run.reason,
        run=run,
        notes=run.notes,
        is_awaited=run.handshakes.open().exists(),
        # What is written once the agent has closed the session is no longer awaited.
        is_less_by_decision=run.handshakes.unfinished().exists() and bool(pins_of(run)[0]),
    )


def _origins(targets: Iterable[Target], known: dict[Target, Origin]) -> dict[Target, Origin]:
    by_pair = Origin(0, "", "", by_repair=True)
    return {target: known.get(target, by_pair) for target in targets}


def commit(approved: Approved, confirmations: Confirmations, now: datetime) -> Committed:
    """Record the approved deletion by its writer.

    Raises BadInput, Conflict, ConfirmationNeeded, TargetNotMet and SystemFailure; then the session is as it
    was, unless the message says otherwise.
    """
    path = approved.document.path
    require_writable(approved.document)
    with lock_session(path) as locked, _block_decisions_on_plan(approved, now):
        written = _commit(locked, approved, check_plan(approved, approved.document.now(), now), confirmations, now)
    return _finish(approved, written)


def commit_run(
    run: Run,
    confirmations: Confirmations,
    shown: str | None,
    now: datetime,
    writer: str = "",
    rule: str = "",
    handshake: int | None = None,
) -> Committed:
    """Record the approved plan of a run by a writer, if it is the one that was shown: `shown` is the digest of that
    preflight; None if what is approved cannot have changed since. `rule` names what approved it in a human's place;
    `handshake` is the approved one that is carried out.

    Until it ends, no decisions on the run are accepted. Raises what `commit` raises, Conflict `plan_differs`, what
    `block_decisions` raises, and what `approval` raises.
    """
    path = run.session.real_path()
    with (
        lock_session(path) as locked,
        block_decisions(run, now, handshake),
    ):
        approved = replace(approval(run), rule=rule)
        preflight = check_plan(approved, approved.document.now(), now, writer)
        require_shown(run, preflight, shown)
        written = _commit(locked, approved, preflight, confirmations, now)
    return _finish(approved, written)


def require_shown(run: Run, preflight: Preflight, shown: str | None) -> None:
    """Raise Conflict `plan_differs` if a preflight is not the one with the digest that was shown."""
    if shown is not None and preflight.digest() != shown:
        raise Conflict(
            "plan_differs",
            f"The plan of run {run.pk} is no longer the one on this page. Nothing was written. Review it again.",
        )


def preflight_of(approved: Approved, now: datetime, writer: str = "") -> Preflight:
    """What a commit would do at this moment. Raises what `commit_run` raises before it writes."""
    return check_plan(approved, approved.document.now(), now, writer)


@contextmanager
def _block_decisions_on_plan(approved: Approved, now: datetime) -> Iterator[None]:
    """Block decisions on the run of a plan, if it has one. Raises Conflict `plan_differs`."""
    if approved.run is None:
        yield
        return
    with block_decisions(approved.run, now):
        validated, _, _ = approved_of(approved.run)
        if validated is None or validated.targets != approved.targets:
            raise Conflict(
                "plan_differs",
                f"The approved plan of run {approved.run.pk} has changed: decisions were made in the "
                "browser. Nothing was written.",
            )
        yield


@contextmanager
def block_decisions(run: Run, now: datetime, handshake: int | None = None) -> Iterator[None]:
    """Block decisions on a run meanwhile, and for as long as an approved plan of it waits for an agent. The session's
    lock is held, so no other commit is under way.

    Raises Conflict `wrong_state`, and `approved_already` if its plan was approved for another handshake than this one,
    or this one is not approved any more: it is applied once, and by one of the two.
    """
    approved = set(run.handshakes.approved().values_list("pk", flat=True))
    if approved != {handshake} - {None}:
        raise Conflict(
            "approved_already",
            f"The plan of run {run.pk} was approved for an agent, which applies it, or the approval was taken back. "
            "Nothing was written.",
        )
    mine = Run.objects.reviewable().filter(pk=run.pk)
    if not mine.update(committing_since=now):
        run.refresh_from_db(fields=["state"])
        raise run.wrong_state("Nothing was written.")
    try:
        run.refresh_from_db()
        yield
    finally:
        with _tolerate_database_error(f"The end of the commit of run {run.pk}"):
            Run.objects.being_committed().filter(pk=run.pk).update(committing_since=None)


@contextmanager
def _tolerate_database_error(what: str) -> Iterator[None]:
    """A row that the next lock on the session can write too: a failure here must not hide the outcome of the line."""
    try:
        yield
    except DatabaseError as fault:
        logger.warning("%s was not recorded: %s", what, failure_of(fault).code)


def _finish(approved: Approved, written: Committed) -> Committed:
    """Update the index, and call the hooks. Raises the error that occurred after the write, if any."""
    path = approved.document.path
    with suppress(RedlineError, DatabaseError):  # it is written: the index can follow later
        index_file(written.created or path)
    after_compact(
        path,
        written.session,
        written.lines,
        written.validated,
        approved.reason,
        approved.origins,
        written.backup.path,
        written.created,
    )
    if written.late_failure is not None:
        raise written.late_failure
    return written


def _commit(
    locked: LockedSession,
    approved: Approved,
    preflight: Preflight,
    confirmations: Confirmations,
    now: datetime,
) -> Committed:
    preflight.require_confirmed(confirmations)
    content = hashlib.sha256()
    rows = plan_rows(preflight, now)
    if rows is not None:
        copy = back_up_rows(locked, rows.steps, now)
    else:
        copy = back_up(locked, file_fingerprint(preflight.present), now, content)
    note = notes_of(approved, preflight, copy, now)

    made: MadeChange | None = None

    def record(done: MadeChange) -> None:
        nonlocal made
        made = done
        _record(locked.path, note(done), done, content)

    late_failure: SystemFailure | None = None

    def describe(planned: MadeChange) -> str:
        return text_of(note(planned))

    try:
        if rows is not None:
            made = make_row_change(locked, preflight, rows, copy.path, now, note=describe, record=record)
        else:
            made = make_change(
                locked,
                preflight,
                copy.path,
                now,
                after_torn_line=confirmations.after_torn_line,
                note=describe,
                record=record,
            )
    except RedlineError as failure:
        if not isinstance(failure, SystemFailure) or failure.code not in CHANGE_IS_MADE or made is None:
            drop_or_keep(copy, locked, failure)
            raise
        late_failure = failure
    return Committed(
        made.entry_id,
        preflight.parent_id,
        preflight.validated,
        copy,
        preflight.present.row,
        preflight.writer.name,
        made.lines,
        made.created,
        made.certificate,
        late_failure,
    )


def notes_of(
    approved: Approved, preflight: Preflight, backup: BackupFile, now: datetime
) -> Callable[[MadeChange], CommitNote]:
    """Gives the note of the change that records what was approved, and has the run show from now on what that is."""
    _remember_struck(approved)
    tally = _tally(preflight, preflight.present.row)

    def note(made: MadeChange) -> CommitNote:
        return _note(approved, preflight, tally, backup, made, now)

    return note


def _remember_struck(approved: Approved) -> None:
    """Have the run show from now on what was approved of its plan."""
    if approved.run is not None:
        struck = removed_estimate(snapshot_of(approved.run).transcript, approved.targets)
        Run.objects.filter(pk=approved.run.pk).update(struck_estimate=struck)


def _record(path: Path, note: CommitNote, made: MadeChange, content: hashlib._Hash) -> None:
    """Record what was written; `content` is the hash of what the backup contains."""
    sha256 = made.sha256  # not known, if others have rewritten the session since
    if made.created is None:
        with suppress(RedlineError):
            sha256 = digest_up_to(path, made.size, note.backup.size, content)
    try:
        record_commit(path, note, made.size, sha256)
    except DatabaseError as fault:
        raise SystemFailure(
            NOT_RECORDED,
            f"The compaction {note.entry_id} of {path} was written, and {note.backup.path} is its backup, but "
            f"Redline's own database failed: {fault}. Nothing is lost: it is recorded when the session is next locked.",
        ) from fault


def drop_or_keep(copy: BackupFile, locked: LockedSession, failure: RedlineError) -> None:
    """Delete the backup if the session is unchanged; after any other failure it has the previous content."""
    if failure.code == BYTES_ARE_LEFT:
        with _tolerate_database_error(f"The backup {copy.path}"):
            record_backup(locked.path, BackupNote.of(copy))
    elif not locked.is_announced:  # else the next lock decides, by what is in the file
        delete_backup(copy.path)


def _tally(preflight: Preflight, session: Session) -> Tally:
    """The totals of the context that a commit changes."""
    present, rebuild = preflight.present, preflight.present.reading.reader.rebuild
    branch = present.tree.branch(preflight.parent_id)
    return tally_of(
        rebuild(branch),
        branch,
        rebuild,
        session.inherited_measure,
        lambda entry: present.texts([entry]).get(entry.id, NO_TEXTS),
    )


def _note(
    approved: Approved,
    preflight: Preflight,
    tally: Tally,
    backup: BackupFile,
    made: MadeChange,
    now: datetime,
) -> CommitNote:
    return CommitNote(
        backup=BackupNote.of(backup),
        run=approved.run.pk if approved.run is not None else None,
        entry_id=made.entry_id,
        leaf_id=preflight.parent_id,
        writer=preflight.writer.name,
        created=str(made.created) if made.created is not None else "",
        server=preflight.server.address if preflight.server is not None else "",
        certificate=made.certificate.to_json() if made.certificate is not None else None,
        planner=approved.planner,
        reason=approved.reason,
        written_at=now,
        parameters=msgspec.to_builtins(approved.parameters),
        stats=preflight.validated.stats.to_json(),
        origins=[
            {**target.to_json(), "call": origin.call, "tool": origin.tool, "reason": origin.reason}
            for target, origin in approved.origins.items()
        ],
        context=msgspec.to_builtins(tally.size),
        measure=tally.measure,
        rule=approved.rule,
    )
