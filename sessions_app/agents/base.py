"""What an agent consists of: a store, a format, a client, a bridge and settings. `registry` lists the agents.

Code outside `agents` never uses a field name of an agent's files; it uses the agent's `Agent` object.

An agent defines each setting of its compaction once, with a default (`CompactionSetting`). The setting is looked up in
the agent's files, in order of precedence; the first usable value counts, as in the agent.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Protocol

from sessions_app.agents.edge.dry_resume import AgentClient as AgentClient, ClientProgram, find_client
from sessions_app.agents.pure.formats import Format, Reader
from sessions_app.agents.pure.hooks import CompactionHook
from sessions_app.disk.discovery import Discovery, discover
from sessions_app.disk.files import FileState, SessionReader, file_state, open_regular
from sessions_app.sessionlog.errors import RedlineError
from sessions_app.sessionlog.jsjson import canonical
from sessions_app.sessionlog.model_facts import InputPrices
from sessions_app.sessionlog.session import HEAD_BYTES
from sessions_app.sessionlog.sourced_value import SourcedValue, resolve

TOKENS_LIMIT: Final = 2**31
EXAMPLE_LENGTH: Final = 200
"""The maximum length of a value in a line to paste, in characters; a longer one is replaced by the example."""
TEXT_LENGTH: Final = 300
"""The maximum number of characters shown of a value."""


def is_switch(value: object) -> bool:
    return isinstance(value, bool)


def is_token_count(value: object) -> bool:
    return type(value) is int and 0 <= value < TOKENS_LIMIT


class CompactionSetting(NamedTuple):
    """A setting that an agent knows."""

    name: str
    meaning: str
    default: str
    """The value that applies if no file sets one: as in a file, or in words."""
    is_usable: Callable[[object], bool]
    example: object
    """A value for the line that sets it, if no file has one."""
    within: tuple[str, ...] = ("compaction",)
    """The keys of the enclosing objects, the outermost first."""
    is_toml: bool = False


class SettingsSection(NamedTuple):
    """The settings of compaction in a file, or some of them."""

    path: Path
    values: Mapping[str, Any]
    within: tuple[str, ...] | None = None
    """The keys of the enclosing objects; None for those of each setting."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingInForce(SourcedValue[object]):
    """A setting with its value, or None for the default. The source is the path of a file, or a description."""

    setting: CompactionSetting
    within: tuple[str, ...] | None
    """The keys of the objects around its line; None if no file can set it."""

    @property
    def switched_off_in(self) -> Path | None:
        """The file that turns this switch off; None if it is on."""
        return Path(self.source) if self.value is False else None

    @property
    def name(self) -> str:
        """Its name qualified by the keys of the enclosing objects, separated by dots."""
        return ".".join((*self.setting.within, self.setting.name))

    @property
    def text(self) -> str:
        """The value as text, possibly truncated; the default if no value is set."""
        if not self.setting.is_usable(self.value):
            return self.setting.default
        text = self.value if isinstance(self.value, str) else json.dumps(self.value)
        return f"{text[:TEXT_LENGTH]}…" if len(text) > TEXT_LENGTH else text

    @property
    def line(self) -> str:
        """The line to paste into a file: a switch inverted, another value unchanged, or the example; empty if no file
        can set it.
        """
        if self.within is None:
            return ""
        value = self.setting.example
        if isinstance(self.value, bool):
            value = not self.value
        elif self.value is not None and len(json.dumps(self.value)) <= EXAMPLE_LENGTH:
            value = self.value
        if self.setting.is_toml:
            return f"{self.setting.name} = {json.dumps(value)}"
        line = f"{json.dumps(self.setting.name)}: {json.dumps(value)}"
        for key in reversed(self.within):
            line = f"{json.dumps(key)}: {{{line}}}"
        return line


def settings_in_force(
    settings: Iterable[CompactionSetting], sections: Sequence[SettingsSection]
) -> tuple[SettingInForce, ...]:
    """Each setting with the first usable value of the sections, which are in the order of precedence."""
    return tuple(_in_force(setting, sections) for setting in settings)


def _in_force(setting: CompactionSetting, sections: Sequence[SettingsSection]) -> SettingInForce:
    default = SettingInForce(None, setting=setting, within=setting.within)
    offers = (
        replace(
            default,
            value=value if setting.is_usable(value := section.values[setting.name]) else None,
            source=str(section.path),
            within=setting.within if section.within is None else section.within,
        )
        for section in sections
        if setting.name in section.values
    )
    return resolve(offers, default)


