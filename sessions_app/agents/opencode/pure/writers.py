"""The writers for OpenCode: rows of its database, changed or copied in one transaction.

`delete` removes parts, which gives exactly the approved context: a call and its result are one part. `prune` sets the
client's own mark on completed outputs, so that a placeholder is sent in their place; calls stay. `fork` copies what
survives into a new session.

The client decides by the tokens that the last finished reply reports whether it compacts at the next prompt. They
describe the context as it was, so each writer sets them to 0. A running server cannot do that: see `server`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar, Final

import msgspec

from sessions_app.agents.changes import Change, Handed, PlainWriter, RowChange, RowChanges, WriteFacts
from sessions_app.sessionlog.context import Message
from sessions_app.sessionlog.deletion import Deletion
from sessions_app.sessionlog.entries import Entry, Role, tokens_of
from sessions_app.sessionlog.jsjson import parse
from sessions_app.sessionlog.protection import Protection
from sessions_app.sessionlog.raw_json import Span, members, splice
from sessions_app.sessionlog.targets import Target, blocks_by_entry

from .lines import MESSAGE, PART, REVERT
from .parser import ABORTED, CALL_SUFFIX
from .parts import CLEARED, CLEARED_STATUS, COMPLETED

NO_TOKENS: Final = b'{"total":0,"input":0,"output":0,"reasoning":0,"cache":{"read":0,"write":0}}'
UNCOUNTED: Final = " The token count of the last reply becomes 0, so that OpenCode does not compact at once."
_SERVED: Final = (
    " This is done through the OpenCode server at {}, part by part; if one fails, all are put back. The token count of "
    "the last reply stays, so OpenCode may compact at the next prompt."
)
_DELETED: Final = "Deletes these parts from OpenCode's database"
_PRUNED: Final = (
    f"Marks these outputs in OpenCode's database as the client itself does: the model receives “{CLEARED}” in their "
    "place. Calls stay, and so does the output in its row."
)


class RowWriter(PlainWriter):
    """What the writers have in common."""

    name: ClassVar[str]
    appends: ClassVar[bool] = True
    honours: ClassVar[str] = "parts"

    def remains(self, message: Message, blocks: frozenset[int] | None) -> Message | None:
        """Every part has one block: without it, nothing remains."""
        del message, blocks
        return None

    def hand(self, branch: Sequence[Entry], change: Change) -> Handed:
        """The parts, each with the document that it becomes. The client's interface cannot change messages, so the
        token count of the last reply stays."""
        rows = change.changes if isinstance(change, RowChanges) else ()
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
        return Handed({"parts": parts}, RowChanges(made))


class DeleteWriter(RowWriter):
    """Deletes the rows of parts."""

    name = "delete"
    effect: Final = f"{_DELETED}, in one transaction.{UNCOUNTED}"
    undo: Final = "To undo, the rows are put back from the backup."

    def effect_through(self, address: str) -> str:
        return f"{_DELETED}.{_SERVED.format(address)}"

    def write(self, branch: Sequence[Entry], deletion: Deletion, facts: WriteFacts) -> RowChanges:
        deleted = {row_id_of(entry_id) for entry_id in blocks_by_entry(deletion.targets)}
        changes = [RowChange(PART, entry.id, data_of(entry, facts), None) for entry in branch if entry.id in deleted]
        return RowChanges((*changes, *without_usage(branch, facts)))


class PruneWriter(RowWriter):
    """Marks the outputs of completed tools as cleared."""

    name = "prune"
    effect: Final = _PRUNED + UNCOUNTED
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
            for data in [data_of(entry, facts)]
        ]
        return RowChanges((*changes, *without_usage(branch, facts)))


def without_usage(branch: Sequence[Entry], facts: WriteFacts) -> Iterator[RowChange]:
    """The change of the last finished reply's message, if it reports tokens."""
    finished = (entry for entry in reversed(branch) if _is_finished(entry))
    last = next(finished, None)
    if last is None or not last.usage:
        return
    message_id = message_id_of(last)
    message = next((entry for entry in branch if entry.id == message_id), None)
    data = data_of(message, facts) if message is not None else ""
    raw = encoded(data)
    tokens = members(raw).get("tokens")
    if tokens is not None:
        yield RowChange(MESSAGE, message_id, data, decoded(splice(raw, [(tokens, NO_TOKENS)])))


def _cleared(data: str, facts: WriteFacts) -> str:
    """The data of a completed tool part with the client's mark: `state.time.compacted`, in milliseconds."""
    raw = encoded(data)
    mark = b'"compacted":%d' % int(facts.written_at.timestamp() * 1000)
    state = members(raw)["state"]
    time = members(raw, state.start).get("time")
    if time is None:
        return decoded(splice(raw, [(Span(state.end - 1, state.end - 1), b',"time":{%s}' % mark)]))
    joint = b"," if members(raw, time.start) else b""
    return decoded(splice(raw, [(Span(time.end - 1, time.end - 1), joint + mark)]))


def _is_finished(entry: Entry) -> bool:
    is_assistant = entry.role in (Role.ASSISTANT, Role.COMPACTION_SUMMARY)
    return is_assistant and entry.stop_reason not in ("", "error", ABORTED)


def is_row(entry: Entry) -> bool:
    """Whether it stands for a row: a call is in the row of its result, and a revert in the session's."""
    return entry.type != REVERT and not entry.id.endswith(CALL_SUFFIX)


def table_of(entry: Entry) -> str:
    return MESSAGE if entry.type == MESSAGE else PART


def row_id_of(entry_id: str) -> str:
    return entry_id.removesuffix(CALL_SUFFIX)


def message_id_of(entry: Entry) -> str:
    return entry.reply.partition("/")[0]


def data_of(entry: Entry, facts: WriteFacts) -> str:
    """The exact text of the data of an entry's row."""
    raw = facts.line(entry)
    return decoded(raw if entry.role == Role.TOOL_RESULT else members(raw)["data"].of(raw))


def encoded(data: str) -> bytes:
    return data.encode("utf-8", "surrogateescape")


def decoded(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")
