"""The writers for Claude Code. Of a recorded line only what has to differ is replaced; the rest keeps its bytes.

The writer `boundary`, for 2.1.143 and newer, appends one `compact_boundary` that lists the lines that remain:

    system / compact_boundary    parentUuid null, anchored on itself
        preservedMessages        what remains, in the order of the context: the client hangs it under the boundary
        preservedSegment         the first and the last line of the old conversation, for versions that read no list:
                                 they show all of it instead of nothing

If one listed line is not in the file, the client ignores the whole list; so only lines of the branch are listed, which
was read under the lock. A line is listed or left out as a whole, and what an earlier boundary left out can be listed
again: that is how an undo is written.

The writer `fork`, for every version, makes a new session beside the old one:

    <new id>.jsonl     the lines of the context, each after the one before it, then a title
    unchanged          uuid, timestamp, and every byte of what was said
    changed            parentUuid, sessionId, the reported tokens (0), lost blocks; `entrypoint`, so that it is listed
    added              forkedFrom, as the client's own branches have it
    left out           what an earlier compaction left out, and lines beside the conversation: they describe the old one

Texts may name files in the directory of long outputs of the old session: it stays where it is.
"""

from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from sessions_app.agents.pure import formats
from sessions_app.sessionlog.context import ActiveContext, Message
from sessions_app.sessionlog.entries import Deletion, Entry, EntryKind, Protection, Role, Stats, blocks_by_entry
from sessions_app.sessionlog.errors import BadInput
from sessions_app.sessionlog.jsjson import Span, items, json_bytes, members, parse, splice
from sessions_app.sessionlog.session import ParserState
from sessions_app.sessionlog.text import timestamp_of

from .parser import CLIENT, SINCE, is_result
from .reader import ClaudeCodeReader

NO_USAGE: Final = b'{"input_tokens":0,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":0}'
INTERACTIVE: Final = "cli"
"""The `entrypoint` of the sessions that `claude --resume` lists."""

_PLACE: Final = ("isSidechain", "userType", "entrypoint", "cwd", "version", "gitBranch")
"""The fields of a line about the place and the program by which it was written."""

LostBlocks = Mapping[str, frozenset[int] | None]
"""By entry id, the indexes of the blocks that are left out; None for the whole entry."""


def lines_of_context(context: ActiveContext, branch: Sequence[Entry]) -> list[list[Entry]]:
    """The recorded lines of a context, in its order, each as its entries. The last entry has the line's id and its
    bytes.
    """
    parts: dict[int, list[Entry]] = {}
    for entry in branch:
        parts.setdefault(entry.number, []).append(entry)
    return [parts[number] for number in dict.fromkeys(message.entry.number for message in context.messages)]


def is_one_of_several(entry: Entry) -> bool:
    """Whether the entry's line has other entries: then its parent is on the same line, or its id is that of a part."""
    _, point, number = entry.id.rpartition(".")
    return (bool(point) and number.isdigit()) or (entry.parent_id or "").startswith(f"{entry.id}.")


def is_nameless(entry: Entry) -> bool:
    """Whether the entry's line has no uuid: the parser names it by its line number."""
    return entry.id == f"line-{entry.number}"


def moved_line(raw: bytes, **fields: Any) -> bytes:
    """A recorded line with these fields changed, to stand in another session or after another line.

    Reported token usage is set to 0: with the old value, the agent would compact the shorter conversation at the next
    prompt.
    """
    found, opening = members(raw), raw.index(b"{") + 1
    changes = []
    for name, value in fields.items():
        text = json_bytes(value)
        if name in found:
            changes.append((found[name], text))
        else:
            changes.append((Span(opening, opening), b"%s:%s," % (json_bytes(name), text)))
    if "entrypoint" in found:
        changes.append((found["entrypoint"], json_bytes(INTERACTIVE)))
    usage = members(raw, found["message"].start).get("usage") if "message" in found else None
    if usage is not None:
        changes.append((usage, NO_USAGE))
    return splice(raw, changes)


def user_line(beside: Mapping[str, Any], text: str, moment: datetime, **fields: str | None) -> bytes:
    """A new message of the user, as the client would have written it beside a recorded line."""
    place = {name: beside[name] for name in _PLACE if name in beside}
    if "entrypoint" in place:
        place["entrypoint"] = INTERACTIVE
    message = {"role": "user", "content": text}
    return json_bytes({**fields, **place, "type": "user", "message": message, "timestamp": timestamp_of(moment)})


