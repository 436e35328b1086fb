"""The programs and packages of agents: how they are found, and how they rebuild or send a context to compare."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from sessions_app.sessionlog.certificate import PackageResult
from sessions_app.sessionlog.jsjson import canonical

from .pure.contexts import Reader


class RebuiltMessage(NamedTuple):
    """A message of a rebuilt context: its role, and a hash of everything of it that the model receives."""

    role: str
    digest: str

    @classmethod
    def of(cls, message: Mapping[str, Any]) -> RebuiltMessage:
        """A message in the form of `Format.message_json`."""
        digest = hashlib.sha256(canonical(message).encode()).hexdigest()
        return cls(str(message.get("role")), digest)


class PackageContext(NamedTuple):
    """What an agent's own package made of a session: a context, a refusal to open it, or a failure to run."""

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
        ...

    def rebuild(self, content: Iterable[bytes], leaf_id: str = "") -> PackageContext:
        """The context of a session with this content, at this leaf or at its own."""
        ...


class AgentServer(Protocol):
    """A running server of an agent that alone has the database of a session open: rows are changed through it."""

    @property
    def address(self) -> str: ...

    def changes(self, table: str) -> bool:
        """Whether it can change the rows of a table."""
        ...

    def require_ready(self, connection: sqlite3.Connection, rows: Iterable[Mapping[str, Any]]) -> None:
        """Require that it serves the session as this connection sees it, is not working on it, and can write these rows
        again without loss.

        Raises Conflict `open_in_agent`, `session_busy`, `other_database` and `not_kept`, BadInput `server_password` and
        `server_version`, SystemFailure `server_unreachable`, `server_failed` and `not_understood`.
        """
        ...

    def require_answer(self) -> None:
        """Require that it answers. A call that it left without one may still be waiting for it, and be made later.

        Raises as `require_ready`.
        """
        ...

    def write(self, row: Mapping[str, Any]) -> None:
        """Change a row, or make it; the database shows what it then is. Raises as `require_ready`."""
        ...

    def delete(self, row: Mapping[str, Any]) -> None:
        """Delete a row; nothing happens if there is none. Raises as `require_ready`."""
        ...


class AgentClient(Protocol):
    """An installed client of an agent, which can continue a copy of a session against a model on loopback."""

    @property
    def name(self) -> str: ...

    @property
    def version(self) -> str: ...

    def resume(self, name: str, content: Iterable[bytes], messages: Iterable[Mapping[str, Any]]) -> PackageResult:
        """Whether it sends these messages when it continues a session, given its file's name and its bytes."""
        ...


class Client:
    """How an agent's own program and package are found. This base is that of an agent of which none is used."""

    program: str = ""
    """The name of its program on the PATH."""
    has_package: bool = False
    """Whether its own package can rebuild a context: see `find_package`."""
    can_be_run: bool = False
    """Whether its program can continue a copy of a session: see `find_installed`."""

    def find_package(self, directory: Path | None) -> AgentPackage | None:
        """The agent's own package in a directory, or without one the installed package; None if there is none.

        Raises BadInput `no_agent_package` if the directory has no package.
        """
        del directory
        return None

    def find_installed(self, program: Path | None) -> AgentClient | None:
        """The client with this program, or the one on the PATH; None if there is none, or none that can be run so.

        Raises BadInput `no_client` if the program does not print a version, or is one whose sessions are not read.
        """
        del program
        return None

    def resume_command(self, path: Path) -> Sequence[str]:
        """The command that continues a session in the agent, as arguments. Empty if there is none."""
        del path
        return ()

    def unarchive_command(self, path: Path) -> Sequence[str]:
        """The command, as arguments, that takes back a session which the agent has put away: before, the agent does not
        continue it, nor another one beside it. Empty if it is not archived."""
        del path
        return ()
