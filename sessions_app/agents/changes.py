"""What a writer makes of an approved deletion, and the protocol of writers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol, Self, runtime_checkable

from sessions_app.sessionlog.context import Message
from sessions_app.sessionlog.deletion import Deletion
from sessions_app.sessionlog.entries import Entry
from sessions_app.sessionlog.protection import Protection
from sessions_app.sessionlog.session import Header, ParserState
from sessions_app.sessionlog.targets import Target

from .pure.contexts import Reader


class Append(NamedTuple):
    """A change of a session: complete lines to append in one write, each without its newline."""

    lines: tuple[bytes, ...]


class RowChange(NamedTuple):
    """A row of a database before and after a change: the exact text of its data, None if there is no row."""

    table: str
    row_id: str
    before: str | None
    after: str | None


class RowCopy(NamedTuple):
    """A new row: a copy of another one of its table, with other values in some columns. Columns that the table does not
    have are left out."""

    table: str
    row_id: str
    source_id: str
    columns: Mapping[str, str | int | None]
    appended: Mapping[str, str] = MappingProxyType({})
    """Texts that are added to the end of columns."""


class RowChanges(NamedTuple):
    """A change of a session in a database, made in one transaction if each row is still as it was."""

    changes: tuple[RowChange, ...]
    copies: tuple[RowCopy, ...] = ()
    created: str = ""
    """The id of the new session that the copies are, beside this one; empty if the session itself changes."""


class NewFile(NamedTuple):
    """A change that leaves the session as it is: a new session file beside it."""

    name: str
    pieces: Iterable[bytes]
    """Its bytes: each piece is one line with its newline."""


Change = Append | NewFile | RowChanges
CURATED: Final = " (curated)"
COPIED: Final = " (forked)"
"""The endings of the titles of forks, without and with everything, for agents that record a title."""


@dataclass(frozen=True, slots=True)
class WriteFacts:
    """What a writer needs beside a branch and a deletion."""

    new_id: Callable[[], str]
    """Gives an entry id that is not used in the session, a different one each time."""
    session_id: str
    """The id of a new session."""
    written_at: datetime
    session: Path
    """The real path of the session."""
    header: Header
    backup: Path
    """The backup made before the write."""
    line: Callable[[Entry], bytes]
    """Reads the recorded line of an entry, without its newline."""
    labels: Mapping[str, str]
    """The labels of the session's entries, by entry id."""
    title: Callable[[], str] = str
    """Reads the title of the session: its name, or how the first prompt begins; empty if it has neither."""
    state: ParserState = field(default_factory=ParserState)
    """That of the parser after all lines of the session."""
    lines: Callable[[], Iterable[bytes]] = tuple
    """Reads all complete lines of the session, each without its newline."""
    is_open: bool = False
    """Whether the agent certainly has the session open."""
    notes: Mapping[str, str] = field(default_factory=dict)
    """Notes of the user in place of entries that go, each by the first of these: see `notes`."""


class SessionWriter(Protocol):
    """One way to record an approved deletion. It does no I/O but what `WriteFacts.line` does."""

    @property
    def name(self) -> str: ...

    @property
    def appends(self) -> bool:
        """Whether it appends to the session; if not, it makes a new session and leaves this one as it is."""
        ...

    @property
    def holds_notes(self) -> bool:
        """Whether it writes `WriteFacts.notes`, so that the agent sends them."""
        ...

    @property
    def effect(self) -> str:
        """What happens to the file, as a sentence."""
        ...

    @property
    def undo(self) -> str:
        """How that is undone, as a sentence."""
        ...

    @property
    def universal(self) -> SessionWriter:
        """The same way to record a deletion, as more versions honour it: for a session whose agent is a guess."""
        ...

    def protection(self, entry: Entry) -> Protection | None:
        """Why this writer must not touch an entry; None if it may."""
        ...

    def write(self, branch: Sequence[Entry], deletion: Deletion, facts: WriteFacts) -> Change:
        """The change that records a deletion at the end of a branch."""
        ...

    def unapplied(self, branch: Sequence[Entry], targets: Sequence[Target]) -> tuple[Target, ...]:
        """The targets that the agent would not apply if they were recorded at the end of a branch."""
        ...


class PlainWriter:
    """What most writers have in common: they may touch every entry, every version honours them in the same way, they
    apply all targets, and hold no notes."""

    holds_notes = False

    @property
    def universal(self) -> Self:
        return self

    def protection(self, entry: Entry) -> Protection | None:
        del entry
        return None

    def unapplied(self, branch: Sequence[Entry], targets: Sequence[Target]) -> tuple[Target, ...]:
        del branch, targets
        return ()


class ContextWriter(PlainWriter):
    """A writer that records a deletion from the context that its reader rebuilds."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader


@runtime_checkable
class ReplacingWriter(Protocol):
    """A writer that does not just leave out what is deleted."""

    def remains(self, message: Message, blocks: frozenset[int] | None) -> Message | None:
        """What is sent of a message that is deleted, or of which these blocks are; None for nothing."""
        ...


@runtime_checkable
class ServedWriter(Protocol):
    """A writer whose changes the agent's running server can make."""

    def effect_through(self, address: str) -> str:
        """What happens then, as a sentence."""
        ...


class Handed(NamedTuple):
    """A change that a running agent makes itself."""

    fields: Mapping[str, object]
    """What its bridge is given, as in docs/handshake.md."""
    change: Change
    """The part of the change that the agent makes."""


@runtime_checkable
class HandedWriter(Protocol):
    """A writer whose change the running agent can make itself."""

    @property
    def honours(self) -> str:
        """The name of what the bridge is given."""
        ...

    def hand(self, branch: Sequence[Entry], change: Change) -> Handed:
        """What the running agent is given to make a change of this writer's at the end of a branch."""
        ...


RestoreLines = Callable[
    [Sequence[Entry], Sequence[Message], Mapping[str, frozenset[int] | None], WriteFacts], tuple[bytes, ...]
]
"""Gives the lines that, appended after a branch, give messages their content again. The mapping names, by entry id, the
blocks that stay deleted."""
