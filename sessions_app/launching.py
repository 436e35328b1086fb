"""The way in: a one-time token that becomes a cookie, so that only who started the server can use it.

`redline serve` prints an address with a token; opening it sets a signed cookie (SameSite=Strict, HttpOnly) and
uses the token up. `redline address` makes another one, for another browser. The token lies in the data
directory, readable by its user only, so the server and the command need not know of each other.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import secrets
from pathlib import Path
from typing import Final

TOKEN_FILE: Final = "launch_token"  # noqa: S105  # a file name


def new_token(directory: Path) -> str:
    """A fresh token, which replaces an unused one."""
    token = secrets.token_urlsafe(32)
    draft = directory / f".{TOKEN_FILE}.{secrets.token_hex(4)}"
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(token)
    draft.replace(directory / TOKEN_FILE)
    return token


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
