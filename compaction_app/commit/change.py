"""The change that records an approved deletion: made by a writer, proven, and carried out under the lock."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import NamedTuple

from sessions_app.agents.base import Agent
from sessions_app.agents.changes import Change, NewFile, RowChanges, WriteFacts
from sessions_app.agents.pure.contexts import Reader
from sessions_app.agents.pure.notes import note_text
from sessions_app.agents.registry import agent_at
from sessions_app.sessionlog.certificate import Certificate
from sessions_app.sessionlog.deletion import Deletion
from sessions_app.sessionlog.entries import Entry, Role
from sessions_app.sessionlog.errors import BadInput, Conflict
from sessions_app.sessionlog.lines import split_lines
from sessions_app.sessionlog.outline import labels, name_of
from sessions_app.sessionlog.session import is_complete_line
from sessions_app.sessionlog.titles import title_of, title_of_prompt
from sessions_app.storage.append import append_lines
from sessions_app.storage.files import Fingerprint, GrowthKind
from sessions_app.storage.locks import LockedSession
from sessions_app.storage.new_session import create_session
from sessions_app.storage.rendered import RenderedReader
from sessions_app.storage.session_loader import LoadedSession, load_session

from .preflight import Preflight
from .proof import Rebuilt, certificate_of, context_with, require_approved


class MadeChange(NamedTuple):
    """A change that was, or is about to be, carried out."""

    entry_id: str
    """The new leaf of the session, or the id of the new session."""
    size: int = 0
    """The size of the changed or new session in bytes; 0 before it is made."""
    lines: tuple[bytes, ...] = ()
    """What was appended, without the newlines."""
    created: Path | None = None
    """The new session, if one was made."""
    sha256: str = ""
    """The digest of the new session."""
    certificate: Certificate | None = None
    """What was checked; None before it is."""


Describe = Callable[[MadeChange], str]
"""The note of a change, for its intent record."""


def make_change(
    locked: LockedSession,
    preflight: Preflight,
    backup: Path,
    now: datetime,
    *,
    after_torn_line: bool,
    note: Describe,
    record: Callable[[MadeChange], object],
) -> MadeChange:
    """Carry out the change of a preflight's writer. Raises SystemFailure `not_proven`, and what the storage raises."""
    present, reader = preflight.present, preflight.present.reading.reader
    with lines_of(present) as line:
        facts = write_facts(present, line, backup, now)
        change = change_of(preflight, facts)
        branch = present.tree.branch(preflight.parent_id)
        before = Rebuilt(reader.rebuild(branch), line, preflight.parent_id)

        def prove(after: Rebuilt) -> Certificate:
            return prove_change(preflight, before, after, now)

        if isinstance(change, NewFile):
            return create_change(locked, present, facts.session_id, change, reader, prove, note, record)
        if isinstance(change, RowChanges):
            raise not_in_database(present.path)
        after = context_with(present, change.lines, preflight.present.reading, line)
        made = MadeChange(after.leaf_id, lines=change.lines, certificate=prove(after))
    return append_change(locked, present, made, note, record, after_torn_line=after_torn_line)


def not_in_database(path: Path) -> BadInput:
    """The error for rows to be changed of a session that is not in a database."""
    return BadInput(
        "not_in_database",
        f"{path} is not in a database, so its rows cannot be changed. Nothing was written. Open it in a version of its "
        "agent that moves it into one first.",
    )


def file_fingerprint(present: LoadedSession) -> Fingerprint | None:
    """The fingerprint of a session's file; None if its lines are rendered from something else."""
    is_rendered = isinstance(agent_at(present.path).open(present.path), RenderedReader)
    return None if is_rendered else present.fingerprint


def write_facts(present: LoadedSession, line: Callable[[Entry], bytes], backup: Path, now: datetime) -> WriteFacts:
    """What a writer needs beside the branch and the deletion. The session has a header."""
    assert present.log.header is not None  # noqa: S101  # `require_writable` refuses others
    agent = agent_at(present.path)
    elsewhere = agent.open_elsewhere(present.path)
    return WriteFacts(
        new_id=_new_ids(present, agent).__next__,
        session_id=str(uuid.uuid4()),
        written_at=now,
        session=present.path,
        header=present.log.header,
        backup=backup,
        line=line,
        labels=labels(present.tree),
        title=partial(_title_of, present),
        state=present.log.state,
        lines=partial(_complete_lines, present),
        is_open=elsewhere is not None and elsewhere.is_certain,
    )


