"""Compares Redline's readers and writers with the contexts that pi and Atomic themselves rebuilt.

There are two kinds of vectors. A reading is a session and the messages that pi rebuilds from it, with the entry that
each comes from, or pi's error. A plan is a list of deletions for a session. For each pair of a writer and an agent it
has the messages that the agent rebuilds after the write, as role and hash; the writer `session` stands for the
untouched session. A plan is written without the airlock, except for targets that are not in the context. If it names
entries that a writer must not touch, each of them must be refused.
"""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

from compaction_app.core.airlock import validate
from compaction_app.core.gates import Refusal
from compaction_app.core.transcript import prepare
from devtools.pure.conformance import ABSENT, VectorDifference, compare
from sessions_app.agents.pi.agent import PI
from sessions_app.agents.pi.pure.format import fields_of, message_hash, message_json
from sessions_app.agents.pure.formats import Append, Change, Generation, NewFile, Reader, SessionWriter, WriteFacts
from sessions_app.agents.registry import GENERATIONS, READERS
from sessions_app.sessionlog.context import ActiveContext
from sessions_app.sessionlog.entries import Deletion, Entry, Stats, Target, Texts, request_of
from sessions_app.sessionlog.jsjson import Line, split_lines
from sessions_app.sessionlog.session import Header, ParserState
from sessions_app.sessionlog.tree import SessionTree, labels

UNTOUCHED: Final = "session"
WRITERS: Final[Mapping[str, str]] = {
    "context_edit": "context-edit",
    "fork": "fork",
    "context_compaction": "context-compaction",
}
"""The names of writers in plans, and Redline's names for them. Other writers in plans are skipped."""
WRITTEN_AT: Final = datetime(2026, 1, 1, tzinfo=UTC)
OFF_BRANCH: Final = Path("/sessions/session.jsonl")
"""The path of the session as the writers receive it; they do not open it."""


class RecordedSession(NamedTuple):
    """A session with its lines in memory. `objects` and `texts` are by the id of the entry."""

    lines: Sequence[bytes]
    header: Header | None
    tree: SessionTree
    branch: Sequence[Entry]
    objects: Mapping[str, Mapping[str, Any]]
    texts: Mapping[str, Texts]

    def messages(self, context: ActiveContext) -> list[dict[str, Any]]:
        """The messages of a context in the agent's own form."""
        return [
            message_json(
                message,
                self.objects[message.entry.id],
                self.objects[message.edit.id] if message.edit is not None else None,
            )
            for message in context.messages
        ]

    def hashes(self, reader: Reader) -> list[list[str]]:
        """The rebuilt messages as pairs of role and hash."""
        return [[message["role"], message_hash(message)] for message in self.messages(reader.rebuild(self.branch))]


def read_recorded(lines: Iterable[Line]) -> RecordedSession:
    """The session in these lines, and the branch of its last entry."""
    read = list(lines)
    parser = PI.format.parser(ParserState(), [])
    recorded = [found for line in read for found in parser.read(line)]
    tree = SessionTree([found.entry for found in recorded])
    return RecordedSession(
        [line.raw for line in read],
        parser.state.header,
        tree,
        tree.branch(tree.leaf.id) if tree.entries else [],
        {found.entry.id: found.data for found in recorded},
        {found.entry.id: found.texts for found in recorded},
    )


def reading_differences(case: Mapping[str, Any], lines: Iterable[Line]) -> Iterator[VectorDifference]:
    """The first difference in each section of a reading, for the session in these lines."""
    session = read_recorded(lines)
    context = READERS["pi"].rebuild(session.branch)
    refusal = _refusal(session, context)
    if "error" in case or refusal is not None:
        if "error" not in case or refusal is None:
            yield VectorDifference("error", "$", case.get("error", ABSENT), refusal or ABSENT)
        return
    expected = [fields_of(message) for message in case["messages"]]
    yield from compare("messages", expected, session.messages(context))
    if "sources" in case:
        sources = {message.entry.id: None for message in context.messages}
        yield from compare("sources", case["sources"], list(sources))