class RebuiltMessage(NamedTuple):
    """A message of a rebuilt context: its role, and a hash of everything of it that the model receives."""

    role: str
    digest: str

    @classmethod
    def of(cls, message: Mapping[str, Any]) -> RebuiltMessage:
        """A message in the form of `Format.message_json`."""
        return cls(str(message.get("role")), hashlib.sha256(canonical(message).encode()).hexdigest())


class PackageContext(NamedTuple):
    """An agent's own package's result for a session: a context, a refusal to open it, or a failure to run."""

    messages: tuple[RebuiltMessage, ...] = ()
    refusal: str = ""
    failure: str = ""


class AgentPackage(Protocol):
    """An installed package of an agent, which can rebuild a context itself."""

    @property
    def name(self) -> str: ...

    @property
    def version(self) -> str: ...

    @property
    def reader(self) -> Reader:
        """The reader for sessions of this version."""

    def rebuild(self, content: Iterable[bytes], leaf_id: str = "") -> PackageContext:
        """The context of a session with this content, at this leaf or, without one, at the session's own leaf."""


class AgentServer(Protocol):
    """An agent's running server that is the only process with the database open: rows are changed through it."""

    @property
    def address(self) -> str: ...

    def changes(self, table: str) -> bool:
        """Whether it can change the rows of a table."""

    def require_ready(self, connection: sqlite3.Connection, rows: Iterable[Mapping[str, Any]]) -> None:
        """Require that it serves the session as this connection sees it, is not working on it, and can write these rows
        again without loss.

        Raises Conflict `open_in_agent`, `session_busy`, `other_database` and `not_kept`, BadInput `server_password` and
        `server_version`, SystemFailure `server_unreachable`, `server_failed` and `not_understood`.
        """

    def require_answer(self) -> None:
        """Require that the server responds: a request that it left unanswered may still be pending, and be executed
        later.

        Raises as `require_ready`.
        """

    def write(self, row: Mapping[str, Any]) -> None:
        """Update or insert a row; only the database shows the result. Raises as `require_ready`."""

    def delete(self, row: Mapping[str, Any]) -> None:
        """Delete a row, if it exists. Raises as `require_ready`."""


class Client:
    """How an agent's own program and package are found. This base class finds neither."""

    program: str = ""
    """The name of its program on the PATH."""
    has_package: bool = False
    """Whether its own package can rebuild a context: see `find_package`."""
    kind: type[ClientProgram] | None = None
    """Its program as one that can continue a copy of a session; None if it cannot."""

    @property
    def can_be_run(self) -> bool:
        return self.kind is not None

    def find_package(self, directory: Path | None) -> AgentPackage | None:
        """The agent's package in a directory, or the installed one if no directory is given; None if there is none.

        Raises BadInput `no_agent_package` if the directory has no package.
        """
        return None

    def find_installed(self, program: Path | None) -> AgentClient | None:
        """The client with this program, or the one on the PATH; None if there is none that can continue a session.

        Raises BadInput `no_client` if the program prints no version, or its version's sessions are not supported.
        """
        return find_client(self.kind, self.program, program) if self.kind is not None else None

    def resume_command(self, path: Path) -> Sequence[str]:
        """The command that continues a session in the agent, as arguments. Empty if there is none."""
        return ()

    def unarchive_command(self, path: Path) -> Sequence[str]:
        """The command, as arguments, that unarchives a session: until then, the agent continues neither it nor a copy
        beside it. Empty if it is not archived.
        """
        return ()


def head_of(path: Path) -> bytes:
    """The first bytes of a regular file; nothing if it cannot be read, which is reported when it is opened."""
    try:
        fd = open_regular(path.absolute(), os.O_RDONLY, "It was not read.")
        with os.fdopen(fd, "rb") as file:
            return file.read(HEAD_BYTES)
    except (RedlineError, OSError):
        return b""


class OpenElsewhere(NamedTuple):
    """A process that has a session open, as shown by the agent's own lock or register."""

    sentence: str
    """The finding as part of a sentence, such as "is open in Codex (process 4711)"."""
    is_certain: bool = True
    """False if the lock or register entry may be stale, and the system does not show whether it is."""


