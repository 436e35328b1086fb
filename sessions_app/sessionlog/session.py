"""A session as read: its header, its entries, and what is damaged. An agent's parser reads it from lines."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Protocol

import msgspec

from .entries import Entry, Texts
from .errors import BadInput
from .jsjson import parse
from .lines import Line

TITLE_LENGTH: Final = 200
DAMAGE_KEPT: Final = 1_000
"""Faults of a session that are kept in full; the others are only counted."""


class DamageKind(StrEnum):
    """What can be wrong with a line, or with an entry's place in the tree."""

    NOT_JSON = "not_json"
    NOT_AN_OBJECT = "not_an_object"
    NO_ID = "no_id"
    NO_HEADER = "no_header"
    SECOND_HEADER = "second_header"
    TORN_LINE = "torn_line"
    DUPLICATE_ID = "duplicate_id"
    MISSING_PARENT = "missing_parent"
    CYCLE = "cycle"


class Damage(msgspec.Struct, frozen=True, gc=False):
    """One fault: which line it is on, at which byte, and what it is in words."""

    kind: DamageKind
    number: int
    offset: int
    length: int
    detail: str


class Header(msgspec.Struct, frozen=True, gc=False):
    """The session's first line. `cwd` is data from the file, not a place to trust."""

    id: str
    version: int
    cwd: str
    timestamp: str
    parent_session: str


class ParserState(msgspec.Struct):
    """What a reader must remember to go on where it ended, also in another process.

    `next_offset` is the byte after the last complete line; a line without newline is read again.
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
    """Whether a header, or an entry of a known type, was seen: else the file is no session."""
    provisional: bool = False
    """Whether the version comes from a line without newline, which is read again and may then be another."""


@dataclass(slots=True)
class Recorded:
    """One entry with what its line holds beside the digest."""

    entry: Entry
    texts: Texts
    data: dict[str, Any]


def is_complete_line(raw: bytes) -> bool:
    """Whether a last line without newline holds a whole object: else somebody was interrupted while writing it."""
    try:
        return isinstance(parse(raw), dict)
    except ValueError:
        return False


class Parser(Protocol):
    """Reads the lines of one agent's session file, one after the other; `state` can be handed to the next parser."""

    state: ParserState
    damage: list[Damage]
    """The first DAMAGE_KEPT faults."""

    @property
    def damaged(self) -> int:
        """How many faults there are in all."""
        ...

    def read(self, line: Line) -> Recorded | None:
        """The entry on this line; None for a header, a blank line and a damaged one."""
        ...


@dataclass(frozen=True, slots=True)
class SessionLog:
    """A session as read: digests in file order, and what was wrong."""

    header: Header | None
    version: int
    entries: list[Entry]
    damage: list[Damage]
    """The first DAMAGE_KEPT faults of its lines."""
    damaged: int
    """How many there are in all."""
    state: ParserState

    @property
    def cwd(self) -> str:
        return self.header.cwd if self.header else ""


def read_session(parser: Parser, lines: Iterable[Line], name: str) -> SessionLog:
    """All entries of a file. Raises BadInput `not_a_session` if no line is a header or an entry."""
    entries = [recorded.entry for recorded in map(parser.read, lines) if recorded is not None]
    require_session(parser.state, name)
    return log_of(parser, entries)


def log_of(parser: Parser, entries: list[Entry]) -> SessionLog:
    """What a parser has read, with the entries that it gave."""
    state = parser.state
    return SessionLog(state.header, state.version, entries, parser.damage, parser.damaged, state)


def require_session(state: ParserState, name: str) -> None:
    """Raise BadInput `not_a_session` where nothing that was read belongs to a session."""
    if not state.recognised:
        raise BadInput(
            "not_a_session",
            f"{name} is no session: no line of it is a session header or an entry. Nothing was done with it.",
        )
