"""Random accepted plans on Codex threads, written by a writer, and what Codex would send before and after them."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from compaction_app.commit.proof import approved_messages
from compaction_app.core.airlock import ValidatedDeletion
from compaction_app.core.store import DeletionStore
from compaction_app.core.transcript import prepare
from sessions_app.agents.base import Append, Generation, SessionWriter, WriteFacts, WriterRules
from sessions_app.agents.codex.agent import CODEX
from sessions_app.sessionlog.context import ActiveContext
from sessions_app.sessionlog.deletion import Deletion
from sessions_app.sessionlog.entries import Entry
from sessions_app.sessionlog.targets import Target, request_of
from sessions_app.storage.session_loader import LoadedSession, load_session

Items = list[Mapping[str, Any]]


def sent(loaded: LoadedSession, context: ActiveContext) -> Items:
    """The items of a context in a request."""
    with CODEX.open(loaded.path) as reader:

        def line(entry: Entry) -> bytes:
            return reader.read_at(entry.offset, entry.length)

        return list(CODEX.sent_messages(context, line))


def sent_of(path: Path, generation: Generation) -> Items:
    """What would be sent of a file."""
    loaded = load_session(path)
    return sent(loaded, generation.reader.rebuild(loaded.tree.branch(loaded.leaf_id)))


def random_plan(
    loaded: LoadedSession, generation: Generation, writer: SessionWriter, chance: random.Random
) -> ValidatedDeletion:
    """Random entries and blocks that the airlock accepts together."""
    branch = loaded.tree.branch(loaded.leaf_id)
    rules = WriterRules(generation.rules, writer)
    transcript = prepare(branch, loaded.texts(branch), {"preserve_recent": 0, "query": "-"}, rules)
    assert transcript is not None
    store = DeletionStore(transcript)
    targets = [
        target
        for entry in transcript.entries
        if not entry.is_protected
        for target in (
            Target(entry.entry_id),
            *(Target(entry.entry_id, block.index) for block in entry.blocks),
        )
    ]
    for target in chance.sample(targets, chance.randint(1, min(len(targets), 6))):
        store.delete(request_of([target]))
    return store.validated()


def approved(loaded: LoadedSession, generation: Generation, targets: Sequence[Target]) -> Items:
    """What may be sent after a deletion."""
    context = generation.reader.rebuild(loaded.tree.branch(loaded.leaf_id))
    return sent(loaded, replace(context, messages=tuple(approved_messages(context, targets))))


def write(loaded: LoadedSession, writer: SessionWriter, plan: ValidatedDeletion) -> Path:
    """The file to be resumed after the writer has recorded a plan: the same, or a new one beside it."""
    assert loaded.log.header is not None
    with CODEX.open(loaded.path) as reader:
        facts = WriteFacts(
            new_id=lambda: "",
            session_id=str(uuid.uuid4()),
            written_at=datetime.now(UTC),
            session=loaded.path,
            header=loaded.log.header,
            backup=Path("/backup"),
            line=lambda entry: reader.read_at(entry.offset, entry.length),
            labels={},
            state=loaded.log.state,
        )
        deletion = Deletion(plan.targets, plan.protected_entry_ids, plan.stats)
        change = writer.write(loaded.tree.branch(loaded.leaf_id), deletion, facts)
        if isinstance(change, Append):
            content: Iterator[bytes] = (line + b"\n" for line in change.lines)
            with loaded.path.open("ab") as file:
                file.writelines(content)
            return loaded.path
        new = loaded.path.with_name(change.name)  # type: ignore[union-attr]
        new.write_bytes(b"".join(change.pieces))  # type: ignore[union-attr]
        return new
