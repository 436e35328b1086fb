"""The server's log: `logs/redline.log` in the data directory, private, rotating, and without transcript text.

A record is one line: what it quotes (a path, a host, a header) may come from anyone, so every control and direction
character is escaped. Of an exception its type and where it was raised are kept, and not its message: that may quote
what was being read. Only the server writes the file; other commands write to standard error, and the server logs what
its children write there.
"""

from __future__ import annotations

import copy
import logging
import os
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path
from types import TracebackType
from typing import Final

from sessions_app.cli import printable
from sessions_app.sessionlog.errors import RedlineError
from sessions_app.storage.files import reported

FILE_NAME: Final = "redline.log"
FILE_BYTES: Final = 1_000_000
OLD_FILES: Final = 4
"""Beside the one that is written: five of FILE_BYTES in all."""
LONGEST: Final = 2_000
"""Characters that are kept of a message."""
REFUSING: Final = ("django.request", "django.security", "uvicorn.error")
"""Who logs that a request was refused."""
MOST_REFUSALS: Final = 20
REFUSAL_SECONDS: Final = 600
REFUSAL_LENGTH: Final = 200
"""Characters that are kept of such a message: at most some 700 KB a day, of the 5 MB that are kept."""

UNEXPECTED: Final = 1
"""The exit code after a defect of ours."""

_log = logging.getLogger("redline")
_Raised = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]


class OneLine(logging.Formatter):
    """A record as one line of printable characters; of an exception one more line for each frame."""

    converter = staticmethod(time.gmtime)
    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  # the name is logging's
        return printable(super().formatMessage(record).rstrip()[:LONGEST])

    def formatException(self, ei: _Raised) -> str:  # noqa: N802  # the name is logging's
        kind, raised, where = ei
        frames = [
            f"  {frame.filename}:{frame.lineno} in {frame.name}" for frame in traceback.extract_tb(where)
        ]
        told = kind.__name__ if kind is not None else "unknown"
        if isinstance(raised, RedlineError):
            told += f" {raised.code}"
        elif isinstance(raised, OSError) and raised.strerror:
            told += f": {raised.strerror}"
        return "\n".join(map(printable, [*frames, f"  {told}"]))


class PrivateFile(RotatingFileHandler):
    """A rotating file that only its user can read."""

    def _open(self) -> TextIOWrapper:
        descriptor = os.open(
            self.baseFilename, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
        )
        return os.fdopen(descriptor, "a", encoding="utf-8", errors="backslashreplace")


class Refusals:
    """Keeps refused requests, which anybody can make in any number, from rotating everything else away.

    Of REFUSAL_SECONDS the first MOST_REFUSALS are logged, shortened; of the others how many there were.
    """

    def __init__(self) -> None:
        self._since = 0.0
        self._count = 0

    def admitted(self, record: logging.LogRecord) -> Iterator[logging.LogRecord]:
        """What is to be logged now that there is this record."""
        if not 0 <= record.created - self._since < REFUSAL_SECONDS:
            yield from self.rest()
            self._since, self._count = record.created, 0
        if not is_refusal(record):
            yield record
            return
        self._count += 1
        if self._count <= MOST_REFUSALS:
            shortened = copy.copy(record)
            shortened.msg, shortened.args = record.getMessage()[:REFUSAL_LENGTH], None
            yield shortened

    def rest(self) -> Iterator[logging.LogRecord]:
        """How many were not logged, if any."""
        if self._count > MOST_REFUSALS:
            message = f"{self._count - MOST_REFUSALS} more requests were refused than are logged above"
            yield logging.LogRecord("redline", logging.WARNING, __file__, 0, message, None, None)


def is_refusal(record: logging.LogRecord) -> bool:
    """Whether it is about a request that was not answered as it asked, and not about a defect of ours."""
    return record.levelno < logging.ERROR and record.name.startswith(REFUSING)


class ServerLog(logging.Handler):
    """Hands records to the file while there is one. Django configures logging anew whenever it is set up."""

    file: PrivateFile | None = None
    refusals = Refusals()

    def emit(self, record: logging.LogRecord) -> None:
        if ServerLog.file is not None:
            for admitted in ServerLog.refusals.admitted(record):
                ServerLog.file.handle(admitted)


@contextmanager
def defects_logged(command: str) -> Iterator[None]:
    """What nobody expected ends the process with UNEXPECTED, and is logged: not printed with its message."""
    try:
        yield
    except RedlineError:
        raise
    except Exception:  # noqa: BLE001  # it is logged
        _log.exception("%s failed", command)
        raise SystemExit(UNEXPECTED) from None


@contextmanager
def kept_log(data_directory: Path) -> Iterator[Path]:
    """Everything that is logged meanwhile also goes into the file, which is given. Raises SystemFailure."""
    directory = data_directory / "logs"
    path = directory / FILE_NAME
    with reported(path, "No log is kept, and the server was not started."):
        directory.mkdir(mode=0o700, exist_ok=True)
        file = PrivateFile(path, maxBytes=FILE_BYTES, backupCount=OLD_FILES)
    file.setFormatter(OneLine())
    ServerLog.file, ServerLog.refusals = file, Refusals()
    try:
        yield path
    finally:
        for record in ServerLog.refusals.rest():
            file.handle(record)
        ServerLog.file = None
        file.close()