def _refusal(session: RecordedSession, context: ActiveContext) -> str | None:
    """Why pi does not open a session."""
    if session.header is None:
        return "pi refuses a session without a header"
    return context.refused.reason if context.refused is not None else None


def plan_differences(case: Mapping[str, Any], lines: Iterable[Line]) -> Iterator[VectorDifference]:
    """The first difference of each context of a plan, for the session in these lines."""
    session = read_recorded(lines)
    for pair, found in case["by"].items():
        written_as, _, agent = pair.partition("|")
        _, generation = GENERATIONS[reader_of(agent)]
        expected = case["contexts"][found["context"]]
        if written_as == UNTOUCHED:
            yield from compare(pair, expected, session.hashes(generation.reader))
        for writer in generation.writers:
            if writer.name == WRITERS.get(written_as):
                yield from _write_differences(pair, expected, session, case["deletedTargets"], generation, writer)


def _write_differences(
    pair: str,
    expected: object,
    session: RecordedSession,
    recorded: Iterable[Mapping[str, Any]],
    generation: Generation,
    writer: SessionWriter,
) -> Iterator[VectorDifference]:
    targets = _targets_in_context(recorded, generation.reader.rebuild(session.branch))
    forbidden = [target for target in targets if writer.protection(session.tree.entry(target.entry_id)) is not None]
    if forbidden:
        yield from compare(pair, forbidden, list(_refused(forbidden, session, generation, writer)))
        return
    change = writer.write(session.branch, Deletion(targets, (), Stats()), write_facts(session))
    yield from compare(pair, expected, session_after(session, change).hashes(generation.reader))


def _targets_in_context(recorded: Iterable[Mapping[str, Any]], context: ActiveContext) -> tuple[Target, ...]:
    here = {Target(message.entry.id) for message in context.messages}
    here |= {Target(message.entry.id, block.index) for message in context.messages for block in message.blocks or ()}
    targets = (Target(target["entryId"], target.get("blockIndex")) for target in recorded)
    return tuple(target for target in targets if target in here)


def _refused(
    targets: Iterable[Target], session: RecordedSession, generation: Generation, writer: SessionWriter
) -> Iterator[Target]:
    """Those of the targets that the airlock refuses by name if this writer is chosen."""
    rules = generation.rules.for_writer(writer)
    transcript = prepare(session.branch, session.texts, {"preserve_recent": 0}, rules)
    for target in targets:
        judged = validate(request_of([target]), transcript) if transcript is not None else None
        if isinstance(judged, Refusal) and judged.target == target:
            yield target


def write_facts(session: RecordedSession) -> WriteFacts:
    """A writer's input other than the branch and the deletion, with fixed ids and a fixed time."""
    numbers = (f"{number:08x}" for number in itertools.count(1))
    new_ids = (new_id for new_id in numbers if new_id not in session.tree)
    return WriteFacts(
        new_id=lambda: next(new_ids),
        session_id="00000000-0000-4000-8000-000000000000",
        written_at=WRITTEN_AT,
        session=str(OFF_BRANCH),
        header=session.header or Header("", PI.format.current_version, "", "", ""),
        backup=str(OFF_BRANCH),
        line=lambda entry: session.lines[entry.number - 1],
        labels=labels(session.tree),
    )


def session_after(session: RecordedSession, change: Change) -> RecordedSession:
    """The session that results from a change."""
    if isinstance(change, Append):
        return read_recorded(split_lines(line + b"\n" for line in (*session.lines, *change.lines)))
    assert isinstance(change, NewFile)  # noqa: S101  # these agents write no rows
    return read_recorded(split_lines(change.pieces))


def reader_of(agent: str) -> str:
    """The name of the reader for an agent in a plan, such as `pi-1.5.2`; Atomic is named by version or commit."""
    family, _, version = agent.partition("-")
    if family == "pi":
        return "pi-0.86" if version.startswith("0.86") else "pi"
    return "atomic-0.8" if version.startswith("0.8") else "atomic-0.9"
