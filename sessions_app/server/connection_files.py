"""EDGE: connection files, one for each connected agent, with the server's address and the token of the agent's bridge.

They are `connections/NAME.json` in the data directory, readable by their user only. A bridge reads its file again for
each review request, so it follows the server to another port. Deleting the file ends the connection immediately: the
token is stored nowhere else.
"""

import hmac
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Final

import msgspec

from sessions_app.disk.files import acquired_lock, write_private
from sessions_app.sessionlog.errors import Conflict

DIRECTORY: Final = "connections"
PATH: Final = "/api/handshakes"
"""The API path below which the token of a connection is accepted, and no other token."""
NAME: Final = re.compile(r"[a-z0-9-]{1,80}")
SIZE_LIMIT: Final = 100_000
LOCK_SECONDS: Final = 10


class ConnectedAgent(msgspec.Struct, frozen=True):
    """A connection, as stored in its file."""

    name: str
    """Letters, digits and hyphens: the agent's key, and for a project something that identifies it."""
    agent: str
    """The key of the agent."""
    url: str
    """The server's address when it last started, such as `http://127.0.0.1:8000`; empty before that."""
    token: str
    bridge: int
    """The version of the bridge that is installed."""
    made_at: datetime
    project: str = ""
    """The directory of the only project to which it applies; empty for all projects."""
    changed: str = ""
    """The path of the agent's file that was created or changed."""
    backup: str = ""
    """The path of a copy of that file from before the change; empty if there was no file."""
    sha256: str = ""
    """The digest of that file as written."""
    made_directories: tuple[str, ...] = ()
    """The directories that were created for that file, the outermost first."""


def new_secret() -> str:
    """A token for a new connection."""
    return secrets.token_urlsafe(32)


def connection_path(directory: Path, name: str) -> Path:
    """The file of a connection, in a data directory. Raises ValueError if no connection can have this name."""
    if NAME.fullmatch(name) is None:
        raise ValueError(f"{name!r} is not the name of a connection")
    return directory / DIRECTORY / f"{name}.json"


def connection(directory: Path, name: str) -> ConnectedAgent | None:
    """The connection of this name; None if there is none. Raises OSError, ValueError if the file is damaged."""
    try:
        with connection_path(directory, name).open("rb") as file:
            return msgspec.json.decode(file.read(SIZE_LIMIT), type=ConnectedAgent)
    except FileNotFoundError:
        return None


def connections(directory: Path) -> list[ConnectedAgent]:
    """All connections, by name; damaged files are left out. Raises OSError."""
    found = []
    for path in sorted((directory / DIRECTORY).glob("*.json")):
        try:
            one = connection(directory, path.stem)
        except ValueError:
            continue
        if one is not None and one.name == path.stem:
            found.append(one)
    return found


def write_connection(directory: Path, one: ConnectedAgent) -> None:
    """Write a connection, replacing any of the same name. Raises OSError."""
    write_private(connection_path(directory, one.name), msgspec.json.format(msgspec.json.encode(one)) + b"\n")


def delete_connection(directory: Path, name: str) -> None:
    """Delete a connection, if there is one: its token stops working. Raises OSError."""
    connection_path(directory, name).unlink(missing_ok=True)


def announce_server(directory: Path, port: int) -> None:
    """Write the server's address into all connections. Raises OSError, and the errors of `only_one_change`."""
    with only_one_change(directory):
        for one in connections(directory):
            write_connection(directory, msgspec.structs.replace(one, url=f"http://127.0.0.1:{port}"))


@contextmanager
def only_one_change(directory: Path) -> Iterator[None]:
    """Prevent two processes from changing connections at the same time: a removed one could return with its token.

    Raises OSError, and Conflict `busy` if another one takes longer than LOCK_SECONDS.
    """
    busy = Conflict("busy", "Another command connects an agent at the moment. Nothing was changed. Try again.")
    with acquired_lock(directory / f"{DIRECTORY}.lock", LOCK_SECONDS, busy):
        yield


def connection_with(directory: Path, token: str) -> ConnectedAgent | None:
    """The connection with this token; None if there is none. Raises OSError."""
    given = token.encode(errors="surrogateescape")
    matching = [one for one in connections(directory) if hmac.compare_digest(one.token.encode(), given)]
    return matching[0] if token and matching else None
