"""EDGE: processes that the server starts for work that needs the processor, so that pages stay quick.

A child runs one of Redline's commands. What it prints are announcements, one JSON object a line, which are
handed on; its standard input ends when the server does, however that happens.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any, Final

STOP_SECONDS: Final = 10
LINE_LIMIT: Final = 1 << 20

Told = Callable[[dict[str, Any]], object]


class Children:
    """The running children of one server."""

    def __init__(self, told: Told) -> None:
        self._told = told
        self._running: set[asyncio.subprocess.Process] = set()
        self._stopping = False

    async def run(self, *arguments: str) -> int:
        """Run a command to its end and give its exit code; what it announces is told meanwhile."""
        if self._stopping:
            return -1
        child = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "redline",
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=LINE_LIMIT,
            # An interrupt from the terminal is the server's: it ends its children itself.
            start_new_session=True,
        )
        self._running.add(child)
        try:
            assert child.stdout is not None  # noqa: S101  # it was asked for
            async for line in child.stdout:
                with contextlib.suppress(ValueError):
                    self._told(json.loads(line))
            return await child.wait()
        finally:
            self._running.discard(child)

    async def stop(self) -> None:
        """End all children, and wait until they have."""
        self._stopping = True
        running = list(self._running)
        for child in running:
            with contextlib.suppress(ProcessLookupError):
                child.terminate()
        for child in running:
            try:
                await asyncio.wait_for(child.wait(), STOP_SECONDS)
            except TimeoutError:
                with contextlib.suppress(ProcessLookupError):
                    child.kill()


def end_with_parent(ended: Callable[[], object]) -> None:
    """In a child: call `ended`, from another thread, when the parent is gone."""

    def wait() -> None:
        with contextlib.suppress(OSError):
            while os.read(0, 4096):
                pass
        ended()

    threading.Thread(target=wait, name="parent", daemon=True).start()


def end_when_told() -> None:
    """In a child: end at once, and well, when the parent says so or is gone, whatever is going on.

    For work that may be cut short at any point. A handler would wait for what the main thread is at, such as a
    long read or a lock of the database; so another thread does the waiting.
    """
    # Before any other thread begins: each then leaves the signal to the one that waits for it.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})

    def wait() -> None:
        signal.sigwait({signal.SIGTERM})
        os._exit(0)

    threading.Thread(target=wait, name="told", daemon=True).start()
    end_with_parent(lambda: os._exit(0))
