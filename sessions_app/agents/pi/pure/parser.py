"""Parses the lines of a session file of pi or Atomic: header, entries and damage.

Three versions of the format are supported. Version 1 has neither `version` nor ids: its entries form a chain in file
order, and the id of an entry is the index of its line, so that it is the same each time and a damaged line shifts
nothing. Version 2 has ids and calls the `custom` role `hookMessage`. Version 3 is the current one. Older versions are
migrated while they are read; the file is not changed.

A line that cannot be used is skipped, as the agent skips it, but it is counted and shown.
"""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from sessions_app.agents.pure import fields
from sessions_app.agents.pure.line_parser import LineParser
from sessions_app.sessionlog.entries import Entry, Texts
from sessions_app.sessionlog.jsjson import Line, parse, to_string, well_formed
from sessions_app.sessionlog.session import DamageKind, Header, Recorded

from .records import KNOWN_TYPES, describe

CURRENT_VERSION: Final = 3
MAX_VERSION: Final = 2**31 - 1


@dataclass(slots=True)
class SessionParser(LineParser):
    """A line has at most one entry."""

    mark: ClassVar[bytes] = BOM_UTF8

    def read_object(self, data: dict[str, Any], line: Line) -> Sequence[Recorded]:
        if data.get("type") == "session":
            return self._read_header(data, line)
        state = self.state
        if not state.version:
            # Without a header, ids distinguish the versions; 2 and 3 do not differ in anything relevant.
            state.version = CURRENT_VERSION if "id" in data else 1
            self.report(DamageKind.NO_HEADER, line, "the session has no header line")
        if state.version == 1:
            entry_id, parent_id = version_1_id(line.number), state.previous_id
            data = as_version_3(data, state.version)
        else:
            entry_id, parent_id = fields.identifier(data, "id"), fields.stored_text(data, "parentId") or None
            if not entry_id:
                return self.report(DamageKind.NO_ID, line, "the entry has no usable id")
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
        state.previous_id = entry_id
        return (Recorded(entry, texts, data),)

    def _read_header(self, data: dict[str, Any], line: Line) -> Sequence[Recorded]:
        if self.state.version:
            return self.report(DamageKind.SECOND_HEADER, line, "a second header; the first one counts")
        self.state.recognised = True
        self.state.header = header_of(data)
        self.state.version = self.state.header.version
        return ()

    def describe_fault(self, raw: bytes, fault: ValueError) -> str:
        if not raw.strip(b"\0"):
            return "contains only NUL bytes"
        return LineParser.describe_fault(self, raw, fault)

    def describe_value(self, raw: bytes, value: object) -> str:
        del raw
        names = {type(None): "null", bool: "a truth value", str: "a string", list: "an array"}
        return f"contains {names.get(type(value), 'a number')} instead of an object"


def header_of(data: dict[str, Any]) -> Header:
    """The header that an object records."""
    return Header(
        id=_shown(data.get("id")),
        version=_version_of(data),
        cwd=_shown(data.get("cwd")),
        timestamp=_shown(data.get("timestamp")),
        parent_session=_shown(data.get("parentSession") or data.get("branchedFrom")),
    )


def _version_of(data: dict[str, Any]) -> int:
    """The version in a header; for the agent it is a double, and here it must fit into a database column."""
    return int(min(max(fields.number(data, "version") or 1, 1), MAX_VERSION))


def parse_line(raw: bytes) -> Any:
    """The value on a line that the parser has read. Only the first line of a file may have a byte order mark.

    Raises ValueError, with a message, if the agent would throw.
    """
    return parse(raw.removeprefix(BOM_UTF8))


def reparse_entry(raw: bytes, place: Entry, version: int) -> tuple[Entry, Texts] | None:
    """The entry on a line that is read again, from a file of this version; None if the line is not an object.

    Only the position of `place` in the file and in the tree counts.
    """
    data = fields.object_in(raw if place.offset else raw.removeprefix(BOM_UTF8))
    if data is None:
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
