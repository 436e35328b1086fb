"""Parses the lines of a session file of Claude Code: entries, the header that they imply, and damage.

A session has no header line: its id, its directory and its start are those of the first lines that have them. A line
is read up to the end of its first value, and a byte order mark at the start of the file is passed over, as 2.1.143 and
newer do; older ones skip a line with more than one value. A line that is not an object is skipped, as the client skips
it. What is skipped is counted and shown.

`ParserState.extra` has what later lines, or writers, depend on: the tools of the calls without a result, which of
several titles counts, whether the file is that of a subagent, and the version of the client that wrote the last line.
"""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from sessions_app.agents.pure import fields
from sessions_app.agents.pure.line_parser import LineParser
from sessions_app.sessionlog.entries import Entry, NameControl, Texts
from sessions_app.sessionlog.jsjson import Line, first_object, parse, well_formed
from sessions_app.sessionlog.session import DamageKind, Header, Recorded, released_version

from .records import (
    KNOWN_TYPES,
    LAST_PROMPT,
    NODES,
    SIDECHAIN,
    TITLES,
    LinePlace,
    describe,
    describe_result,
    is_node,
    is_result,
)

CURRENT_VERSION: Final = 1
OPEN_CALLS: Final = 1_000
"""How many calls without a result are remembered."""
CALLS: Final = "calls"
"""The name in `ParserState.extra` of the tools of the calls without a result, by the ids of the calls."""
CLIENT: Final = "client"
"""The name in `ParserState.extra` of the version of the client; an empty one is unreadable."""
SINCE: Final = (2, 1, 143)
"""The first version that reads the list of a boundary, continues where a `last-prompt` line says, and reads a line that
has more behind its first value."""
_LONG_LINE: Final = b'{"parentUuid":'
"""How a line begins that may go on beyond the first bytes of a file, as one with an image does."""
_OWN_NAMES: Final = (b'"parentUuid"', b'"leafUuid"')
"""The names of fields that no other agent's lines have."""
_PRECEDENCE: Final = {name: rank for rank, name in enumerate(TITLES)}


@dataclass(slots=True)
class ClaudeCodeParser(LineParser):
    """A line may have several entries."""

    client: tuple[int, ...] = ()
    """The version of the client that reads; if it is empty, the one that wrote the last line."""

    def __post_init__(self) -> None:
        # The previous holder of the state may read on from it.
        self.state.extra = {**self.state.extra, CALLS: dict(self.state.extra.get(CALLS, {}))}

    def read_line(self, line: Line) -> Sequence[Recorded]:
        if not line.raw.strip(self.blanks):
            return ()
        if not line.offset and line.raw.startswith(BOM_UTF8):
            line = line._replace(offset=len(BOM_UTF8), raw=line.raw[len(BOM_UTF8) :])
        try:
            data, end = _first_value(line.raw)
        except ValueError as fault:
            return self.report_unreadable(line, self.describe_fault(line.raw, fault))
        if end < len(line.raw):
            self.report(DamageKind.MORE_ON_LINE, line, "has more behind its first value, which is not read")
            if self._is_older:
                return ()
            line = line._replace(raw=line.raw[:end])
        if isinstance(data, dict):
            return self.read_object(data, line)
        return self.report(DamageKind.NOT_AN_OBJECT, line, "does not contain an object")

    def read_object(self, data: dict[str, Any], line: Line) -> Sequence[Recorded]:
        state = self.state
        line_id = fields.identifier(data, "uuid")
        if not line_id:
            line_id = f"line-{line.number}"
            if fields.word(data, "type") in NODES:
                self.report(DamageKind.NO_ID, line, "the entry has no usable id")
        if is_node(data):
            if "subagent" not in state.extra:
                state.extra["subagent"] = data.get("isSidechain") is True
            if "version" in data:
                state.extra[CLIENT] = list(released_version(fields.stored_text(data, "version")))
        if line.complete or state.header is None:
            self._read_header(data)
        state.version = CURRENT_VERSION
        state.recognised = state.recognised or fields.word(data, "type") in KNOWN_TYPES
        _remember_calls(data, state.extra[CALLS])
        place = LinePlace(line.number, line.offset, line.raw, line_id)
        described = describe(data, place, is_subagent=state.extra.get("subagent") is True)
        return [Recorded(self._in_context(entry), texts, data) for entry, texts in described]

    def _read_header(self, data: dict[str, Any]) -> None:
        """Fill what the header lacks: the first lines of a session have no directory."""
        header = self.state.header or Header("", CURRENT_VERSION, "", "", "")
        if header.id and header.cwd and header.timestamp:
            return
        is_subagent = self.state.extra.get("subagent") is True
        session_id = fields.stored_text(data, "sessionId")
        parent = fields.stored_text(fields.mapping(data, "forkedFrom"), "sessionId")
        if is_subagent:
            # The lines of a subagent have the id of the session that started it.
            session_id, parent = fields.stored_text(data, "agentId"), session_id
        found = Header(
            id=header.id or session_id,
            version=CURRENT_VERSION,
            cwd=header.cwd or fields.stored_text(data, "cwd"),
            timestamp=header.timestamp or fields.stored_text(data, "timestamp"),
            parent_session=header.parent_session or parent,
            is_subagent=is_subagent,
        )
        self.state.header = found if found.id or found.cwd or found.timestamp else None

    @property
    def _is_older(self) -> bool:
        """Whether the client reads nothing of what SINCE brought."""
        return () < (self.client or tuple(self.state.extra.get(CLIENT, ()))) < SINCE

    def _in_context(self, entry: Entry) -> Entry:
        """An entry with what only earlier lines tell."""
        if entry.result_for is not None:
            name = self.state.extra[CALLS].pop(entry.result_for, "")
            return msgspec.structs.replace(entry, tool_name=name) if name else entry
        if entry.type == LAST_PROMPT and self._is_older:
            entry = msgspec.structs.replace(entry, parent_id=None)
        if isinstance(entry.control, NameControl):
            rank = _PRECEDENCE[entry.type]
            if rank < self.state.extra.get("title", 0):
                return msgspec.structs.replace(entry, control=None)
            self.state.extra["title"] = rank
        return entry


