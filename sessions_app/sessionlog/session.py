"""The parsed session: header, entries and damage. An agent's parser reads it from lines.

The index stores an entry as columns (ids and position) and one small binary value with the rest: see `pack`.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import lru_cache
from operator import attrgetter
from typing import Any, ClassVar, Final, NamedTuple

import msgspec
from msgspec.structs import astuple, fields

from .entries import BoundaryControl, Control, Entry, Texts
from .errors import BadInput
from .jsjson import Line, parse

FIELDS_NAMED: Final = 6
NAMED_LENGTH: Final = 40
HEAD_BYTES: Final = 65_536
"""The number of bytes at the start of a file by which its agent, or another file type, is recognised."""
DAMAGE_KEPT: Final = 1_000
"""The number of faults of a session that are stored in full; the others are only counted."""


class DamageKind(StrEnum):
    """Faults of a line, or of an entry's position in the tree. Those after CYCLE are found only by a diagnosis."""

    NOT_JSON = "not_json"
    NOT_AN_OBJECT = "not_an_object"
    MORE_ON_LINE = "more_on_line"
    NO_ID = "no_id"
    NO_HEADER = "no_header"
    SECOND_HEADER = "second_header"
    TORN_LINE = "torn_line"
    NO_MESSAGE = "no_message"
    DUPLICATE_ID = "duplicate_id"
    MISSING_PARENT = "missing_parent"
    CYCLE = "cycle"
    BYTE_ORDER_MARK = "byte_order_mark"
    NO_HEADER_ID = "no_header_id"
    NO_NEWLINE = "no_newline"
    NO_REPLACEMENT = "no_replacement"
    NOT_UTF8 = "not_utf8"
    NO_ORDINAL = "no_ordinal"


class Damage(msgspec.Struct, frozen=True, gc=False):
    """One fault: its line, its position in bytes, and a description."""

    kind: DamageKind
    number: int
    offset: int
    length: int
    detail: str


class Header(msgspec.Struct, frozen=True, gc=False):
    """The session's first line. `cwd` is data from the file and must not be trusted as a path."""

    id: str
    version: int
    cwd: str
    timestamp: str
    parent_session: str
    """The path or the id of the session that it was forked from, or that started it."""
    is_subagent: bool = False
    """Whether the parent session started it as a subagent."""


class ParserState(msgspec.Struct):
    """The state that a parser needs to continue where it ended, also in another process.

    `next_offset` is the byte after the last complete line; a line without a newline is read again.
    """

    version: int = 0
    """0 until the first entry or header is seen."""
    next_number: int = 1
    next_offset: int = 0
    previous_id: str | None = None
    header: Header | None = None
    damaged: int = 0
    """Faults on complete lines so far."""
    recognised: bool = False
    """Whether a header or an entry of a known type was seen; otherwise the file is not a session."""
    provisional: bool = False
    """Whether the version or the header is that of a line without a newline, which may differ when it is read again."""
    window: int | None = None
    """The latest context window that the session records of its model, in tokens."""
    extra: dict[str, Any] = msgspec.field(default_factory=dict)
    """Values that an agent's own parser must keep, as JSON."""


@dataclass(slots=True)
class Recorded:
    """One entry, with its recorded content."""

    entry: Entry
    texts: Texts
    data: dict[str, Any]


def is_complete_line(raw: bytes) -> bool:
    """Whether a last line without a newline is a complete object; if not, its writer was interrupted."""
    try:
        return isinstance(parse(raw), dict)
    except ValueError:
        return False


