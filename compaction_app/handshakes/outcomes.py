"""The outcome of an approved plan: verified by the session, recorded, or taken back.

A handed plan is searched for in the session when the agent reports it applied, and each second from then on; so it is
also found if the agent, or Redline, was killed in between. A plan that Redline writes itself is written as soon as the
agent has closed the session.
"""
# WAS compaction_app/handshakes/applied: """Whether an agent has applied the plan that was handed to it: the session itself shows it.
#
# The messages that the agent rebuilds from the session then begin with those of the approved context, one by one. Later
# messages follow them.
# """

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
from django.db import DatabaseError, transaction

from compaction_app.changes.change import Confirmations
from compaction_app.changes.compaction import commit_run
from compaction_app.changes.proof import Rebuilt
from compaction_app.changes.records import CommitNote, record, record_backup
from compaction_app.core.handshake_states import HandshakeState, NextStep
from compaction_app.models import Handshake, Run
from compaction_app.planning.hook_runner import after_compact
from compaction_app.planning.snapshots import known_fingerprint
from compaction_app.runs.reviews import approved_of
from compaction_app.session_activity import activity_of
from sessions_app.agents.base import Agent, RebuiltMessage
from sessions_app.agents.registry import agent_at
from sessions_app.disk.agent_database import opened_database, read_row
from sessions_app.disk.files import file_state
from sessions_app.index.index_store import read_entries, session_row
from sessions_app.index.indexer import index_file
from sessions_app.index.session_locks import lock_session
from sessions_app.index.session_reading import reading_of_session
from sessions_app.sessionlog.context import Message
from sessions_app.sessionlog.entries import Entry
from sessions_app.sessionlog.errors import RedlineError
from sessions_app.storage.backups import delete_backup, digest_up_to
from sessions_app.storage.row_steps import backed_up_steps

from .lifecycle import change_handshake, end_handshake, withdraw, wrong_state


class ContextDigest(msgspec.Struct, frozen=True):
    """A context to be recognised: the number of its messages, and a hash of everything that the model receives."""

    messages: int
    sha256: str
    lines: int = 0
    """The number of lines that the agent appends for it; 0 if it changes rows."""


def context_digest(agent: Agent, rebuilt: Rebuilt, messages: int | None = None, lines: int = 0) -> ContextDigest:
    """The digest of a context, or of its first messages; `lines` is the number of lines that the agent appends for
    it."""
    found = rebuilt.context.messages
    count = len(found) if messages is None else messages
    together = hashlib.sha256()
    for one in _digests(agent, rebuilt, found[:count]):
        together.update(one.encode())
    return ContextDigest(min(count, len(found)), together.hexdigest(), lines)


def _digests(agent: Agent, rebuilt: Rebuilt, messages: Iterable[Message]) -> Iterable[str]:
    for message in messages:
        edit = rebuilt.line(message.edit) if message.edit is not None else None
        yield RebuiltMessage.of(agent.format.message_json(message, rebuilt.line(message.entry), edit)).digest


def is_same_context(agent: Agent, rebuilt: Rebuilt, approved: ContextDigest) -> bool:
    """Whether a context begins with the approved one."""
    found = context_digest(agent, rebuilt, approved.messages)
    return (found.messages, found.sha256) == (approved.messages, approved.sha256)


LATER: Final = frozenset({"open_in_agent", "session_locked", "being_indexed"})
"""The failures of a write that the next attempt may not have."""
NOT_READ: Final = "Whether the plan was applied is not known."


class HandedPlan(NamedTuple):
    """The state of a handed plan in the session."""

    path: Path
    size: int
    """The size of the session in bytes."""
    entry_id: str = ""
    """The last entry of the change; empty if the context is not the approved one."""
    lines: tuple[bytes, ...] = ()
    is_untouched: bool = False
    """Whether the session is unchanged since the backup."""


def report_applied(handshake: Handshake, now: datetime) -> None:
    """The agent reports that it has applied the plan. Raises Conflict `wrong_state` if it had none to apply."""
    if handshake.state == HandshakeState.APPLIED:
        return
    if handshake.state != HandshakeState.APPROVED or handshake.note is None:
        raise wrong_state(handshake, "There was no plan to apply.")
    Handshake.objects.filter(pk=handshake.pk).update(reported_at=now)
    handshake.reported_at = now
    confirm(handshake, now)


def report_failed(handshake: Handshake, why: str, now: datetime) -> None:
    """The agent reports that it cannot apply the plan, or cannot wait for it."""
    if handshake.state == HandshakeState.APPROVED and handshake.note is not None:
        _take_back(handshake, _look(handshake), f"{handshake.agent_label} did not apply the plan: {why}", now)
    elif handshake.is_open:
        end_handshake(handshake, HandshakeState.FAILED, NextStep.CONTINUE, why, now)


