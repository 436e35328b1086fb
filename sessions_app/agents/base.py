"""The protocol of agents. `registry` lists the agents.

Code outside `agents` never uses a field name of an agent's files; it uses the agent's `Agent` object.
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
        """The kinds of entries after which it may omit something."""
        ...

    def ignores(self, entry: Entry) -> bool:
        """Whether it omits nothing because of an entry after which some reader would."""
        ...

    def rebuild(self, branch: Sequence[Entry]) -> ActiveContext:
        """The active context of a branch, given root first."""
        ...


@dataclass(frozen=True, slots=True)
class SettingsFile:
    """The compaction settings in one of an agent's settings files."""

    path: Path
    exists: bool
    compaction: Mapping[str, Any]
    """The compaction section, with the agent's names: to be shown."""
    parameters: Mapping[str, Any]
    """Its values for `compression_ratio`, `preserve_recent` and `query`, unchanged."""
    fault: str = ""
    """The reason why it cannot be used."""


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """The agent's effective settings for a project."""

    files: Sequence[SettingsFile]
    """The existing files, in order of precedence."""
    reserve_tokens: int
    """The tokens of the context window that the agent leaves free."""
    switched_off_in: Path | None
    """The file that disables the agent's automatic compaction."""


class Append(NamedTuple):
    """A change of a session: complete lines to append, each without its newline."""

    lines: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class WriteFacts:
    """What a writer needs beside a branch and a deletion."""

    entry_id: str
    """An id that is not used in the session."""
    written_at: datetime
    backup: Path
    """The backup made before the write."""


class SessionWriter(Protocol):
    """One way to record an approved deletion in a session. It does no I/O."""

    @property
    def name(self) -> str: ...

    @property
    def entry_type(self) -> str:
        """The agent's name for the entries that it writes."""
        ...

    @property
    def kind(self) -> EntryKind:
        """The kind of the entries that it writes: a reader that honours this kind honours the deletion."""
        ...

    def write(self, branch: Sequence[Entry], deletion: Deletion, facts: WriteFacts) -> Append:
        """The change that records a deletion at the end of a branch."""
        ...

    def unapplied(self, branch: Sequence[Entry], targets: Sequence[Target]) -> tuple[Target, ...]:
        """The targets that the agent would not apply if they were recorded at the end of a branch."""
        ...

    def written_ids(self, lines: Iterable[bytes]) -> Iterator[str]:
        """The ids of the entries among a session's lines that record deletions."""
        ...


class PlanRules(Protocol):
    """What an agent allows a plan to delete."""

    def compactable(self, branch: Sequence[Entry]) -> Sequence[Message]:
        """The messages of a branch, given root first, that a plan may target, as left by earlier compactions."""
        ...

    def protection(self, entry: Entry) -> Protection | None:
        """Why an entry must not be deleted, wherever it is; None if it may be."""
        ...


class Agent(Protocol):
    """Everything that Redline needs to know about an agent."""

    @property
    def key(self) -> str:
        """Its name in the configuration and the database."""
        ...

    @property
    def label(self) -> str:
        """Its name for people."""
        ...

    @property
    def directory(self) -> str:
        """The directory of its own files, in a home directory and in a project."""
        ...

    @property
    def sessions(self) -> str:
        """Its default session directory."""
        ...

    @property
    def current_version(self) -> int:
        """The version of the format that it writes; other sessions cannot be written to."""
        ...

    @property
    def readers(self) -> Sequence[Reader]:
        """Its readers, the one for current sessions first."""
        ...

    @property
    def writers(self) -> Sequence[SessionWriter]:
        """The ways to record a deletion that the agent honours, the best one first."""
        ...

    @property
    def rules(self) -> PlanRules | None:
        """Its rules, or None if Atomic's apply."""
        ...

    def parser(self, state: ParserState, damage: list[Damage]) -> Parser:
        """A parser that starts where another one ended, or with a new `ParserState`."""
        ...

    def read_again(self, raw: bytes, place: Entry, version: int) -> tuple[Entry, Texts] | None:
        """The entry at the position of an earlier one; None if there is none any more."""
        ...

    def migrate(self, lines: Iterable[Line], name: str, header: Header) -> Iterator[bytes]:
        """The lines of a copy at `current_version`; `header` is for a session without one.

        Raises BadInput `is_current`, and `not_a_session` at the end.
        """
        ...

    def settings(self, cwd: str, home: Path) -> AgentSettings:
        """The settings for a project; `cwd` is data from a session."""
        ...

    def user_settings(self, home: Path) -> SettingsFile:
        """The user's own settings of this agent, for all projects."""
        ...

    def model_windows(self, home: Path) -> Mapping[str, int]:
        """Context windows in tokens by model id, from the user's configuration of the agent."""
        ...


@dataclass(frozen=True, slots=True)
class Reading:
    """The agent, reader, writer and rules of a session, and the reason for this choice."""

    agent: Agent
    reader: Reader
    writer: SessionWriter
    """The writer for deletions. For an agent that honours none, it writes one that the agent ignores."""
    rules: PlanRules
    reason: str
    is_guess: bool = False
    """Whether the agent of the session is unknown: then nothing is written without a confirmation."""

    @property
    def is_honoured(self) -> bool:
        """Whether the writer's entries change what the agent's model sees."""
        return self.writer.kind in self.reader.honours
