"""Repairs a session file of pi or Atomic: the pieces of a copy that the agents open, and of what cannot be saved.

The file is read twice. The first reading plans what changes, from the ids and parents of the records; the second one
gives the pieces.

    line        {"type":"message","id":"b"…}NUL NUL{"type":"message","id":"c","parentId":"x"…}
    kept        {"type":"message","id":"b"…}       {"type":"message","id":"c","parentId":   …}
    inserted                                newline                                      "b"
    lost                                    NUL NUL                                      "x"

What the plan changes:

- A header after the first entry or after another header is lost. So is an object that is not an entry, and an entry
  that repeats an earlier one byte by byte.
- A session that does not begin with a header gets one, with the fields of a later header if there is one.
- An entry without a usable id gets one, and so does each entry with the id of an earlier one.
- A parent is the nearest entry with that id before its child, as it was when the child was written; if there is none,
  the first one after it. An entry whose parent is missing, and the first entry of a cycle, are attached to the entry
  before them in the file.
- A message entry without a message, and an edit without a usable replacement, become entries that the agents ignore.

Version 1 has neither ids nor parents: its entries are a chain in the order of the file.

A session of version 1 or 2 is migrated to version 3 line by line, with as few changed bytes as possible. Fields are
inserted at the start of the object and the rest stays as recorded. A copied line is accepted only if it parses to
exactly what reading the old line gives. Damaged lines are copied unchanged, so nothing is lost. A file without a
header, which agents refuse or empty, is given one.
"""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final, NamedTuple

import msgspec

from sessions_app.agents.pure import fields
from sessions_app.sessionlog.entries import Entry, EntryKind
from sessions_app.sessionlog.errors import BadInput
from sessions_app.sessionlog.jsjson import Line, Span, json_bytes, members, parse, stringify, well_formed
from sessions_app.sessionlog.repair_pieces import Fate, RepairPiece
from sessions_app.sessionlog.session import Header, require_session
from sessions_app.sessionlog.tree import NO_PARENT, SessionTree

from .diagnosis import HEADER_TYPE, fragments, lacks_message, lacks_replacement
from .parser import CURRENT_VERSION, KNOWN_TYPES, SessionParser, header_of

_OLD_ROLE: Final = b'"role":"hookMessage"'
_NEW_ROLE: Final = b'"role":"custom"'


def migrate(lines: Iterable[Line], name: str, header: Header | None = None) -> Iterator[bytes]:
    """The lines of a version 3 copy, each with its original newline.

    A file without a header gets `header` as its first line, and is then copied at version 3 as well. Raises BadInput
    `is_current`, and `not_a_session` at the end if no line belonged to a session.
    """
    parser = SessionParser()
    above: list[bytes] | None = []
    """The lines before the first header or entry; None after that."""
    for line in lines:
        header_before = parser.state.header
        recorded = next(iter(parser.read(line)), None)
        if recorded is not None:
            copied = _migrate_entry(line.raw, recorded.entry, recorded.data, parser.state.version)
        else:
            is_header = parser.state.header is not header_before
            copied = _splice(line.raw, {"version": CURRENT_VERSION} if is_header else {})
        copied += b"\n" if line.complete else b""
        if above is None:
            yield copied
            continue
        above.append(copied)
        if parser.state.version:
            version = parser.state.version
            if header is not None and parser.state.header is None:
                above = [header_line(header), above[0].removeprefix(BOM_UTF8), *above[1:]]
            elif version >= CURRENT_VERSION:
                raise BadInput("is_current", f"The session is at version {version} already. Nothing was written.")
            yield from above
            above = None
    require_session(parser.state, name)


def header_line(header: Header) -> bytes:
    """The line of a header, with its newline."""
    fields = {
        "type": "session",
        "version": header.version,
        "id": header.id,
        "timestamp": header.timestamp,
        "cwd": header.cwd,
    }
    return json_bytes(fields) + b"\n"