def report_withdrawn(handshake: Handshake, now: datetime) -> None:
    """The user at the agent stopped the compaction there."""
    if handshake.state == HandshakeState.APPROVED and handshake.note is not None:
        report_failed(handshake, "the compaction was stopped there.", now)
    withdraw(handshake, now)


def settle_approved(handshake: Handshake, now: datetime, *, is_gone: bool = False) -> None:
    """Check the outcome of an approved plan; write it, if that is Redline's part and the session is closed. `is_gone`:
    the agent polls no more."""
    if handshake.state != HandshakeState.APPROVED:
        return
    if handshake.note is not None:
        confirm(handshake, now, is_gone=is_gone)
    else:
        _write_if_closed(handshake, now)


def confirm(handshake: Handshake, now: datetime, *, is_gone: bool = False) -> None:
    """Record an approved plan as applied if the session shows it; if it is overdue, it has failed.

    Raises the errors of reading the session, as long as the agent may still apply it.
    """
    try:
        found = _look(handshake)
    except RedlineError as fault:
        if not is_gone:
            raise
        _give_up(handshake, fault, now)
        return
    if found.entry_id:
        _record(handshake, found, now)
    elif handshake.reported_at is not None:
        why = f"{handshake.agent_label} reported the plan as applied, and the session does not show it."
        _take_back(handshake, found, why, now)
    elif is_gone:
        why = f"{handshake.agent_label} has not applied the plan, and does not answer any more."
        _take_back(handshake, found, why, now)


def _look(handshake: Handshake) -> HandedPlan:
    """The state of a handed plan in the session. Raises the errors of reading it, and Conflict `session_rewritten`."""
    note, approved = _note_of(handshake), msgspec.convert(handshake.approved_context, ContextDigest)
    session = index_file(handshake.session.real_path())
    path, agent = session.path, session.agent
    with agent.store.open(path) as reader:
        # An agent that changes rows one by one may have changed another one since.
        known_fingerprint(session, reader)
        entries = list(read_entries(session, reader, session.version))
        tree, size = agent.format.tree(entries), reader.state().size
        reading = reading_of_session(session, path, entries, session.parser_state)
        branch = tree.branch(tree.leaf.id)

        def line(entry: Entry) -> bytes:
            return reader.read_at(entry.offset, entry.length)

        rebuilt = Rebuilt(reading.reader.rebuild(branch), line, tree.leaf.id)
        is_there = is_same_context(agent, rebuilt, approved)
        if approved.lines:
            after = _entries_after(branch, note.leaf_id)
            own, since = after[: approved.lines], {entry.id for entry in after}
            # As long as nothing is applied, messages to be deleted from the end of the context follow the approved
            # ones.
            rest = rebuilt.context.messages[approved.messages :]
            is_there = is_there and all(message.entry.id in since for message in rest)
            if is_there and len(own) == approved.lines:
                return HandedPlan(path, size, own[-1].id, tuple(map(line, own)))
            return HandedPlan(path, size, is_untouched=size == note.backup.size)
    states = _row_states(handshake, note)
    is_applied = is_there and states == {True}
    return HandedPlan(path, size, note.entry_id if is_applied else "", is_untouched=states == {False})


def _entries_after(branch: Sequence[Entry], entry_id: str) -> Sequence[Entry]:
    """The entries of a branch after a given entry; none if it is not on the branch."""
    place = next((at for at, entry in enumerate(branch, 1) if entry.id == entry_id), len(branch))
    return branch[place:]


def _row_states(handshake: Handshake, note: CommitNote) -> set[bool]:
    """Whether the rows of a plan have their new state; rows with neither the new nor the old state count as both."""
    path = handshake.session.real_path()
    agent = agent_at(path)
    database = agent.store.database(path)
    assert database is not None  # noqa: S101  # a plan without lines is one of rows
    states: set[bool] = set()
    with opened_database(database, NOT_READ) as connection:
        for step in backed_up_steps(Path(note.backup.path)):
            row = read_row(connection, step.table, step.row_id)
            is_after = agent.store.is_same_row(row, step.after)
            states |= {is_after} if is_after or agent.store.is_same_row(row, step.before) else {True, False}
    return states


def _note_of(handshake: Handshake) -> CommitNote:
    return msgspec.convert(handshake.note, CommitNote)