class Store(ABC):
    """The sessions of an agent. This base class is for append-only files with one session each."""

    keeps_database: bool = False
    """Whether its sessions are in databases directly in a root. Then only these are watched for changes."""
    session_tables: Mapping[str, str] = MappingProxyType({})
    """The database tables that contain rows of a session, each with its column for the session's id."""
    has_server: bool = False
    """Whether its sessions can be changed through a running server of the agent."""
    is_append_only: bool = False
    """Whether other files of the agent refer to byte positions in its sessions, so that these must never lose bytes."""

    @abstractmethod
    def roots(self, environment: Mapping[str, str]) -> Sequence[str]:
        """The agent's default session directories; `~` is the home directory."""

    @abstractmethod
    def owns(self, path: Path) -> bool:
        """Whether a path is among the agent's own files."""

    @abstractmethod
    def recognises(self, head: bytes) -> bool:
        """Whether a file that begins with these bytes is certainly a session in the agent's format."""

    def discover(self, root: Path) -> Discovery:
        """The sessions below a root, which is a real path. Raises BadInput `no_such_root`."""
        return discover(root)

    def open(self, path: Path) -> SessionReader:
        """The bytes of a session, as a context manager; nothing is read before it is entered."""
        return SessionReader(path)

    def state(self, path: Path) -> FileState | None:
        """The identity and extent of a session; None if there is none. Raises BadInput and SystemFailure."""
        return file_state(path)

    def read_only(self, path: Path) -> str:
        """Why nothing can be written for a session, and what can be done instead, in sentences; empty if it can."""
        return ""

    def taken_over(self, path: Path) -> str:
        """How a newer version of the agent took over a session into another store, such as "taken over by OpenCode 2";
        empty if the agent continues this one. `read_only` has more detail.
        """
        return ""

    def export(self, path: Path) -> Iterator[bytes] | None:
        """The document to transfer a session to another machine, in pieces; None if its own file is transferred."""
        return None

    def database(self, path: Path) -> Path | None:
        """The database that has a session; None if a session is not in one."""
        return None

    def open_within(self, path: Path, connection: sqlite3.Connection) -> SessionReader:
        """The bytes of a session in a database, as a transaction of this connection sees it. Raises ValueError if the
        agent has no database.
        """
        raise ValueError(f"{path} is not in a database")

    def companion_of(self, path: Path, text: str) -> Path | None:
        """The agent's file with the full version of a text that is truncated in a session's entry."""
        return None

    def open_elsewhere(self, path: Path) -> OpenElsewhere | None:
        """The evidence that the agent has a session open; None if it has not, or leaves no evidence."""
        return None

    def open_sessions(self, root: Path) -> set[str]:
        """The header ids of the sessions below a root that the agent certainly has open, if it leaves evidence of each.
        The cost does not depend on the number of sessions.
        """
        return set()

    def server(self, path: Path, address: str) -> AgentServer | None:
        """The server at an address, if its process is the only other one that has the database of a session open.

        Raises ValueError if the address is not on this machine.
        """
        return None

    def is_same_row(self, one: Mapping[str, Any] | None, other: Mapping[str, Any] | None) -> bool:
        """Whether two rows of a database are equivalent, although they may be written differently; None means no
        row.
        """
        return one == other

    def write_lock(self, path: Path) -> AbstractContextManager[object]:
        """The agent's own lock on a session, held while Redline writes to it. Raises Conflict `open_in_agent`."""
        return nullcontext()

    def sessions_based_on(self, path: Path) -> Sequence[Path]:
        """The sessions that continue the bytes of another one, and are lost without it: none if forks have copies.
        Raises SystemFailure."""
        return ()


def named_directory(variable: str, default: Path, environment: Mapping[str, str] = os.environ) -> Path:
    """The directory that a variable names by an absolute path; else the default."""
    configured = Path(environment.get(variable, ""))
    return configured if configured.is_absolute() else default


TEST_VARIABLE: Final = "REDLINE_BRIDGE_TEST"
"""If it is `1` in an agent's environment, the bridge sends a test request: a file when it is loaded, a hook when
called."""

OUT_OF_REPOSITORY: Final = "Keep this file out of version control: it names a path of this computer."


class Bridge(ABC):
    """Makes an agent ask Redline before it compacts: a file, or an entry in a file.

    It is one change of the agent's own configuration. The methods are pure, except `path`, which reads the environment,
    and `try_out`, which runs the agent's program.
    """

    hook: CompactionHook | None = None
    """How the agent calls a command before it compacts; None if its bridge is an extension or a plugin."""

    @property
    @abstractmethod
    def version(self) -> int:
        """The version of the bridge that `content` makes."""

    @abstractmethod
    def next_steps(self, *, in_project: bool) -> Sequence[str]:
        """The user's next steps after connecting an agent, in all projects or in one; sentences."""

    @abstractmethod
    def path(self, home: Path, project: Path | None) -> Path:
        """The file that has the bridge, for all projects or for one. Raises BadInput `no_project_bridge`."""

    @abstractmethod
    def content(self, before: bytes | None, path: Path, connection: Path, program: str) -> bytes:
        """The file with the current bridge, given its content without one or with an older one; None if there is no
        file.

        `connection` is the path of the connection file; `program` is Redline's command, quoted for a shell. Raises
        BadInput if the file cannot contain it.
        """

    @abstractmethod
    def without(self, content: bytes, path: Path, before: bytes | None) -> bytes | None:
        """The file without the bridge, even if it was edited since; None if nothing else is in it.

        `before` is the file before the bridge was added; None if there was none. Raises BadInput.
        """

    def is_edited(self, content: bytes) -> bool:
        """Whether the bridge itself was edited, so that removing it would lose the edits."""
        return False

    @abstractmethod
    def installed_version(self, content: bytes, path: Path) -> int | None:
        """The version of the bridge in a file; None if it has none. Raises BadInput."""

    def remarks(self, content: bytes, path: Path) -> Sequence[str]:
        """Other contents of the file that keep the bridge from working, in sentences."""
        return ()

    @abstractmethod
    def try_out(self, program: str, home: Path, connection: Path, redline: str) -> str:
        """Run the agent's program in an empty home directory, without the user's files, so that the bridge asks.

        Returns the end of its output. Raises ClientUnusable.
        """


