"""EDGE: processes that the server starts for work that needs the processor, so that pages stay quick.

A child runs one of Redline's commands. What it prints are announcements, one JSON object a line, which are handed on;
what it writes to its standard error goes line by line into the server's log. Its standard input ends when the server
does, however that happens: a child that follows files ends then as well (`end_with_parent`), and a worker does not,
because a run outlives the server and is kept in its rows.

A child imports nothing from the directory in which the server was started: anyone may have put a module there. It runs
in another one, so what the environment names relative to the first is made absolute.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Final

STOP_SECONDS: Final = 10
NICER: Final = 5
"""Pages are waited for: where the processor is short, the server goes first."""
CHUNK: Final = 1 << 16
LINE_LIMIT: Final = 1 << 20
"""Bytes of an announcement; a longer line is none."""
COMPLAINT_LIMIT: Final = 2_000
"""Bytes that are kept of a line for the log."""
DIRECTORY: Final = "/"
"""Where children run: on no system may others write there."""
PATH_VARIABLES: Final = ("REDLINE_DATA_DIR", "XDG_DATA_HOME", "SSL_CERT_FILE", "SSL_CERT_DIR", "TMPDIR")
"""Of the variables that Redline and its libraries read, those that name a file or a directory."""

FactListener = Callable[[dict[str, Any]], object]

_log = logging.getLogger("redline")


def python_command(*arguments: str) -> list[str]:
    """Python without the current directory on its path; `-P` leaves `PYTHONPATH` as it is."""
    return [sys.executable, "-P", *arguments]


def redline_command(*arguments: str) -> list[str]:
    """One of Redline's commands in a process of its own, to be run in `DIRECTORY` with `environment()`."""
    return python_command("-m", "redline", *arguments)


def environment() -> dict[str, str]:
    """This process's environment, for a process that runs elsewhere: the paths in it are absolute."""
    found = dict(os.environ)
    for name in PATH_VARIABLES:
        if found.get(name):
            found[name] = str(Path(found[name]).expanduser().absolute())
    if "PYTHONPATH" in found:
        # An empty entry means the current directory, and mostly comes of an empty variable.
        entries = [entry for entry in found["PYTHONPATH"].split(os.pathsep) if entry]
        found["PYTHONPATH"] = os.pathsep.join(str(Path(entry).absolute()) for entry in entries)
    return found


class Children:
    """The running children of one server."""

    def __init__(self, on_fact: FactListener) -> None:
        self._on_fact = on_fact
        self._running: set[asyncio.subprocess.Process] = set()
        self.stopping = False

    async def run(self, *arguments: str) -> int:
        """Run a command to its end, relaying the facts that it prints; gives its exit code. Raises OSError."""
        if self.stopping:
            return -1
        child = await asyncio.create_subprocess_exec(
            *redline_command(*arguments),
            cwd=DIRECTORY,
            env=environment(),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            # An interrupt from the terminal is the server's: it ends its children itself.
            start_new_session=True,
        )
        self._running.add(child)
        with contextlib.suppress(ProcessLookupError):
            os.setpriority(os.PRIO_PROCESS, child.pid, NICER)
        try:
            if self.stopping:
                child.terminate()
            assert child.stdout is not None and child.stderr is not None  # noqa: S101, PT018  # they were asked for
            await asyncio.gather(self._relay(child.stdout), _complain(child.stderr, " ".join(arguments)))
            return await child.wait()
        finally:
            self._running.discard(child)

    async def _relay(self, stream: asyncio.StreamReader) -> None:
        async for line in _lines(stream, LINE_LIMIT):
            try:
                fact = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if not isinstance(fact, dict):
                continue
            try:
                self._on_fact(fact)
            except Exception:  # noqa: BLE001  # it is logged
                # A defect on our side of the pipe: the child knows nothing of it and goes on.
                _log.exception("What a child announced could not be relayed")

    async def stop(self) -> None:
        """End all children, and wait until they have."""
        self.stopping = True
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


async def _complain(stream: asyncio.StreamReader, command: str) -> None:
    """Log what a child complains of. The log escapes it, and keeps one line a line."""
    async for line in _lines(stream, COMPLAINT_LIMIT):
        if line.strip():
            _log.error("%s: %s", command, line.decode("utf-8", "backslashreplace"))


async def _lines(stream: asyncio.StreamReader, limit: int) -> AsyncIterator[bytes]:
    """The lines of a stream; one that is longer than the limit is cut there."""
    line = b""
    while chunk := await stream.read(CHUNK):
        *ends, rest = chunk.split(b"\n")
        for end in ends:
            yield (line + end)[:limit]
            line = b""
        line = (line + rest)[:limit]
    if line:
        yield line


def end_with_parent(ended: Callable[[], object]) -> None:
    """In a child: call `ended`, from another thread, when the parent is gone."""

    def wait() -> None:
        with contextlib.suppress(OSError):
            while os.read(0, 4096):
                pass
        ended()

    threading.Thread(target=wait, name="parent", daemon=True).start()


def exit_with_parent() -> None:
    """In a child: end at once, and well, when the parent says so or is gone, whatever is going on.

    For work that may be cut short at any point. A handler would wait for what the main thread is at, such as a
    long read or a lock of the database; so another thread does the waiting.
    """
    # Before any other thread begins: each then leaves the signal to the one that waits for it.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})

    def wait() -> None:
        signal.sigwait({signal.SIGTERM})
        os._exit(0)

    threading.Thread(target=wait, name="parent", daemon=True).start()
    end_with_parent(lambda: os._exit(0))
