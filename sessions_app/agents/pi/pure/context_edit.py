"""The writer for pi 0.87 and newer: it appends one `context_edit` for each entry that is deleted or loses blocks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from sessions_app.agents.changes import Append, Change, ContextWriter, Handed, WriteFacts
from sessions_app.sessionlog.context import Message
from sessions_app.sessionlog.deletion import Deletion
from sessions_app.sessionlog.entries import Entry, Role
from sessions_app.sessionlog.jsjson import parse
from sessions_app.sessionlog.protection import Protection
from sessions_app.sessionlog.targets import blocks_by_entry

from .lines import edit_line, surviving_content

EDITABLE_ROLES: Final = frozenset({Role.USER, Role.ASSISTANT, Role.TOOL_RESULT})
EDITABLE_TYPE: Final = "custom_message"


class ContextEditWriter(ContextWriter):
    """Appends edits in one write; the edited entries stay in the file."""

    name: Final = "context-edit"
    honours: Final = "edits"
    appends: Final = True
    effect: Final = "Appends one line for each deleted entry to the session; pi leaves these entries out from then on."
    undo: Final = "One more line makes pi continue before them; single entries can be brought back at any time."

    def protection(self, entry: Entry) -> Protection | None:
        """pi's own interface edits these entries only. Its reader accepts more, but that is not promised."""
        if entry.type == EDITABLE_TYPE or (entry.type == "message" and entry.role in EDITABLE_ROLES):
            return None
        return Protection.NOT_EDITABLE

    def write(self, branch: Sequence[Entry], deletion: Deletion, facts: WriteFacts) -> Append:
        deleted = blocks_by_entry(deletion.targets)
        messages = self._reader.rebuild(branch).messages
        parent, lines = branch[-1].id, []
        for message in _results_first(message for message in messages if message.entry.id in deleted):
            blocks, entry_id = deleted[message.entry.id], facts.new_id()
            content = None if blocks is None else surviving_content(message, blocks, facts.line)
            lines.append(edit_line(entry_id, parent, facts.written_at, message.entry.id, content))
            parent = entry_id
        return Append(tuple(lines))

    def hand(self, branch: Sequence[Entry], change: Change) -> Handed:
        """The edits without ids and times, which pi sets itself."""
        del branch
        lines = change.lines if isinstance(change, Append) else ()
        edits = [{"targetId": edit["targetId"], "replacement": edit["replacement"]} for edit in map(parse, lines)]
        return Handed({"edits": edits}, change)


def restore_lines(
    branch: Sequence[Entry],
    messages: Sequence[Message],
    deleted: Mapping[str, frozenset[int] | None],
    facts: WriteFacts,
) -> tuple[bytes, ...]:
    """Later edits with the content that these messages have, without their deleted blocks.

    A call comes before its results: if the file is cut between two lines, pi answers the call itself.
    """
    parent, lines = branch[-1].id, []
    for message in messages:
        content = surviving_content(message, deleted.get(message.entry.id) or frozenset(), facts.line)
        entry_id = facts.new_id()
        lines.append(edit_line(entry_id, parent, facts.written_at, message.entry.id, content))
        parent = entry_id
    return tuple(lines)


def _results_first(messages: Iterator[Message]) -> Iterator[Message]:
    """The results of an assistant's calls, then the assistant: if the file is cut between two lines, pi answers a call
    without a result itself, but would send a result without a call."""
    caller: Message | None = None
    for message in messages:
        if message.role == Role.TOOL_RESULT:
            yield message
            continue
        if caller is not None:
            yield caller
        caller = message
    if caller is not None:
        yield caller
