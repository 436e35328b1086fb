"""A server of raw bytes on a loopback socket: it can misbehave in any way, and records what is sent to it."""

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import pytest

from compaction_app.providers.client import Patience, ask, close
from compaction_app.providers.error_mapping import ProviderError
from compaction_app.providers.types import Dialect, Endpoint, Piece, Request
from tests.compaction_app.providers.streams import small_request
from tests.wait import WAIT_SECONDS

QUICK = Patience(connect=WAIT_SECONDS, first_byte=WAIT_SECONDS, between=WAIT_SECONDS, attempts=2, longest_wait=0.01)


@dataclass
class ReceivedRequest:
    """One request as it came, and the connection it came on."""

    number: int
    head: str
    body: bytes
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    closed: asyncio.Event = field(default_factory=asyncio.Event)
    """The client has closed the connection."""

    async def say(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    def cut(self) -> None:
        """Cut the connection off without an answer."""
        self.writer.transport.abort()

    async def wait(self) -> None:
        """Send nothing until the client has gone."""
        with contextlib.suppress(ConnectionError):
            while await self.reader.read(1_000):
                pass
        self.closed.set()

    @property
    def json(self) -> Any:
        return json.loads(self.body)


Play = Callable[[ReceivedRequest], Awaitable[None]]


class RawServer:
    """Plays the n-th of `plays` to the n-th request, and the last one from then on."""

    def __init__(self, *plays: Play | bytes) -> None:
        self._plays = plays
        self.requests: list[ReceivedRequest] = []
        self.connections = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port: int = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        await close()
        self._server.close()
        for received in self.requests:
            received.writer.close()
        await self._server.wait_closed()

    def endpoint(self, dialect: Dialect, key: str = "", host: str = "127.0.0.1") -> Endpoint:
        return Endpoint("raw", dialect, f"http://{host}:{self.port}", key)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                lengths = [line for line in head.lower().split("\r\n") if line.startswith("content-length:")]
                body = await reader.readexactly(int(lengths[0].partition(":")[2]) if lengths else 0)
                received = ReceivedRequest(len(self.requests), head, body, reader, writer)
                self.requests.append(received)
                play = self._plays[min(received.number, len(self._plays) - 1)]
                if isinstance(play, bytes):
                    await received.say(play)
                else:
                    await play(received)
                if writer.is_closing():
                    break
        writer.close()


def answer(body: bytes, status: str = "200 OK", kind: str = "text/event-stream", *headers: str) -> bytes:
    """A whole HTTP answer."""
    lines = [f"HTTP/1.1 {status}", f"content-type: {kind}", f"content-length: {len(body)}", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
"""The head of an answer whose body comes in chunks; b"0\\r\\n\\r\\n" ends it."""
UNTIL_CLOSED = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
"""The head of an answer whose body ends with the connection."""


def chunked(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


async def collect(endpoint: Endpoint, request: Request | None = None, patience: Patience = QUICK) -> list[Piece]:
    """All pieces of one answer."""
    async with contextlib.aclosing(ask(endpoint, request or small_request(), patience)) as pieces:
        return [piece async for piece in pieces]


def as_json(value: object, status: str, *headers: str) -> bytes:
    return answer(json.dumps(value).encode(), status, "application/json", *headers)


def cutting(said: bytes = b"") -> Play:
    async def play(received: ReceivedRequest) -> None:
        await received.say(said)
        received.cut()

    return play


def falling_silent(said: bytes = b"") -> Play:
    async def play(received: ReceivedRequest) -> None:
        await received.say(said)
        await received.wait()

    return play


async def error_from(endpoint: Endpoint, patience: Patience = QUICK) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        await collect(endpoint, patience=patience)
    return caught.value


async def failure(server: RawServer, dialect: Dialect, patience: Patience = QUICK, key: str = "") -> ProviderError:
    return await error_from(server.endpoint(dialect, key), patience)


async def failed(
    play: Play | bytes, dialect: Dialect, kind: type[ProviderError] = ProviderError, requests: int = 1, **how: Any
) -> ProviderError:
    """The error with which an answer ended, after so many requests."""
    async with RawServer(play) as server:
        error = await failure(server, dialect, **how)
        assert len(server.requests) == requests
    assert isinstance(error, kind)
    return error
