"""The proof before a write: the agent would rebuild exactly the approved context from the changed session.

context now − approved deletion = context that the agent's reader rebuilds from the old bytes plus the change
"""

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from compaction_app.models import AuditEntry, Compaction
from sessions_app.agents.base import Agent
from sessions_app.agents.pure.formats import Generation, ReplacingWriter, SessionWriter
from sessions_app.agents.reading import Reading
from sessions_app.agents.registry import GENERATIONS
from sessions_app.sessionlog.certificate import Certificate, certified
from sessions_app.sessionlog.context import ActiveContext, Message
from sessions_app.sessionlog.diagnosis import ProviderRule, new_violations, violations
from sessions_app.sessionlog.entries import Entry, Role, Target, blocks_by_entry
from sessions_app.sessionlog.errors import BadInput, SystemFailure
from sessions_app.sessionlog.jsjson import Line
from sessions_app.storage.session_loader import LoadedSession

ReadLine = Callable[[Entry], bytes]


class Rebuilt(NamedTuple):
    """A context, a function that reads the lines of its entries, and the leaf of its branch."""

    context: ActiveContext
    line: ReadLine
    leaf_id: str


def approved_messages(
    context: ActiveContext, targets: Iterable[Target], writer: SessionWriter | None = None
) -> list[Message]:
    """The messages after an approved deletion: those kept, and those that a writer puts in place of others."""
    deleted = blocks_by_entry(targets)
    left = []
    for message in context.messages:
        if message.entry.id not in deleted:
            left.append(message)
            continue
        blocks = deleted[message.entry.id]
        if isinstance(writer, ReplacingWriter):
            remaining = writer.remains(message, blocks)
            left += [remaining] if remaining is not None else []
        elif blocks is not None and message.blocks is not None:
            kept = tuple(block for block in message.blocks if block.index not in blocks)
            left.append(msgspec.structs.replace(message, blocks=kept))
    turns = GENERATIONS[context.reader][1].turns if context.reader in GENERATIONS else None
    return turns.arranged(left, is_new=writer is not None and not writer.appends) if turns is not None else left


def context_with(session: LoadedSession, lines: Sequence[bytes], reading: Reading, line: ReadLine) -> Rebuilt:
    """The context that the agent rebuilds if these lines are appended to a session."""
    agent = reading.agent
    parser = agent.format.parser(copy.deepcopy(session.log.state), [])
    entries, raws = list(session.log.entries), {}
    offset = session.state.size + 1
    for number, raw in enumerate(lines, session.log.entries[-1].number + 1):
        for recorded in parser.read(Line(number, offset, raw)):
            entry = recorded.entry
            entries.append(entry)
            raws[entry.id] = raw[entry.offset - offset :][: entry.length]
        offset += len(raw) + 1

    def read(entry: Entry) -> bytes:
        return raws[entry.id] if entry.id in raws else line(entry)

    tree = agent.format.tree(entries)
    return Rebuilt(reading.reader.rebuild(tree.branch(tree.leaf.id)), read, tree.leaf.id)


def require_approved(
    path: str,
    writer: SessionWriter,
    agent: Agent,
    before: Rebuilt,
    targets: Iterable[Target],
    after: Rebuilt,
    notes: Sequence[str] = (),
) -> None:
    """Raise SystemFailure `not_proven` if the context after a change is not the approved one, message by message.

    `notes` are the texts that the writer adds.
    """
    what = f"the change by {writer.name}"
    expected = approved_messages(before.context, targets, writer)
    if notes:
        after = _without_notes(path, what, agent, expected, before.line, after, notes)
    require_messages(path, what, agent, expected, before.line, after)


