"""EDGE: where the sessions of an agent are, and how their bytes are reached."""

from __future__ import annotations

import os
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from sessions_app.sessionlog.errors import RedlineError
from sessions_app.sessionlog.session import HEAD_BYTES
from sessions_app.storage.discovery import Discovery, discover
from sessions_app.storage.files import FileState, SessionReader, file_state, open_regular

from .programs import AgentServer


def head_of(path: Path) -> bytes:
    """The first bytes of a regular file; nothing if it cannot be read, which is reported when it is opened."""
    try:
        fd = open_regular(path.absolute(), os.O_RDONLY, "It was not read.")
        with os.fdopen(fd, "rb") as file:
            return file.read(HEAD_BYTES)
    except (RedlineError, OSError):
        return b""


class OpenElsewhere(NamedTuple):
    """A process that has a session open, by a sign of the agent's own: a lock, or its register."""

    sentence: str
    """What is known, as in "is open in Codex (process 4711)"."""
    is_certain: bool = True
    """False if the sign may have been left behind, and the system does not show whether it was."""


class Store(ABC):
    """The sessions of an agent. This base is for files, each with one session, to which an agent appends."""

    keeps_database: bool = False
    """Whether its sessions are in databases directly in a root. Then only these are watched for changes."""
    session_tables: Mapping[str, str] = MappingProxyType({})
    """The tables of a database that have rows of a session, each with the column that has the session's id."""
    has_server: bool = False
    """Whether its sessions can be changed through a running server of the agent."""
    is_append_only: bool = False
    """Whether other files of the agent's name positions in its sessions, so that these never lose bytes."""

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
        del path
        return ""

    def taken_over(self, path: Path) -> str:
        """What a newer version of the agent has done with a session that it keeps elsewhere, as in "taken over by
        OpenCode 2"; empty if the agent continues what is read. `read_only` says more."""
        del path
        return ""

    def export(self, path: Path) -> Iterator[bytes] | None:
        """The document in which another machine gets a session, in pieces; None if its own file is what it gets."""
        del path
        return None

    def database(self, path: Path) -> Path | None:
        """The database that has a session; None if a session is not in one."""
        del path
        return None

    def open_within(self, path: Path, connection: sqlite3.Connection) -> SessionReader:
        """The bytes of a session in a database, as a transaction of this connection sees it. Raises ValueError if the
        agent has none."""
        del connection
        raise ValueError(f"{path} is not in a database")

    def companion_of(self, path: Path, text: str) -> Path | None:
        """The agent's file that has the whole of a text, of which a session's entry has a part."""
        del path, text
        return None

    def open_elsewhere(self, path: Path) -> OpenElsewhere | None:
        """The sign that the agent has a session open; None if it does not, or leaves no such sign."""
        del path
        return None

    def open_sessions(self, root: Path) -> set[str]:
        """The header ids of the sessions below a root that the agent certainly has open, so far as it leaves a sign for
        each of them. It costs the same however many sessions there are."""
        del root
        return set()

    def server(self, path: Path, address: str) -> AgentServer | None:
        """The server at an address, if its process is the only other one that has the database of a session open.

        Raises ValueError if the address is not on this machine.
        """
        del path, address
        return None

    def is_same_row(self, one: Mapping[str, Any] | None, other: Mapping[str, Any] | None) -> bool:
        """Whether two rows of a database mean the same, however they are written; None is no row."""
        return one == other

    def write_lock(self, path: Path) -> AbstractContextManager[object]:
        """The agent's own lock on a session, held while Redline writes to it. Raises Conflict `open_in_agent`."""
        del path
        return nullcontext()

    def sessions_based_on(self, path: Path) -> Sequence[Path]:
        """The sessions that continue the bytes of another one, and are lost without it: none if forks have copies.
        Raises SystemFailure."""
        del path
        return ()
