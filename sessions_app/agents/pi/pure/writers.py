"""The lines that pi and Atomic read: new entries, and recorded ones with another parent or content.

| writer         | for                    | it writes                                                                  |
|----------------|------------------------|----------------------------------------------------------------------------|
| `context-edit` | pi 0.87 and newer      | one appended `context_edit` for each entry that is deleted or loses blocks |
| `fork`         | every version, of both | a new session beside the old one, with the entries that are kept           |
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from sessions_app.agents.pure import formats
from sessions_app.sessionlog import entries, jsjson
from sessions_app.sessionlog.context import Message
from sessions_app.sessionlog.text import timestamp_of

NULL: Final = b"null"
_CONTENT_IN: Final = {entries.EntryKind.EDIT: "replacement", entries.EntryKind.MESSAGE: "message"}


def new_line(kind: str, entry_id: str, parent_id: str | None, moment: datetime, **fields: Any) -> bytes:
    """The line of a new entry, without its newline."""
    common = {"type": kind, "id": entry_id, "parentId": parent_id, "timestamp": timestamp_of(moment)}
    return jsjson.json_bytes({**common, **fields})


def edit_line(entry_id: str, parent_id: str, moment: datetime, target_id: str, content: bytes | None) -> bytes:
    """A `context_edit`: `content` is the JSON of the new content; None omits the target."""
    line = new_line("context_edit", entry_id, parent_id, moment, targetId=target_id, replacement=None)
    if content is None:
        return line
    return jsjson.splice(line, [(jsjson.members(line)["replacement"], b'{"content":' + content + b"}")])


def surviving_content(message: Message, deleted: frozenset[int], line: Callable[[entries.Entry], bytes]) -> bytes:
    """The JSON of a message's content without some of its blocks; every block has its recorded bytes."""
    source = message.source
    raw = line(source)
    span = content_span(raw, source)
    if span is None or message.blocks is None:
        return NULL if span is None else span.of(raw)
    if raw[span.start : span.start + 1] == b'"':
        # pi makes a block of a text that replaces an assistant's or a tool's content.
        return b'[{"type":"text","text":' + span.of(raw) + b"}]"
    recorded = jsjson.items(raw, span.start)
    kept = (recorded[block.index].of(raw) for block in message.blocks if block.index not in deleted)
    return b"[" + b",".join(kept) + b"]"


def content_span(raw: bytes, source: entries.Entry) -> jsjson.Span | None:
    """The position of the content in the line of an entry or an edit; None if it has none."""
    found = jsjson.members(raw)
    if source.kind is entries.EntryKind.EDIT or source.type == "message":
        within = found.get(_CONTENT_IN[source.kind])
        found = jsjson.members(raw, within.start) if within is not None else {}
    return found.get("content")


def moved_line(
    raw: bytes, entry: entries.Entry, parent_id: str | None, content: bytes | None = None, **fields: str
) -> bytes:
    """A recorded line with another parent, and with another content and other texts in some fields if given."""
    found = jsjson.members(raw)
    parent = NULL if parent_id is None else jsjson.json_bytes(parent_id)
    changes = [(found[name], jsjson.json_bytes(value)) for name, value in fields.items()]
    if "parentId" in found:
        changes.append((found["parentId"], parent))
    else:
        opening = raw.index(b"{") + 1
        changes.append((jsjson.Span(opening, opening), b'"parentId":' + parent + b","))
    if content is not None:
        span = content_span(raw, entry)
        if span is None:  # it had none at all
            within = found[_CONTENT_IN[entry.kind]].start if entry.type == "message" else 0
            opening = raw.index(b"{", within) + 1
            span, content = jsjson.Span(opening, opening), b'"content":' + content + b","
        changes.append((span, content))
    return jsjson.splice(raw, changes)


def without_usage(raw: bytes, entry: entries.Entry) -> bytes:
    """The line of an assistant message with 0 for every token count that its provider reported."""
    if entry.role != entries.Role.ASSISTANT or entry.usage is None:
        return raw
    message = jsjson.members(raw)["message"]
    usage = jsjson.members(raw, message.start).get("usage")
    counts = jsjson.members(raw, usage.start) if usage is not None else {}
    numbers = (span for span in counts.values() if raw[span.start : span.start + 1] in b"-0123456789")
    return jsjson.splice(raw, ((span, b"0") for span in numbers))


EDITABLE_ROLES: Final = frozenset({entries.Role.USER, entries.Role.ASSISTANT, entries.Role.TOOL_RESULT})
EDITABLE_TYPE: Final = "custom_message"


