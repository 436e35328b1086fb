"""New entries at the end of a session, which delete nothing: labels, moves of the leaf, and what else is made of them.

    hooks → lock → the session now → the change again → backup → proof → announced → one write → recorded → hooks

An `EntryChange` says what is appended and which context must result. The proof rebuilds the session with the new lines
as the agent would. If a process is killed between the announcement and the record, the next lock does both
(`change_records`). Every refusal leaves the session as it was.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from django.db import DatabaseError

from compaction_app.change_notes import BackupNote, EntriesNote, text_of
from compaction_app.change_records import record_entries
from compaction_app.changes.plan import ChangePlan, Confirmations
from compaction_app.commit.change import MadeChange, append_change, lines_of, write_facts
from compaction_app.commit.preflight import require_writable
from compaction_app.commit.proof import (
    ReadLine,
    Rebuilt,
    certificate_of,
    context_with,
    require_messages,
    with_new_messages,
)
from compaction_app.commit.service import CHANGE_IS_MADE, NOT_RECORDED, drop_or_keep
from compaction_app.hooks import session_before_tree, unloaded
from compaction_app.planning.tree_hooks import (
    TreeMove,
    after_move,
    ask_tree_hooks,
    require_move_not_cancelled,
)
from compaction_app.session_activity import activity_of, append_needs
from sessions_app.agents.changes import WriteFacts
from sessions_app.document.document import Document
from sessions_app.index.indexer import index_file
from sessions_app.index.session_locks import lock_session
from sessions_app.sessionlog.certificate import Certificate
from sessions_app.sessionlog.context import Message
from sessions_app.sessionlog.errors import RedlineError, SystemFailure
from sessions_app.storage.backups import back_up, digest_up_to
from sessions_app.storage.locks import LockedSession
from sessions_app.storage.session_loader import torn_line_of

from .entry_change import NOT_APPENDED, EntryChange, MakeChange, labelled


@dataclass(frozen=True)
class AppendPlan(ChangePlan):
    """What an append would do at this moment."""

    NOT_DONE = NOT_APPENDED

    change: EntryChange

    @property
    def facts(self) -> list[Any]:
        change = self.change
        return [change.action, change.words, change.leaf_id, self.present.leaf_id]


@dataclass(frozen=True, slots=True)
class AppendedEntries:
    """What was appended, and where the session was kept as it was."""

    plan: AppendPlan
    leaf_id: str
    """The new leaf: the last of the new entries."""
    lines: tuple[bytes, ...]
    backup: Path

    @property
    def first_id(self) -> str:
        """The first of the new entries: a label that a hook wants follows the summary that it is of."""
        return _id_of(self.lines[0])


def _id_of(line: bytes) -> str:
    return str(json.loads(line)["id"])


def plan_append(path: Path, make: MakeChange, now: datetime) -> AppendPlan:
    """What an append would do at this moment. Raises what `require_writable` and `make` raise."""
    present = Document.to_change(path)
    require_writable(present)
    change = make(present)
    activity = activity_of(present.row, present.state, now)
    torn = torn_line_of(present.path)
    needs = dict(append_needs(str(present.path), activity, torn, NOT_APPENDED))
    return AppendPlan(present, activity, torn, needs, change)


def append_entries(
    path: Path,
    make: MakeChange,
    confirmations: Confirmations,
    now: datetime,
    *,
    shown: str | None = None,
    draft: int | None = None,
    label: str | None = None,
) -> AppendedEntries:
    """Append the entries of a change once it is proven.

    `shown` is the digest of the plan for which the confirmations were given, if that was some time ago; `draft` is the
    key of the draft whose summary is appended, `label` what hooks answered that were asked about its move already.
    Raises what `plan_append` raises, Conflict `plan_differs` and `open_in_agent`, ConfirmationNeeded, BadInput
    `breaks_context`, and SystemFailure `not_proven` and others; then the session is as it was, unless the message says
    otherwise. Before another move, and without the lock, hooks are asked: raises what `ask_tree_hooks` raises, and
    `cancelled_by_hook`.
    """
    if session_before_tree.connected() or unloaded():
        plan = plan_append(path, make, now)
        if plan.change.move is not None and (shown is None or shown == plan.digest()):
            plan.require_confirmed(confirmations)
            wanted = _label_of_hooks(plan, plan.change.move) if label is None else label
            make, shown = labelled(make, wanted), plan.digest()
    with lock_session(path) as locked:
        plan = plan_append(locked.path, make, now)
        plan.require_shown(shown)
        plan.require_confirmed(confirmations)
        appended = _append(locked, plan, confirmations, now, draft)
    with suppress(RedlineError, DatabaseError):  # it is written: the index can follow later
        index_file(locked.path)
    if plan.change.move is not None:
        after_move(
            locked.path,
            plan.present.row,
            plan.change.move,
            appended.lines,
            appended.backup,
            summary=plan.change.summary,
            from_hook=plan.change.from_hook,
        )
    return appended


def _label_of_hooks(plan: AppendPlan, move: TreeMove) -> str:
    """Ask hooks about a move that could be made now; returns the label that they want, empty without one."""
    answers = ask_tree_hooks(plan.present, move, plan.present.row)
    require_move_not_cancelled(answers)
    return answers.label


def _append(
    locked: LockedSession,
    plan: AppendPlan,
    confirmations: Confirmations,
    now: datetime,
    draft: int | None,
) -> AppendedEntries:
    content = hashlib.sha256()
    copy = back_up(locked, plan.present.fingerprint, now, content)
    backup = BackupNote.of(copy)
    made: MadeChange | None = None

    def note(done: MadeChange) -> EntriesNote:
        certificate = done.certificate.to_json() if done.certificate is not None else None
        change = plan.change
        return EntriesNote(
            plan.path,
            backup,
            change.action,
            change.words,
            done.entry_id,
            now,
            certificate,
            draft,
            _id_of(done.lines[0]) if draft is not None else "",
        )

    def record(done: MadeChange) -> None:
        nonlocal made
        made = done
        sha256 = ""
        with suppress(RedlineError):  # not known, if others have rewritten the session since
            sha256 = digest_up_to(locked.path, done.size, copy.size, content)
        _record(note(done), done.size, sha256)

    try:
        with lines_of(plan.present) as line:
            proven = _proven(plan, write_facts(plan.present, line, copy.path, now), line, now)
        append_change(
            locked,
            plan.present,
            proven,
            lambda done: text_of(note(done)),
            record,
            after_torn_line=confirmations.after_torn_line,
        )
    except RedlineError as failure:
        if not isinstance(failure, SystemFailure) or failure.code not in CHANGE_IS_MADE or made is None:
            drop_or_keep(copy, locked, failure)
        raise
    return AppendedEntries(plan, proven.entry_id, proven.lines, copy.path)


def _proven(plan: AppendPlan, facts: WriteFacts, line: ReadLine, now: datetime) -> MadeChange:
    """The new lines with their certificate. Raises SystemFailure `not_proven` and BadInput `breaks_context`."""
    lines = plan.change.lines(facts)
    after = context_with(plan.present, lines, plan.present.reading, line)
    return MadeChange(after.leaf_id, lines=lines, certificate=_certificate(plan, line, after, now))


def _certificate(plan: AppendPlan, line: ReadLine, after: Rebuilt, now: datetime) -> Certificate:
    leaf_id, reading = plan.change.leaf_id, plan.present.reading
    context = plan.present.context(leaf_id) if leaf_id is not None else reading.reader.rebuild([])
    before = Rebuilt(context, line, leaf_id or "")
    expected = _expected(plan, before.context.messages, after.context.messages)
    what = f"the {plan.change.action} {plan.change.words}"
    require_messages(plan.path, what, reading.agent, expected, after.line, after)
    return certificate_of(plan.path, reading.generation, before, after, now)


def _expected(plan: AppendPlan, before: Sequence[Message], after: Sequence[Message]) -> list[Message]:
    """The messages that stay of a context, with the new ones where they are rebuilt; no more than are announced."""
    change, known = plan.change, plan.present.tree
    staying = [one for one in before if change.kept_ids is None or one.entry.id in change.kept_ids]
    return with_new_messages(staying, after, lambda one: one.entry.id not in known, change.added_messages)


def _record(note: EntriesNote, size: int, sha256: str) -> None:
    try:
        record_entries(note, size, sha256)
    except DatabaseError as fault:
        raise SystemFailure(
            NOT_RECORDED,
            f"The {note.action} was written to {note.session}, and {note.backup.path} is its backup, but Redline's own "
            f"database failed: {fault}. Nothing is lost: it is recorded when the session is next locked.",
        ) from fault
