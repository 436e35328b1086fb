"""The body of an HTTP answer, read within limits: as an event stream, or as one JSON value.

A slow body is given up, an endless one is cut off, and invalid UTF-8 becomes U+FFFD: nothing that a server sends can
block or fill this process. Bytes are counted as they come from the network and are never decompressed: 10 KB could
become gigabytes. Any byte shows that the server is alive, even a comment of the stream.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncGenerator
from typing import Final

import httpx
from httpx_sse import EventSource, ServerSentEvent

from .error_mapping import Unreadable

EVENT_BYTES: Final = 4 << 20
"""Bytes of one event of a stream; and of comments without an event between them."""
PART_BYTES: Final = 64 << 10
"""Bytes that are parsed at a time: events of a longer chunk are taken one after the other."""
STREAM_BYTES: Final = 256 << 20
JSON_BYTES: Final = 16 << 20
"""Bytes of an answer that is not a stream."""
ERROR_BYTES: Final = 64 << 10
"""Bytes that are read of the body of an error."""

_STREAM: Final = {"content-type": "text/event-stream; charset=utf-8-sig"}
"""Event streams are UTF-8, whatever a server calls them, and may begin with a byte-order mark."""


class Body:
    """The body of an answer: `first` and `between` are the seconds until its first bytes and between further ones.

    `deadline` is when it has to be whole, on the clock of the event loop.
    """

    def __init__(self, response: httpx.Response, first: float, between: float, deadline: float = math.inf) -> None:
        self._response = response
        self._first, self._between, self._deadline = first, between, deadline
        self._since_event = 0
        self.read_bytes = 0

    async def events(self) -> AsyncGenerator[ServerSentEvent, None]:
        """The events of a stream that are not empty.

        Raises TimeoutError, httpx.HTTPError if the connection breaks, and Unreadable beyond the limits.
        """
        async with contextlib.aclosing(self._stream()) as chunks:
            source = EventSource(httpx.Response(200, headers=_STREAM, content=chunks))
            async with contextlib.aclosing(source.aiter_sse()) as events:
                async for event in events:
                    self._since_event = 0
                    if event.data or event.event == "error":
                        yield event

    async def value(self, most: int) -> bytes:
        """The whole body, cut off after `most` bytes."""
        found = bytearray()
        async with contextlib.aclosing(self._chunks()) as chunks:
            async for chunk in chunks:
                found += chunk
                if len(found) > most:
                    break
        return bytes(found[:most])

    async def _stream(self) -> AsyncGenerator[bytes, None]:
        async with contextlib.aclosing(self._chunks()) as chunks:
            async for chunk in chunks:
                if self.read_bytes > STREAM_BYTES:
                    raise Unreadable(f"it is longer than {STREAM_BYTES:,} bytes")
                for start in range(0, len(chunk), PART_BYTES):
                    part = chunk[start : start + PART_BYTES]
                    self._since_event += len(part)
                    if self._since_event > EVENT_BYTES:
                        raise Unreadable(f"one of its events is longer than {EVENT_BYTES:,} bytes")
                    yield part

    async def _chunks(self) -> AsyncGenerator[bytes, None]:
        clock = asyncio.get_running_loop().time
        async with contextlib.aclosing(self._response.aiter_raw()) as chunks:  # type: ignore[type-var]
            while True:
                until = clock() + (self._between if self.read_bytes else self._first)
                if clock() >= self._deadline:
                    # Chunks that arrive without a wait are never interrupted.
                    raise TimeoutError
                try:
                    async with asyncio.timeout_at(min(until, self._deadline)):
                        chunk = await anext(chunks)
                except StopAsyncIteration:
                    return
                self.read_bytes += len(chunk)
                yield chunk
