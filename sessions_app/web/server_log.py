"""The server's log: `logs/redline.log` in the data directory, private, rotating, and without transcript text.

A record is one line: its text (a path, a host, a header) may come from anyone, so every control and direction character
is escaped. Exceptions are logged with their type and location but without their message, which may quote a transcript.
Only the server writes the file; other commands write to standard error, and the server logs what its children write
there.
"""

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
from sessions_app.disk.files import reported
from sessions_app.sessionlog.errors import RedlineError

FILE_NAME: Final = "redline.log"
FILE_BYTES: Final = 1_000_000
OLD_FILES: Final = 4
"""The number of old log files kept besides the current one: five files of FILE_BYTES in all."""
LONGEST: Final = 2_000
"""The maximum length of a message, in characters."""
REFUSING: Final = ("django.request", "django.security", "uvicorn.error")
"""The loggers that report refused requests."""
MOST_REFUSALS: Final = 20
REFUSAL_SECONDS: Final = 600
REFUSAL_LENGTH: Final = 200
"""The maximum length of a message about a refused request, in characters: at most some 700 KB a day, of the 5 MB that
are kept."""

UNEXPECTED: Final = 1
"""The exit code after a bug in Redline."""

_log = logging.getLogger("redline")
_Raised = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]


class OneLine(logging.Formatter):
    """A record as one line of printable characters; an exception adds one line for each frame."""

    converter = staticmethod(time.gmtime)
    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  # the name is logging's
        return printable(super().formatMessage(record).rstrip()[:LONGEST])

    def formatException(self, ei: _Raised) -> str:  # noqa: N802  # the name is logging's
        kind, raised, where = ei
        frames = [f"  {frame.filename}:{frame.lineno} in {frame.name}" for frame in traceback.extract_tb(where)]
        described = kind.__name__ if kind is not None else "unknown"
        if isinstance(raised, RedlineError):
            described += f" {raised.code}"
        elif isinstance(raised, OSError) and raised.strerror:
            described += f": {raised.strerror}"
        return "\n".join(map(printable, [*frames, f"  {described}"]))


class PrivateFile(RotatingFileHandler):
    """A rotating file that only its user can read."""

    def _open(self) -> TextIOWrapper:
        descriptor = os.open(
            self.baseFilename, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
        )
        return os.fdopen(descriptor, "a", encoding="utf-8", errors="backslashreplace")


class Refusals:
    """Prevents refused requests, which anyone can send in any number, from displacing all other records.

    In each REFUSAL_SECONDS the first MOST_REFUSALS are logged, shortened; the others are counted.
    """

    def __init__(self) -> None:
        self._since = 0.0
        self._count = 0

    def admitted(self, record: logging.LogRecord) -> Iterator[logging.LogRecord]:
        """The records to log on the arrival of this one."""
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
        """A record with the number of refusals that were not logged, if there are any."""
        if self._count > MOST_REFUSALS:
            message = f"{self._count - MOST_REFUSALS} more requests were refused than are logged above"
            yield logging.LogRecord("redline", logging.WARNING, __file__, 0, message, None, None)


def is_refusal(record: logging.LogRecord) -> bool:
    """Whether it reports a refused request, not a bug in Redline."""
    return record.levelno < logging.ERROR and record.name.startswith(REFUSING)


class ServerLog(logging.Handler):
    """Passes records to the file while it is open. Django reconfigures logging whenever it is set up."""

    file: PrivateFile | None = None
    refusals = Refusals()

    def emit(self, record: logging.LogRecord) -> None:
        if ServerLog.file is not None:
            for admitted in ServerLog.refusals.admitted(record):
                ServerLog.file.handle(admitted)


@contextmanager
def defects_logged(command: str) -> Iterator[None]:
    """Log an unexpected exception without printing its message, and exit with UNEXPECTED."""
    try:
        yield
    except RedlineError:
        raise
    except Exception:  # noqa: BLE001  # it is logged
        _log.exception("%s failed", command)
        raise SystemExit(UNEXPECTED) from None


@contextmanager
def kept_log(data_directory: Path) -> Iterator[Path]:
    """Log to the file as well; yields its path. Raises SystemFailure."""
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
