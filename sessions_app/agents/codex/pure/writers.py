"""The writers for Codex. What is kept of a line has its recorded bytes.

The writer `compacted` appends a `compacted` line with the items that are left of the conversation. Nothing but the
deleted items changes. The context that Codex has added itself stays in its place, and if Codex still relies on it (see
`baseline_lines`), the lines that say so are repeated: otherwise it would add the same context a second time. So the
request begins with the same bytes up to the first deleted item, and a provider's cache stays valid up to there.

The writer `fork` makes a new thread of this one, which is only read:

    paginated    its header names the thread that it continues and the end of its file, so that Codex may have that open
    legacy       its header names no file: the other lines follow it, as in the forks that Codex itself makes

In both, a `compacted` line at the end has the items that are left. Versions before 0.169 do not know what a paginated
thread is.
"""

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import chain
from typing import Any, Final, NamedTuple
from uuid import NAMESPACE_URL, uuid5

from sessions_app.agents.pure import fields, formats
from sessions_app.sessionlog.context import Message
from sessions_app.sessionlog.entries import Deletion, Entry, EntryKind, blocks_by_entry
from sessions_app.sessionlog.errors import BadInput, Conflict
from sessions_app.sessionlog.jsjson import items, json_bytes, members, parse, splice
from sessions_app.sessionlog.text import timestamp_of

from .parser import CONTENT_IN, IS_PAGINATED, PROVENANCE, is_part, names_of, summary_item


class KeptItem(NamedTuple):
    """A remaining item: the id of its entry, empty for a new item, and its bytes."""

    entry_id: str
    raw: bytes


def new_line(kind: str, moment: datetime, ordinal: int | None, payload: bytes) -> bytes:
    """A line; `ordinal` is None in a legacy file."""
    number = b"" if ordinal is None else b',"ordinal":%d' % ordinal
    return b'{"timestamp":%s%s,"type":%s,"payload":%s}' % (
        json_bytes(timestamp_of(moment)),
        number,
        json_bytes(kind),
        payload,
    )


def compacted_payload(kept: Sequence[KeptItem], window: Mapping[str, Any], provenance: Mapping[str, Any]) -> bytes:
    """The payload of a compacted line with these items, the window that it begins, and Redline's own data."""
    own = {**provenance, "items": [item.entry_id for item in kept]}
    items_json = b",".join(item.raw for item in kept)
    return b'{"message":"","replacement_history":[%s],%s"%s":%s}' % (
        items_json,
        b"".join(b"%s:%s," % (json_bytes(name), json_bytes(value)) for name, value in window.items()),
        PROVENANCE.encode(),
        json_bytes(own),
    )


def next_window(
    branch: Sequence[Entry], line: Callable[[Entry], bytes], new_id: str, thread_window: str = ""
) -> Mapping[str, Any]:
    """The fields by which a compacted line begins a new window; none in a thread without windows.

    Without them, Codex decides by the tokens that were last reported, as if nothing had been deleted, and compacts
    immediately if they are above its limit. `thread_window` is the first window of a new thread, whose header is not in
    the branch.
    """
    first = previous = thread_window
    number = 0
    for entry in () if thread_window else branch:
        if entry.type == "session_meta":
            window = fields.mapping(recorded_payload(line(entry)), "context_window")
            first = previous = fields.text(window, "window_id")
            number = 0
        elif entry.type == "compacted" and entry.is_compaction:
            payload = recorded_payload(line(entry))
            previous = fields.text(payload, "window_id") or previous
            number = fields.whole_number(payload, "window_number") or number + 1
    if not first:
        return {}
    return {
        "window_number": number + 1,
        "first_window_id": first,
        "previous_window_id": previous,
        "window_id": str(uuid5(NAMESPACE_URL, f"{new_id} {number + 1}")),
    }


def recorded_payload(raw: bytes) -> dict[str, Any]:
    """The payload of a line that the parser has read."""
    return fields.mapping(parse(raw), "payload")


def payload_bytes(raw: bytes) -> bytes:
    """The recorded payload of a line."""
    return members(raw)["payload"].of(raw)


def kept_item(message: Message, deleted: frozenset[int], line: Callable[[Entry], bytes]) -> bytes:
    """The bytes of an item without some of its blocks."""
    raw = line(message.entry)
    if not is_part(message.entry.id):
        raw = payload_bytes(raw)
    elif raw.lstrip()[:1] == b'"':
        return json_bytes(summary_item(parse(raw)))
    blocks = message.blocks
    if blocks is None or not (deleted or len(blocks) < len(message.entry.blocks or ())):
        return raw
    content = members(raw)[CONTENT_IN[message.entry.type]]
    recorded = items(raw, content.start)
    left = (recorded[block.index].of(raw) for block in blocks if block.index not in deleted)
    return splice(raw, [(content, b"[" + b",".join(left) + b"]")])