def line_without(raw: bytes, parts: Sequence[Entry], lost: LostBlocks) -> bytes:
    """A recorded line without some of its content. `parts` are its entries: one for each tool result, then the rest."""
    if not any(part.id in lost for part in parts):
        return raw
    message = members(raw)["message"].start
    kept = _content_items(raw, message)
    results = (index for index, item in enumerate(kept) if is_result(parse(item)))
    gone: set[int] = set()
    for part in parts:
        blocks = lost.get(part.id, frozenset())
        if part.role != Role.TOOL_RESULT:
            gone |= {block.index for block in part.blocks or ()} if blocks is None else blocks
            continue
        index = next(results)
        if blocks is None:
            gone.add(index)
        elif blocks:
            kept[index] = _with_items(kept[index], 0, _content_items(kept[index], 0), blocks)
    return _with_items(raw, message, kept, gone)


def _content_items(raw: bytes, start: int) -> list[bytes]:
    """The items of the content of the object that begins there."""
    return [span.of(raw) for span in items(raw, members(raw, start)["content"].start)]


def _with_items(raw: bytes, start: int, recorded: Sequence[bytes], gone: Collection[int]) -> bytes:
    left = b",".join(item for index, item in enumerate(recorded) if index not in gone)
    return splice(raw, [(members(raw, start)["content"], b"[" + left + b"]")])


NO_STATS: Final = Stats()
NAME: Final = "boundary"
CONTENT: Final = "Conversation curated with Redline"
MARK: Final = "redline"
"""The key by which Redline recognises its own boundaries; the client ignores it."""


class BoundaryWriter(formats.ContextWriter):
    """Appends one line; entries that it does not list stay in the file, but are not sent."""

    name = NAME
    appends = True
    effect = "Appends one line to the session; Claude Code sends only what the line lists."
    undo = "One more line lists everything again; single entries can be brought back at any time."

    def protection(self, entry: Entry) -> Protection | None:
        """Protects entries of which only a part could be deleted: a boundary keeps or drops whole lines. A fork can
        drop parts.
        """
        is_partial = len(entry.blocks or ()) > 1 or is_one_of_several(entry)
        return Protection.NOT_EDITABLE if is_partial else None

    def write(self, branch: Sequence[Entry], deletion: Deletion, facts: formats.WriteFacts) -> formats.Append:
        gone = blocks_by_entry(deletion.targets)
        lines = lines_of_context(self._reader.rebuild(branch), branch)
        kept = [parts[-1] for parts in lines if parts[-1].id not in gone]
        return formats.Append((boundary_line(branch, kept, facts, deletion.stats),))


def refused_writers(state: ParserState) -> Mapping[str, str]:
    """Why no boundary must be appended to a session, if none may be. `state` is that of its parser at its end.

    The client that wrote the last line may be the one that continues the session, here or on another computer.
    """
    version = tuple(state.extra.get(CLIENT, ()))
    if version >= SINCE:
        return {}
    since, last = ".".join(map(str, SINCE)), ".".join(map(str, version))
    known = f"was last continued with version {last}" if last else "does not show which version continued it last"
    reason = (
        f"The session {known} of Claude Code, and no version before {since} honours what {NAME} appends. "
        "Continue the session once with the installed client first, or save it as a fork."
    )
    return {NAME: reason}


def restore_lines_by(reader: formats.Reader) -> formats.RestoreLines:
    """Another boundary, which lists the current context and the restored entries, in their places."""

    def restore_lines(
        branch: Sequence[Entry],
        messages: Sequence[Message],
        deleted: Mapping[str, frozenset[int] | None],
        facts: formats.WriteFacts,
    ) -> tuple[bytes, ...]:
        del deleted  # whole lines come back
        now = {message.entry.id for message in reader.rebuild(branch).messages}
        wanted = now | {message.entry.id for message in messages}
        earlier = _context_with(reader, branch, {message.entry.id for message in messages})
        kept = [parts[-1] for parts in lines_of_context(earlier, branch) if parts[-1].id in wanted]
        return (boundary_line(branch, kept, facts),)

    return restore_lines


def _context_with(reader: formats.Reader, branch: Sequence[Entry], sought: Collection[str]) -> ActiveContext:
    """The context of a branch with as few of its last boundaries removed as possible, so that it has these entries."""
    left = list(branch)
    context = reader.rebuild(left)
    for boundary in reversed([entry for entry in branch if entry.kind is EntryKind.BOUNDARY]):
        if set(sought) <= {message.entry.id for message in context.messages}:
            break
        left.remove(boundary)
        context = reader.rebuild(left)
    return context


