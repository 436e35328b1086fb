"""EDGE: how clients are admitted: a one-time token that becomes a browser's cookie, and a lasting one for scripts.

`redline serve` prints an address with a token; opening it sets a signed cookie (SameSite=Strict, HttpOnly) and uses the
token up. `redline address` makes another one, for another browser. `redline token` prints the token that scripts send
to `/api/`.

The host of that address is a secret name below `localhost`. To a browser all ports of 127.0.0.1 are one site, so a
cookie for it would be sent to servers of other users of this machine; they cannot serve a page under a name they do not
know. Browsers resolve such names to this machine without a DNS query.

Everything is stored in the data directory, readable by its user only, so that the server and the commands need no other
connection: a name that `redline address --revoke` replaced and an ended browser session stop working immediately.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import secrets
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

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
    _draft(directory, TOKEN_FILE, token).replace(directory / TOKEN_FILE)
    return token


def api_token(directory: Path, *, renewed: bool = False) -> str:
    """The API token, created when it is first needed; `renewed` replaces it, and the old token stops working."""
    return _kept(directory, API_TOKEN_FILE, lambda: secrets.token_urlsafe(32), renewed=renewed)


def browser_host(directory: Path, *, renewed: bool = False) -> str:
    """The host name at which browsers are admitted, created when it is first needed.

    `renewed` replaces it; browsers are no longer admitted at the old one.
    """
    name = _kept(directory, NAME_FILE, lambda: secrets.token_hex(NAME_BYTES), renewed=renewed)
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
        _draft(directory, ENDED_FILE, lines).replace(directory / ENDED_FILE)


def has_ended(directory: Path, session: str) -> bool:
    """Whether this browser session was ended."""
    return session in _ended(directory)


def _ended(directory: Path) -> dict[str, int]:
    """When browser sessions were ended, in seconds since 1970."""
    try:
        lines = (directory / ENDED_FILE).read_text(encoding="ascii").splitlines()
    except FileNotFoundError:
        return {}
    return {session: int(ended) for session, _, ended in (line.partition(" ") for line in lines)}


def _kept(directory: Path, name: str, make: Callable[[], str], *, renewed: bool) -> str:
    """The content of this file, which is created if it is missing or to be `renewed`."""
    path = directory / name
    if renewed or not path.exists():
        draft = _draft(directory, name, make())
        if renewed:
            draft.replace(path)
        else:
            # If two processes need it first at the same time, both get the same.
            with contextlib.suppress(FileExistsError):
                path.hardlink_to(draft)
            draft.unlink()
    return path.read_text(encoding="ascii")


def _draft(directory: Path, name: str, content: str) -> Path:
    """A private file with this content, beside the file of this name."""
    draft = directory / f".{name}.{secrets.token_hex(4)}"
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(content)
    return draft
