"""SQLite specifics: its errors as readable failures, and writes that do not wait.

| SQLite reports | code            | HTTP |
|----------------|-----------------|------|
| BUSY, LOCKED   | busy            | 503  |
| FULL           | disk_full       | 503  |
| READONLY       | read_only       | 503  |
| IOERR          | disk_failed     | 503  |
| CANTOPEN       | cannot_open     | 503  |
| CORRUPT, NOTADB, text that is not UTF-8 | damaged | 503 |
| anything, if the file of the running server is not there | gone | 503 |
| anything else  | database_failed | 500  |

Commands end with exit code 6 for all of them.
"""

import logging
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar, Final, Generic, TypeVar

from django.conf import settings
from django.db import DatabaseError, OperationalError, connection

from sessions_app.disk.files import FileIdentity, file_identity
from sessions_app.server.running_server import running_server
from sessions_app.sessionlog.errors import SystemFailure

BUSY: Final = "busy"
DAMAGED: Final = "damaged"
GONE: Final = "gone"
UNKNOWN: Final = "database_failed"
NOT_THE_INDEX: Final = (
    "the runs with their plans and reviews, what `redline undo` needs, the audit log, the models, and what was chosen "
    "on the pages"
)
"""The data that exists only in the database, and in no session file."""
_SALVAGE: Final = (
    "stop the server, then run `redline index --salvage`: it makes a new database and a new index, brings over "
    f"{NOT_THE_INDEX}, as far as they can be read, and keeps the old file. If you only move the file away, all of that "
    "is lost: `redline index` then makes nothing but a new index."
)
_PRIMARY: Final = 0xFF
"""The mask of the primary result code in an extended one."""
_busy: Final = (
    BUSY,
    "is busy: another process has been writing to it for {seconds:g} s",
    "Try again in a moment.",
)
_damaged: Final = (DAMAGED, "is damaged ({fault})", f"To mend it, {_SALVAGE}")
_gone: Final = (
    GONE,
    "is gone: it was moved away or deleted while its server was running",
    "Stop the server, then put the file back. Without it, the next start makes only a new index: "
    f"{NOT_THE_INDEX} are lost.",
)
_unknown: Final = (UNKNOWN, "failed ({fault})", f"If this persists, {_SALVAGE}")
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
    sqlite3.SQLITE_CORRUPT: _damaged,
    sqlite3.SQLITE_NOTADB: _damaged,
}
_NO_TEXT: Final = "Could not decode to UTF-8"
"""The beginning of an error message of Python's `sqlite3` that has no SQLite error code."""

_log = logging.getLogger("redline")

Kept = TypeVar("Kept")


class ServedDatabase(sqlite3.Connection):
    """A connection of the server to the database that existed at its start, and to no other.

    SQLite would create an empty file in place of a missing one, and drop the pending changes beside it.
    """

    identity: ClassVar[FileIdentity | None] = None

    def __init__(self, database: Path, *options: Any, **named: Any) -> None:
        if file_identity(database) != self.identity:
            raise sqlite3.OperationalError("it is not the file that was there at the start")
        super().__init__(database, *options, **named)


@contextmanager
def only_this_database() -> Iterator[FileIdentity | None]:
    """During the block, this process connects to the present file only; yields its identity."""
    options = connection.settings_dict["OPTIONS"]
    ServedDatabase.identity = file_identity(database_path())
    options["factory"] = ServedDatabase
    try:
        yield ServedDatabase.identity
    finally:
        del options["factory"]


class UntilWritten(Generic[Kept]):
    """A value computed from the database, and cached until the next write to it.

    Within a transaction nothing is cached: its changes are not visible to others yet. Raises the errors of `compute`,
    and Django's DatabaseError.
    """

    def __init__(self, compute: Callable[[], Kept]) -> None:
        self._compute = compute
        self._kept: tuple[object, Kept] | None = None

    def __call__(self) -> Kept:
        # The state is read before the value: after a write between the two, the value is computed once more.
        state = _observer.state()
        if state is None or connection.in_atomic_block:
            return self._compute()
        kept = self._kept
        if kept is None or kept[0] != state:
            kept = self._kept = state, self._compute()
        return kept[1]


class _Observer:
    """A connection that only observes whether others have written to the database."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._file: FileIdentity | None = None
        self._connection: sqlite3.Connection | None = None

    def state(self) -> object:
        """A value that every writing transaction changes; None if there is no file."""
        path = database_path()
        with self._lock, connection.wrap_database_errors:
            file = file_identity(path)
            if self._connection is None or file != self._file:
                self.close()
                if file is None:
                    return None
                # With this mode, SQLite creates no file in place of one that was moved away.
                self._connection = sqlite3.connect(f"{path.as_uri()}?mode=rw", uri=True, check_same_thread=False)
                self._file = file
            return self._connection, self._connection.execute("PRAGMA data_version").fetchone()

    def close(self) -> None:
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def close_across_forks(self) -> None:
        """Keep the connection closed while a process is forked, as a server does for each child: SQLite forbids using
        one in another process."""

        def begin() -> None:
            self._lock.acquire()
            self.close()

        os.register_at_fork(before=begin, after_in_parent=self._lock.release, after_in_child=self._lock.release)


_observer: Final = _Observer()
_observer.close_across_forks()
stop_observing: Final = _observer.close


def database_path() -> Path:
    return Path(connection.settings_dict["NAME"])


def require_present() -> None:
    """Raise SystemFailure `gone` if a running server's database was moved away or deleted."""
    if _is_gone():
        raise _failure(*_gone)


def _is_gone() -> bool:
    with suppress(OSError, ValueError):
        server = running_server(settings.REDLINE_DATA_DIR)
        return server is not None and server.database not in (None, file_identity(database_path()))
    return False


def failure_of(fault: DatabaseError) -> SystemFailure:
    """The failure behind a database error, for the user. The code `UNKNOWN` may mean a bug."""
    code = (getattr(fault.__cause__, "sqlite_errorcode", None) or 0) & _PRIMARY
    is_no_text = str(fault).startswith(_NO_TEXT)
    kind, what, remedy = _gone if _is_gone() else _damaged if is_no_text else _KINDS.get(code, _unknown)
    return _failure(kind, what.format(seconds=_timeout(), fault=fault), remedy)


def _failure(kind: str, what: str, remedy: str) -> SystemFailure:
    return SystemFailure(kind, f"Redline's own database {database_path()} {what}. No session was harmed. {remedy}")


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
