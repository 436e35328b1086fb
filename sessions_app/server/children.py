"""EDGE: child processes of the server, for work that needs the processor, so that pages stay fast; and work that is
divided between two processes.

A child runs one of Redline's commands. Its standard output carries facts, one JSON object per line, which are passed
on; its standard error is copied line by line to the server's log. Its standard input closes when the server ends for
any reason; a child that follows files then ends too (`exit_with_parent`). A worker does not: a run outlives the server,
and its rows record it.

A child imports nothing from the directory in which the server was started, where anyone may have put a module. It runs
in another directory, so relative paths in its environment are made absolute.
"""

import asyncio
import contextlib
import json
import logging
import os
import pickle
import signal
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, NoReturn, TypeVar

STOP_SECONDS: Final = 10
NICER: Final = 5
"""The niceness added to children, so that pages have priority if the processor is busy."""
CHUNK: Final = 1 << 16
LINE_LIMIT: Final = 1 << 20
"""The maximum length of a fact in bytes; longer lines are ignored."""
COMPLAINT_LIMIT: Final = 2_000
"""The maximum length of a line for the log, in bytes."""
DIRECTORY: Final = "/"
"""The working directory of children: other users cannot write to it on any system."""
PATH_VARIABLES: Final = ("REDLINE_DATA_DIR", "XDG_DATA_HOME", "SSL_CERT_FILE", "SSL_CERT_DIR", "TMPDIR")
"""The variables of Redline and its libraries that name a file or a directory."""

FactListener = Callable[[dict[str, Any]], object]

_log = logging.getLogger("redline")


def python_command(*arguments: str) -> list[str]:
    """Python without the current directory on its path; `-P` leaves `PYTHONPATH` as it is."""
    return [sys.executable, "-P", *arguments]


def redline_command(*arguments: str) -> list[str]:
    """One of Redline's commands as a separate process, to be run in `DIRECTORY` with `environment()`."""
    return python_command("-m", "redline", *arguments)


def environment() -> dict[str, str]:
    """This process's environment with absolute paths, for a process in another directory."""
    found = dict(os.environ)
    for name in PATH_VARIABLES:
        if found.get(name):
            found[name] = str(Path(found[name]).expanduser().absolute())
    if "PYTHONPATH" in found:
        # An empty entry means the current directory, and usually comes from an empty variable.
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
        """Run a command to its end and relay its facts; returns its exit code. Raises OSError."""
        if self.stopping:
            return -1
        child = await asyncio.create_subprocess_exec(
            *redline_command(*arguments),
            cwd=DIRECTORY,
            env=environment(),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            # An interrupt from the terminal is for the server, which ends its children itself.
            start_new_session=True,
        )
        self._running.add(child)
        with contextlib.suppress(ProcessLookupError):
            os.setpriority(os.PRIO_PROCESS, child.pid, NICER)
        try:
            if self.stopping:
                child.terminate()
            assert child.stdout is not None and child.stderr is not None  # noqa: S101, PT018  # they are pipes
            await asyncio.gather(self._relay(child.stdout), _log_errors(child.stderr, " ".join(arguments)))
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
                # A bug on the server's side of the pipe: the child is not affected and continues.
                _log.exception("A fact from a child process could not be relayed")

    async def stop(self) -> None:
        """End all children, and wait for them."""
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


async def _log_errors(stream: asyncio.StreamReader, command: str) -> None:
    """Log the standard error of a child, line by line. The log escapes it."""
    async for line in _lines(stream, COMPLAINT_LIMIT):
        if line.strip():
            _log.error("%s: %s", command, line.decode("utf-8", "backslashreplace"))


async def _lines(stream: asyncio.StreamReader, limit: int) -> AsyncIterator[bytes]:
    """The lines of a stream, each cut at the limit."""
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
    """In a child: call `ended`, from another thread, when the parent has ended."""

    def wait() -> None:
        with contextlib.suppress(OSError):
            while os.read(0, 4096):
                pass
        ended()

    threading.Thread(target=wait, name="parent", daemon=True).start()


def exit_with_parent() -> None:
    """In a child: exit immediately with code 0 when the parent requests it or has ended.

    Only for work that may be interrupted at any point. A signal handler would have to wait for the main thread, for
    example for a long read or a database lock, so another thread waits for the signal.
    """
    # Blocked before other threads start, so that they inherit this and leave the signal to the waiting thread.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})

    def wait() -> None:
        signal.sigwait({signal.SIGTERM})
        os._exit(0)

    threading.Thread(target=wait, name="stop", daemon=True).start()
    end_with_parent(lambda: os._exit(0))


# ---- work for two processes ------------------------------------------------------------------------------

Share = TypeVar("Share")
Result = TypeVar("Result")


def may_fork() -> bool:
    """Whether a second process is useful and a fork safe: on Linux, with two processors and no other thread."""
    return sys.platform == "linux" and len(os.sched_getaffinity(0)) > 1 and threading.active_count() == 1


def in_two_processes(work: Callable[[Share], Result], here: Share, there: Share) -> tuple[Result, Result]:
    """The results of `work` on two parts; the second part is done in a child process, which ends when this one does.

    No connection to a database may be open: SQLite's must not be used after a fork. If the child fails, this process
    does its part, so it must be possible to continue interrupted work. Results are pickled.
    """
    (answer, answering), (alive, living) = os.pipe(), os.pipe()
    child = os.fork()
    if not child:
        os.close(answer)
        os.close(living)
        _work_as_child(work, there, answering, alive)
    os.close(answering)
    os.close(alive)
    with os.fdopen(answer, "rb") as found, ExitStack() as undo:
        undo.callback(os.waitpid, child, 0)
        undo.callback(os.close, living)  # which ends the child
        mine = work(here)
        pickled = found.read()
        undo.pop_all()
        _, status = os.waitpid(child, 0)
        os.close(living)
    return mine, pickle.loads(pickled) if status == 0 else work(there)  # noqa: S301  # our own child made it


def _work_as_child(work: Callable[[Share], object], part: Share, answering: int, alive: int) -> NoReturn:
    """Work, answer, and exit without leaving this function: the child must not clean up what belongs to the parent."""
    try:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        threading.Thread(target=_end_with_parent, args=(alive,), daemon=True).start()
        with os.fdopen(answering, "wb") as answer:
            pickle.dump(work(part), answer)
        os._exit(0)
    finally:
        # The parent repeats the work, and reports why it fails.
        os._exit(1)


def _end_with_parent(alive: int) -> None:
    os.read(alive, 1)
    os._exit(1)
