"""The writer for every version of pi and Atomic: a new session beside the old one, with the entries that survive."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from sessions_app.agents.changes import ContextWriter, NewFile, WriteFacts
from sessions_app.agents.pure.contexts import Reader
from sessions_app.agents.pure.notes import note_text, notes_before
from sessions_app.sessionlog.context import Message
from sessions_app.sessionlog.controls import SummaryControl
from sessions_app.sessionlog.deletion import Deletion
from sessions_app.sessionlog.entries import Entry, EntryKind
from sessions_app.sessionlog.jsjson import json_bytes
from sessions_app.sessionlog.moments import timestamp_of
from sessions_app.sessionlog.targets import blocks_by_entry

from .lines import edit_line, moved_line, new_line, surviving_content, without_usage

LEFT_OUT: Final = frozenset({EntryKind.DELETION, EntryKind.EDIT, EntryKind.LABEL})
"""Deletions and edits are applied instead; labels are appended again."""
NO_ENTRY: Final = "00000000"
NOTE_TYPE: Final = "redline-note"


class ForkWriter(ContextWriter):
    """Writes what survives of a branch into a new session. Ids stay; parents, and lost blocks, are the only changes.

    The last assistant still reports the context as it was, so the agent would compact the fork at the next prompt.
    With `ends_with_edit` an edit of no entry follows, after which pi 0.87 estimates instead; otherwise the reported
    token counts become 0.
    """

    name: Final = "fork"
    appends: Final = False
    holds_notes = True
    effect: Final = "Writes a new session beside this one, with what survives. This session is not changed."
    undo: Final = "To undo, continue with this session instead; the new one can be deleted."

    def __init__(self, reader: Reader, *, ends_with_edit: bool) -> None:
        super().__init__(reader)
        self._ends_with_edit = ends_with_edit

    @property
    def universal(self) -> ForkWriter:
        """Without reported token counts, which every version needs that does not honour edits."""
        return ForkWriter(self._reader, ends_with_edit=False)

    def write(self, branch: Sequence[Entry], deletion: Deletion, facts: WriteFacts) -> NewFile:
        return _new_file(facts, self._lines(branch, deletion, facts))

    def _lines(self, branch: Sequence[Entry], deletion: Deletion, facts: WriteFacts) -> Iterator[bytes]:
        context = self._reader.rebuild(branch)
        messages = {message.entry.id: message for message in context.messages}
        deleted = blocks_by_entry(deletion.targets)
        gone = context.removed | {entry_id for entry_id, blocks in deleted.items() if blocks is None}
        kept = [
            entry
            for entry in branch
            if entry.kind is EntryKind.SUMMARY or (entry.kind not in LEFT_OUT and entry.id not in gone)
        ]
        yield json_bytes(_header(facts))
        parent: str | None = None
        first_kept = _first_kept(branch, kept)
        starts = _first_sent(kept, first_kept)
        notes = notes_before(branch, {entry.id for entry in kept}, facts.notes, lambda entry: entry.id not in starts)
        for entry in kept:
            parent = yield from _note_lines(notes.get(entry.id, ()), parent, facts)
            content = _content(messages.get(entry.id), deleted.get(entry.id), facts)
            line = moved_line(facts.line(entry).strip(), entry, parent, content, **first_kept.get(entry.id, {}))
            yield line if self._ends_with_edit else without_usage(line, entry)
            parent = entry.id
        parent = yield from _note_lines(notes.get(None, ()), parent, facts)
        yield from self._added(kept, gone, parent or kept[-1].id, facts)

    def _added(self, kept: Sequence[Entry], gone: frozenset[str], parent: str, facts: WriteFacts) -> Iterator[bytes]:
        """Labels, edits that omit a summary (without its entry, what it replaced would come back), and the edit of no
        entry."""
        for entry_id, line in _label_lines(kept, parent, facts):
            yield line
            parent = entry_id
        for entry in kept if EntryKind.EDIT in self._reader.honours else ():
            if entry.id in gone:
                entry_id = facts.new_id()
                yield edit_line(entry_id, parent, facts.written_at, entry.id, None)
                parent = entry_id
        if self._ends_with_edit:
            known = {entry.id for entry in kept}
            yield edit_line(
                facts.new_id(),
                parent,
                facts.written_at,
                NO_ENTRY if NO_ENTRY not in known else facts.new_id(),
                None,
            )


def branch_copy(branch: Sequence[Entry], facts: WriteFacts) -> NewFile:
    """A new session with every recorded line of a branch, as pi's own fork makes it: labels are appended again, and
    what followed one follows the entry before it."""
    return _new_file(facts, _copied_lines(branch, facts))


def _copied_lines(branch: Sequence[Entry], facts: WriteFacts) -> Iterator[bytes]:
    kept = [entry for entry in branch if entry.kind is not EntryKind.LABEL]
    yield json_bytes(_header(facts))
    parent: str | None = None
    first_kept = _first_kept(branch, kept)
    for entry in kept:
        line = facts.line(entry).strip()
        is_as_recorded = entry.parent_id == parent and entry.id not in first_kept
        yield (line if is_as_recorded else moved_line(line, entry, parent, None, **first_kept.get(entry.id, {})))
        parent = entry.id
    for _, line in _label_lines(kept, parent or "", facts):
        yield line


def _first_sent(kept: Sequence[Entry], first_kept: Mapping[str, Mapping[str, str]]) -> frozenset[str]:
    """The entries from which a compaction keeps the context: what precedes one would not be sent."""
    starts = {fields["firstKeptEntryId"] for fields in first_kept.values()}
    starts |= {one.control.first_kept_id or "" for one in kept if isinstance(one.control, SummaryControl)}
    return frozenset(starts)


def _note_lines(notes: Iterable[str], parent: str | None, facts: WriteFacts) -> Generator[bytes, None, str | None]:
    """Notes after `parent`; returns the id of the last one."""
    for words in notes:
        entry_id = facts.new_id()
        yield new_line(
            "custom_message",
            entry_id,
            parent,
            facts.written_at,
            customType=NOTE_TYPE,
            content=note_text(words),
            display=True,
        )
        parent = entry_id
    return parent


def _label_lines(kept: Sequence[Entry], parent: str, facts: WriteFacts) -> Iterator[tuple[str, bytes]]:
    """The labels of these entries as new lines after `parent`, each with its id."""
    for entry in kept:
        if entry.id in facts.labels:
            entry_id, label = facts.new_id(), facts.labels[entry.id]
            yield (
                entry_id,
                new_line("label", entry_id, parent, facts.written_at, targetId=entry.id, label=label),
            )
            parent = entry_id


def _new_file(facts: WriteFacts, lines: Iterable[bytes]) -> NewFile:
    stamp = timestamp_of(facts.written_at).replace(":", "-").replace(".", "-")
    return NewFile(f"{stamp}_{facts.session_id}.jsonl", (line + b"\n" for line in lines))


def _header(facts: WriteFacts) -> dict[str, Any]:
    return {
        "type": "session",
        "version": facts.header.version,
        "id": facts.session_id,
        "timestamp": timestamp_of(facts.written_at),
        "cwd": facts.header.cwd,
        "parentSession": str(facts.session),
    }


def _content(message: Message | None, deleted: frozenset[int] | None, facts: WriteFacts) -> bytes | None:
    """The JSON of a message's content, if it differs from the recorded one."""
    if message is None or message.entry.kind is not EntryKind.MESSAGE:
        return None
    if deleted is None and message.edit is None and message.blocks == message.entry.blocks:
        return None
    return surviving_content(message, deleted or frozenset(), facts.line)


def _first_kept(branch: Sequence[Entry], kept: Sequence[Entry]) -> Mapping[str, dict[str, str]]:
    """For each summary whose first kept entry is gone: the next survivor before the summary, or the summary itself."""
    surviving = {entry.id for entry in kept}
    positions = {entry.id: position for position, entry in enumerate(branch)}
    found = {}
    for entry in kept:
        control = entry.control
        if not isinstance(control, SummaryControl) or control.first_kept_id in surviving:
            continue
        start, end = positions.get(control.first_kept_id or "", len(branch)), positions[entry.id]
        if start < end:
            following = (one.id for one in branch[start:end] if one.id in surviving)
            found[entry.id] = {"firstKeptEntryId": next(following, entry.id)}
    return found
