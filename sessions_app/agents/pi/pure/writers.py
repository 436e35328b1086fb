"""The lines that pi and Atomic read: new entries, recorded ones with another parent or content, and summaries.

| writer         | for                    | it writes                                                                  |
|----------------|------------------------|----------------------------------------------------------------------------|
| `context-edit` | pi 0.87 and newer      | one appended `context_edit` for each entry that is deleted or loses blocks |
| `fork`         | every version, of both | a new session beside the old one, with the entries that are kept           |

Summaries have lists of files, and are made from the conversation as text:

    messages ──conversation──▶ [User]: …  [Assistant]: …  [Assistant tool calls]: read(path="a.py")  [Tool result]: …
    messages ──files──▶ FileLists ──files_text──▶ <read-files>…</read-files>  <modified-files>…</modified-files>

The text is that of pi's `serializeConversation`: sections joined by a blank line, empty ones left out, JSON as
JavaScript prints it. Only what precedes an earlier summary is in Redline's own words.
"""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from sessions_app.agents.pure import fields
from sessions_app.agents.pure.format import (
    Append,
    Change,
    ContextWriter,
    FileLists,
    Handed,
    NewFile,
    Reader,
    RecordedSummary,
    WriteFacts,
    note_text,
    notes_before,
)
from sessions_app.sessionlog.context import Message
from sessions_app.sessionlog.entries import (
    BlockType,
    Deletion,
    Entry,
    EntryKind,
    Protection,
    Role,
    SummaryControl,
    blocks_by_entry,
)
from sessions_app.sessionlog.jsjson import (
    Span,
    items,
    json_bytes,
    members,
    parse,
    property_order,
    splice,
    stringify,
    to_string,
    utf16_length,
    utf16_slice,
    well_formed,
)
from sessions_app.sessionlog.text import timestamp_of

NULL: Final = b"null"
_CONTENT_IN: Final = {EntryKind.EDIT: "replacement", EntryKind.MESSAGE: "message"}


def new_line(kind: str, entry_id: str, parent_id: str | None, moment: datetime, **fields: Any) -> bytes:
    """The line of a new entry, without its newline."""
    common = {"type": kind, "id": entry_id, "parentId": parent_id, "timestamp": timestamp_of(moment)}
    return json_bytes({**common, **fields})


def edit_line(entry_id: str, parent_id: str, moment: datetime, target_id: str, content: bytes | None) -> bytes:
    """A `context_edit`: `content` is the JSON of the new content; None omits the target."""
    line = new_line("context_edit", entry_id, parent_id, moment, targetId=target_id, replacement=None)
    if content is None:
        return line
    return splice(line, [(members(line)["replacement"], b'{"content":' + content + b"}")])


def surviving_content(message: Message, deleted: frozenset[int], line: Callable[[Entry], bytes]) -> bytes:
    """The JSON of a message's content without some of its blocks; every block has its recorded bytes."""
    source = message.source
    raw = line(source)
    span = content_span(raw, source)
    if span is None or message.blocks is None:
        return NULL if span is None else span.of(raw)
    if raw[span.start : span.start + 1] == b'"':
        # pi makes a block of a text that replaces an assistant's or a tool's content.
        return b'[{"type":"text","text":' + span.of(raw) + b"}]"
    recorded = items(raw, span.start)
    kept = (recorded[block.index].of(raw) for block in message.blocks if block.index not in deleted)
    return b"[" + b",".join(kept) + b"]"


def content_span(raw: bytes, source: Entry) -> Span | None:
    """The position of the content in the line of an entry or an edit; None if it has none."""
    found = members(raw)
    if source.kind is EntryKind.EDIT or source.type == "message":
        within = found.get(_CONTENT_IN[source.kind])
        found = members(raw, within.start) if within is not None else {}
    return found.get("content")


def moved_line(raw: bytes, entry: Entry, parent_id: str | None, content: bytes | None = None, **fields: str) -> bytes:
    """A recorded line with another parent, and with another content and other texts in some fields if given."""
    found = members(raw)
    parent = NULL if parent_id is None else json_bytes(parent_id)
    changes = [(found[name], json_bytes(value)) for name, value in fields.items()]
    if "parentId" in found:
        changes.append((found["parentId"], parent))
    else:
        opening = raw.index(b"{") + 1
        changes.append((Span(opening, opening), b'"parentId":' + parent + b","))
    if content is not None:
        changes.append(_with_content(raw, entry, content))
    return splice(raw, changes)


def _with_content(raw: bytes, entry: Entry, content: bytes) -> tuple[Span, bytes]:
    """The change that gives an entry another content, which it may not have had at all."""
    span = content_span(raw, entry)
    if span is not None:
        return span, content
    within = members(raw)[_CONTENT_IN[entry.kind]].start if entry.type == "message" else 0
    opening = raw.index(b"{", within) + 1
    return Span(opening, opening), b'"content":' + content + b","