@dataclass(slots=True)
class LineParser(ABC):
    """The common part of all agents' parsers: lines in order, damage, and a last line that is not finished yet.

        line ──▶ blank                              no entries
             ──▶ not JSON, or not an object         damage
             ──▶ an object ──read_object──▶ entries, or damage

    An agent's parser says what an object means, and where its agent reads lines in another way. `state` can be stored
    and passed to the next parser.
    """

    blanks: ClassVar[bytes] = b" \t\r\n\v\f"
    """The bytes of blank lines, which have no entries."""
    mark: ClassVar[bytes] = b""
    """Bytes that the agent skips at the start of a file."""

    state: ParserState = field(default_factory=ParserState)
    damage: list[Damage] = field(default_factory=list)
    """The first DAMAGE_KEPT faults."""
    torn: int = 0
    """The number of faults on the last line, if it has no newline."""

    @property
    def damaged(self) -> int:
        """The total number of faults."""
        return self.state.damaged + self.torn

    def read(self, line: Line) -> Sequence[Recorded]:
        """The entries on this line, usually one; none for a header, a blank line or a damaged one."""
        state = self.state
        if state.provisional:
            state.version, state.header, state.provisional = 0, None, False
        if not line.complete:
            return self._read_unfinished(line)
        recorded = self.read_line(line)
        state.next_number = line.number + 1
        state.next_offset = line.end
        return recorded

    def _read_unfinished(self, line: Line) -> Sequence[Recorded]:
        """The entries on a line without a newline, which is read again once it is complete.

        Of its effects on later lines, only those that identify the session are kept in the state, marked as
        `provisional`.
        """
        state = self.state
        once = replace(self, state=msgspec.structs.replace(state, extra=dict(state.extra)))
        recorded = once.read_line(line)
        self.torn = once.torn
        state.recognised = once.state.recognised
        state.provisional = (not state.version and once.state.version > 0) or (
            state.header is None and once.state.header is not None
        )
        state.version, state.header = once.state.version, once.state.header
        return recorded

    def read_line(self, line: Line) -> Sequence[Recorded]:
        """The entries on a line, with or without a newline."""
        raw = line.raw if line.offset else line.raw.removeprefix(self.mark)
        if not raw.strip(self.blanks):
            return ()
        try:
            data = self.decode(raw)
        except ValueError as fault:
            return self.report_unreadable(line, self.describe_fault(raw, fault))
        if isinstance(data, dict):
            return self.read_object(data, line)
        return self.report(DamageKind.NOT_AN_OBJECT, line, self.describe_value(raw, data))

    @abstractmethod
    def read_object(self, data: dict[str, Any], line: Line) -> Sequence[Recorded]:
        """The entries that an object records. It may store data for later lines in `state.extra`, but must not modify a
        value that was in it: the previous state may still be in use.
        """

    @staticmethod
    @abstractmethod
    def reparse(raw: bytes, place: Entry, version: int) -> tuple[Entry, Texts] | None:
        """The entry in bytes that are read again, from a file of this version; None if it is no longer there.

        `place` is the entry as it was read before: its position in the file and in the tree, and the data that comes
        from other lines.
        """

    @staticmethod
    def decode(raw: bytes) -> Any:
        """The value on a line. Raises ValueError, with a message, if the agent cannot read it."""
        return parse(raw)

    def describe_fault(self, raw: bytes, fault: ValueError) -> str:
        """The description of a line that is not JSON."""
        del raw
        return f"is not valid JSON ({fault})"

    def describe_value(self, raw: bytes, value: object) -> str:
        """The description of a line with a value that is not an object."""
        del raw, value
        return "contains a value instead of an object"

    def report_unreadable(self, line: Line, detail: str) -> tuple[()]:
        """Report a line that is not JSON; without a newline, its writer may have been interrupted."""
        return self.report(DamageKind.NOT_JSON if line.complete else DamageKind.TORN_LINE, line, detail)

    def report(self, kind: DamageKind, line: Line, detail: str) -> tuple[()]:
        """Count a fault. Returns no entries."""
        if line.complete:
            self.state.damaged += 1
        else:
            self.torn += 1
        if len(self.damage) < DAMAGE_KEPT:
            self.damage.append(Damage(kind, line.number, line.offset, len(line.raw), detail))
        return ()


@dataclass(frozen=True, slots=True)
class SessionLog:
    """A parsed session: digests in file order, and faults."""

    header: Header | None
    version: int
    entries: list[Entry]
    damage: list[Damage]
    """The first DAMAGE_KEPT faults of its lines."""
    damaged: int
    """The total number of faults."""
    state: ParserState

    @property
    def cwd(self) -> str:
        return self.header.cwd if self.header else ""