def boundary_line(
    branch: Sequence[Entry], kept: Sequence[Entry], facts: formats.WriteFacts, stats: Stats = NO_STATS
) -> bytes:
    """A boundary after which the context consists of these lines; without its newline.

    Raises BadInput `no_line_id` if one of them has no id: the client would ignore the whole list.
    """
    nameless = next(filter(is_nameless, kept), None)
    if nameless is not None:
        raise BadInput(
            "no_line_id",
            f"Line {nameless.number} of {facts.session} has no uuid, so no boundary can list it. Nothing was written. "
            "Save it as a fork.",
        )
    boundary_id, ids = facts.new_id(), [entry.id for entry in kept]
    head, tail = _segment(branch)
    metadata = {
        "trigger": "manual",
        "preTokens": stats.tokens_before,
        "postTokens": stats.tokens_after,
        "durationMs": 0,
        "cumulativeDroppedTokens": stats.tokens_before - stats.tokens_after,
        "preCompactOrganizationsCoverStart": False,
        "preservedSegment": {"headUuid": head, "anchorUuid": boundary_id, "tailUuid": tail},
        "preservedMessages": {"anchorUuid": boundary_id, "uuids": ids, "allUuids": ids},
        MARK: {"backup": facts.backup},
    }
    return json_bytes(
        {
            "parentUuid": None,
            "logicalParentUuid": tail,
            "isSidechain": False,
            "type": "system",
            "subtype": "compact_boundary",
            "content": CONTENT,
            "isMeta": False,
            "level": "info",
            "uuid": boundary_id,
            "timestamp": timestamp_of(facts.written_at),
            "cwd": facts.header.cwd,
            "sessionId": facts.file_name,
            "compactMetadata": metadata,
        }
    )


def _segment(branch: Sequence[Entry]) -> tuple[str, str]:
    """The first and the last line of the chain of recorded parents that ends at the end of a branch, up to a
    boundary.
    """
    entries = {entry.id: entry for entry in branch}
    head = tail = branch[-1]
    seen = {tail.id}
    while (above := entries.get(head.parent_id or "")) is not None and above.id not in seen:
        if above.kind is EntryKind.BOUNDARY:
            break
        seen.add(above.id)
        head = above
    return head.id, tail.id


UNNAMED: Final = "Session of {:%Y-%m-%d %H:%M}"


class ClaudeForkWriter(formats.CopyingWriter):
    """Writes the remaining context into a new session."""

    def __init__(self, reader: ClaudeCodeReader) -> None:
        super().__init__(reader)
        self._arranged: Final = reader.arranged

    def write(self, branch: Sequence[Entry], deletion: Deletion, facts: formats.WriteFacts) -> formats.NewFile:
        """Write the new session. Raises BadInput `ends_unsaid`."""
        lost = blocks_by_entry(deletion.targets)
        context = self._reader.rebuild(branch)
        # The order is that of what survives: of a line with several entries, the first one may be gone.
        left = self._arranged(
            [one for one in context.messages if one.entry.id not in lost or lost[one.entry.id] is not None], is_new=True
        )
        self._require_sent(left, facts)
        recorded = lines_of_context(replace(context, messages=tuple(left)), branch)
        notes = _notes(context, left, facts)
        lines = self._lines(recorded, lost, notes, facts)
        return formats.NewFile(f"{facts.session_id}.jsonl", (line + b"\n" for line in lines))

    def _require_sent(self, left: Sequence[Message], facts: formats.WriteFacts) -> None:
        """Raise BadInput `ends_unsaid` if the agent would not send everything that remains: versions before 2.1.143
        leave out attachments and outputs of commands that no message follows.
        """
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
        facts: formats.WriteFacts,
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
        ending = formats.CURATED if lost else formats.COPIED
        title = (facts.title() or UNNAMED.format(facts.written_at)).removesuffix(ending)
        yield json_bytes({"type": "custom-title", "customTitle": f"{title}{ending}", "sessionId": facts.session_id})


def _notes(
    context: ActiveContext, left: Sequence[Message], facts: formats.WriteFacts
) -> Mapping[int | None, list[str]]:
    """The notes by the number of the line that they precede: never one with results."""
    kept_ids = {message.entry.id for message in left}
    order = [message.entry for message in context.messages]
    answering = {entry.number for entry in order if entry.id in kept_ids and entry.result_for is not None}
    found = formats.notes_before(order, kept_ids, facts.notes, lambda entry: entry.number not in answering)
    numbers = {entry.id: entry.number for entry in order}
    return {None if before is None else numbers[before]: words for before, words in found.items()}


def _note_lines(
    notes: Iterable[str], beside: Entry, parent: str | None, facts: formats.WriteFacts
) -> Generator[bytes, None, str | None]:
    """Messages of the user after `parent`, with the place fields of a recorded line; returns the id of the last one."""
    for words in notes:
        note_id = facts.new_id()
        recorded = parse(facts.line(beside))
        yield user_line(
            recorded,
            formats.note_text(words),
            facts.written_at,
            parentUuid=parent,
            uuid=note_id,
            sessionId=facts.session_id,
        )
        parent = note_id
    return parent