def without_usage(raw: bytes, entry: Entry) -> bytes:
    """The line of an assistant message with 0 for every token count that its provider reported."""
    if entry.role != Role.ASSISTANT or entry.usage is None:
        return raw
    message = members(raw)["message"]
    usage = members(raw, message.start).get("usage")
    counts = members(raw, usage.start) if usage is not None else {}
    return splice(raw, ((span, b"0") for span in _numbers(raw, counts)))


def _numbers(raw: bytes, found: Mapping[str, Span]) -> Iterator[Span]:
    return (span for span in found.values() if raw[span.start : span.start + 1] in b"-0123456789")


EDITABLE_ROLES: Final = frozenset({Role.USER, Role.ASSISTANT, Role.TOOL_RESULT})
EDITABLE_TYPE: Final = "custom_message"


class ContextEditWriter(ContextWriter):
    """Appends edits in one write; the edited entries stay in the file."""

    name = "context-edit"
    honours: Final = "edits"
    appends = True
    effect = "Appends one line for each deleted entry to the session; pi leaves these entries out from then on."
    undo = "One more line makes pi continue before them; single entries can be brought back at any time."

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


LEFT_OUT: Final = frozenset({EntryKind.DELETION, EntryKind.EDIT, EntryKind.LABEL})
"""Deletions and edits are applied instead; labels are appended again."""
NO_ENTRY: Final = "00000000"
NOTE_TYPE: Final = "redline-note"


class ForkWriter(ContextWriter):
    """Writes what survives of a branch into a new session. Ids stay; parents, and lost blocks, are the only changes.

    The last assistant message still reports the size of the old context, so the agent would compact the fork at the
    next prompt. With `ends_with_edit` an edit of no entry follows, after which pi 0.87 estimates instead; otherwise the
    reported token counts become 0.
    """

    name = "fork"
    appends = False
    holds_notes = True
    effect = "Writes a new session beside this one, with what survives. This session is not changed."
    undo = "To undo, continue with this session instead; the new one can be deleted."

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
                facts.new_id(), parent, facts.written_at, NO_ENTRY if NO_ENTRY not in known else facts.new_id(), None
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
            yield (entry_id, new_line("label", entry_id, parent, facts.written_at, targetId=entry.id, label=label))
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
        "parentSession": facts.session,
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


RESULT_UNITS: Final = 2_000
"""The UTF-16 units of a tool result that a model is shown."""
SPLIT_TURN: Final = "Turn Context (split turn)"
READS: Final = frozenset({"read"})
MODIFIES: Final = frozenset({"write", "edit"})
_SUMMARIES: Final = frozenset({"branch_summary", "compaction"})


class PiSummaryFormat:
    """The format that pi and Atomic share. Atomic honours only summaries of branches."""

    def __init__(self, *, honours_compactions: bool) -> None:
        self._honours_compactions = honours_compactions

    @property
    def honours_compactions(self) -> bool:
        return self._honours_compactions

    def conversation(self, messages: Sequence[Mapping[str, Any]]) -> str:
        sections = (f"[{name}]: {text}" for message in messages for name, text in _sections(message) if text)
        # A result that was cut within a pair of surrogates cannot be sent.
        return well_formed("\n\n".join(sections))

    def files(self, messages: Sequence[Mapping[str, Any]], earlier: Sequence[Mapping[str, Any]] = ()) -> FileLists:
        read: set[str] = set()
        modified: set[str] = set()
        for line in earlier:
            lists = None if _is_from_hook(line) else _recorded_lists(line)
            if lists is not None:
                read.update(lists.read)
                modified.update(lists.modified)
        for tool, path in _file_calls(messages):
            if tool in READS:
                read.add(path)
            elif tool in MODIFIES:
                modified.add(path)
        return FileLists(_sorted(read - modified), _sorted(modified))

    def files_text(self, files: FileLists) -> str:
        named = (("read-files", files.read), ("modified-files", files.modified))
        return "\n\n".join(f"<{name}>\n{_lines(paths)}\n</{name}>" for name, paths in named if paths)

    def split_turn_text(self, history: str, prefix: str) -> str:
        parts = (history, "---", f"**{SPLIT_TURN}:**", prefix)
        return "\n\n".join(parts if history else parts[2:])

    def branch_summary_line(
        self,
        entry_id: str,
        parent_id: str | None,
        moment: datetime,
        *,
        from_id: str,
        summary: str,
        files: FileLists,
        from_hook: bool = False,
    ) -> bytes:
        recorded = {"fromId": from_id, "summary": summary, **_origin(files, from_hook)}
        return new_line("branch_summary", entry_id, parent_id, moment, **recorded)

    def compaction_line(
        self,
        entry_id: str,
        parent_id: str,
        moment: datetime,
        *,
        summary: str,
        first_kept_id: str,
        tokens_before: int,
        files: FileLists,
        from_hook: bool = False,
    ) -> bytes:
        recorded = {"summary": summary, "firstKeptEntryId": first_kept_id, "tokensBefore": tokens_before}
        return new_line("compaction", entry_id, parent_id, moment, **recorded, **_origin(files, from_hook))

    def recorded_summary(self, line: bytes) -> RecordedSummary | None:
        recorded = fields.object_in(line.removeprefix(BOM_UTF8))
        if recorded is None or fields.text(recorded, "type") not in _SUMMARIES:
            return None
        return RecordedSummary(
            fields.text(recorded, "summary"),
            _recorded_lists(recorded),
            _is_from_hook(recorded),
            fields.text_or_none(recorded, "fromId"),
            fields.text_or_none(recorded, "firstKeptEntryId"),
            fields.integer(recorded, "tokensBefore"),
        )