def baseline_lines(branch: Sequence[Entry], line: Callable[[Entry], bytes]) -> list[tuple[str, bytes]]:
    """The type and payload of the lines that show which context the model has: the last full `world_state` with the
    changes after it, and the last `turn_context`. Empty if Codex adds its context again anyway.
    """
    boundaries = (place for place, entry in enumerate(branch) if entry.type == "compacted" and entry.is_compaction)
    after = max(boundaries, default=0)
    states: list[bytes] = []
    turn = None
    for entry in branch[after:]:
        if entry.type == "world_state":
            payload = payload_bytes(line(entry))
            is_full = members(payload).get("full")
            if is_full is not None and is_full.of(payload) == b"true":
                states = []
            elif not states:
                continue
            states.append(payload)
        elif entry.type == "turn_context":
            turn = payload_bytes(line(entry))
    if turn is None or not states:
        return []
    return [*(("world_state", state) for state in states), ("turn_context", turn)]


BlocksByEntry = Mapping[str, frozenset[int] | None]


class CompactedWriter(formats.ContextWriter):
    """Appends a line with the remaining items, and the lines about the added context."""

    name = "compacted"
    appends = True
    effect = (
        "Appends a compaction in Codex's own form to the session: the list of the items that are left, word for word. "
        "The file itself keeps the deleted items."
    )
    undo = "Another such line with the fuller list brings items back, all or single ones, at any time."

    def write(self, branch: Sequence[Entry], deletion: Deletion, facts: formats.WriteFacts) -> formats.Append:
        messages = self._reader.rebuild(branch).messages
        provenance = {"backup": facts.backup, "stats": deletion.stats.to_json()}
        kept = surviving_items(messages, blocks_by_entry(deletion.targets), facts)
        return formats.Append(compacted_lines(branch, kept, provenance, facts, _next_ordinal(facts)))


def surviving_items(messages: Iterable[Message], deleted: BlocksByEntry, facts: formats.WriteFacts) -> list[KeptItem]:
    """The items that a deletion leaves of these messages."""
    kept = []
    for message in messages:
        blocks = deleted.get(message.entry.id, frozenset())
        if blocks is not None:
            kept.append(KeptItem(message.entry.id, kept_item(message, blocks, facts.line)))
    return kept


def compacted_lines(
    branch: Sequence[Entry],
    kept: Sequence[KeptItem],
    provenance: Mapping[str, Any],
    facts: formats.WriteFacts,
    ordinal: int | None,
    thread_window: str = "",
) -> tuple[bytes, ...]:
    """The lines that make these items the conversation, the first one with this ordinal; None if lines have none.

    `thread_window` is the first window of a new thread, as its header has it.
    """
    window = next_window(branch, facts.line, facts.session_id, thread_window)
    payloads = [("compacted", compacted_payload(kept, window, provenance))]
    payloads += baseline_lines(branch, facts.line)
    return tuple(
        new_line(kind, facts.written_at, None if ordinal is None else ordinal + number, payload)
        for number, (kind, payload) in enumerate(payloads)
    )


def _next_ordinal(facts: formats.WriteFacts) -> int | None:
    """The ordinal of the next line of the session; None if its lines have none."""
    last: int | None = facts.state.extra.get("ordinal")
    return None if last is None else last + 1


class FullerList:
    """Restores deleted items with a `compacted` line that lists them in their places."""

    def __init__(self, reader: formats.Reader) -> None:
        self._reader = reader

    def __call__(
        self, branch: Sequence[Entry], messages: Sequence[Message], deleted: BlocksByEntry, facts: formats.WriteFacts
    ) -> tuple[bytes, ...]:
        """The lines that restore `messages`, without the blocks in `deleted`."""
        back = {message.entry.id for message in messages}
        origins = _origins(branch, facts)
        places = {entry.id: place for place, entry in enumerate(branch)}

        def place(message: Message) -> int:
            return places[origins.get(message.entry.id, message.entry.id)]

        now = self._reader.rebuild(branch).messages
        others = [one for one in now if origins.get(one.entry.id, one.entry.id) not in back]
        # In the order of recording; the other items keep the order that they have.
        kept = surviving_items(heapq.merge(others, messages, key=place), deleted, facts)
        return compacted_lines(branch, kept, {"undo": True}, facts, _next_ordinal(facts))


def _origins(branch: Sequence[Entry], facts: formats.WriteFacts) -> dict[str, str]:
    """For each entry that replaces one with deleted blocks, the original entry, by id."""
    known = {entry.id for entry in branch}
    origins: dict[str, str] = {}
    for entry in branch:
        if entry.kind is not EntryKind.BOUNDARY or entry.type != "compacted":
            continue
        for place, name in enumerate(names_of(recorded_payload(facts.line(entry))), 1):
            part = f"{entry.id}.{place}"
            if part in known and isinstance(name, str) and name in known:
                origins[part] = origins.get(name, name)
    return origins


ARCHIVED: Final = "archived_sessions"
NOT_MADE: Final = "No new session was made."
ID_LENGTH: Final = 36
"""The length of the id at the end of a file's name, by which others refer to it as their base: that of the thread or
its segment."""