class ContextEditWriter(formats.ContextWriter):
    """Appends edits in one write; the edited entries stay in the file."""

    name = "context-edit"
    honours: Final = "edits"
    appends = True
    effect = "Appends one line for each deleted entry to the session; pi no longer sends these entries."
    undo = "Taken back by one more line, all of it or single entries, at any time."

    def protection(self, entry: entries.Entry) -> entries.Protection | None:
        """Protects entries that pi's own interface cannot edit. Its reader accepts more, but that is not promised."""
        if entry.type == EDITABLE_TYPE or (entry.type == "message" and entry.role in EDITABLE_ROLES):
            return None
        return entries.Protection.NOT_EDITABLE

    def write(
        self, branch: Sequence[entries.Entry], deletion: entries.Deletion, facts: formats.WriteFacts
    ) -> formats.Append:
        deleted = entries.blocks_by_entry(deletion.targets)
        messages = self._reader.rebuild(branch).messages
        edits = (
            (message.entry.id, None if blocks is None else surviving_content(message, blocks, facts.line))
            for message in _results_first(message for message in messages if message.entry.id in deleted)
            for blocks in [deleted[message.entry.id]]
        )
        return formats.Append(tuple(_edit_lines(edits, branch[-1].id, facts)))

    def hand(self, branch: Sequence[entries.Entry], change: formats.Change) -> formats.Handed:
        """The edits without ids and times, which pi sets itself."""
        lines = change.lines if isinstance(change, formats.Append) else ()
        edits = [
            {"targetId": edit["targetId"], "replacement": edit["replacement"]} for edit in map(jsjson.parse, lines)
        ]
        return formats.Handed({"edits": edits}, change)


def restore_lines(
    branch: Sequence[entries.Entry],
    messages: Sequence[Message],
    deleted: Mapping[str, frozenset[int] | None],
    facts: formats.WriteFacts,
) -> tuple[bytes, ...]:
    """New edits that give these messages their content again, without their deleted blocks.

    A call comes before its results: if the file is cut between two lines, pi answers the call itself.
    """
    edits = (
        (one.entry.id, surviving_content(one, deleted.get(one.entry.id) or frozenset(), facts.line)) for one in messages
    )
    return tuple(_edit_lines(edits, branch[-1].id, facts))


def _edit_lines(edits: Iterable[tuple[str, bytes | None]], parent: str, facts: formats.WriteFacts) -> Iterator[bytes]:
    """Edits of these entries, one after the other: each with the JSON of the new content, or None to omit the entry."""
    for target_id, content in edits:
        entry_id = facts.new_id()
        yield edit_line(entry_id, parent, facts.written_at, target_id, content)
        parent = entry_id


def _results_first(messages: Iterator[Message]) -> Iterator[Message]:
    """The results of an assistant's calls, then the assistant: if the file is cut between two lines, pi answers a call
    without a result itself, but would send a result without a call."""
    caller: Message | None = None
    for message in messages:
        if message.role == entries.Role.TOOL_RESULT:
            yield message
            continue
        if caller is not None:
            yield caller
        caller = message
    if caller is not None:
        yield caller


LEFT_OUT: Final = frozenset({entries.EntryKind.DELETION, entries.EntryKind.EDIT, entries.EntryKind.LABEL})
"""Kinds of entries that are not copied: deletions and edits are applied, and labels are appended again."""
NO_ENTRY: Final = "00000000"
NOTE_TYPE: Final = "redline-note"


class ForkWriter(formats.CopyingWriter):
    """Writes the remaining entries of a branch into a new session. Only parents and deleted blocks change; ids stay.

    The last assistant message still reports the size of the old context, so the agent would compact the fork at the
    next prompt. With `ends_with_edit` an edit of no entry follows, after which pi 0.87 estimates instead; otherwise the
    reported token counts are set to 0.
    """

    def __init__(self, reader: formats.Reader, *, ends_with_edit: bool) -> None:
        super().__init__(reader)
        self._ends_with_edit = ends_with_edit

    @property
    def universal(self) -> ForkWriter:
        """The writer that sets reported token counts to 0, as every version that does not honour edits requires."""
        return ForkWriter(self._reader, ends_with_edit=False)

    def write(
        self, branch: Sequence[entries.Entry], deletion: entries.Deletion, facts: formats.WriteFacts
    ) -> formats.NewFile:
        return _new_file(facts, self._lines(branch, deletion, facts))

    def _lines(
        self, branch: Sequence[entries.Entry], deletion: entries.Deletion, facts: formats.WriteFacts
    ) -> Iterator[bytes]:
        context = self._reader.rebuild(branch)
        messages = {message.entry.id: message for message in context.messages}
        deleted = entries.blocks_by_entry(deletion.targets)
        gone = context.removed | {entry_id for entry_id, blocks in deleted.items() if blocks is None}
        kept = [
            entry
            for entry in branch
            if entry.kind is entries.EntryKind.SUMMARY or (entry.kind not in LEFT_OUT and entry.id not in gone)
        ]
        yield jsjson.json_bytes(_header(facts))
        parent: str | None = None
        first_kept = _first_kept(branch, kept)
        # What precedes an entry from which a compaction keeps the context would not be sent.
        starts = {fields["firstKeptEntryId"] for fields in first_kept.values()}
        starts |= {one.control.first_kept_id or "" for one in kept if isinstance(one.control, entries.SummaryControl)}
        notes = formats.notes_before(
            branch, {entry.id for entry in kept}, facts.notes, lambda entry: entry.id not in starts
        )
        for entry in kept:
            parent = yield from _note_lines(notes.get(entry.id, ()), parent, facts)
            content = _content(messages.get(entry.id), deleted.get(entry.id), facts)
            line = moved_line(facts.line(entry).strip(), entry, parent, content, **first_kept.get(entry.id, {}))
            yield line if self._ends_with_edit else without_usage(line, entry)
            parent = entry.id
        parent = yield from _note_lines(notes.get(None, ()), parent, facts)
        parent = yield from _label_lines(kept, parent or kept[-1].id, facts)
        # Without the entry of a summary, what it replaced would come back: an edit omits it.
        omitted = [one.id for one in kept if one.id in gone] if entries.EntryKind.EDIT in self._reader.honours else []
        if self._ends_with_edit:
            omitted.append(NO_ENTRY if NO_ENTRY not in {one.id for one in kept} else facts.new_id())
        yield from _edit_lines(((entry_id, None) for entry_id in omitted), parent, facts)


