"""The pieces of an answer for synchronous code: the network has one event loop per process, in a separate thread.

    with AnswerStream(endpoint, request, patience) as stream:
        while (piece := stream.next(seconds)) is not None: ...

Leaving the block closes the connection, even in the middle of an answer or of a wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from concurrent.futures import CancelledError, Future
from types import TracebackType
from typing import Final

from .client import Patience, ask
from .types import Endpoint, Piece, Request

CLOSE_SECONDS: Final = 5
"""How long leaving waits until the connection is closed; it takes milliseconds."""

_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None


class AnswerStream:
    """One request and its answer, piece by piece."""

    def __init__(self, endpoint: Endpoint, request: Request, patience: Patience) -> None:
        self._pieces: queue.SimpleQueue[Piece | BaseException] = queue.SimpleQueue()
        self._ended = threading.Event()
        # Starting the loop takes a moment: an interrupt then must not leave a coroutine behind that nothing runs.
        loop = network_loop()
        self._task: Future[None] = asyncio.run_coroutine_threadsafe(self._read(endpoint, request, patience), loop)

    def __enter__(self) -> AnswerStream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._task.cancel()
        self._ended.wait(CLOSE_SECONDS)

    def next(self, seconds: float) -> Piece | None:
        """The next piece, or None if none arrives within this many seconds. Raises ProviderError.

        The last piece is an `AnswerEnd`.
        """
        try:
            found = self._pieces.get(timeout=seconds)
        except queue.Empty:
            return None
        if isinstance(found, BaseException):
            raise found
        return found

    async def _read(self, endpoint: Endpoint, request: Request, patience: Patience) -> None:
        try:
            async with contextlib.aclosing(ask(endpoint, request, patience)) as pieces:
                async for piece in pieces:
                    self._pieces.put(piece)
        except (asyncio.CancelledError, CancelledError):
            raise
        except BaseException as fault:  # noqa: BLE001  # `next` raises it in the thread that waits
            self._pieces.put(fault)
        finally:
            self._ended.set()


def network_loop() -> asyncio.AbstractEventLoop:
    """The event loop of this process's network thread, started on first use."""
    global _loop  # noqa: PLW0603  # there is one network thread in a process
    with _lock:
        if _loop is None:
            _loop = asyncio.new_event_loop()
            threading.Thread(target=_loop.run_forever, name="network", daemon=True).start()
        return _loop