def _migrate_entry(raw: bytes, entry: Entry, data: dict[str, Any], version: int) -> bytes:
    added: dict[str, Any] = {}
    if version == 1:
        added = {"id": entry.id, "parentId": entry.parent_id}
        if entry.kind is EntryKind.SUMMARY:
            added["firstKeptEntryId"] = data["firstKeptEntryId"]
    copied = _splice(raw, added)
    message = data.get("message")
    if isinstance(message, dict) and message.get("role") == "hookMessage":
        wanted = {**added, **data, **added, "message": {**message, "role": "custom"}}
        renamed = copied.replace(_OLD_ROLE, _NEW_ROLE, 1)
        return renamed if _parses_to(renamed, wanted) else json_bytes(wanted)
    return copied


def _splice(raw: bytes, added: dict[str, Any]) -> bytes:
    """The object with fields inserted at its start.

    A recorded field of the same name would take precedence over an inserted one; then the object is printed again.
    """
    if not added:
        return raw
    body = raw.removeprefix(BOM_UTF8)
    mark = raw[: len(raw) - len(body)]
    start = body.index(b"{") + 1
    rest = body[start:]
    comma = b"" if rest.lstrip().startswith(b"}") else b","
    spliced = body[:start] + json_bytes(added)[1:-1] + comma + rest
    wanted = {**added, **parse(body), **added}
    return mark + (spliced if _parses_to(spliced, wanted) else json_bytes(wanted))


def _parses_to(raw: bytes, wanted: object) -> bool:
    # Compared as text: Python cannot compare deeply nested values.
    return stringify(parse(raw)) == stringify(wanted)


INERT: Final = b'"custom","customType":"redline.repair"'
"""The value of `type` for an entry that the agents ignore."""
MISSING: Final = ""
"""The parent id of an entry whose parent does not exist; no entry has it."""
_BLANKS: Final = b" \t\r\v\f"


def repair(read: Callable[[], Iterable[Line]], new_header: Header) -> Iterator[RepairPiece]:
    """The pieces of a repaired copy, in the order of the original.

    `read` reads the same lines each time. `new_header` is for a session that does not begin with one; a header that
    comes too late gives the new one its fields.
    """
    plan = RepairPlan(read(), new_header)
    if plan.new_header is not None:
        yield RepairPiece(Fate.INSERTED, 1, 0, header_line(plan.new_header), "a header is needed here")
    for line in read():
        yield from _line_pieces(line, plan)


def _line_pieces(line: Line, plan: RepairPlan) -> Iterator[RepairPiece]:
    found = fragments(line.raw, is_first=line.offset == 0)
    kept = [one.start for one in found if one.data is not None and line.offset + one.start not in plan.lost]
    for one in found:
        offset = line.offset + one.start
        raw = line.raw[one.start : one.end]
        if one.start not in kept:
            yield RepairPiece(Fate.LOST, line.number, offset, raw, plan.lost.get(offset) or _reason(raw))
            continue
        yield from _record_pieces(raw, line.number, offset, plan.edits.get(offset, ()))
        if one.start != kept[-1]:
            end, reason = offset + len(raw), "two records were on one line"
            yield RepairPiece(Fate.INSERTED, line.number, end, b"\n", reason)
    if line.complete:
        fate, reason = (Fate.KEPT, "") if kept else (Fate.LOST, "the end of a line without a record")
        yield RepairPiece(fate, line.number, line.end - 1, b"\n", reason)
    elif kept:
        yield RepairPiece(Fate.INSERTED, line.number, line.end, b"\n", "the last line had no newline")


def _reason(raw: bytes) -> str:
    """Why bytes that are not a record are lost."""
    if raw == BOM_UTF8:
        return "a byte order mark"
    if not raw.strip(_BLANKS):
        return "blanks"
    if not raw.strip(b"\0" + _BLANKS):
        return "NUL bytes"
    return "not a record, or not a complete one"


