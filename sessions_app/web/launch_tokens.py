"""EDGE: the ways in: a one-time token that becomes a browser's cookie, and a lasting one for scripts.

`redline serve` prints an address with a token; opening it sets a signed cookie (SameSite=Strict, HttpOnly) and uses the
token up. `redline address` makes another one, for another browser. `redline token` prints the one that a script brings
to what lies below `/api/`.

The host of that address is a secret name below `localhost`. To a browser all ports of 127.0.0.1 are one site, so a
cookie for it would be sent to a server of any other user of this machine; nobody else can make a page under a name that
they do not know. Browsers resolve such names to this machine without asking anyone.

All of it lies in the data directory, readable by its user only, so the server and the commands need not know of each
other: a name that `redline address --revoke` replaced and a browser session that has ended stop working at once.
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
"""How long a browser is known after its last request."""

_ending = threading.Lock()


def new_token(directory: Path) -> str:
    """A fresh token, which replaces an unused one."""
    token = secrets.token_urlsafe(32)
    _draft(directory, TOKEN_FILE, token).replace(directory / TOKEN_FILE)
    return token


def api_token(directory: Path, *, renewed: bool = False) -> str:
    """The token for scripts, made when it is first needed; `renewed`: another one, and the old one is over."""
    return _kept(directory, API_TOKEN_FILE, lambda: secrets.token_urlsafe(32), renewed=renewed)


def browser_host(directory: Path, *, renewed: bool = False) -> str:
    """The host name under which browsers are let in, made when it is first needed.

    `renewed`: another one. Under the old one nobody is let in any more.
    """
    name = _kept(directory, NAME_FILE, lambda: secrets.token_hex(NAME_BYTES), renewed=renewed)
    return f"{name}.localhost"


def is_api_token(directory: Path, given: str) -> bool:
    """Whether this is the token for scripts. Before the first one was made, nothing is."""
    try:
        known = (directory / API_TOKEN_FILE).read_bytes()
    except FileNotFoundError:
        return False
    return bool(known) and hmac.compare_digest(known, given.encode(errors="surrogateescape"))


def use_token(directory: Path, given: str) -> bool:
    """Whether the token is the one that was made last; it is used up by this."""
    path = directory / TOKEN_FILE
    try:
        known = path.read_text(encoding="ascii")
    except FileNotFoundError:
        return False
    if not known or not hmac.compare_digest(known.encode(), given.encode(errors="surrogateescape")):
        return False
    taken = directory / f".{TOKEN_FILE}.used.{secrets.token_hex(4)}"
    with contextlib.suppress(FileNotFoundError):
        # Of two browsers that bring the same token at once, one succeeds.
        path.rename(taken)
        taken.unlink()
        return True
    return False


def end_session(directory: Path, session: str) -> None:
    """Let no cookie of this browser session in any more, also a copy of it.

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
    """What the file of this name holds; made anew where there is none, or where it shall be `renewed`."""
    path = directory / name
    if renewed or not path.exists():
        draft = _draft(directory, name, make())
        if renewed:
            draft.replace(path)
        else:
            # Of two that need it first at once, both get the same.
            with contextlib.suppress(FileExistsError):
                path.hardlink_to(draft)
            draft.unlink()
    return path.read_text(encoding="ascii")


def _draft(directory: Path, name: str, content: str) -> Path:
    """A file beside the one of this name, for its user's eyes only, that holds the content."""
    draft = directory / f".{name}.{secrets.token_hex(4)}"
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(content)
    return draft
