"""The common part of all agents' parsers: lines in order, damage, and a last line that is not finished yet.

    line ──▶ blank                              no entries
         ──▶ not JSON, or not an object         damage
         ──▶ an object ──read_object──▶ entries, or damage

An agent's parser says what an object means, and where its agent reads lines in another way.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import msgspec

from sessions_app.sessionlog.entries import Entry, Texts
from sessions_app.sessionlog.jsjson import Line, parse
from sessions_app.sessionlog.session import DAMAGE_KEPT, Damage, DamageKind, ParserState, Recorded


@dataclass(slots=True)
class LineParser(ABC):
    """Reads lines in order; `state` can be stored and passed to the next parser."""

    blanks: ClassVar[bytes] = b" \t\r\n\v\f"
    """A line of these bytes has nothing."""
    mark: ClassVar[bytes] = b""
    """Bytes that the agent skips at the start of a file."""

    state: ParserState = field(default_factory=ParserState)
    damage: list[Damage] = field(default_factory=list)
    """The first DAMAGE_KEPT faults."""
    torn: int = 0
    """Faults on the last line, if it has no newline."""

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
        """The entries on a line without a newline, which is read again when it has one.

        Of what it says about later lines, the state has only what identifies the session; `provisional` says so.
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
        """The entries that an object records. It may keep in `state.extra` what later lines depend on, but must not
        change a value that was in it: its previous holder may read on from it."""

    @staticmethod
    @abstractmethod
    def reparse(raw: bytes, place: Entry, version: int) -> tuple[Entry, Texts] | None:
        """The entry in bytes that are read again, from a file of this version; None if it is not there any more.

        `place` is the entry as it was read before: its position in the file and in the tree, and what other lines say
        of it.
        """

    @staticmethod
    def decode(raw: bytes) -> Any:
        """The value on a line. Raises ValueError, with a message, if the agent cannot read it."""
        return parse(raw)

    def describe_fault(self, raw: bytes, fault: ValueError) -> str:
        """The description of a line that is not JSON."""
        return f"is not valid JSON ({fault})"

    def describe_value(self, raw: bytes, value: object) -> str:
        """The description of a line with a value that is not an object."""
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
