"""Forked processes with fewer rights or resources than this one, and what a process holds."""

import _strptime  # noqa: F401  imported at its first use, and a child without rights cannot read it
import fcntl
import multiprocessing
import os
import resource
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path

from django.db import connection

from sessions_app.storage.session_loader import _counter
from tests.installation import refusal
from tests.wait import WAIT_SECONDS

NOBODY = 65534
"""The user and the group without any rights."""


def start_child(act: Callable[[], str], prepare: Callable[[], object] = lambda: None) -> Callable[[], str]:
    """Starts `act` in a forked process, in which `prepare` may drop rights first; returns what waits for its result
    or its error.

    The interpreter is not restarted, because another user may not be able to read it.
    """
    connection.close()  # a connection must not cross a fork
    if prepare is become_nobody:
        _counter()  # it is loaded at its first use, and that user may not be able to read it
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        answer = "died"
        try:
            signal.alarm(WAIT_SECONDS)
            prepare()
            answer = act()
        except BaseException as error:  # noqa: BLE001  the parent compares it with what it expects
            answer = repr(error)
        finally:
            os.write(writing, answer.encode()[:60_000])
            os._exit(0)
    os.close(writing)

    def wait() -> str:
        with os.fdopen(reading, "rb") as pipe:
            answer = pipe.read().decode()
        os.waitpid(pid, 0)
        return answer

    return wait


def in_child(act: Callable[[], str], prepare: Callable[[], object] = lambda: None) -> str:
    """What `act` returns in a forked process; else its error."""
    return start_child(act, prepare)()


def refusal_in_child(act: Callable[[], object], prepare: Callable[[], object] = lambda: None) -> str:
    """The `refusal` of `act` in a forked process."""
    return in_child(lambda: refusal(act), prepare)


def forked(act: Callable[[], object]) -> BaseProcess:
    """A forked process that does this, to be watched, interrupted and killed."""
    connection.close()
    process = multiprocessing.get_context("fork").Process(target=act)
    process.start()
    return process


@contextmanager
def holding(path: Path) -> Iterator[None]:
    """Another process has this file open for writing."""
    with path.open("ab") as opened:
        process = subprocess.Popen(["sleep", "600"], stdout=opened)
    try:
        yield
    finally:
        process.kill()
        process.wait()


@contextmanager
def held(path: Path, how: Callable[[int, int], object] = fcntl.flock, kind: int = fcntl.LOCK_EX) -> Iterator[None]:
    """This file is locked."""
    descriptor = os.open(path, os.O_RDWR)
    how(descriptor, kind)
    yield
    os.close(descriptor)


def limit_file_size(size: int) -> Callable[[], None]:
    """Limit files to `size` bytes: the write that reaches the limit is short, the next one fails."""

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

    return limit


def become_nobody() -> None:
    """Become nobody if this is root, who may do everything. Any other user is restricted enough."""
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)


def give_to_nobody(*paths: Path) -> None:
    """Make the user of `become_nobody` the owner of these paths."""
    if os.geteuid() == 0:
        for path in paths:
            os.chown(path, NOBODY, NOBODY)