def _title_of(present: LoadedSession) -> str:
    """The title of a session, as the index has it."""
    entries = present.tree.entries
    prompts = (entry for entry in entries if entry.role == Role.USER and entry.has_text)
    said = (present.texts([entry])[entry.id].joined(entry.blocks) for entry in prompts)
    return title_of(name_of(entries)) or next(filter(None, map(title_of_prompt, said)), "")


def _complete_lines(session: LoadedSession) -> Iterator[bytes]:
    """The lines that the session had when it was loaded."""
    with agent_at(session.path).open(session.path) as reader:
        for line in split_lines(reader.chunks(0)):
            if line.end > session.log.state.next_offset:
                return
            yield line.raw


def change_of(preflight: Preflight, facts: WriteFacts) -> Change:
    """What the writer makes of the approved deletion."""
    validated = preflight.validated
    deletion = Deletion(tuple(validated.targets), tuple(validated.protected_entry_ids), validated.stats)
    branch = preflight.present.tree.branch(preflight.parent_id)
    return preflight.writer.write(branch, deletion, replace(facts, notes=preflight.notes))


@contextmanager
def lines_of(session: LoadedSession) -> Iterator[Callable[[Entry], bytes]]:
    """Reads the recorded lines of a session's entries."""
    with agent_at(session.path).open(session.path) as reader:
        yield lambda entry: reader.read_at(entry.offset, entry.length)


def append_change(
    locked: LockedSession,
    present: LoadedSession,
    made: MadeChange,
    note: Describe,
    record: Callable[[MadeChange], object],
    *,
    after_torn_line: bool,
) -> MadeChange:
    """Append the lines of a proven change."""
    with agent_at(locked.path).write_lock(locked.path):
        append_lines(
            locked,
            made.lines,
            present.state,
            is_complete_line,
            after_torn_line=after_torn_line,
            note=note(made),
            record=lambda appended: record(made._replace(size=appended.end)),
        )
    return made


def create_change(
    locked: LockedSession,
    present: LoadedSession,
    session_id: str,
    change: NewFile,
    reader: Reader,
    prove: Callable[[Rebuilt], Certificate],
    note: Describe,
    record: Callable[[MadeChange], object],
) -> MadeChange:
    """Make a new session of `present` once `prove` has accepted its context."""
    made = MadeChange(session_id, created=locked.path.with_name(change.name))

    def prove_draft(draft: Path) -> None:
        nonlocal made
        _require_unchanged(present)
        loaded = load_session(draft)
        with lines_of(loaded) as line:
            context = reader.rebuild(loaded.tree.branch(loaded.leaf_id))
            made = made._replace(certificate=prove(Rebuilt(context, line, loaded.leaf_id)))

    new = create_session(
        locked,
        change.name,
        change.pieces,
        check=prove_draft,
        note=lambda new: note(made._replace(size=new.size)),
        record=lambda new: record(made._replace(size=new.size, sha256=new.sha256)),
    )
    return made._replace(size=new.size, sha256=new.sha256)


def prove_change(preflight: Preflight, before: Rebuilt, after: Rebuilt, now: datetime) -> Certificate:
    """The certificate of a context after a change. Raises SystemFailure `not_proven` and BadInput `breaks_context`."""
    branch = preflight.present.tree.branch(preflight.parent_id)
    targets = preflight.validated.targets
    ignored = set(preflight.writer.unapplied(branch, targets))
    path = str(preflight.present.path)
    require_approved(
        path,
        preflight.writer,
        preflight.present.reading.agent,
        before,
        [target for target in targets if target not in ignored],
        after,
        [note_text(words) for words in preflight.notes.values()],
    )
    return certificate_of(path, preflight.present.reading.generation, before, after, now)


def _require_unchanged(present: LoadedSession) -> None:
    """Raise Conflict `session_changed` if the bytes that a fork was made of are not the ones that were judged."""
    with agent_at(present.path).open(present.path) as reader:
        growth = reader.growth(present.fingerprint)
    if growth.kind is GrowthKind.REWRITTEN:
        raise Conflict(
            "session_changed",
            f"{present.path}: {growth.reason}, while the fork was written. No new session was made. Plan again.",
        )


def _new_ids(present: LoadedSession, agent: Agent) -> Iterator[str]:
    """Ids that no entry of the session has."""
    used: set[str] = set()
    while True:
        entry_id = agent.new_entry_id()
        if entry_id not in present.tree and entry_id not in used:
            used.add(entry_id)
            yield entry_id
