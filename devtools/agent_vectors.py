"""PURE: compares Redline's readers and writers with what pi and Atomic rebuilt themselves.

There are two kinds of vectors. A reading is a session and the messages that pi rebuilds of it, with the entry that each
comes from, or pi's error. A plan is a list of deletions for a session. For each pair of a writer and an agent it has
the messages that the agent rebuilds after the write, as role and hash; the writer `session` stands for the untouched
session.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from sessions_app.agents.base import Reader
from sessions_app.agents.pi.agent import PI
from sessions_app.agents.pi.messages import fields_of, message_hash, message_json
from sessions_app.agents.registry import READERS
from sessions_app.sessionlog.context import ActiveContext
from sessions_app.sessionlog.entries import Entry
from sessions_app.sessionlog.lines import Line
from sessions_app.sessionlog.session import ParserState
from sessions_app.sessionlog.tree import SessionTree

from .conformance import ABSENT, VectorDifference, compare

UNTOUCHED: Final = "session"


class RecordedSession(NamedTuple):
    """The branch of a session's last entry, and the recorded object of each entry by its id."""

    branch: Sequence[Entry]
    objects: Mapping[str, Mapping[str, Any]]
    has_header: bool

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
        return [
            [message["role"], message_hash(message)] for message in self.messages(reader.rebuild(self.branch))
        ]


def read_recorded(lines: Iterable[Line]) -> RecordedSession:
    """The session in these lines."""
    parser = PI.parser(ParserState(), [])
    recorded = [found for found in map(parser.read, lines) if found is not None]
    tree = SessionTree([found.entry for found in recorded])
    objects = {found.entry.id: found.data for found in recorded}
    branch = tree.branch(tree.leaf.id) if tree.entries else []
    return RecordedSession(branch, objects, parser.state.header is not None)


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
    if not session.has_header:
        return "pi refuses a session without a header"
    return context.refused.reason if context.refused is not None else None


def plan_differences(case: Mapping[str, Any], lines: Iterable[Line]) -> Iterator[VectorDifference]:
    """The first difference of each context of a plan, for the session in these lines."""
    session = read_recorded(lines)
    for pair, found in case["by"].items():
        writer, _, agent = pair.partition("|")
        reader = READERS[reader_of(agent)]
        if writer == UNTOUCHED:
            yield from compare(pair, case["contexts"][found["context"]], session.hashes(reader))


def reader_of(agent: str) -> str:
    """The name of the reader for an agent in a plan, such as `pi-1.5.2`; Atomic is named by version or commit."""
    family, _, version = agent.partition("-")
    if family == "pi":
        return "pi-0.86" if version.startswith("0.86") else "pi"
    return "atomic-0.8" if version.startswith("0.8") else "atomic-0.9"
