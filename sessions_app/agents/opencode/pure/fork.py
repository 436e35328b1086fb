"""The writer that copies what survives of a session of OpenCode into a new one, with other ids.

A note of the user is a message of the user with one part, after the message before it: messages are sent in the order
of `time_created` and id.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from sessions_app.agents.changes import COPIED, CURATED, NewFile, RowChanges, RowCopy, WriteFacts
from sessions_app.agents.pure.notes import note_text, notes_before
from sessions_app.sessionlog.deletion import Deletion
from sessions_app.sessionlog.entries import Entry, Role
from sessions_app.sessionlog.jsjson import json_bytes, parse, stringify
from sessions_app.sessionlog.raw_json import members, splice
from sessions_app.sessionlog.targets import blocks_by_entry

from .export import INFO, SUFFIX, ExportRow, export_of
from .lines import MESSAGE, PART, SESSION
from .writers import (
    UNCOUNTED,
    RowWriter,
    data_of,
    decoded,
    encoded,
    is_row,
    message_id_of,
    row_id_of,
    table_of,
    without_usage,
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
_REFERENCES: Final = ("parentID", "tail_start_id")
"""The fields of data that name a message."""
_QUOTE: Final = ord('"')
_ID_LIMIT: Final = 1 << 48
_ADDRESSED: Final = ("agent", "model")
"""What a message of the user says of who is to answer it."""


class CopiedRow(NamedTuple):
    """A row of the new session: with the columns of another one, but for those that are given here."""

    table: str
    id: str
    source_id: str
    message_id: str
    """Of a part: the id of its message in the new session."""
    data: str
    recorded: str
    """The data of its source."""

    def as_copy(self, session_id: str) -> RowCopy:
        columns: dict[str, str | int | None] = {"id": self.id, "session_id": session_id}
        if self.message_id:
            columns["message_id"] = self.message_id
        if self.data != self.recorded:
            columns["data"] = self.data
        return RowCopy(self.table, self.id, self.source_id, columns)


class RowForkWriter(RowWriter):
    """Copies the rows that survive into a new session of the same database."""

    name = "fork"
    appends = False
    holds_notes = True
    effect: Final = (
        "Copies what survives into a new session: in OpenCode's database, or for an export into a new export beside "
        "it. This session is not changed." + UNCOUNTED
    )
    undo: Final = "To undo, continue with this session instead; the new one can be deleted in OpenCode."

    def write(self, branch: Sequence[Entry], deletion: Deletion, facts: WriteFacts) -> RowChanges | NewFile:
        deleted = {row_id_of(entry_id) for entry_id in blocks_by_entry(deletion.targets)}
        rows = _copied_rows(branch, deleted, facts)
        session_id = f"ses_{_descending(facts.new_id())}"
        moment = int(facts.written_at.timestamp() * 1000)
        ending = CURATED if deleted else COPIED
        info = facts.state.extra.get(INFO)
        if info is not None:
            forked = _forked_info(parse(info.encode()), session_id, ending, moment)
            exported = (ExportRow(row.table, row.id, encoded(row.data)) for row in rows)
            return NewFile(f"{session_id}{SUFFIX}", export_of(forked, exported))
        columns = {"id": session_id, **_NOT_COPIED, "time_created": moment, "time_updated": moment}
        session = RowCopy(SESSION, session_id, facts.session.name, columns, {"title": ending})
        return RowChanges((), (session, *(row.as_copy(session_id) for row in rows)), session_id)


def _copied_rows(branch: Sequence[Entry], deleted: set[str], facts: WriteFacts) -> list[CopiedRow]:
    """The rows that stay with the notes between them. Their ids, by which they are sorted, are made in this order."""
    staying = {entry.id for entry in branch if row_id_of(entry.id) not in deleted}
    notes = notes_before(branch, staying, facts.notes, lambda entry: entry.type == MESSAGE)
    uncounted = {change.row_id: change.after for change in without_usage(branch, facts)}
    rows = [entry for entry in branch if is_row(entry) and entry.id in staying]
    copied: list[CopiedRow] = []
    new_ids: dict[str, str] = {}
    for at, entry in enumerate(rows):
        if entry.id in notes:
            copied += _note_rows(notes[entry.id], rows[:at], facts)
        new_id = new_ids[entry.id] = f"{_kind(entry)}_{facts.new_id()}"
        message_id = "" if entry.type == MESSAGE else new_ids[message_id_of(entry)]
        recorded = data_of(entry, facts)
        data = uncounted.get(entry.id) or recorded
        copied.append(CopiedRow(table_of(entry), new_id, entry.id, message_id, data, recorded))
    if None in notes:
        copied += _note_rows(notes[None], rows, facts)
    return [row._replace(data=_renamed(row.data, new_ids)) for row in copied]


def _note_rows(notes: Iterable[str], before: Sequence[Entry], facts: WriteFacts) -> Iterator[CopiedRow]:
    """Each note as a message of the user with one part, at the time of the message before it, so that it is sorted
    after that, and to whom the user spoke last."""
    messages = [(entry, parse(encoded(data_of(entry, facts)))) for entry in before if entry.type == MESSAGE]
    source, latest = messages[-1]
    asked = next(data for _, data in reversed(messages) if data.get("role") == Role.USER)
    addressed = {name: asked[name] for name in _ADDRESSED if name in asked}
    message = {"role": Role.USER, "time": {"created": latest["time"]["created"]}, **addressed}
    part_id = next(entry.id for entry in reversed(before) if entry.type != MESSAGE)
    for words in notes:
        message_id, new_part_id = (f"{kind}_{facts.new_id()}" for kind in ("msg", "prt"))
        part = stringify({"type": "text", "text": note_text(words)})
        yield CopiedRow(MESSAGE, message_id, source.id, "", stringify(message), "")
        yield CopiedRow(PART, new_part_id, part_id, message_id, part, "")


def _forked_info(info: Mapping[str, Any], session_id: str, ending: str, moment: int) -> dict[str, Any]:
    """What an export of a fork says of the session, from what the export that it is made of says."""
    kept = {name: value for name, value in info.items() if name not in _NOT_EXPORTED}
    times = {"created": moment, "updated": moment}
    return {**kept, "id": session_id, "title": f"{info.get('title', '')}{ending}", "time": times}


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


def _kind(entry: Entry) -> str:
    return "msg" if entry.type == MESSAGE else "prt"


def _descending(new_id: str) -> str:
    """A session's id: what is made later is smaller."""
    digits = len(f"{_ID_LIMIT:x}") - 1
    return f"{_ID_LIMIT - 1 - int(new_id[:digits], 16):0{digits}x}{new_id[digits:]}"