def branch_copy(branch: Sequence[entries.Entry], facts: formats.WriteFacts) -> formats.NewFile:
    """A new session with every recorded line of a branch, as pi's own fork makes it: labels are appended again, and
    what followed one follows the entry before it."""
    return _new_file(facts, _copied_lines(branch, facts))


def _copied_lines(branch: Sequence[entries.Entry], facts: formats.WriteFacts) -> Iterator[bytes]:
    kept = [entry for entry in branch if entry.kind is not entries.EntryKind.LABEL]
    yield jsjson.json_bytes(_header(facts))
    parent: str | None = None
    first_kept = _first_kept(branch, kept)
    for entry in kept:
        line = facts.line(entry).strip()
        is_as_recorded = entry.parent_id == parent and entry.id not in first_kept
        yield (line if is_as_recorded else moved_line(line, entry, parent, None, **first_kept.get(entry.id, {})))
        parent = entry.id
    yield from _label_lines(kept, parent or "", facts)


def _note_lines(
    notes: Iterable[str], parent: str | None, facts: formats.WriteFacts
) -> Generator[bytes, None, str | None]:
    """Notes after `parent`; returns the id of the last one."""
    for words in notes:
        entry_id, note = facts.new_id(), {"customType": NOTE_TYPE, "content": formats.note_text(words), "display": True}
        yield new_line("custom_message", entry_id, parent, facts.written_at, **note)
        parent = entry_id
    return parent


def _label_lines(kept: Sequence[entries.Entry], parent: str, facts: formats.WriteFacts) -> Generator[bytes, None, str]:
    """The labels of these entries as new lines after `parent`; returns the id of the last one."""
    for entry in kept:
        if entry.id in facts.labels:
            entry_id, label = facts.new_id(), facts.labels[entry.id]
            yield new_line("label", entry_id, parent, facts.written_at, targetId=entry.id, label=label)
            parent = entry_id
    return parent


def _new_file(facts: formats.WriteFacts, lines: Iterable[bytes]) -> formats.NewFile:
    stamp = timestamp_of(facts.written_at).replace(":", "-").replace(".", "-")
    return formats.NewFile(f"{stamp}_{facts.session_id}.jsonl", (line + b"\n" for line in lines))


def _header(facts: formats.WriteFacts) -> dict[str, Any]:
    return {
        "type": "session",
        "version": facts.header.version,
        "id": facts.session_id,
        "timestamp": timestamp_of(facts.written_at),
        "cwd": facts.header.cwd,
        "parentSession": facts.session,
    }


def _content(message: Message | None, deleted: frozenset[int] | None, facts: formats.WriteFacts) -> bytes | None:
    """The JSON of a message's content, if it differs from the recorded one."""
    if message is None or message.entry.kind is not entries.EntryKind.MESSAGE:
        return None
    if deleted is None and message.edit is None and message.blocks == message.entry.blocks:
        return None
    return surviving_content(message, deleted or frozenset(), facts.line)


def _first_kept(branch: Sequence[entries.Entry], kept: Sequence[entries.Entry]) -> Mapping[str, dict[str, str]]:
    """For each summary whose first kept entry is gone: the next survivor before the summary, or the summary itself."""
    surviving = {entry.id for entry in kept}
    positions = {entry.id: position for position, entry in enumerate(branch)}
    found = {}
    for entry in kept:
        control = entry.control
        if not isinstance(control, entries.SummaryControl) or control.first_kept_id in surviving:
            continue
        start, end = positions.get(control.first_kept_id or "", len(branch)), positions[entry.id]
        if start < end:
            following = (one.id for one in branch[start:end] if one.id in surviving)
            found[entry.id] = {"firstKeptEntryId": next(following, entry.id)}
    return found
