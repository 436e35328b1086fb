"""EDGE: the one server of a data directory, and how clients are admitted to it.

    launch token    once, in the address that `redline serve` prints; opening it sets a signed cookie (SameSite=Strict,
                    HttpOnly). `redline address` makes another one, for another browser
    API token       lasting, for scripts, which send it to `/api/`; `redline token` prints it

The host of the address is a secret name below `localhost`. To a browser all ports of 127.0.0.1 are one site, so a
cookie for it would be sent to servers of other users of this machine; they cannot serve a page under a name they do not
know. Browsers resolve such names to this machine without a DNS query.

Everything is stored in the data directory, readable by its user only, so that the server and the commands need no other
connection: a name that `redline address --revoke` replaced and an ended browser session stop working immediately.
"""

import contextlib
import hmac
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import filelock
import msgspec

from sessions_app.disk.files import FileIdentity, acquired_lock, content_created_once, write_private
from sessions_app.sessionlog.errors import Conflict

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
        write_private(directory / STATE_FILE, msgspec.json.encode(self))


@contextmanager
def only_server(
    directory: Path,
    not_done: str = "This one was not started. Stop the other one, or set REDLINE_DATA_DIR.",
) -> Iterator[None]:
    """Ensure that only one server, or one command that must not run beside a server, uses a data directory.

    Raises Conflict `already_served`; `not_done` says what was not done and what to do.
    """
    busy = Conflict("already_served", f"Another server is using the data directory {directory}. {not_done}")
    with acquired_lock(directory / LOCK_FILE, LOCK_SECONDS, busy):
        try:
            # A killed server left it.
            (directory / STATE_FILE).unlink(missing_ok=True)
            yield
        finally:
            (directory / STATE_FILE).unlink(missing_ok=True)


def running_server(directory: Path) -> RunningServer | None:
    """The server that uses the data directory; None if there is none or it is still starting. Raises OSError."""
    if not (directory / LOCK_FILE).exists():
        return None
    with contextlib.suppress(filelock.Timeout), filelock.FileLock(directory / LOCK_FILE).acquire(timeout=0):
        return None
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


# ---- admitting clients -----------------------------------------------------------------------------------

TOKEN_FILE: Final = "launch_token"  # noqa: S105  # a file name
API_TOKEN_FILE: Final = "api_token"  # noqa: S105  # a file name
NAME_FILE: Final = "address_name"
ENDED_FILE: Final = "ended_sessions"
NAME_BYTES: Final = 16
SESSION_SECONDS: Final = 12 * 3600
"""How long a browser stays logged in after its last request."""

_ending = threading.Lock()


def new_token(directory: Path) -> str:
    """A fresh token, which replaces an unused one."""
    token = secrets.token_urlsafe(32)
    write_private(directory / TOKEN_FILE, token.encode())
    return token


def api_token(directory: Path, *, renewed: bool = False) -> str:
    """The API token, created when it is first needed; `renewed` replaces it, and the old token stops working."""
    return _kept(directory / API_TOKEN_FILE, lambda: secrets.token_urlsafe(32), renewed=renewed)


def browser_host(directory: Path, *, renewed: bool = False) -> str:
    """The host name at which browsers are admitted, created when it is first needed.

    `renewed` replaces it; browsers are no longer admitted at the old one.
    """
    name = _kept(directory / NAME_FILE, lambda: secrets.token_hex(NAME_BYTES), renewed=renewed)
    return f"{name}.localhost"


def is_api_token(directory: Path, given: str) -> bool:
    """Whether this is the API token. False for everything before the first one is made."""
    try:
        known = (directory / API_TOKEN_FILE).read_bytes()
    except FileNotFoundError:
        return False
    return bool(known) and hmac.compare_digest(known, given.encode(errors="surrogateescape"))


def use_token(directory: Path, given: str) -> bool:
    """Whether this is the latest launch token; this uses it up."""
    path = directory / TOKEN_FILE
    try:
        known = path.read_text(encoding="ascii")
    except FileNotFoundError:
        return False
    if not known or not hmac.compare_digest(known.encode(), given.encode(errors="surrogateescape")):
        return False
    taken = directory / f".{TOKEN_FILE}.used.{secrets.token_hex(4)}"
    with contextlib.suppress(FileNotFoundError):
        # If two browsers send the same token at the same time, one succeeds.
        path.rename(taken)
        taken.unlink()
        return True
    return False


def end_session(directory: Path, session: str) -> None:
    """End this browser session for its cookie and every copy of it.

    An ended session is remembered for as long as a cookie of it could be valid.
    """
    now = int(time.time())
    with _ending:
        recent = {one: ended for one, ended in _ended(directory).items() if ended > now - SESSION_SECONDS}
        lines = "".join(f"{one} {ended}\n" for one, ended in {**recent, session: now}.items())
        write_private(directory / ENDED_FILE, lines.encode())


def has_ended(directory: Path, session: str) -> bool:
    """Whether this browser session was ended."""
    return session in _ended(directory)


def _ended(directory: Path) -> dict[str, int]:
    """The times at which browser sessions were ended, in seconds since 1970, by session."""
    try:
        lines = (directory / ENDED_FILE).read_text(encoding="ascii").splitlines()
    except FileNotFoundError:
        return {}
    return {session: int(ended) for session, _, ended in (line.partition(" ") for line in lines)}


def _kept(path: Path, make: Callable[[], str], *, renewed: bool) -> str:
    """The content of this file, which is created if it is missing or to be `renewed`."""
    if renewed:
        write_private(path, make().encode())
    return content_created_once(path, make)
