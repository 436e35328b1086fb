"""EDGE: the keys entered by hand, in one file of the data directory that only its owner may read.

    {"openai": {"origin": "https://api.openai.com", "key": "…"}}

A key is stored for one provider, with the origin that it was entered for, and is returned for that origin only. The
file is replaced whole, under a lock; an unreadable file is never overwritten. Nothing here prints, logs or quotes a
key: an error names the file, and a page gets `hint_of`.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from sessions_app.disk.files import acquired_lock, opened, pread, real_path, reported, write_private
from sessions_app.sessionlog.errors import BadInput, SystemFailure

FILE_NAME: Final = "keys.json"
MODE: Final = 0o600
LONGEST: Final = 8_192
"""The maximum length of a key, in characters; signed tokens are long."""
SHOWN: Final = 4
LONG_ENOUGH: Final = 4 * SHOWN
"""The minimum length of a key whose last characters may be shown: of a shorter key they would reveal too much."""
SIZE_LIMIT: Final = 1_000_000
LOCK_SECONDS: Final = 10
_NOT_READ: Final = "No key was read."
_NOT_KEPT: Final = "No key was changed."


@dataclass(frozen=True, slots=True)
class KeptKey:
    """A key and the origin to which it belongs. The repr does not contain the key."""

    origin: str
    key: str = field(repr=False)


def read_keys(directory: Path) -> dict[str, KeptKey]:
    """The keys by provider; empty if there is no file yet.

    A file that others may read is first made private. Raises SystemFailure `bad_key_file`, and the errors of reading.
    """
    path = directory / FILE_NAME
    with reported(path, _NOT_READ):
        if not os.path.lexists(path):
            return {}
    with opened(real_path(path), os.O_RDONLY, _NOT_READ) as fd, reported(path, _NOT_READ):
        if stat.S_IMODE(os.fstat(fd).st_mode) != MODE:
            os.fchmod(fd, MODE)
        data = pread(fd, 0, SIZE_LIMIT + 1)
    try:
        keys = msgspec.json.decode(data, type=dict[str, KeptKey])
        for kept in keys.values():
            checked_key(kept.key)
    except (msgspec.DecodeError, UnicodeDecodeError, BadInput):
        # The error's message could quote the file.
        raise SystemFailure(
            "bad_key_file",
            f"{path} does not contain keys as Redline writes them. {_NOT_READ} It is never overwritten. Repair "
            "it, or move it away and enter the keys again.",
        ) from None
    return keys


def keep_key(directory: Path, provider: str, kept: KeptKey) -> None:
    """Store a key for a provider, replacing its previous one. Raises the errors of `read_keys`, and SystemFailure."""
    with _changing(directory) as kept_keys:
        kept_keys[provider] = kept


def drop_key(directory: Path, provider: str) -> bool:
    """Delete the key of a provider; returns whether it had one. Raises the errors of `read_keys`, and SystemFailure."""
    if provider not in read_keys(directory):
        return False
    with _changing(directory) as kept_keys:
        return kept_keys.pop(provider, None) is not None


def checked_key(given: str) -> str:
    """A key without surrounding blanks; empty if none was given.

    Raises BadInput `bad_key` for an invalid key. The message does not quote it.
    """
    key = given.strip()
    if len(key) > LONGEST:
        raise BadInput("bad_key", f"A key has at most {LONGEST:,} characters; this one is longer.")
    if not all("!" <= character <= "~" for character in key):
        raise BadInput(
            "bad_key",
            "A key consists of ASCII letters, digits and signs. This one contains a blank, a line break or "
            "another invalid character. Copy it again, without the text around it.",
        )
    return key


def hint_of(key: str) -> str:
    """The last four characters of a key, which may be shown; empty for a short or missing key."""
    if not key:
        return ""
    return f"…{key[-SHOWN:]}" if len(key) >= LONG_ENOUGH else "…"


# ---- the file ----------------------------------------------------------------------------------------------


@contextmanager
def _changing(directory: Path) -> Iterator[dict[str, KeptKey]]:
    """The keys, for changing; written if the block ends without an error. Only one process changes them at a time."""
    path, lock_file = directory / FILE_NAME, directory / "locks" / "keys.lock"
    busy = SystemFailure("keys_locked", f"Another Redline process is changing {path}. {_NOT_KEPT} Try again.")
    with reported(lock_file.parent, _NOT_KEPT):
        lock = acquired_lock(lock_file, LOCK_SECONDS, busy)
    with lock:
        keys = read_keys(directory)
        yield keys
        with reported(path, _NOT_KEPT):
            write_private(path, msgspec.json.format(msgspec.json.encode(keys), indent=1) + b"\n")
