"""EDGE: the one server of a data directory, and its address."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import filelock
import msgspec

from sessions_app.disk.files import FileIdentity
from sessions_app.sessionlog.errors import Conflict

from .launch_tokens import browser_host, new_token

LOCK_FILE: Final = "server.lock"
STATE_FILE: Final = "server.json"
LOCK_SECONDS: Final = 1
"""How long a starting server waits: a command that checks for a running server holds the lock for a moment."""


class RunningServer(msgspec.Struct, frozen=True):
    """The port of a server, and whether it admits browsers at 127.0.0.1 as well."""

    port: int
    plain: bool
    database: FileIdentity | None = None
    """The identity of its database file; None if it did not record it."""

    def keep(self, directory: Path) -> None:
        """Write it beside the lock, for other commands."""
        draft = directory / f".{STATE_FILE}"
        draft.write_bytes(msgspec.json.encode(self))
        draft.replace(directory / STATE_FILE)


@contextmanager
def only_server(
    directory: Path,
    not_done: str = "This one was not started. Stop the other one, or set REDLINE_DATA_DIR.",
) -> Iterator[None]:
    """Ensure that only one server, or one command that must not run beside a server, uses a data directory.

    Raises Conflict `already_served`; `not_done` says what was not done and what to do.
    """
    lock = filelock.FileLock(directory / LOCK_FILE)
    try:
        lock.acquire(timeout=LOCK_SECONDS)
    except filelock.Timeout as busy:
        raise Conflict(
            "already_served",
            f"Another server is using the data directory {directory}. {not_done}",
        ) from busy
    try:
        # A killed server left it.
        (directory / STATE_FILE).unlink(missing_ok=True)
        yield
    finally:
        (directory / STATE_FILE).unlink(missing_ok=True)
        lock.release()


def running_server(directory: Path) -> RunningServer | None:
    """The server that uses the data directory; None if there is none or it is still starting. Raises OSError."""
    if not (directory / LOCK_FILE).exists():
        return None
    try:
        with filelock.FileLock(directory / LOCK_FILE).acquire(timeout=0):
            return None
    except filelock.Timeout:
        pass
    try:
        return msgspec.json.decode((directory / STATE_FILE).read_bytes(), type=RunningServer)
    except FileNotFoundError:
        return None


def launch_address(directory: Path, server: RunningServer, port: int | None = None) -> str:
    """An address of the server that admits one browser, once; an older one stops working. Raises OSError.

    `port`: the port that the browser has to use, if it is not the server's own.
    """
    host = "127.0.0.1" if server.plain else browser_host(directory)
    return f"http://{host}:{port or server.port}/launch?token={new_token(directory)}"
