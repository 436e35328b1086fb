"""Installed programs and packages of agents, which rebuild or send a context themselves, so that it can be compared."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterable, Mapping
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
        """A message in the form of `Agent.message_json`."""
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
