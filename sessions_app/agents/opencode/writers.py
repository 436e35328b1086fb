"""The writers for OpenCode: rows of its database, changed or copied in one transaction.

`delete` removes parts, which gives exactly the approved context: a call and its result are one part. `prune` sets the
client's own mark on completed outputs, so that a placeholder is sent in their place; calls stay. `fork` copies what
survives into a new session.

The client decides by the tokens that the last finished reply reports whether it compacts at the next prompt. They
describe the context as it was, so each writer sets them to 0. A running server cannot do that: see `server`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final

import msgspec

from sessions_app.agents.changes import NewFile, PlainWriter, RowChange, RowChanges, RowCopy, WriteFacts
from sessions_app.sessionlog.context import Message
from sessions_app.sessionlog.deletion import Deletion
from sessions_app.sessionlog.entries import Entry, Role, tokens_of
from sessions_app.sessionlog.jsjson import parse, stringify
from sessions_app.sessionlog.protection import Protection
from sessions_app.sessionlog.raw_json import Span, members, splice
from sessions_app.sessionlog.targets import Target, blocks_by_entry

from .export import INFO, SUFFIX, ExportRow, export_of
from .lines import MESSAGE, PART, REVERT, SESSION
from .parser import ABORTED, CALL_SUFFIX
from .parts import CLEARED, CLEARED_STATUS, COMPLETED

NO_TOKENS: Final = b'{"total":0,"input":0,"output":0,"reasoning":0,"cache":{"read":0,"write":0}}'
_UNCOUNTED: Final = " The token count of the last reply becomes 0, so that OpenCode does not compact at once."
_SERVED: Final = (
    " This is done through the OpenCode server at {}, part by part; if one fails, all are put back. The token count of "
    "the last reply stays, so OpenCode may compact at the next prompt."
)
_DELETED: Final = "Deletes these parts from OpenCode's database"
_PRUNED: Final = (
    f"Marks these outputs in OpenCode's database as the client itself does: the model receives “{CLEARED}” in their "
    "place. Calls stay, and so does the output in its row."
)
_NOT_COPIED: Final = {
    "parent_id": None,
    "revert": None,
    "share_url": None,
    "time_compacting": None,
    "time_archived": None,
}
"""The columns of a session that a copy of it begins without."""
_NOT_EXPORTED: Final = ("parentID", "revert", "share")
"""What the export of a session says, and that of a copy of it does not."""
_CURATED: Final = " (curated with Redline)"
_COPIED: Final = " (forked with Redline)"
_REFERENCES: Final = ("parentID", "tail_start_id")
"""The fields of data that name a message."""
_QUOTE: Final = ord('"')
_ID_LIMIT: Final = 1 << 48


class RowWriter(PlainWriter):
    """What the writers have in common."""

    name: ClassVar[str]
    appends: ClassVar[bool] = True

    def remains(self, message: Message, blocks: frozenset[int] | None) -> Message | None:
        """Every part has one block: without it, nothing remains."""
        del message, blocks
        return None


class DeleteWriter(RowWriter):
    """Deletes the rows of parts."""

    name = "delete"
    effect: Final = f"{_DELETED}, in one transaction.{_UNCOUNTED}"
    undo: Final = "To undo, the rows are put back from the backup."

    def effect_through(self, address: str) -> str:
        return f"{_DELETED}.{_SERVED.format(address)}"

    def write(self, branch: Sequence[Entry], deletion: Deletion, facts: WriteFacts) -> RowChanges:
        deleted = {_row_id(entry_id) for entry_id in blocks_by_entry(deletion.targets)}
        changes = [
            RowChange(PART, entry.id, _data(entry, facts), None) for entry in branch if entry.id in deleted
        ]
        return RowChanges((*changes, *_without_usage(branch, facts)))


class PruneWriter(RowWriter):
    """Marks the outputs of completed tools as cleared."""

    name = "prune"
    effect: Final = _PRUNED + _UNCOUNTED
    undo: Final = "To undo, the rows are put back from the backup."

    def effect_through(self, address: str) -> str:
        return _PRUNED + _SERVED.format(address)

    def protection(self, entry: Entry) -> Protection | None:
        is_call = entry.id.endswith(CALL_SUFFIX)
        return None if is_call or entry.stop_reason == COMPLETED else Protection.NOT_EDITABLE

    def unapplied(self, branch: Sequence[Entry], targets: Sequence[Target]) -> tuple[Target, ...]:
        """Calls stay."""
        del branch
        return tuple(target for target in targets if target.entry_id.endswith(CALL_SUFFIX))

    def remains(self, message: Message, blocks: frozenset[int] | None) -> Message | None:
        """The placeholder."""
        del blocks
        tokens = tokens_of(len(CLEARED))
        entry = msgspec.structs.replace(message.entry, stop_reason=CLEARED_STATUS, tokens=tokens)
        return msgspec.structs.replace(message, entry=entry, tokens=tokens)

    def write(self, branch: Sequence[Entry], deletion: Deletion, facts: WriteFacts) -> RowChanges:
        cleared = blocks_by_entry(deletion.targets)
        changes = [
            RowChange(PART, entry.id, data, _cleared(data, facts))
            for entry in branch
            if entry.id in cleared and entry.role == Role.TOOL_RESULT
            for data in [_data(entry, facts)]
        ]
        return RowChanges((*changes, *_without_usage(branch, facts)))


class RowForkWriter(RowWriter):
    """Copies the rows that survive into a new session of the same database."""

    name = "fork"
    appends = False
    effect: Final = (
        "Copies what survives into a new session: in OpenCode's database, or for an export into a new export beside "
        "it. This session is not changed." + _UNCOUNTED
    )
    undo: Final = "To undo, continue with this session instead; the new one can be deleted in OpenCode."

    def write(self, branch: Sequence[Entry], deletion: Deletion, facts: WriteFacts) -> RowChanges | NewFile:
        deleted = {_row_id(entry_id) for entry_id in blocks_by_entry(deletion.targets)}
        rows = [entry for entry in branch if _is_row(entry) and entry.id not in deleted]
        new_ids = {entry.id: f"{_kind(entry)}_{facts.new_id()}" for entry in rows}
        session_id = f"ses_{_descending(facts.new_id())}"
        moment = int(facts.written_at.timestamp() * 1000)
        uncounted = {change.row_id: change.after for change in _without_usage(branch, facts)}
        ending = _CURATED if deleted else _COPIED
        info = facts.state.extra.get(INFO)
        if info is not None:
            forked = _forked_info(parse(info.encode()), session_id, ending, moment)
            exported = (_exported(entry, new_ids, uncounted, facts) for entry in rows)
            return NewFile(f"{session_id}{SUFFIX}", export_of(forked, exported))
        columns = {"id": session_id, **_NOT_COPIED, "time_created": moment, "time_updated": moment}
        session = RowCopy(SESSION, session_id, facts.session.name, columns, {"title": ending})
        copies = (_copy(entry, session_id, new_ids, uncounted, facts) for entry in rows)
        return RowChanges((), (session, *copies), session_id)


def _copy(
    entry: Entry,
    session_id: str,
    new_ids: Mapping[str, str],
    uncounted: Mapping[str, str | None],
    facts: WriteFacts,
) -> RowCopy:
    """The copy of a row: other ids, in its data as well where that names a message."""
    recorded = _data(entry, facts)
    data = _renamed(uncounted.get(entry.id) or recorded, new_ids)
    columns: dict[str, str | int | None] = {"id": new_ids[entry.id], "session_id": session_id}
    if entry.type != MESSAGE:
        columns["message_id"] = new_ids[_message_id(entry)]
    if data != recorded:
        columns["data"] = data
    return RowCopy(_table(entry), new_ids[entry.id], entry.id, columns)


def _forked_info(info: Mapping[str, Any], session_id: str, ending: str, moment: int) -> dict[str, Any]:
    """What an export of a fork says of the session, from what the export that it is made of says."""
    kept = {name: value for name, value in info.items() if name not in _NOT_EXPORTED}
    times = {"created": moment, "updated": moment}
    return {**kept, "id": session_id, "title": f"{info.get('title', '')}{ending}", "time": times}


def _exported(
    entry: Entry, new_ids: Mapping[str, str], uncounted: Mapping[str, str | None], facts: WriteFacts
) -> ExportRow:
    data = _renamed(uncounted.get(entry.id) or _data(entry, facts), new_ids)
    return ExportRow(_table(entry), new_ids[entry.id], _encoded(data))


def _renamed(data: str, new_ids: Mapping[str, str]) -> str:
    raw = _encoded(data)
    found = members(raw)
    changes = []
    for name in _REFERENCES:
        span = found.get(name)
        new_id = new_ids.get(parse(span.of(raw))) if span is not None and raw[span.start] == _QUOTE else None
        if span is not None and new_id is not None:
            changes.append((span, stringify(new_id).encode()))
    return _decoded(splice(raw, changes))


def _without_usage(branch: Sequence[Entry], facts: WriteFacts) -> Iterator[RowChange]:
    """The change of the last finished reply's message, if it reports tokens."""
    finished = (entry for entry in reversed(branch) if _is_finished(entry))
    last = next(finished, None)
    if last is None or not last.usage:
        return
    message_id = _message_id(last)
    message = next((entry for entry in branch if entry.id == message_id), None)
    data = _data(message, facts) if message is not None else ""
    raw = _encoded(data)
    tokens = members(raw).get("tokens")
    if tokens is not None:
        yield RowChange(MESSAGE, message_id, data, _decoded(splice(raw, [(tokens, NO_TOKENS)])))