def _first_value(raw: bytes) -> tuple[Any, int]:
    """The value with which a line begins, and the position of its end: the client reads nothing behind it.

    Raises ValueError if it begins with none.
    """
    try:
        return parse(raw), len(raw)
    except ValueError:
        span = first_object(raw)
        if span.start == span.end:
            raise
        return parse(span.of(raw)), span.end


def _remember_calls(data: Mapping[str, Any], calls: dict[str, str]) -> None:
    """Add the names of the tools that a reply calls, by the ids of the calls."""
    if data.get("type") == "assistant":
        for block in fields.objects(fields.mapping(data, "message"), "content"):
            if block.get("type") == "tool_use" and isinstance(block.get("id"), str):
                calls[well_formed(block["id"])] = fields.word(block, "name")
    while len(calls) > OPEN_CALLS:
        del calls[next(iter(calls))]


def reparse_entry(raw: bytes, place: Entry) -> tuple[Entry, Texts] | None:
    """The entry in bytes that are read again, a line or one result of it; None if they are not an object.

    Only the position of `place` in the file and in the tree counts, and the name of its tool.
    """
    data = fields.object_in(raw)
    if data is None:
        return None
    if is_result(data):
        common = {name: getattr(place, name) for name in ("number", "offset", "length", "id", "parent_id")}
        common |= {"type": place.type, "timestamp": place.timestamp, "kind": place.kind}
        entry, texts = describe_result(data, common)
    else:
        line = LinePlace(place.number, place.offset, raw, place.id)
        entry, texts = describe(data, line, is_subagent=place.type != SIDECHAIN)[-1]
    return msgspec.structs.replace(entry, tool_name=place.tool_name), texts


def shows_format(head: bytes) -> bool:
    """Whether the first bytes of a file contain a line that only Claude Code writes."""
    if not any(name in head for name in _OWN_NAMES):
        return False
    for raw in head.removeprefix(BOM_UTF8).split(b"\n"):
        try:
            data, _ = _first_value(raw)
        except ValueError:
            if raw.startswith(_LONG_LINE):
                return True
            continue
        if isinstance(data, dict) and ({"uuid", "parentUuid"} <= data.keys() or "leafUuid" in data):
            return True
    return False
