"""SQLite specifics: its errors as readable failures, and writes that do not wait.

| SQLite reports | code            | HTTP |
|----------------|-----------------|------|
| BUSY, LOCKED   | busy            | 503  |
| FULL           | disk_full       | 503  |
| READONLY       | read_only       | 503  |
| IOERR          | disk_failed     | 503  |
| CANTOPEN       | cannot_open     | 503  |
| anything else  | database_failed | 500  |

Commands end with exit code 6 for all of them.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from django.db import DatabaseError, OperationalError, connection

from .sessionlog.errors import SystemFailure

BUSY: Final = "busy"
UNKNOWN: Final = "database_failed"
_PRIMARY: Final = 0xFF
"""The bits of a result code without its extension."""
_busy: Final = (
    BUSY,
    "is busy: another process has been writing to it for {seconds:g} s",
    "Try again in a moment.",
)
_KINDS: Final[Mapping[int, tuple[str, str, str]]] = {
    sqlite3.SQLITE_BUSY: _busy,
    sqlite3.SQLITE_LOCKED: _busy,
    sqlite3.SQLITE_FULL: (
        "disk_full",
        "cannot grow: the disk is full",
        "Free some space on the disk of the data directory, then try again.",
    ),
    sqlite3.SQLITE_READONLY: (
        "read_only",
        "is read-only",
        "Make it and the data directory writable for you, then try again.",
    ),
    sqlite3.SQLITE_IOERR: (
        "disk_failed",
        "cannot be read or written: the disk or a limit on file sizes prevents it",
        "Check the disk of the data directory, then try again.",
    ),
    sqlite3.SQLITE_CANTOPEN: (
        "cannot_open",
        "cannot be opened",
        "Make it and the data directory readable and writable for you, then try again.",
    ),
}

_log = logging.getLogger("redline")


def failure_of(fault: DatabaseError) -> SystemFailure:
    """The failure behind a database error, for the user. The code `UNKNOWN` may mean a bug."""
    code = getattr(fault.__cause__, "sqlite_errorcode", None)
    kind, what, remedy = _KINDS.get(
        (code or 0) & _PRIMARY,
        (
            UNKNOWN,
            f"failed: {fault}",
            "If this persists, move the file away: `redline index` makes a new index.",
        ),
    )
    what = what.format(seconds=_timeout()) if kind == BUSY else what
    database = connection.settings_dict["NAME"]
    return SystemFailure(kind, f"Redline's own database {database} {what}. No session was harmed. {remedy}")


@contextmanager
def left_out_if_busy(what: str) -> Iterator[None]:
    """An optional write: it does not wait for other writers, and if it fails it is skipped and logged."""
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA busy_timeout = 0")
        try:
            yield
        except OperationalError as fault:
            _log.warning("%s was not recorded: %s", what, failure_of(fault).code)
        finally:
            cursor.execute(f"PRAGMA busy_timeout = {round(_timeout() * 1_000)}")


def _timeout() -> float:
    """How long a statement waits for another writer, in seconds."""
    return float(connection.settings_dict["OPTIONS"]["timeout"])
