"""What every agent gives to the rest of Redline. `registry` has the agents.

Nothing outside `agents` names a field of an agent's files: who wants to know what is in one asks its `Agent`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from sessions_app.sessionlog.context import ActiveContext, Message
from sessions_app.sessionlog.deletion import Deletion
from sessions_app.sessionlog.entries import Entry, EntryKind, Texts
from sessions_app.sessionlog.lines import Line
from sessions_app.sessionlog.protection import Protection
from sessions_app.sessionlog.session import Damage, Header, Parser, ParserState
from sessions_app.sessionlog.targets import Target


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


@dataclass(frozen=True, slots=True)
class SettingsFile:
    """A settings file of an agent, as far as it concerns compaction."""

    path: Path
    exists: bool
    compaction: Mapping[str, Any]
    """What it says of compaction, by the agent's names: to be shown."""
    parameters: Mapping[str, Any]
    """Its values for `compression_ratio`, `preserve_recent` and `query`, as they stand there."""
    fault: str = ""
    """Why it cannot be used."""


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """What applies to a project by the settings of its agent."""

    files: Sequence[SettingsFile]
    """Those that are there, the one that counts most first."""
    reserve_tokens: int
    """What the agent keeps free of the context window."""
    switched_off_in: Path | None
    """The file that keeps the agent from compacting on its own."""


class Append(NamedTuple):
    """A change of a session: whole lines at its end, each without its newline."""

    lines: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class WriteFacts:
    """What a writer does not know of a branch and a deletion."""

    entry_id: str
    """An id that no entry of the session has."""
    written_at: datetime
    backup: Path
    """The copy that was made before."""


class SessionWriter(Protocol):
    """One way in which an approved deletion is recorded in a session. It reads and writes nothing itself."""

    @property
    def name(self) -> str: ...

    @property
    def entry_type(self) -> str:
        """What the agent calls the entry that it writes."""
        ...

    @property
    def kind(self) -> EntryKind:
        """The kind of entry that it writes: a reader that honours this kind honours the deletion."""
        ...

    def write(self, branch: Sequence[Entry], deletion: Deletion, facts: WriteFacts) -> Append:
        """What records a deletion at the end of a branch."""
        ...

    def unapplied(self, branch: Sequence[Entry], targets: Sequence[Target]) -> tuple[Target, ...]:
        """The targets that the agent would not apply if they were recorded at the end of a branch."""
        ...

    def written_ids(self, lines: Iterable[bytes]) -> Iterator[str]:
        """The ids of the entries that record deletions, among the lines of a session."""
        ...


class PlanRules(Protocol):
    """What an agent allows a plan to delete."""

    def compactable(self, branch: Sequence[Entry]) -> Sequence[Message]:
        """The messages of a branch, given root first, that a plan may name, as earlier compactions have left them."""
        ...

    def protection(self, entry: Entry) -> Protection | None:
        """Why an entry may not be deleted, wherever it stands; None if it may."""
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
    def sessions(self) -> str:
        """Where it keeps its sessions, unless configured otherwise."""
        ...

    @property
    def current_version(self) -> int:
        """The version of the format that it writes: only such a session can be written to."""
        ...

    @property
    def readers(self) -> Sequence[Reader]:
        """The one that reads what the agent writes today comes first."""
        ...

    @property
    def writers(self) -> Sequence[SessionWriter]:
        """The ways to record a deletion that the agent honours, the best one first."""
        ...

    @property
    def rules(self) -> PlanRules | None:
        """None if it has no rules of its own: then Atomic's apply."""
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

    def settings(self, cwd: str, home: Path) -> AgentSettings:
        """What applies to a project; `cwd` is data from a session."""
        ...

    def user_settings(self, home: Path) -> SettingsFile:
        """The user's own settings of this agent, for all projects."""
        ...

    def model_windows(self, home: Path) -> Mapping[str, int]:
        """Context windows in tokens by model id, as the user told the agent."""
        ...


@dataclass(frozen=True, slots=True)
class Reading:
    """How a session is read, and in words why."""

    agent: Agent
    reader: Reader
    writer: SessionWriter
    """How a deletion is recorded. An agent that honours none is given one that it ignores."""
    rules: PlanRules
    reason: str
    is_guess: bool = False
    """Whether nothing shows which agent owns the session: then nothing is written without a confirmation."""

    @property
    def is_honoured(self) -> bool:
        """Whether what the writer records changes what the agent's model sees."""
        return self.writer.kind in self.reader.honours
