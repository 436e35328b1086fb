"""Killing a process before each of its steps: every call that changes a file, a lock or the database.

The steps are found by observation, not listed by hand: every call to the operating system that is not known to be
harmless, every statement that is not a query, every commit of a transaction. Steps that are added later are included.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

from django.db import connection

UNCHANGING: Final = frozenset(
    "open close stat lstat fstat statvfs fstatvfs pread read lseek listdir scandir readlink fspath getpid getppid "
    "_path_normpath geteuid getuid getcwd access urandom pipe waitpid waitstatus_to_exitcode register_at_fork".split()
)
"""Calls to the operating system that change nothing outside the process. An `open` that creates or empties a file is a
step nevertheless."""
CREATING: Final = os.O_CREAT | os.O_TRUNC
LONGEST_SECONDS: Final = 60


class _Steps:
    """Counts steps, and kills this process before the `last` one."""

    def __init__(self, last: int) -> None:
        self.count = 0
        self._last = last

    def begin(self) -> None:
        self.count += 1
        if self.count == self._last:
            os.kill(os.getpid(), signal.SIGKILL)

    def watch(self, frame: FrameType, event: str, called: Any) -> None:
        del frame
        if event != "c_call":
            return
        is_of_system = getattr(called, "__module__", "") in ("posix", "fcntl")
        is_of_database = isinstance(getattr(called, "__self__", None), sqlite3.Connection)
        if (is_of_system and called.__name__ not in UNCHANGING) or (
            is_of_database and called.__name__ == "commit"
        ):
            self.begin()

    def audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(arguments[2], int) and arguments[2] & CREATING:
            self.begin()

    def execute(self, execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
        if not sql.lstrip().upper().startswith(("SELECT", "PRAGMA")):
            self.begin()
        return execute(sql, params, many, context)


@contextmanager
def _watched(last: int) -> Iterator[_Steps]:
    steps = _Steps(last)
    sys.addaudithook(steps.audit)  # there is no way to remove it: this process ends soon
    with connection.execute_wrapper(steps.execute):
        sys.setprofile(steps.watch)
        try:
            yield steps
        finally:
            sys.setprofile(None)


def killed_before(step: int, act: Callable[[], object]) -> bool:
    """Run `act` in a forked process that is killed before this step, counted from 1; returns whether it got that far.

    Fails if `act` raises. Child processes of the killed process have ended, too, when this returns.
    """
    connection.close()
    reading, writing = os.pipe()
    os.set_inheritable(writing, True)
    pid = os.fork()
    if pid == 0:
        answer = b"?"
        try:
            signal.alarm(LONGEST_SECONDS)
            connection.ensure_connection()
            with _watched(step):
                act()
            answer = b"done"
        except BaseException as error:  # noqa: BLE001  the parent shows it
            answer = repr(error).encode()
        finally:
            os.write(writing, answer)
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        answer = pipe.read()
    _, status = os.waitpid(pid, 0)
    ended = os.waitstatus_to_exitcode(status)
    if ended == -signal.SIGKILL:
        return True
    assert answer == b"done", (answer, ended)
    return False