# ---- the conversation as text ----------------------------------------------------------------------------


def _sections(message: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The sections of one message, each with its name; some may be empty."""
    role = message.get("role")
    if role == Role.ASSISTANT:
        yield from _assistant_sections(message)
    elif role == Role.TOOL_RESULT:
        yield "Tool result", _cut(_content_text(message, ""))
    elif role in (Role.USER, Role.CUSTOM):
        yield "User", _content_text(message, "")
    elif role == Role.COMMAND:
        yield "User", _command_text(message)
    elif role == Role.BRANCH_SUMMARY:
        yield "User", _after("Summary of another branch of this conversation:", fields.text(message, "summary"))
    elif role == Role.COMPACTION_SUMMARY:
        yield "User", _after("Summary of the conversation before this point:", fields.text(message, "summary"))


def _assistant_sections(message: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    blocks = fields.objects(message, "content")
    thinking = (block.get("thinking", "") for block in blocks if block.get("type") == BlockType.THINKING)
    calls = (_call_text(block) for block in blocks if block.get("type") == BlockType.TOOL_CALL)
    yield "Assistant thinking", "\n".join(map(to_string, thinking))
    yield "Assistant", _content_text(message, "\n")
    yield "Assistant tool calls", "; ".join(calls)


def _call_text(block: Mapping[str, Any]) -> str:
    """A call as `name(key=json, …)`."""
    arguments = fields.mapping(block, "arguments")
    values = (f"{to_string(key)}={stringify(arguments[key])}" for key in property_order(arguments))
    return f"{to_string(block.get('name', ''))}({', '.join(values)})"


def _content_text(message: Mapping[str, Any], separator: str) -> str:
    """The texts of a message's content, which may be one text or blocks."""
    texts = (block for block in fields.objects(message, "content") if block.get("type") == BlockType.TEXT)
    return fields.text(message, "content") or separator.join(to_string(block.get("text", "")) for block in texts)


def _command_text(message: Mapping[str, Any]) -> str:
    output = to_string(message.get("output", ""))
    ran = f"Ran `{to_string(message.get('command', ''))}`\n"
    text = ran + (f"```\n{output}\n```" if output else "(no output)")
    code = message.get("exitCode")
    return f"{text}\n\nCommand exited with code {to_string(code)}" if code else text


def _after(heading: str, summary: str) -> str:
    return f"{heading}\n\n{summary}" if summary else ""


def _cut(text: str) -> str:
    more = utf16_length(text) - RESULT_UNITS
    if more <= 0:
        return text
    return f"{utf16_slice(text, 0, RESULT_UNITS)}\n\n[... {more} more characters truncated]"


# ---- files -----------------------------------------------------------------------------------------------


def _file_calls(messages: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """The tool and the path of each call that names one."""
    for message in messages:
        for block in fields.objects(message, "content") if message.get("role") == Role.ASSISTANT else ():
            tool, path = fields.text(block, "name"), fields.text(fields.mapping(block, "arguments"), "path")
            if block.get("type") == BlockType.TOOL_CALL and path:
                yield tool, path


def _recorded_lists(line: Mapping[str, Any]) -> FileLists | None:
    """The lists in the details of a summary as recorded; None if there are none."""
    details, names = fields.mapping(line, "details"), ("readFiles", "modifiedFiles")
    if not any(isinstance(details.get(name), list) for name in names):
        return None
    return FileLists(*(tuple(fields.texts(details, name)) for name in names))


def _is_from_hook(line: Mapping[str, Any]) -> bool:
    """Whether an extension wrote a summary: a derivative of pi has another name for it."""
    return any(line.get(name) is True for name in ("fromHook", "fromExtension"))


def _origin(files: FileLists, from_hook: bool) -> dict[str, Any]:
    details = {"readFiles": list(files.read), "modifiedFiles": list(files.modified)}
    return {"details": details, **({"fromHook": True} if from_hook else {})}


def _sorted(paths: Iterable[str]) -> tuple[str, ...]:
    """Paths in JavaScript's order, which compares UTF-16 units."""
    return tuple(sorted(paths, key=lambda path: path.encode("utf-16-be", "surrogatepass")))


def _lines(paths: Iterable[str]) -> str:
    return "\n".join(paths)