def read_session(
    parser: LineParser, lines: Iterable[Line], name: str, head: Callable[[], bytes] | None = None
) -> SessionLog:
    """All entries of a file. Raises BadInput `not_a_session`, see `require_session`."""
    entries = [recorded.entry for line in lines for recorded in parser.read(line)]
    require_session(parser.state, name, head)
    return log_of(parser, entries)


def log_of(parser: LineParser, entries: list[Entry]) -> SessionLog:
    """The session log from a parser and the entries that it returned."""
    state = parser.state
    return SessionLog(state.header, state.version, entries, parser.damage, parser.damaged, state)


def require_session(state: ParserState, name: str, head: Callable[[], bytes] | None = None) -> None:
    """Raise BadInput `not_a_session` if nothing in the file belongs to a session. `head` reads its first bytes, from
    which the message describes the file.
    """
    if not state.recognised:
        found = f" {_first_line(head())}" if head is not None else ""
        raise BadInput(
            "not_a_session",
            f"{name} is not a session of an agent that Redline knows: none of its lines is a session header or an "
            f"entry.{found} Nothing was done.",
        )


def _first_line(head: bytes) -> str:
    """A description of the first line of a file, as a sentence."""
    line = next((line for line in head.splitlines() if line.strip()), b"")
    if not line:
        return "It is empty."
    try:
        found = parse(line)
    except ValueError:
        return "It does not begin with a line of JSON."
    if not isinstance(found, dict):
        return "Its first line is JSON, but not an object."
    kind = found.get("type")
    named = f" of the type {kind[:NAMED_LENGTH]!r}" if isinstance(kind, str) else ""
    named_fields = ", ".join(repr(name[:NAMED_LENGTH]) for name in list(found)[:FIELDS_NAMED])
    return f"Its first line is an object{named} with {f'the fields {named_fields}' if named_fields else 'no fields'}."


_RELEASED: Final = re.compile(r"([0-9]{1,6})\.([0-9]{1,6})\.([0-9]{1,6})")


class RecordedVersion(NamedTuple):
    """The version of the client that a session's lines record."""

    numbers: tuple[int, ...]
    sentence: str
    """The recorded fact, as in "Claude Code 2.1.330 continued it last"."""


@lru_cache(maxsize=16)
def released_version(name: str) -> tuple[int, ...]:
    """The numbers of a released version; empty if the name is not that of one."""
    found = _RELEASED.fullmatch(name)
    return tuple(map(int, found.groups())) if found is not None else ()


COLUMNS: Final = ("number", "offset", "length", "id", "parent_id")
"""The fields of an entry that are columns of the index."""
SCHEMA: Final = 21
"""Increased whenever the meaning of packed data changes: an index with another schema is rebuilt."""

*_PACKED, _ = fields(Entry)[len(COLUMNS) :]
_Rest: Final = msgspec.defstruct(
    "_Rest",
    # Of the controls, only that of a boundary is packed: its line alone does not determine it.
    [*((field.name, field.type) for field in _PACKED), ("control", BoundaryControl | None, None)],
    frozen=True,
    array_like=True,
    gc=False,
)
_encode: Final = msgspec.msgpack.Encoder().encode
_rest_of: Final = attrgetter(*(field.name for field in _PACKED))
_decode: Final = msgspec.msgpack.Decoder(_Rest).decode


def pack(entry: Entry) -> bytes:
    """The fields that are not columns. A control is omitted if it can be read from the file again."""
    rest = _rest_of(entry)
    return _encode((*rest, entry.control) if isinstance(entry.control, BoundaryControl) else rest)


def unpack(
    number: int,
    offset: int,
    length: int,
    entry_id: str,
    parent_id: str | None,
    packed: bytes | memoryview,
    control: Control | None = None,
) -> Entry:
    """The packed entry."""
    rest: tuple[Any, ...] = astuple(_decode(packed))
    if control is not None:
        rest = (*rest[:-1], rest[-1] or control)
    return Entry(number, offset, length, entry_id, parent_id, *rest)
