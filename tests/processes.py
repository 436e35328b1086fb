"""Forked processes, and processes without the rights of root."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

from django.db import connection

NOBODY = 65534


def in_child(act: Callable[[], str], prepare: Callable[[], object] = lambda: None) -> str:
    """What `act` tells in a forked process, which `prepare` may rob of rights first; it has 20 seconds.

    The interpreter is not started anew: another user may not be able to read it.
    """
    connection.close()  # a connection must not be carried across a fork
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        told = "died"
        try:
            signal.alarm(20)
            prepare()
            told = act()
        except BaseException as error:  # noqa: BLE001  the parent compares it with what it expects
            told = repr(error)
        finally:
            os.write(writing, told.encode()[:60_000])
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        told = pipe.read().decode()
    os.waitpid(pid, 0)
    return told


def become_nobody() -> None:
    """Root may do everything, so it becomes nobody. Any other user is restricted enough as he is."""
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)


def give_to_nobody(*paths: Path) -> None:
    """Hands paths to the user that `become_nobody` becomes."""
    if os.geteuid() == 0:
        for path in paths:
            os.chown(path, NOBODY, NOBODY)
