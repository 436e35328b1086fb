"""An undo: under the lock, on the current session, what was shown and nothing else.

    lock → what was added since → the plan again → backup → the lines, or the new session → proof → announced → made by
    one step → recorded

A new session that a compaction made is deleted instead, if its bytes are still the ones that Redline wrote. If a
process is killed between the announcement and the record, the next lock does both (`change_records`). Every refusal
leaves all files as they were.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import msgspec
from django.db import DatabaseError

from compaction_app.audit.service import FileContent
from compaction_app.change_notes import BackupNote, UndoNote, text_of
from compaction_app.change_records import record_undo
from compaction_app.changes.plan import Confirmations
from compaction_app.commit.change import (
    MadeChange,
    append_change,
    create_change,
    lines_of,
    not_in_database,
    write_facts,
)
from compaction_app.commit.proof import ReadLine, Rebuilt, certificate_of, context_with, require_approved
from compaction_app.commit.service import CHANGE_IS_MADE, NOT_RECORDED, drop_or_keep
from compaction_app.core.airlock import ValidatedDeletion, validate
from compaction_app.core.transcript import prepare
from compaction_app.core.undo_ways import UndoWay
from compaction_app.models import Compaction
from sessions_app.agents.changes import Append, Change, RowChanges, WriteFacts
from sessions_app.document.document import Document
from sessions_app.index.indexer import index_file
from sessions_app.index.session_locks import lock_session
from sessions_app.sessionlog.certificate import Certificate
from sessions_app.sessionlog.deletion import Deletion, Stats
from sessions_app.sessionlog.errors import Conflict, RedlineError, SystemFailure
from sessions_app.sessionlog.targets import blocks_by_entry, request_of
from sessions_app.storage.backups import back_up, digest_up_to
from sessions_app.storage.locks import LockedSession
from sessions_app.storage.new_session import remove_session
from sessions_app.storage.rows import back_up_rows, way_of
from sessions_app.storage.session_loader import LoadedSession

from .compaction_state import compaction_state, latest_state, state_named
from .plan import NOT_UNDONE, UndoPlan, made_by, plan_undo
from .row_undo import put_back, steps_back


@dataclass(frozen=True, slots=True)
class UndoRequest:
    """What is to be undone: a compaction, or some of the entries that it deleted."""

    document: Document
    compaction: Compaction | None = None
    """None: the one called `name`."""
    name: str = ""
    """Empty: the latest one."""
    entry_ids: Collection[str] = ()
    """Empty: all of it."""


@dataclass(frozen=True, slots=True)
class Undone:
    """What was done."""

    plan: UndoPlan
    entry_id: str
    """The new leaf, or the id of the new session; empty if one was deleted."""
    lines: tuple[bytes, ...] = ()
    created: Path | None = None
    backup: Path | None = None


def undo_of_run(compaction: Compaction, entry_ids: Collection[str] = ()) -> UndoRequest:
    """The request to undo a recorded compaction. Raises what `load_session` raises."""
    return UndoRequest(Document.of_session(compaction.session), compaction, entry_ids=entry_ids)


def planned(request: UndoRequest, now: datetime) -> UndoPlan:
    """What an undo would do at this moment; see `plan_undo`."""
    return _plan(request, request.document.now(), now)


def undo(request: UndoRequest, confirmations: Confirmations, now: datetime, *, shown: str | None = None) -> Undone:
    """Undo a compaction, or bring back some of its entries.

    `shown` is the digest of the plan for which the confirmations were given, if that was some time ago. Raises what
    `plan_undo` raises, Conflict `plan_differs`, ConfirmationNeeded, and SystemFailure; then every file is as it was,
    unless the message says otherwise.
    """
    with lock_session(request.document.path) as locked:
        plan = planned(request, now)
        plan.require_shown(shown)
        plan.require_confirmed(confirmations)
        if plan.way is UndoWay.REMOVAL:
            return _remove(plan, now)
        is_rows = plan.way is UndoWay.ROWS
        undone = _put_back(locked, plan, now) if is_rows else _write(locked, plan, confirmations, now)
    with suppress(RedlineError, DatabaseError):  # it is written: the index can follow later
        index_file(undone.created or locked.path)
    return undone


def _plan(request: UndoRequest, present: Document, now: datetime) -> UndoPlan:
    if request.compaction is not None:
        state = compaction_state(request.compaction, present)
    elif request.name:
        state = state_named(request.name, present.row, present)
    else:
        state = latest_state(present.row, present)
    return plan_undo(state, present, request.entry_ids, now)


# ---- lines, or a new session ---------------------------------------------------------------------------------


def _write(locked: LockedSession, plan: UndoPlan, confirmations: Confirmations, now: datetime) -> Undone:
    content = hashlib.sha256()
    copy = back_up(locked, plan.present.fingerprint, now, content)
    backup = BackupNote.of(copy)
    made: MadeChange | None = None

    def note(done: MadeChange) -> UndoNote:
        return _note(plan, now, backup, done)

    def record(done: MadeChange) -> None:
        nonlocal made
        made = done
        sha256 = done.sha256
        if done.created is None:
            with suppress(RedlineError):  # not known, if others have rewritten the session since
                sha256 = digest_up_to(locked.path, done.size, copy.size, content)
        _record(note(done), done.size, sha256)

    try:
        made = _make(locked, plan, confirmations, copy.path, now, lambda done: text_of(note(done)), record)
    except RedlineError as failure:
        if not isinstance(failure, SystemFailure) or failure.code not in CHANGE_IS_MADE or made is None:
            drop_or_keep(copy, locked, failure)
        raise
    return Undone(plan, made.entry_id, made.lines, made.created, copy.path)


def _make(
    locked: LockedSession,
    plan: UndoPlan,
    confirmations: Confirmations,
    backup: Path,
    now: datetime,
    note: Callable[[MadeChange], str],
    record: Callable[[MadeChange], object],
) -> MadeChange:
    """Carry out the change of a plan, once it is proven. Raises SystemFailure `not_proven`."""
    present, reading = plan.present, plan.present.reading
    with lines_of(present) as line:
        facts = write_facts(present, line, backup, now)
        change = _change(plan, facts)

        def prove(after: Rebuilt) -> Certificate:
            return _prove(plan, Rebuilt(plan.without, line, plan.state.leaf_id), after, now)

        if isinstance(change, RowChanges):
            raise not_in_database(present.path)
        if not isinstance(change, Append):
            return create_change(locked, present, facts.session_id, change, reading.reader, prove, note, record)
        after = context_with(present, change.lines, reading, line)
        made = MadeChange(after.leaf_id, lines=change.lines, certificate=prove(after))
    return append_change(locked, present, made, note, record, after_torn_line=confirmations.after_torn_line)


def _change(plan: UndoPlan, facts: WriteFacts) -> Change:
    state, present, reading = plan.state, plan.present, plan.present.reading
    leaf_line = reading.agent.leaf_line(facts.new_id(), state.leaf_id, facts.written_at, undoes=True)
    if plan.way is UndoWay.LEAF and leaf_line is not None:
        return Append((leaf_line,))
    if plan.way is UndoWay.SMALLER:
        return plan.writer.write(present.tree.branch(state.leaf_id), _smaller(plan), facts)
    restore_lines = reading.generation.restore_lines
    if plan.way is UndoWay.EDITS and restore_lines is not None:
        back = {target.entry_id for target in plan.back}
        messages = [message for message in plan.without.messages if message.entry.id in back]
        deleted = blocks_by_entry(plan.remaining)
        return Append(restore_lines(present.tree.branch(present.leaf_id), messages, deleted, facts))
    rest = Deletion(plan.remaining, (), Stats())
    return reading.writer("fork").write(state.branch, rest, facts)


def _smaller(plan: UndoPlan) -> Deletion:
    """What stays deleted, judged by the airlock on the conversation before the compaction. Raises Conflict
    `plan_refused`."""
    row = plan.state.row
    assert row is not None  # noqa: S101  # `choose_way` chooses this way only then
    branch = plan.present.tree.branch(plan.state.leaf_id)
    transcript = prepare(branch, {}, row.parameters, plan.present.reading.rules(plan.writer.name))
    judged = validate(request_of(plan.remaining), transcript) if transcript is not None else None
    if not isinstance(judged, ValidatedDeletion) or set(judged.targets) != set(plan.remaining):
        raise Conflict(
            "plan_refused",
            f"{plan.path}: what stays deleted is not valid without the entries that come back. {NOT_UNDONE} Undo the "
            "whole compaction, and plan again.",
        )
    return Deletion(judged.targets, judged.protected_entry_ids, judged.stats)


def _prove(plan: UndoPlan, without: Rebuilt, after: Rebuilt, now: datetime) -> Certificate:
    ignored: set[object] = set()
    if plan.way is UndoWay.SMALLER:
        branch = plan.present.tree.branch(plan.state.leaf_id)
        ignored.update(plan.writer.unapplied(branch, plan.remaining))
    deleted = [target for target in plan.remaining if target not in ignored]
    require_approved(plan.path, plan.writer, plan.present.reading.agent, without, deleted, after)
    return certificate_of(plan.path, plan.present.reading.generation, without, after, now)


# ---- rows of a database ------------------------------------------------------------------------------------------


def _put_back(locked: LockedSession, plan: UndoPlan, now: datetime) -> Undone:
    row, created = plan.state.row, plan.state.created
    assert row is not None  # noqa: S101  # only a recorded compaction changed rows
    database = plan.present.reading.agent.database(plan.present.path)
    if database is None:
        raise not_in_database(plan.present.path)
    steps = steps_back(row, plan.back, database, is_whole=plan.is_whole, server=plan.server)
    copy = back_up_rows(locked, steps, now)
    entry_id = plan.present.reading.agent.new_entry_id()
    made = MadeChange(entry_id)

    def note() -> UndoNote:
        found = _note(plan, now, BackupNote.of(copy), made)
        return msgspec.structs.replace(found, removed=str(created) if created is not None else "")

    def approve(loaded: LoadedSession, line: ReadLine) -> None:
        nonlocal made
        after = Rebuilt(plan.present.reading.reader.rebuild(loaded.tree.branch(loaded.leaf_id)), line, loaded.leaf_id)
        # What was in the session before is where it is now.
        before = Rebuilt(plan.without, lambda entry: line(loaded.tree.entry(entry.id)), loaded.leaf_id)
        made = made._replace(certificate=_prove(plan, before, after, now))

    try:
        put_back(
            locked,
            plan.present,
            steps,
            created,
            way_of(plan.server, copy.path, is_in_place=True),
            approve=approve,
            note=lambda: text_of(note()),
            record=lambda size: _record(note(), size, ""),
        )
    except RedlineError as failure:
        if not isinstance(failure, SystemFailure) or failure.code not in CHANGE_IS_MADE:
            drop_or_keep(copy, locked, failure)
        raise
    return Undone(plan, entry_id, backup=copy.path)


# ---- a new session that goes -----------------------------------------------------------------------------------


def _remove(plan: UndoPlan, now: datetime) -> Undone:
    created, size, sha256 = made_by(plan.state)
    note = msgspec.structs.replace(
        _note(plan, now, None, MadeChange("")), removed=str(created), content=FileContent(size, sha256)
    )
    with lock_session(created) as locked, plan.present.reading.agent.write_lock(created):
        remove_session(locked, size, sha256, note=text_of(note), record=lambda: _record(note, 0, ""))
    return Undone(plan, "")


def _note(plan: UndoPlan, now: datetime, backup: BackupNote | None, made: MadeChange) -> UndoNote:
    state = plan.state
    after = plan.present.leaf_id if plan.way in (UndoWay.EDITS, UndoWay.FORK) else state.leaf_id
    return UndoNote(
        session=plan.path,
        backup=backup,
        undone=state.undone_id,
        way=plan.way,
        is_whole=plan.is_whole,
        targets=tuple(target.to_json() for target in plan.back),
        entry_id=made.entry_id,
        leaf_id=after,
        written_at=now,
        writer=plan.writer.name,
        created=str(made.created) if made.created is not None else "",
        server=plan.server.address if plan.server is not None else "",
        certificate=made.certificate.to_json() if made.certificate is not None else None,
    )


def _record(note: UndoNote, size: int, sha256: str) -> None:
    try:
        record_undo(note, size, sha256)
    except DatabaseError as fault:
        raise SystemFailure(
            NOT_RECORDED,
            f"The undo of {note.undone} in {note.session} was made, but Redline's own database failed: {fault}. "
            "Nothing is lost: it is recorded when the session is next locked.",
        ) from fault
