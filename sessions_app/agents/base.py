"""PURE: what every agent gives to the rest of Redline. `registry` has the agents.

Nothing outside `agents` names a field of an agent's files: who wants to know what is in one asks its `Agent`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from sessions_app.sessionlog.context import ActiveContext
from sessions_app.sessionlog.entries import Entry, EntryKind, Texts
from sessions_app.sessionlog.lines import Line
from sessions_app.sessionlog.session import Damage, Header, Parser, ParserState


class Reader(Protocol):
    """One way in which an agent rebuilds what its model sees of a branch."""

    @property
    def name(self) -> str: ...

    @property
    def honours(self) -> frozenset[EntryKind]:
        """The kinds of entries after which it leaves something out; it ignores the other `Entry.rebuilds`."""
        ...

    def rebuild(self, branch: Sequence[Entry]) -> ActiveContext:
        """The active context of a branch, given root first."""
        ...


class Agent(Protocol):
    """What Redline has to know of an agent."""

    @property
    def key(self) -> str:
        """How configuration and database name it."""
        ...

    @property
    def label(self) -> str:
        """How people name it."""
        ...

    @property
    def directory(self) -> str:
        """The directory of its own files, in a home and in a project."""
        ...

    @property
    def current_version(self) -> int:
        """The version of the format that it writes: only such a session can be written to."""
        ...

    @property
    def readers(self) -> Sequence[Reader]:
        """The one that reads what the agent writes today comes first."""
        ...

    def parser(self, state: ParserState, damage: list[Damage]) -> Parser:
        """A parser that begins where another one ended, or with a new `ParserState`."""
        ...

    def read_again(self, raw: bytes, place: Entry, version: int) -> tuple[Entry, Texts] | None:
        """The entry at a place where one was found before; None if there is none any more."""
        ...

    def migrate(self, lines: Iterable[Line], name: str, header: Header) -> Iterator[bytes]:
        """The lines of a copy at `current_version`; `header` is for a session without one.

        Raises BadInput `is_current`, and `not_a_session` at the end.
        """
        ...


@dataclass(frozen=True, slots=True)
class Reading:
    """How a session is read, and in words why."""

    agent: Agent
    reader: Reader
    reason: str
    is_guess: bool = False
    """Whether nothing shows which agent owns the session: then nothing is written without a confirmation."""