def _record_pieces(raw: bytes, number: int, offset: int, edits: Sequence[RecordEdit]) -> Iterator[RepairPiece]:
    """The pieces of a record with these edits, which concern different fields."""
    if not edits:
        yield RepairPiece(Fate.KEPT, number, offset, raw)
        return
    found = members(raw)
    opening = raw.index(b"{") + 1
    done = 0
    for edit in sorted(edits, key=lambda edit: found.get(edit.name, Span(opening, opening))):
        span = found.get(edit.name, Span(opening, opening))
        value = edit.value if edit.name in found else b'"' + edit.name.encode() + b'":' + edit.value + b","
        yield RepairPiece(Fate.KEPT, number, offset + done, raw[done : span.start])
        yield RepairPiece(Fate.LOST, number, offset + span.start, span.of(raw), edit.reason)
        yield RepairPiece(Fate.INSERTED, number, offset + span.end, value, edit.reason)
        done = span.end
    yield RepairPiece(Fate.KEPT, number, offset + done, raw[done:])


class RecordEdit(NamedTuple):
    """A field of a record with another value; it is inserted if the record does not have it."""

    name: str
    value: bytes
    reason: str


@dataclass(slots=True)
class _EntryRecord:
    """An entry that stays in the copy."""

    number: int
    offset: int
    id: object
    """The recorded id, a text or a number (the agents accept both); None if there is none."""
    parent: object
    is_detached: bool
    """Whether neither an id nor a parent is recorded."""

    @property
    def has_usable_id(self) -> bool:
        return isinstance(self.id, str) and self.id != "" and well_formed(self.id) == self.id


