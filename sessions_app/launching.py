"""The ways in: a one-time token that becomes a browser's cookie, and a lasting one for scripts.

`redline serve` prints an address with a token; opening it sets a signed cookie (SameSite=Strict, HttpOnly) and
uses the token up. `redline address` makes another one, for another browser. `redline token` prints the one by
which a script asks for what lies below `/api/`. Both lie in the data directory, readable by its user only, so the
server and the commands need not know of each other.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import secrets
from pathlib import Path
from typing import Final

TOKEN_FILE: Final = "launch_token"  # noqa: S105  # a file name
API_TOKEN_FILE: Final = "api_token"  # noqa: S105  # a file name


def new_token(directory: Path) -> str:
    """A fresh token, which replaces an unused one."""
    token = secrets.token_urlsafe(32)
    _draft(directory, TOKEN_FILE, token).replace(directory / TOKEN_FILE)
    return token


def api_token(directory: Path, *, renewed: bool = False) -> str:
    """The token for scripts, made when it is first asked for; `renewed`: another one, and the old one is over."""
    path = directory / API_TOKEN_FILE
    if renewed or not path.exists():
        draft = _draft(directory, API_TOKEN_FILE, secrets.token_urlsafe(32))
        if renewed:
            draft.replace(path)
        else:
            # Of two that ask first at once, both get the same.
            with contextlib.suppress(FileExistsError):
                path.hardlink_to(draft)
            draft.unlink()
    return path.read_text(encoding="ascii")


def is_api_token(directory: Path, given: str) -> bool:
    """Whether this is the token for scripts. Where none was made yet, nothing is."""
    try:
        known = (directory / API_TOKEN_FILE).read_bytes()
    except FileNotFoundError:
        return False
    return bool(known) and hmac.compare_digest(known, given.encode(errors="surrogateescape"))


def _draft(directory: Path, name: str, token: str) -> Path:
    """A file beside the one of this name, for its user's eyes only, that holds the token."""
    draft = directory / f".{name}.{secrets.token_hex(4)}"
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(token)
    return draft


def use_token(directory: Path, given: str) -> bool:
    """Whether the token is the one that was made last; it is used up by this."""
    path = directory / TOKEN_FILE
    try:
        known = path.read_text(encoding="ascii")
    except FileNotFoundError:
        return False
    if not hmac.compare_digest(known.encode(), given.encode()):
        return False
    taken = directory / f".{TOKEN_FILE}.used.{secrets.token_hex(4)}"
    with contextlib.suppress(FileNotFoundError):
        # Of two browsers that bring the same token at once, one succeeds.
        path.rename(taken)
        taken.unlink()
        return True
    return False
