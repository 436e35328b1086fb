"""The writers for OpenCode: rows of its database, changed or copied in one transaction.

`delete` removes parts, which gives exactly the approved context: a call and its result are one part. `prune` sets the
client's own mark on completed outputs, so that a placeholder is sent in their place; calls stay. `fork` copies what
survives into a new session.

The client decides by the tokens that the last finished reply reports whether it compacts at the next prompt. They
describe the context as it was, so each writer sets them to 0. A running server cannot do that: see `server`.

A note of the user in a fork is a message of the user with one part, after the message before it: messages are sent in
the order of `time_created` and id.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import ClassVar, Final, NamedTuple

import msgspec

from sessions_app.agents.pure import formats
from sessions_app.sessionlog.context import Message
from sessions_app.sessionlog.entries import Deletion, Entry, Protection, Role, Target, blocks_by_entry, tokens_of
from sessions_app.sessionlog.jsjson import Span, json_bytes, members, parse, splice, stringify

from .lines import INFO, MESSAGE, PART, REVERT, SESSION, SUFFIX, ExportRow, export_of
from .parser import ABORTED, CALL_SUFFIX, CLEARED, CLEARED_STATUS, COMPLETED, row_id_of

NO_TOKENS: Final = b'{"total":0,"input":0,"output":0,"reasoning":0,"cache":{"read":0,"write":0}}'
UNCOUNTED: Final = " The token count of the last reply becomes 0, so that OpenCode does not compact at once."
_SERVED: Final = (
    " This is done through the OpenCode server at {}, part by part; if one fails, all are put back. The token count of "
    "the last reply is kept, so OpenCode may compact at the next prompt."
)
_DELETED: Final = "Deletes these parts from OpenCode's database"
_PRUNED: Final = (
    f"Marks these outputs in OpenCode's database as the client itself does: the model receives “{CLEARED}” in their "
    "place. Calls are kept, and so is the output in its row."
)


class RowWriter(formats.SessionWriter):
    """The common base of the writers."""

    appends = True
    honours: ClassVar[str] = "parts"

    def remains(self, message: Message, blocks: frozenset[int] | None) -> Message | None:
        """None: every part has one block, so nothing remains without it."""
        return None

    def hand(self, branch: Sequence[Entry], change: formats.Change) -> formats.Handed:
        """The changed parts, each with its new document. The client's interface cannot change messages, so the token
        count of the last reply stays.
        """
        rows = change.changes if isinstance(change, formats.RowChanges) else ()
        made = tuple(row for row in rows if row.table == PART)
        messages = {entry.id: message_id_of(entry) for entry in branch}
        parts = [
            {
                "message": messages[row.row_id],
                "part": row.row_id,
                "data": parse(encoded(row.after)) if row.after is not None else None,
            }
            for row in made
        ]
        return formats.Handed({"parts": parts}, formats.RowChanges(made))


class DeleteWriter(RowWriter):
    """Deletes the rows of parts."""

    name = "delete"
    effect = f"{_DELETED}, in one transaction.{UNCOUNTED}"
    undo = "To undo, the rows are put back from the backup."

    def effect_through(self, address: str) -> str:
        return f"{_DELETED}.{_SERVED.format(address)}"

    def write(self, branch: Sequence[Entry], deletion: Deletion, facts: formats.WriteFacts) -> formats.RowChanges:
        deleted = {row_id_of(entry_id) for entry_id in blocks_by_entry(deletion.targets)}
        changes = [
            formats.RowChange(PART, entry.id, data_of(entry, facts), None) for entry in branch if entry.id in deleted
        ]
        return formats.RowChanges((*changes, *without_usage(branch, facts)))


class PruneWriter(RowWriter):
    """Marks the outputs of completed tools as cleared."""

    name = "prune"
    effect = _PRUNED + UNCOUNTED
    undo = "To undo, the rows are put back from the backup."

    def effect_through(self, address: str) -> str:
        return _PRUNED + _SERVED.format(address)

    def protection(self, entry: Entry) -> Protection | None:
        is_call = entry.id.endswith(CALL_SUFFIX)
        return None if is_call or entry.stop_reason == COMPLETED else Protection.NOT_EDITABLE

    def unapplied(self, branch: Sequence[Entry], targets: Sequence[Target]) -> tuple[Target, ...]:
        """The calls among the targets: they stay."""
        return tuple(target for target in targets if target.entry_id.endswith(CALL_SUFFIX))

    def remains(self, message: Message, blocks: frozenset[int] | None) -> Message | None:
        """The message with the placeholder as its content."""
        tokens = tokens_of(len(CLEARED))
        entry = msgspec.structs.replace(message.entry, stop_reason=CLEARED_STATUS, tokens=tokens)
        return msgspec.structs.replace(message, entry=entry, tokens=tokens)

    def write(self, branch: Sequence[Entry], deletion: Deletion, facts: formats.WriteFacts) -> formats.RowChanges:
        cleared = blocks_by_entry(deletion.targets)
        changes = [
            formats.RowChange(PART, entry.id, data, _cleared(data, facts))
            for entry in branch
            if entry.id in cleared and entry.role == Role.TOOL_RESULT
            for data in [data_of(entry, facts)]
        ]
        return formats.RowChanges((*changes, *without_usage(branch, facts)))


def without_usage(branch: Sequence[Entry], facts: formats.WriteFacts) -> Iterator[formats.RowChange]:
    """The change that sets the tokens of the last finished reply to 0, if it reports any."""
    replies = (one for one in reversed(branch) if one.role in (Role.ASSISTANT, Role.COMPACTION_SUMMARY))
    last = next((one for one in replies if one.stop_reason not in ("", "error", ABORTED)), None)
    if last is None or not last.usage:
        return
    message_id = message_id_of(last)
    message = next((entry for entry in branch if entry.id == message_id), None)
    data = data_of(message, facts) if message is not None else ""
    raw = encoded(data)
    tokens = members(raw).get("tokens")
    if tokens is not None:
        yield formats.RowChange(MESSAGE, message_id, data, decoded(splice(raw, [(tokens, NO_TOKENS)])))


def _cleared(data: str, facts: formats.WriteFacts) -> str:
    """The data of a completed tool part with the client's mark: `state.time.compacted`, in milliseconds."""
    raw = encoded(data)
    mark = b'"compacted":%d' % int(facts.written_at.timestamp() * 1000)
    state = members(raw)["state"]
    time = members(raw, state.start).get("time")
    if time is None:
        return decoded(splice(raw, [(Span(state.end - 1, state.end - 1), b',"time":{%s}' % mark)]))
    joint = b"," if members(raw, time.start) else b""
    return decoded(splice(raw, [(Span(time.end - 1, time.end - 1), joint + mark)]))