class RepairPlan:
    """The changes of a repair, found from the records of a file in order; everything else stays. Records are named by
    their offsets."""

    def __init__(self, lines: Iterable[Line], new_header: Header) -> None:
        """`new_header` is for a session without a header."""
        self.new_header: Header | None = None
        """The header to insert, if the session does not begin with one."""
        self.lost: dict[int, str] = {}
        """The records that do not stay, with the reason."""
        self.edits: dict[int, list[RecordEdit]] = {}
        self._spare_header = new_header
        self._header: Header | None = None
        self._version = 0
        self._records: list[_EntryRecord] = []
        self._digests: set[bytes] = set()
        has_first_header = False
        for line in lines:
            for one in fragments(line.raw, is_first=line.offset == 0):
                offset = line.offset + one.start
                if one.data is None:
                    continue
                if one.data.get("type") == HEADER_TYPE:
                    has_first_header = self._read_header(one.data, offset) or has_first_header
                else:
                    self._read_entry(one.data, line.raw[one.start : one.end], line.number, offset)
        if not has_first_header:
            late = self._header or new_header
            self.new_header = msgspec.structs.replace(late, version=self._version or CURRENT_VERSION)
        if self._version != 1:
            self._plan_tree()

    def _edit(self, offset: int, name: str, value: bytes, reason: str) -> None:
        self.edits.setdefault(offset, []).append(RecordEdit(name, value, reason))

    def _read_header(self, data: dict[str, Any], offset: int) -> bool:
        """Read a header; whether the session begins with it."""
        if self._header is not None:
            self.lost[offset] = "a second header"
            return False
        self._header = header_of(data)
        has_id = isinstance(data.get("id"), str)
        if not has_id:
            self._header = msgspec.structs.replace(self._header, id=self._spare_header.id)
        if self._records:
            self.lost[offset] = "a header after the first entry; the new one has its fields"
            return False
        self._version = self._header.version
        if not has_id:
            self._edit(offset, "id", json_bytes(self._header.id), "the header had no usable id")
        return True

    def _read_entry(self, data: dict[str, Any], raw: bytes, number: int, offset: int) -> None:
        is_known = fields.text(data, "type") in KNOWN_TYPES
        self._version = self._version or (CURRENT_VERSION if "id" in data or not is_known else 1)
        record = _EntryRecord(
            number,
            offset,
            _reference(data.get("id")),
            _reference(data.get("parentId")),
            "id" not in data and "parentId" not in data,
        )
        if self._version != 1:
            reason = "" if record.has_usable_id or is_known else "an object that is not an entry"
            digest = blake2b(raw.strip(), digest_size=16).digest()
            if digest in self._digests:
                reason = reason or "repeats an earlier entry"
            self._digests.add(digest)
            if reason:
                self.lost[offset] = reason
                return
        if lacks_message(data):
            self._edit(offset, "type", INERT, "a message entry without a message")
        elif lacks_replacement(data):
            self._edit(offset, "type", INERT, "an edit without a usable replacement")
        self._records.append(record)

    def _plan_tree(self) -> None:
        ids = self._unique_ids()
        recorded = self._parents()
        attached = self._attached(ids, recorded)
        for position, record in enumerate(self._records):
            entry_id, parent = ids[position], attached[position]
            if entry_id != record.id:
                had_one = "the id was that of an earlier entry"
                reason = had_one if record.has_usable_id else "it had no usable id"
                self._edit(record.offset, "id", json_bytes(entry_id), reason)
            parent_id = ids[parent] if parent != NO_PARENT else None
            if parent_id != record.parent or record.is_detached:
                reason = "its parent has another id now" if recorded[position] == parent else "it was its own ancestor"
                if recorded[position] is None:
                    reason = "its parent was missing"
                self._edit(record.offset, "parentId", json_bytes(parent_id), reason)

    def _unique_ids(self) -> list[str]:
        """The final id of each record: the recorded one, if it can be used and no earlier record has it."""
        used = {record.id for record in self._records} | {record.parent for record in self._records}
        taken: set[object] = set()
        ids = []
        for record in self._records:
            entry_id = record.id
            if not isinstance(entry_id, str) or not record.has_usable_id or entry_id in taken:
                entry_id = next(one for one in _new_ids(record.offset) if one not in used)
                used.add(entry_id)
            taken.add(entry_id)
            ids.append(entry_id)
        return ids

    def _parents(self) -> list[int | None]:
        """The position of each record's parent, or NO_PARENT; None if it is missing."""
        first: dict[object, int] = {}
        for position, record in enumerate(self._records):
            first.setdefault(record.id, position)
        latest: dict[object, int] = {}
        parents: list[int | None] = []
        for position, record in enumerate(self._records):
            if record.parent is None:
                parents.append(None if record.is_detached else NO_PARENT)
            else:
                parents.append(latest.get(record.parent, first.get(record.parent)))
            if record.id is not None:
                latest[record.id] = position
        return parents

    def _attached(self, ids: Sequence[str], parents: Sequence[int | None]) -> list[int]:
        """The parents after missing ones were replaced and cycles cut; see the rules above."""
        names: dict[int | None, str | None] = {None: MISSING, NO_PARENT: None, **dict(enumerate(ids))}
        entries = [
            Entry(record.number, record.offset, 0, entry_id, names[parent], "")
            for record, entry_id, parent in zip(self._records, ids, parents, strict=True)
        ]
        attached = SessionTree(entries).parents
        # Each position leads towards its root, which leads to itself.
        above = [position if parent == NO_PARENT else parent for position, parent in enumerate(attached)]
        for position, entry in enumerate(entries):
            if attached[position] != NO_PARENT or entry.parent_id is None:
                continue
            if position and _root(above, position - 1) != position:
                attached[position] = above[position] = position - 1
        return attached


def _root(above: list[int], position: int) -> int:
    """The root of a position. Paths are shortened on the way, so that many lookups stay fast."""
    while above[position] != position:
        above[position] = above[above[position]]
        position = above[position]
    return position


def _new_ids(offset: int) -> Iterator[str]:
    """Ids for the record at an offset, as the agents make them: 8 hexadecimal digits."""
    attempt = 0
    while True:
        yield blake2b(f"{offset} {attempt}".encode(), digest_size=4).hexdigest()
        attempt += 1


def _reference(recorded: object) -> object:
    """An id as the agents look it up; None for a value that refers to nothing."""
    is_usable = isinstance(recorded, str | int | float) and not isinstance(recorded, bool)
    return recorded if is_usable and recorded else None