@dataclass(frozen=True, slots=True)
class SettingsFile:
    """The compaction settings in one of an agent's settings files."""

    path: Path
    exists: bool
    compaction: Mapping[str, Any]
    """The compaction section, with the agent's names; it may have parameters of plans."""
    fault: str = ""
    """The reason why it cannot be used."""
    branch_summary: Mapping[str, Any] = field(default_factory=dict)
    """The section on summaries of abandoned branches, with the agent's names."""
    hooks: tuple[str, ...] = ()
    """The commands and plugins that take part in a compaction according to the file, in words."""


class CompactionBudget(NamedTuple):
    """The numbers of tokens that decide when an agent compacts, and what it keeps."""

    reserve_tokens: int = 0
    """The tokens of the context window that the agent leaves free."""
    keep_recent_tokens: int = 0
    """The number of latest tokens that it keeps; it does not compact if there is nothing before them."""
    reserve_percent: int = 0
    """The part of the window that it leaves free, if that is more."""
    limit: int | None = None
    """The maximum size of a context in tokens, if it leaves more of the window free."""

    def reserve(self, window: int | None) -> int:
        """The number of tokens that it leaves free in a window."""
        if window is None:
            return self.reserve_tokens
        allowed = window * (100 - self.reserve_percent) // 100
        if self.limit is not None:
            allowed = min(allowed, self.limit)
        return max(self.reserve_tokens, window - allowed)


class BranchSummarySettings(NamedTuple):
    """How an agent summarises a branch that the user leaves."""

    reserve_tokens: int
    """The tokens of the model's window to keep free of summarised messages."""
    skips_question: bool
    """Whether the agent skips the question about a summary, and makes none."""


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """The agent's effective settings for a project and a model."""

    files: Sequence[SettingsFile]
    """The existing files, in order of precedence."""
    budget: CompactionBudget
    switched_off_in: Path | None
    """The file that disables the agent's automatic compaction."""
    branch_summary: BranchSummarySettings | None = None
    """None if the agent does not summarise branches."""
    in_force: tuple[SettingInForce, ...] = ()
    """Each relevant setting of the agent, with its value."""
    parameters_within: tuple[str, ...] | None = None
    """The keys of the object of its files that may have parameters of plans; None if they are not read there."""

    @property
    def compacts_automatically(self) -> bool:
        """Whether the agent compacts at all, and no file disables that."""
        return bool(self.in_force) and self.switched_off_in is None


class ConfiguredModel(NamedTuple):
    """What a configuration says of a model with this id; None if it says nothing usable."""

    id: str
    window: int | None
    """The context window in tokens."""
    prices: InputPrices | None = None


class Settings:
    """Reads an agent's settings files. This base class is for agents without compaction settings: they do not
    compact.
    """

    def for_project(self, cwd: str, home: Path, model: tuple[str, str] | None = None) -> AgentSettings:
        """The effective settings for a project and a model, given by provider and id; both are data from a session."""
        return AgentSettings((), CompactionBudget(), None)

    def user_file(self, home: Path) -> SettingsFile | None:
        """The user's own settings, for all projects; None if the agent has no such file."""
        return None

    def models(self, home: Path) -> Iterable[ConfiguredModel]:
        """The models in the user's configuration of the agent. Of several with one id, the last one counts."""
        return ()


@dataclass(frozen=True, slots=True, eq=False)
class Agent:
    """Everything that Redline needs to know about an agent. Reading its sessions requires a store and a format."""

    key: str
    """Its name in the configuration and the database."""
    store: Store
    format: Format
    client: Client = field(default_factory=Client)
    bridge: Bridge | None = None
    """The bridge that makes it ask Redline before it compacts; None if it cannot ask."""
    settings: Settings = field(default_factory=Settings)

    @property
    def label(self) -> str:
        """Its name for people."""
        return self.format.label