def _record(handshake: Handshake, found: HandedPlan, now: datetime) -> None:
    """Record an applied plan as a compaction, and the handshake as applied: both, or neither."""
    path, size = found.path, found.size
    note = msgspec.structs.replace(_note_of(handshake), entry_id=found.entry_id, written_at=now)
    sha256 = ""
    if agent_at(path).store.database(path) is None:
        with suppress(RedlineError):
            sha256 = digest_up_to(path, size)
    words = f"{handshake.agent_label} continues with the approved context; the session shows it."
    with lock_session(path), transaction.atomic():
        changed = change_handshake(
            handshake,
            HandshakeState.APPLIED,
            step=NextStep.CONTINUE,
            message=words,
            handed=None,
            ended_at=now,
        )
        if changed:
            record(path, note, size, sha256)
    if not changed:
        return
    with suppress(RedlineError, DatabaseError):  # it is recorded: the index can follow later
        index_file(path)
    if handshake.run is None:
        return
    validated, _, origins = approved_of(handshake.run)
    if validated is not None:
        after_compact(
            path,
            session_row(path),
            found.lines,
            validated,
            handshake.reason,
            origins,
            Path(note.backup.path),
            None,
        )


def _take_back(handshake: Handshake, found: HandedPlan, why: str, now: datetime) -> None:
    """End an approved plan that was not applied: it can be reviewed again. A part of it may be in the session."""
    if found.entry_id:
        _record(handshake, found, now)
        return
    note = _note_of(handshake)
    rest = "Nothing was changed." if found.is_untouched else f"{note.backup.path} has what was there before."
    if not _end_unapplied(handshake, f"{why} {rest}", now):
        return
    if found.is_untouched and file_state(Path(note.backup.path)) is not None:
        delete_backup(Path(note.backup.path))
    elif not found.is_untouched:
        record_backup(found.path, note.backup)


def _give_up(handshake: Handshake, fault: RedlineError, now: datetime) -> None:
    """End an approved plan of a session that can no longer be read; its backup is kept."""
    note = _note_of(handshake)
    words = f"{fault.message} {NOT_READ} {note.backup.path} has what was there before."
    if _end_unapplied(handshake, words, now):
        record_backup(handshake.session.path, note.backup)


def _end_unapplied(handshake: Handshake, words: str, now: datetime) -> bool:
    """End an approved plan as failed, so that it can be reviewed again; returns whether this call ended it."""
    fields: dict[str, Any] = {"step": NextStep.CONTINUE, "message": words, "handed": None, "ended_at": now}
    is_ended = change_handshake(handshake, HandshakeState.FAILED, **fields)
    if is_ended:
        _allow_decisions(handshake)
    return is_ended


def _allow_decisions(handshake: Handshake) -> None:
    Run.objects.filter(handshakes=handshake).update(committing_since=None)


def cancel_approved(handshake: Handshake, now: datetime) -> None:
    """Withdraw an approval that Redline has not written yet, by decision of the user at the page.

    Raises Conflict `wrong_state`, and `session_locked` if it is being written.
    """
    words = "The approval was taken back before anything was written."
    with lock_session(handshake.session.real_path()):
        handshake.refresh_from_db()
        if handshake.note is not None or not change_handshake(
            handshake, HandshakeState.DECLINED, leaving=[HandshakeState.APPROVED], message=words, ended_at=now
        ):
            raise wrong_state(handshake, "The approval was not taken back.")
        _allow_decisions(handshake)


def _write_if_closed(handshake: Handshake, now: datetime) -> None:
    """Write an approved plan once no process has the session open."""
    run = handshake.run
    if run is None:
        change_handshake(handshake, HandshakeState.FAILED, message="Its run was deleted.", ended_at=now)
        return
    path = run.session.real_path()
    activity = activity_of(run.session, agent_at(path).store.state(path), now)
    if activity.elsewhere is not None or activity.writers:
        return
    given = Confirmations(**{**dict.fromkeys(handshake.confirmations, True), "live": True})
    try:
        commit_run(run, given, None, now, handshake.writer, handshake.rule, handshake.pk)
    except RedlineError as fault:
        run.refresh_from_db(fields=["state"])
        if not run.is_written:
            if fault.code not in LATER:
                _fail_later(handshake, fault, now)
            return
        # It is in the session: a process was killed before reporting it, or something failed after that.
    words = "The session was closed, and what was approved is written."
    change_handshake(handshake, HandshakeState.APPLIED, message=words)


def _fail_later(handshake: Handshake, fault: RedlineError, now: datetime) -> None:
    if change_handshake(handshake, HandshakeState.FAILED, message=fault.message, ended_at=now):
        _allow_decisions(handshake)
