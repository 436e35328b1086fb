"""EDGE: the agent that called a hook command, and whether it still waits for it.

If its compaction is stopped, an agent ends the command, or the process through which it called the command, or stops
reading. Each is detected: by a signal, by a different parent process, by a closed reading end of standard output. Codex
kills the command, which only another process can detect.
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType, TracebackType
from typing import Any, Final, Self

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
LOOK_SECONDS: Final = 0.1
"""Seconds between two checks whether the agent still waits."""
ENDED: Final = b"."


class Caller:
    """The process that called this one. Between `__enter__` and `__exit__`, signals do not end this process."""

    def __init__(self, output: int) -> None:
        """`output` is the descriptor that the agent reads."""
        self._parent = os.getppid()
        self._is_stopped = False
        self._watched = select.poll()
        self._watched.register(output, 0)
        self._earlier: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        self._earlier = {one: signal.signal(one, self._stop) for one in SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        for one, handler in self._earlier.items():
            signal.signal(one, handler)

    def still_waits(
        self,
        seconds: float,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> bool:
        """Wait for some seconds; returns False as soon as the agent no longer waits."""
        end = clock() + seconds
        while not self.has_gone:
            left = end - clock()
            if left <= 0:
                return True
            sleep(min(left, LOOK_SECONDS))
        return False

    @property
    def has_gone(self) -> bool:
        # No events are requested: those for a closed reading end are always reported.
        return self._is_stopped or os.getppid() != self._parent or bool(self._watched.poll(0))

    def _stop(self, signum: int, frame: FrameType | None) -> None:
        del signum, frame
        self._is_stopped = True


@contextmanager
def report_if_killed(report: Callable[[], object]) -> Iterator[None]:
    """Let another process call `report` if this one is killed before the end of the block.

    That process is in a separate session, so that it survives an agent that kills a process group. It closes the
    descriptors that an agent reads until all their writers are gone.
    """
    reader, writer = os.pipe()
    try:
        child = os.fork()
    except OSError:
        # No process can be started. The review request then times out.
        os.close(reader)
        os.close(writer)
        yield
        return
    if child == 0:
        try:
            os.setsid()
            os.close(writer)
            nowhere = os.open(os.devnull, os.O_RDWR)
            for descriptor in range(3):
                os.dup2(nowhere, descriptor)
            if os.read(reader, 1) != ENDED:
                report()
        finally:
            os._exit(0)
    os.close(reader)
    try:
        yield
    finally:
        with suppress(BrokenPipeError):
            os.write(writer, ENDED)
        os.close(writer)
        os.waitpid(child, 0)
