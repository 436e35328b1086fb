"""The writer for every version of Claude Code: a new session beside the old one, with what survives of the context.

    <new id>.jsonl     the lines of the context, each after the one before it, then a title
    unchanged          uuid, timestamp, and every byte of what was said
    changed            parentUuid, sessionId, the reported tokens (0), lost blocks; `entrypoint`, so that it is listed
    added              forkedFrom, as the client's own branches have it
    left out           what an earlier compaction left out, and lines beside the conversation: they describe the old one

Texts may name files in the directory of companions of the old session: it stays where it is.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from sessions_app.agents.changes import COPIED, CURATED, ContextWriter, NewFile, WriteFacts
from sessions_app.agents.pure.notes import note_text, notes_before
from sessions_app.sessionlog.context import ActiveContext, Message
from sessions_app.sessionlog.deletion import Deletion
from sessions_app.sessionlog.entries import Entry
from sessions_app.sessionlog.errors import BadInput
from sessions_app.sessionlog.jsjson import json_bytes, parse
from sessions_app.sessionlog.targets import blocks_by_entry

from .lines import LostBlocks, is_nameless, line_without, lines_of_context, moved_line, user_line
from .reader import ClaudeCodeReader

UNNAMED: Final = "Session of {:%Y-%m-%d %H:%M}"


class ClaudeForkWriter(ContextWriter):
    """Writes what survives of a context into a new session."""

    name: Final = "fork"
    appends: Final = False
    holds_notes = True
    effect: Final = "Writes a new session beside this one, with what survives. This session is not changed."
    undo: Final = "To undo, continue with this session instead; the new one can be deleted."

    def __init__(self, reader: ClaudeCodeReader) -> None:
        super().__init__(reader)
        self._arranged: Final = reader.arranged

    def write(self, branch: Sequence[Entry], deletion: Deletion, facts: WriteFacts) -> NewFile:
        """Raises BadInput `ends_unsaid`."""
        lost = blocks_by_entry(deletion.targets)
        context = self._reader.rebuild(branch)
        # The order is that of what survives: of a line with several entries, the first one may be gone.
        left = self._arranged(
            [one for one in context.messages if one.entry.id not in lost or lost[one.entry.id] is not None],
            is_new=True,
        )
        self._require_sent(left, facts)
        recorded = lines_of_context(replace(context, messages=tuple(left)), branch)
        notes = _notes(context, left, facts)
        lines = self._lines(recorded, lost, notes, facts)
        return NewFile(f"{facts.session_id}.jsonl", (line + b"\n" for line in lines))

    def _require_sent(self, left: Sequence[Message], facts: WriteFacts) -> None:
        """Raise BadInput `ends_unsaid` if the agent would not send all that survives: versions before 2.1.143 leave out
        attachments, and the output of commands, that nothing said follows."""
        sent = {message.entry.id for message in self._reader.rebuild([one.entry for one in left]).messages}
        unsent = next((message.entry for message in left if message.entry.id not in sent), None)
        if unsent is not None:
            raise BadInput(
                "ends_unsaid",
                f"The plan deletes every message after line {unsent.number} of {facts.session}. That line is not a "
                "message but something that Claude Code added, and versions before 2.1.143 leave it out if no message "
                "follows. Nothing was written. Keep one of these messages, or update Claude Code and plan again.",
            )

    def _lines(
        self,
        lines: Sequence[Sequence[Entry]],
        lost: LostBlocks,
        notes: Mapping[int | None, Sequence[str]],
        facts: WriteFacts,
    ) -> Iterator[bytes]:
        parent: str | None = None
        for parts in lines:
            parent = yield from _note_lines(notes.get(parts[-1].number, ()), parts[-1], parent, facts)
            fields: dict[str, Any] = {"parentUuid": parent, "sessionId": facts.session_id}
            parent = parts[-1].id
            fields["forkedFrom"] = {"sessionId": facts.header.id, "messageUuid": parent}
            if is_nameless(parts[-1]):
                parent = fields["uuid"] = facts.new_id()
            yield moved_line(line_without(facts.line(parts[-1]).strip(), parts, lost), **fields)
        if None in notes:
            yield from _note_lines(notes[None], lines[-1][-1], parent, facts)
        ending = CURATED if lost else COPIED
        title = (facts.title() or UNNAMED.format(facts.written_at)).removesuffix(ending)
        yield json_bytes({"type": "custom-title", "customTitle": f"{title}{ending}", "sessionId": facts.session_id})


def _notes(context: ActiveContext, left: Sequence[Message], facts: WriteFacts) -> Mapping[int | None, list[str]]:
    """The notes by the number of the line that they precede: never one with results."""
    staying = {message.entry.id for message in left}
    order = [message.entry for message in context.messages]
    answering = {entry.number for entry in order if entry.id in staying and entry.result_for is not None}
    found = notes_before(order, staying, facts.notes, lambda entry: entry.number not in answering)
    numbers = {entry.id: entry.number for entry in order}
    return {None if before is None else numbers[before]: words for before, words in found.items()}


def _note_lines(
    notes: Iterable[str], beside: Entry, parent: str | None, facts: WriteFacts
) -> Generator[bytes, None, str | None]:
    """Messages of the user after `parent`, with what a line says of where it was said; returns the last one's id."""
    for words in notes:
        note_id = facts.new_id()
        recorded = parse(facts.line(beside))
        yield user_line(
            recorded,
            note_text(words),
            facts.written_at,
            parentUuid=parent,
            uuid=note_id,
            sessionId=facts.session_id,
        )
        parent = note_id
    return parent