def table_of(entry: Entry) -> str:
    return MESSAGE if entry.type == MESSAGE else PART


def message_id_of(entry: Entry) -> str:
    return entry.reply.partition("/")[0]


def data_of(entry: Entry, facts: formats.WriteFacts) -> str:
    """The exact text of the data of an entry's row."""
    raw = facts.line(entry)
    return decoded(raw if entry.role == Role.TOOL_RESULT else members(raw)["data"].of(raw))


def encoded(data: str) -> bytes:
    return data.encode("utf-8", "surrogateescape")


def decoded(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


_NOT_COPIED: Final = {
    "parent_id": None,
    "revert": None,
    "share_url": None,
    "time_compacting": None,
    "time_archived": None,
}
"""The columns of a session that a copy of it begins without."""
_NOT_EXPORTED: Final = ("parentID", "revert", "share")
"""Fields of the export of a session that the export of a copy does not have."""
_REFERENCES: Final = ("parentID", "tail_start_id")
"""The fields of data that name a message."""
_QUOTE: Final = ord('"')
_ID_LIMIT: Final = 1 << 48
_ADDRESSED: Final = ("agent", "model")
"""The fields of a user's message that name the agent and the model that are to answer it."""


class CopiedRow(NamedTuple):
    """A row of the new session: a copy of another row, except for the fields given here."""

    table: str
    id: str
    source_id: str
    message_id: str
    """Of a part: the id of its message in the new session."""
    data: str
    recorded: str
    """The data of its source."""

    def as_copy(self, session_id: str) -> formats.RowCopy:
        columns: dict[str, str | int | None] = {"id": self.id, "session_id": session_id}
        if self.message_id:
            columns["message_id"] = self.message_id
        if self.data != self.recorded:
            columns["data"] = self.data
        return formats.RowCopy(self.table, self.id, self.source_id, columns)


class RowForkWriter(RowWriter):
    """Copies the remaining rows into a new session of the same database."""

    name = "fork"
    appends = False
    holds_notes = True
    effect = (
        "Copies what is kept into a new session: in OpenCode's database, or for an export into a new export beside "
        "it. This session is not changed." + UNCOUNTED
    )
    undo = "To undo, continue with this session instead; the new one can be deleted in OpenCode."

    def write(
        self, branch: Sequence[Entry], deletion: Deletion, facts: formats.WriteFacts
    ) -> formats.RowChanges | formats.NewFile:
        deleted = {row_id_of(entry_id) for entry_id in blocks_by_entry(deletion.targets)}
        rows = _copied_rows(branch, deleted, facts)
        session_id = f"ses_{_descending(facts.new_id())}"
        moment = int(facts.written_at.timestamp() * 1000)
        ending = formats.CURATED if deleted else formats.COPIED
        info = facts.state.extra.get(INFO)
        if info is not None:
            recorded = parse(info.encode())
            forked = {
                **{name: value for name, value in recorded.items() if name not in _NOT_EXPORTED},
                "id": session_id,
                "title": f"{recorded.get('title', '')}{ending}",
                "time": {"created": moment, "updated": moment},
            }
            exported = (ExportRow(row.table, row.id, encoded(row.data)) for row in rows)
            return formats.NewFile(f"{session_id}{SUFFIX}", export_of(forked, exported))
        columns = {"id": session_id, **_NOT_COPIED, "time_created": moment, "time_updated": moment}
        session = formats.RowCopy(SESSION, session_id, facts.file_name, columns, {"title": ending})
        return formats.RowChanges((), (session, *(row.as_copy(session_id) for row in rows)), session_id)


def _copied_rows(branch: Sequence[Entry], deleted: set[str], facts: formats.WriteFacts) -> list[CopiedRow]:
    """The rows that stay with the notes between them. Their ids, by which they are sorted, are made in this order."""
    kept_ids = {entry.id for entry in branch if row_id_of(entry.id) not in deleted}
    notes = formats.notes_before(branch, kept_ids, facts.notes, lambda entry: entry.type == MESSAGE)
    uncounted = {change.row_id: change.after for change in without_usage(branch, facts)}
    # A call is in the row of its result, and a revert in the session's.
    own = (entry for entry in branch if entry.type != REVERT and not entry.id.endswith(CALL_SUFFIX))
    rows = [entry for entry in own if entry.id in kept_ids]
    copied: list[CopiedRow] = []
    new_ids: dict[str, str] = {}
    for at, entry in enumerate(rows):
        if entry.id in notes:
            copied += _note_rows(notes[entry.id], rows[:at], facts)
        kind = "msg" if entry.type == MESSAGE else "prt"
        new_id = new_ids[entry.id] = f"{kind}_{facts.new_id()}"
        message_id = "" if entry.type == MESSAGE else new_ids[message_id_of(entry)]
        recorded = data_of(entry, facts)
        data = uncounted.get(entry.id) or recorded
        copied.append(CopiedRow(table_of(entry), new_id, entry.id, message_id, data, recorded))
    if None in notes:
        copied += _note_rows(notes[None], rows, facts)
    return [row._replace(data=_renamed(row.data, new_ids)) for row in copied]


def _note_rows(notes: Iterable[str], before: Sequence[Entry], facts: formats.WriteFacts) -> Iterator[CopiedRow]:
    """Each note as a message of the user with one part, at the time of the message before it, so that it is sorted
    after that, and to whom the user spoke last."""
    messages = [(entry, parse(encoded(data_of(entry, facts)))) for entry in before if entry.type == MESSAGE]
    source, latest = messages[-1]
    prompt = next(data for _, data in reversed(messages) if data.get("role") == Role.USER)
    addressed = {name: prompt[name] for name in _ADDRESSED if name in prompt}
    message = {"role": Role.USER, "time": {"created": latest["time"]["created"]}, **addressed}
    part_id = next(entry.id for entry in reversed(before) if entry.type != MESSAGE)
    for words in notes:
        message_id, new_part_id = (f"{kind}_{facts.new_id()}" for kind in ("msg", "prt"))
        part = stringify({"type": "text", "text": formats.note_text(words)})
        yield CopiedRow(MESSAGE, message_id, source.id, "", stringify(message), "")
        yield CopiedRow(PART, new_part_id, part_id, message_id, part, "")


def _renamed(data: str, new_ids: Mapping[str, str]) -> str:
    """The data of a row with the new ids of the messages that it names."""
    raw = encoded(data)
    found = members(raw)
    changes = []
    for name in _REFERENCES:
        span = found.get(name)
        new_id = new_ids.get(parse(span.of(raw))) if span is not None and raw[span.start] == _QUOTE else None
        if span is not None and new_id is not None:
            changes.append((span, json_bytes(new_id)))
    return decoded(splice(raw, changes))


def _descending(new_id: str) -> str:
    """A session's id: what is made later is smaller."""
    digits = len(f"{_ID_LIMIT:x}") - 1
    return f"{_ID_LIMIT - 1 - int(new_id[:digits], 16):0{digits}x}{new_id[digits:]}"