class ThreadForkWriter(formats.CopyingWriter):
    """Writes a new thread beside the original one."""

    effect = (
        "Makes a new thread that continues this one without the deleted items. This session is not changed, and may be "
        "open in Codex, unless it was recorded by a version that did not number its lines."
    )
    undo = "Delete the new thread, or continue the original one."

    def __init__(self, reader: formats.Reader, *, knows_bases: bool = True) -> None:
        """`knows_bases`: whether the reading versions support threads that are based on others."""
        super().__init__(reader)
        self._knows_bases = knows_bases

    def write(self, branch: Sequence[Entry], deletion: Deletion, facts: formats.WriteFacts) -> formats.NewFile:
        """Write the new thread. Raises BadInput `archived_thread`, `newer_thread` and `no_header`, Conflict
        `open_in_agent`.
        """
        # The ordinal after the last one of a paginated thread; None for a legacy one.
        end = _next_ordinal(facts) if facts.state.extra.get(IS_PAGINATED) else None
        self._require_forkable(facts, is_legacy=end is None)
        messages = self._reader.rebuild(branch).messages
        kept = _with_notes(messages, surviving_items(messages, blocks_by_entry(deletion.targets), facts), facts)
        provenance = {"backup": facts.backup, "stats": deletion.stats.to_json()}
        header = new_line("session_meta", facts.written_at, end, _header(branch, facts, end))
        before = _copied(branch, facts, header) if end is None else [header]
        ordinal, window = (None, "") if end is None else (end + 1, facts.session_id)
        lines = compacted_lines(branch, kept, provenance, facts, ordinal, window)
        return formats.NewFile(
            f"rollout-{facts.written_at:%Y-%m-%dT%H-%M-%S}-{facts.session_id}.jsonl",
            (line + b"\n" for line in chain(before, lines)),
        )

    def _require_forkable(self, facts: formats.WriteFacts, *, is_legacy: bool) -> None:
        if ARCHIVED in facts.session.split("/"):
            raise BadInput(
                "archived_thread",
                f"{facts.session} is archived, and Codex does not resume what is beside it. {NOT_MADE} Run `codex "
                "unarchive` first.",
            )
        if not (is_legacy or self._knows_bases):
            raise BadInput(
                "newer_thread",
                f"{facts.session} was recorded by a newer Codex than the one that reads it, which does not know "
                f"threads that are based on others. {NOT_MADE} Save it as compacted, or use a newer Codex.",
            )
        if facts.is_open and is_legacy:
            raise Conflict(
                "open_in_agent",
                f"{facts.session} is open in Codex. Its lines are not numbered, so that a new thread cannot refer to "
                f"them and would be a copy, without what is still being said. {NOT_MADE} Close it in Codex first.",
            )


def _with_notes(messages: Sequence[Message], kept: Sequence[KeptItem], facts: formats.WriteFacts) -> list[KeptItem]:
    """The remaining items with the notes between them; a note has no entry."""
    notes = formats.notes_before([message.entry for message in messages], {item.entry_id for item in kept}, facts.notes)
    noted = chain.from_iterable((*map(_note_item, notes.get(item.entry_id, ())), item) for item in kept)
    return [*noted, *map(_note_item, notes.get(None, ()))]


def _note_item(words: str) -> KeptItem:
    content = [{"type": "input_text", "text": formats.note_text(words)}]
    return KeptItem("", json_bytes({"type": "message", "role": "user", "content": content}))


def _header(branch: Sequence[Entry], facts: formats.WriteFacts, end: int | None) -> bytes:
    """The original's header with the id of the new thread, and with the end of the original as its base."""
    own = recorded_payload(facts.line(_header_entry(branch, facts)))
    meta: dict[str, Any] = {
        **own,
        **dict.fromkeys({"session_id", "id"} & own.keys(), facts.session_id),
        "timestamp": timestamp_of(facts.written_at),
        "forked_from_id": facts.header.id,
    }
    if end is not None:
        meta |= {
            "forked_from_ordinal_exclusive": end,
            "history_base": {
                "thread_id": facts.file_name[-ID_LENGTH:],
                "end_ordinal_exclusive": end,
                "end_byte_offset": facts.state.next_offset - facts.state.extra["own_offset"],
            },
            "context_window": {"window_id": facts.session_id},
        }
    return json_bytes(meta)


def _header_entry(branch: Sequence[Entry], facts: formats.WriteFacts) -> Entry:
    """The header of the thread, or that of its base if the branch ends there."""
    recorded = [entry for entry in branch if entry.type == "session_meta"]
    if not recorded:
        raise BadInput("no_header", f"{facts.session} has no header before {branch[-1].id}. {NOT_MADE}")
    own = (entry for entry in recorded if recorded_payload(facts.line(entry)).get("id") == facts.header.id)
    return next(own, recorded[-1])


def _copied(branch: Sequence[Entry], facts: formats.WriteFacts, header: bytes) -> Iterator[bytes]:
    """All lines of the session, each in its place, with another header."""
    replaced = _header_entry(branch, facts).number
    for number, line in enumerate(facts.lines(), 1):
        yield header if number == replaced else line
