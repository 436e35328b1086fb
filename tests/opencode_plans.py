"""Plans for sessions of OpenCode, carried out on a database, with the messages that were approved."""

import sqlite3
from collections.abc import Collection, Iterable, Mapping
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

from compaction_app.changes.change import lines_of, write_facts
from compaction_app.changes.proof import Rebuilt, approved_messages, require_approved
from sessions_app.agents.opencode.agent import OPENCODE
from sessions_app.agents.pure.formats import NewFile, RowChanges, SessionWriter, note_text
from sessions_app.sessionlog.context import ActiveContext
from sessions_app.sessionlog.entries import Deletion, Stats, Target
from sessions_app.storage.locks import LockedSession, session_lock
from sessions_app.storage.row_steps import backed_up_steps
from sessions_app.storage.rows import ReviewedRows, back_up_rows, plan_steps
from sessions_app.storage.session_loader import LoadedSession, load_session

GENERATION: Final = OPENCODE.format.generations[0]
WRITERS: Final = {writer.name: writer for writer in GENERATION.writers}
UNCHECKED: Final[dict[str, Any]] = {
    "require_unchanged": lambda _: None,
    "prove": lambda _: 0,
    "note": lambda _: "",
    "record": lambda _: None,
}
"""What a commit does beside a change of rows: nothing."""
Sent = list[Mapping[str, Any]]


class WrittenRows(NamedTuple):
    """A plan that was carried out: the session that has its context, what was approved, and the backup."""

    path: Path
    approved: Sent
    backup: Path


def context_of(loaded: LoadedSession) -> ActiveContext:
    return GENERATION.reader.rebuild(loaded.tree.branch(loaded.leaf_id))


def sent_of(loaded: LoadedSession, context: ActiveContext | None = None) -> Sent:
    """What the client would send of a session, or of another context of it."""
    with lines_of(loaded) as line:
        return list(OPENCODE.format.sent_messages(context or context_of(loaded), line))


def write_rows(
    path: Path, name: str, targets: Iterable[Target], data: Path, notes: Mapping[str, str] | None = None
) -> WrittenRows:
    """Carry out a plan by a writer. `data` is a directory for locks and backups; `notes` are as in `WriteFacts`."""
    loaded, writer, targets = load_session(path), WRITERS[name], tuple(targets)
    branch = loaded.tree.branch(loaded.leaf_id)
    now = datetime.now(UTC)
    with lines_of(loaded) as line:
        facts = replace(write_facts(loaded, line, path, now), notes=notes or {})
        change = writer.write(branch, Deletion(targets, (), Stats()), facts)
    assert isinstance(change, RowChanges)
    approved = approved_by(loaded, writer, targets)
    steps = plan_steps(path.parent, change)
    with session_lock(data, path, 1) as locked:
        backup = back_up_rows(locked, steps, now)
        _change(locked, path.parent, steps)
    return WrittenRows(path.with_name(change.created) if change.created else path, approved, backup.path)


def exported(session: Path, target: Path) -> Path:
    """The export of a session, in a file."""
    pieces = OPENCODE.store.export(session)
    assert pieces is not None
    target.write_bytes(b"".join(pieces))
    return target


def fork_export(loaded: LoadedSession, targets: Iterable[Target], notes: Mapping[str, str] | None = None) -> Path:
    """The fork of an export, without these targets, beside it."""
    deletion = Deletion(tuple(targets), (), Stats())
    with lines_of(loaded) as line:
        facts = replace(write_facts(loaded, line, loaded.path, datetime.now(UTC)), notes=notes or {})
        change = WRITERS["fork"].write(loaded.tree.branch(loaded.leaf_id), deletion, facts)
        assert isinstance(change, NewFile)
        forked = loaded.path.with_name(change.name)
        forked.write_bytes(b"".join(change.pieces))
    return forked


def approved_by(loaded: LoadedSession, writer: SessionWriter, targets: Collection[Target]) -> Sent:
    """What the client is to send once these targets are deleted by a writer."""
    branch, context = loaded.tree.branch(loaded.leaf_id), context_of(loaded)
    ignored = set(writer.unapplied(branch, tuple(targets)))
    applied = [target for target in targets if target not in ignored]
    return sent_of(loaded, replace(context, messages=tuple(approved_messages(context, applied, writer))))


def with_notes(loaded: LoadedSession, targets: Collection[Target], path: Path, notes: Mapping[str, str]) -> Sent:
    """What the client is to send of a fork with notes: proven, as a commit does, to be what was approved and them."""
    fork, after = WRITERS["fork"], load_session(path)
    with lines_of(loaded) as line, lines_of(after) as new_line:
        before = Rebuilt(context_of(loaded), line, loaded.leaf_id)
        rebuilt = Rebuilt(context_of(after), new_line, after.leaf_id)
        said = [note_text(words) for words in notes.values()]
        require_approved(str(path), fork, OPENCODE, before, targets, rebuilt, said)
    return sent_of(after)


def put_rows_back(path: Path, backup: Path, data: Path) -> None:
    with session_lock(data, path, 1) as locked:
        _change(locked, path.parent, [step.reversed for step in backed_up_steps(backup)])


def _change(locked: LockedSession, database: Path, steps: Any) -> None:
    ReviewedRows(locked, database, steps, **UNCHECKED).change(is_in_place=False)


def every_row(database: Path) -> dict[str, list[dict[str, Any]]]:
    """All rows that a writer could touch."""
    with closing(sqlite3.connect(database)) as connection:
        connection.row_factory = sqlite3.Row
        return {
            table: [dict(row) for row in connection.execute(f"SELECT * FROM {table} ORDER BY id")]  # noqa: S608  # our table
            for table in ("session", "message", "part")
        }
