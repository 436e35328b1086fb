"""Parses the lines of a session file of pi or Atomic: header, entries and damage.

Three versions of the format are supported. Version 1 has neither `version` nor ids: its entries form a chain in file
order, and the id of an entry is the index of its line, so that it is the same each time and a damaged line shifts
nothing. Version 2 has ids and calls the `custom` role `hookMessage`. Version 3 is the current one. Older versions are
migrated while they are read; the file is not changed.

A line that cannot be used is skipped, as the agent skips it, but it is counted and shown.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from sessions_app.sessionlog.entries import Entry, Texts
from sessions_app.sessionlog.jsjson import parse, to_string, well_formed
from sessions_app.sessionlog.lines import Line
from sessions_app.sessionlog.session import DAMAGE_KEPT, Damage, DamageKind, Header, ParserState, Recorded

from .records import KNOWN_TYPES, describe

CURRENT_VERSION: Final = 3
MAX_VERSION: Final = 2**31 - 1
BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_BLANKS: Final = b" \t\r\n\v\f"


@dataclass(slots=True)
class SessionParser:
    """Reads lines in order; `state` can be stored and passed to the next parser."""

    state: ParserState = field(default_factory=ParserState)
    damage: list[Damage] = field(default_factory=list)
    """The first DAMAGE_KEPT faults."""
    torn: int = 0
    """Faults on the last line, if it has no newline."""

    @property
    def damaged(self) -> int:
        """The total number of faults."""
        return self.state.damaged + self.torn

    def read(self, line: Line) -> tuple[Recorded, ...]:
        """The entry on this line; none for a header, a blank line or a damaged one."""
        recorded = self.read_one(line)
        return () if recorded is None else (recorded,)

    def read_one(self, line: Line) -> Recorded | None:
        """The same without a sequence: a line of these agents has at most one entry."""
        state = self.state
        if state.provisional:
            state.version, state.header, state.provisional = 0, None, False
        before = state.version
        recorded = self._read(line)
        if line.complete:
            state.next_number = line.number + 1
            state.next_offset = line.end
            if recorded is not None:
                state.previous_id = recorded.entry.id
        else:
            state.provisional = before != state.version
        return recorded

    def _read(self, line: Line) -> Recorded | None:
        raw = line.raw
        if line.offset == 0 and raw.startswith(BYTE_ORDER_MARK):
            raw = raw[len(BYTE_ORDER_MARK) :]
        if not raw.strip(_BLANKS):
            return None
        try:
            data = parse(raw)
        except ValueError as fault:
            kind = DamageKind.NOT_JSON if line.complete else DamageKind.TORN_LINE
            self._report(kind, line, _describe_fault(raw, fault))
            return None
        if not isinstance(data, dict):
            self._report(DamageKind.NOT_AN_OBJECT, line, f"contains {_name_of(data)} instead of an object")
            return None
        if data.get("type") == "session":
            self._read_header(data, line)
            return None
        return self._read_entry(data, line)

    def _read_header(self, data: dict[str, Any], line: Line) -> None:
        if self.state.version:
            self._report(DamageKind.SECOND_HEADER, line, "a second header; the first one counts")
            return
        self.state.recognised = True
        self.state.header = header_of(data)
        self.state.version = self.state.header.version

    def _read_entry(self, data: dict[str, Any], line: Line) -> Recorded | None:
        state = self.state
        if not state.version:
            # Without a header, ids distinguish the versions; 2 and 3 do not differ in anything relevant.
            state.version = CURRENT_VERSION if "id" in data else 1
            self._report(DamageKind.NO_HEADER, line, "the session has no header line")
        if state.version == 1:
            entry_id, parent_id = version_1_id(line.number), state.previous_id
            data = as_version_3(data, state.version)
        else:
            recorded_id, parent = data.get("id"), data.get("parentId")
            if not isinstance(recorded_id, str) or not recorded_id or well_formed(recorded_id) != recorded_id:
                self._report(DamageKind.NO_ID, line, "the entry has no usable id")
                return None
            entry_id = recorded_id
            parent_id = (well_formed(parent) or None) if isinstance(parent, str) else None
            if parent_id == state.previous_id:
                # One object for the id and the reference to it: sessions of 366,000 lines are kept in memory.
                parent_id = state.previous_id
        entry, texts = describe(
            data,
            number=line.number,
            offset=line.offset,
            length=len(line.raw),
            entry_id=entry_id,
            parent_id=parent_id,
        )
        state.recognised = state.recognised or entry.type in KNOWN_TYPES
        return Recorded(entry, texts, data)

    def _report(self, kind: DamageKind, line: Line, detail: str) -> None:
        if line.complete:
            self.state.damaged += 1
        else:
            self.torn += 1
        if len(self.damage) < DAMAGE_KEPT:
            self.damage.append(Damage(kind, line.number, line.offset, len(line.raw), detail))


def header_of(data: dict[str, Any]) -> Header:
    """The header that an object records."""
    return Header(
        id=_shown(data.get("id")),
        version=_version_of(data.get("version")),
        cwd=_shown(data.get("cwd")),
        timestamp=_shown(data.get("timestamp")),
        parent_session=_shown(data.get("parentSession") or data.get("branchedFrom")),
    )


def _version_of(recorded: object) -> int:
    """The version in a header; for the agent it is a double, and here it must fit into a database column."""
    if isinstance(recorded, bool) or not isinstance(recorded, int | float) or recorded < 1:
        return 1
    return int(min(recorded, MAX_VERSION))


def parse_line(raw: bytes) -> Any:
    """The value on a line that the parser has read. Only the first line of a file may have a byte order mark.

    Raises ValueError, with a message, if the agent would throw.
    """
    return parse(raw.removeprefix(BYTE_ORDER_MARK))


def read_again(raw: bytes, place: Entry, version: int) -> tuple[Entry, Texts] | None:
    """The entry on a line that is read again, from a file of this version; None if the line is not an object.

    Only the position of `place` in the file and in the tree counts.
    """
    try:
        data = parse(raw) if place.offset else parse_line(raw)
    except ValueError:
        return None
    if not isinstance(data, dict):
        return None
    return describe(
        as_version_3(data, version),
        number=place.number,
        offset=place.offset,
        length=place.length,
        entry_id=place.id,
        parent_id=place.parent_id,
    )


def version_1_id(number: int) -> str:
    """The id given to an entry of a version 1 file: the index of its line, the header's being 0."""
    return f"{number - 1:08x}"


def as_version_3(data: dict[str, Any], version: int) -> dict[str, Any]:
    """A recorded object with version 3 fields instead of older ones. The argument is not changed."""
    if version == 1 and data.get("type") == "compaction":
        return {**data, "firstKeptEntryId": _first_kept_id(data)}
    return data


def _first_kept_id(data: dict[str, Any]) -> str:
    index = data.get("firstKeptEntryIndex")
    return version_1_id(index + 1) if isinstance(index, int) and index >= 0 else ""


def _shown(value: object) -> str:
    return "" if value is None else well_formed(to_string(value))


def _describe_fault(raw: bytes, fault: ValueError) -> str:
    if not raw.strip(b"\0"):
        return "contains only NUL bytes"
    return f"is not valid JSON ({fault})"


def _name_of(value: object) -> str:
    if value is None:
        return "null"
    return {bool: "a truth value", str: "a string", list: "an array"}.get(type(value), "a number")