def _without_notes(
    path: str,
    what: str,
    agent: Agent,
    expected: Sequence[Message],
    line: ReadLine,
    after: Rebuilt,
    notes: Sequence[str],
) -> Rebuilt:
    """The context without the notes between the expected messages. Raises SystemFailure `not_proven` if a note is
    missing."""
    rest, waiting, left = list(reversed(expected)), list(notes), []
    for one in after.context.messages:
        if rest and _is_same(agent, rest[-1], line, one, after.line):
            rest.pop()
        elif waiting and (said := _said(agent, one, after.line)) in waiting:
            waiting.remove(said)
            continue
        left.append(one)
    if waiting:
        raise _not_proven(path, what, "a note")
    return after._replace(context=replace(after.context, messages=tuple(left)))


def _said(agent: Agent, message: Message, line: ReadLine) -> str | None:
    """The text of a message; None if it is not the user's."""
    if message.role not in (Role.USER, Role.CUSTOM):
        return None
    again = agent.format.reparse_entry(line(message.entry), message.entry, agent.format.current_version)
    return again[1].joined(again[0].blocks) if again is not None else None


def with_new_messages(
    staying: Iterable[Message], after: Iterable[Message], is_new: Callable[[Message], bool], count: int
) -> list[Message]:
    """The kept messages of a context, with `count` new ones at the positions at which they are rebuilt."""
    rest = iter(staying)
    expected: list[Message] = []
    for one in after:
        if count and is_new(one):
            count -= 1
            expected.append(one)
        else:
            expected += [found for found in (next(rest, None),) if found is not None]
    return [*expected, *rest]


def require_messages(
    path: str, what: str, agent: Agent, expected: Sequence[Message], line: ReadLine, after: Rebuilt
) -> None:
    """Raise SystemFailure `not_proven` if the context after `what` does not consist of the expected messages, whose
    lines `line` reads."""
    found = after.context.messages
    place = next(
        (
            position
            for position, (mine, theirs) in enumerate(zip(expected, found, strict=False), 1)
            if not _is_same(agent, mine, line, theirs, after.line)
        ),
        0 if len(expected) == len(found) else min(len(expected), len(found)) + 1,
    )
    if place:
        raise _not_proven(path, what, f"message {place:,}")


def _not_proven(path: str, what: str, which: str) -> SystemFailure:
    return SystemFailure(
        "not_proven",
        f"{path}: after {what}, {which} of the context that the agent would rebuild is not the approved one. Nothing "
        "was written. This is a bug in Redline; please report it. Another way to save it may work.",
    )


def certificate_of(path: str, generation: Generation, before: Rebuilt, after: Rebuilt, now: datetime) -> Certificate:
    """The certificate of a context that equals the approved one.

    Raises BadInput `breaks_context` if providers would refuse it for a new reason.
    """
    found = violations(after.context)
    # The agent omits a message that has only empty blocks left, which loses nothing.
    new = [
        one
        for one in new_violations(violations(before.context), found)
        if not (one.is_repaired and one.rule is ProviderRule.EMPTY_CONTENT)
    ]
    if new:
        raise BadInput(
            "breaks_context",
            f"{path}: after this change {new[0].sentence} Nothing was written. Keep that entry, or plan again.",
        )
    return Certificate(
        reader=generation.reader.name,
        versions=generation.label,
        checked_at=now,
        leaf_id=after.leaf_id,
        messages=len(after.context.messages),
        violations=certified(found),
        difference="",
    )


def certificate_in(row: Compaction | AuditEntry) -> Certificate | None:
    """The certificate of a recorded change; None for a change without one."""
    return msgspec.convert(row.certificate, Certificate) if row.certificate is not None else None


def _is_same(agent: Agent, mine: Message, line: ReadLine, theirs: Message, their_line: ReadLine) -> bool:
    """Whether both are the same recorded line with the same blocks, or what the agent makes of them is the same."""
    is_unchanged = mine.entry is theirs.entry and mine.edit is theirs.edit and mine.blocks == theirs.blocks
    return is_unchanged or _json(agent, mine, line) == _json(agent, theirs, their_line)


def _json(agent: Agent, message: Message, line: ReadLine) -> Mapping[str, Any]:
    edit = line(message.edit) if message.edit is not None else None
    return agent.format.message_json(message, line(message.entry), edit)
