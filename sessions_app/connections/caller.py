"""EDGE: the agent that called a hook command, and whether it still waits for it.

An agent whose compaction is stopped ends the command, or the process by which it called it, or reads no more. All of
this is noticed: a signal, another parent process, nobody at the other end of standard output. Codex kills the command,
which only another process can notice.
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
"""How often it is looked whether the agent still waits."""
ENDED: Final = b"."


class Caller:
    """The process that called this one. In between `__enter__` and `__exit__`, signals do not end this process."""

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
        """Wait for some seconds; returns False as soon as the agent does not wait any more."""
        end = clock() + seconds
        while not self.has_gone:
            left = end - clock()
            if left <= 0:
                return True
            sleep(min(left, LOOK_SECONDS))
        return False

    @property
    def has_gone(self) -> bool:
        # Of the events, those that mean that nobody reads are always reported.
        return self._is_stopped or os.getppid() != self._parent or bool(self._watched.poll(0))

    def _stop(self, signum: int, frame: FrameType | None) -> None:
        del signum, frame
        self._is_stopped = True


@contextmanager
def report_if_killed(report: Callable[[], object]) -> Iterator[None]:
    """Let another process call `report` if this one is killed before the end of the block.

    That process is in its own session, so that an agent which kills a group of processes leaves it, and it has none of
    the descriptors that an agent reads until nobody can write to them.
    """
    reader, writer = os.pipe()
    try:
        child = os.fork()
    except OSError:
        # No more processes can be made. The question then ends with its time.
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