def _cleared(data: str, facts: WriteFacts) -> str:
    """The data of a completed tool part with the client's mark: `state.time.compacted`, in milliseconds."""
    raw = _encoded(data)
    mark = b'"compacted":%d' % int(facts.written_at.timestamp() * 1000)
    state = members(raw)["state"]
    time = members(raw, state.start).get("time")
    if time is None:
        return _decoded(splice(raw, [(Span(state.end - 1, state.end - 1), b',"time":{%s}' % mark)]))
    joint = b"," if members(raw, time.start) else b""
    return _decoded(splice(raw, [(Span(time.end - 1, time.end - 1), joint + mark)]))


def _is_finished(entry: Entry) -> bool:
    is_assistant = entry.role in (Role.ASSISTANT, Role.COMPACTION_SUMMARY)
    return is_assistant and entry.stop_reason not in ("", "error", ABORTED)


def _is_row(entry: Entry) -> bool:
    """Whether it stands for a row: a call is in the row of its result, and a revert in the session's."""
    return entry.type != REVERT and not entry.id.endswith(CALL_SUFFIX)


def _table(entry: Entry) -> str:
    return MESSAGE if entry.type == MESSAGE else PART


def _kind(entry: Entry) -> str:
    return "msg" if entry.type == MESSAGE else "prt"


def _row_id(entry_id: str) -> str:
    return entry_id.removesuffix(CALL_SUFFIX)


def _message_id(entry: Entry) -> str:
    return entry.reply.partition("/")[0]


def _data(entry: Entry, facts: WriteFacts) -> str:
    """The exact text of the data of an entry's row."""
    raw = facts.line(entry)
    return _decoded(raw if entry.role == Role.TOOL_RESULT else members(raw)["data"].of(raw))


def _descending(new_id: str) -> str:
    """A session's id: what is made later is smaller."""
    digits = len(f"{_ID_LIMIT:x}") - 1
    return f"{_ID_LIMIT - 1 - int(new_id[:digits], 16):0{digits}x}{new_id[digits:]}"


def _encoded(data: str) -> bytes:
    return data.encode("utf-8", "surrogateescape")


def _decoded(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")
