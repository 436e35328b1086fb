"""EDGE: requests of a bridge to the server of its connection, and the answers, as docs/handshake.md describes them.

They use loopback only, without redirects and proxies. The bridge applies nothing itself, so it reads few fields.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from threading import Timer
from typing import Annotated, Any, Final, Literal
from urllib.parse import urlsplit

import msgspec

from sessions_app.sessionlog.printable import printable

from .connection_files import PATH, ConnectedAgent, connection

HOSTS: Final = ("127.0.0.1", "localhost", "::1")
BODY_LIMIT: Final = 1_000_000
ERRORS_FROM: Final = 400
DONE: Final = (200, 201)
WAIT: Final = "wait"
MESSAGE_CHARACTERS: Final = 2_000
Seconds = Annotated[float, msgspec.Meta(ge=0, le=86_400)]


class ServerAnswer(msgspec.Struct, frozen=True):
    """An answer to a review request, a poll or a report, without the fields that a hook does not need."""

    do: Literal["wait", "compact", "continue", "stop"]
    message: str
    id: Annotated[int, msgspec.Meta(ge=0)] = 0
    seconds: Seconds = 0
    poll: Annotated[float, msgspec.Meta(ge=0.05, le=60)] = 0.5
    grace: Seconds = 30


class _Error(msgspec.Struct):
    message: str


class _Refusal(msgspec.Struct):
    error: _Error


def answer_in(body: bytes) -> ServerAnswer:
    """The answer in a body. Raises ValueError if the body is anything else."""
    found = msgspec.json.decode(body, type=ServerAnswer)
    return msgspec.structs.replace(found, message=_one_line(found.message))


def error_in(body: bytes) -> str:
    """The message of an error; empty if a body has none."""
    try:
        return _one_line(msgspec.json.decode(body, type=_Refusal).error.message)
    except ValueError:
        return ""


def _one_line(text: str) -> str:
    return printable(" ".join(text[:MESSAGE_CHARACTERS].split()))


class NoAnswer(Exception):
    """There was no usable answer; the text says why, without a full stop."""


class RequestRefused(Exception):
    """The server answered with an error; the text is its message."""


class ServerRequests:
    """The requests of one connection. Its file is read again for each of them."""

    def __init__(self, directory: Path, name: str) -> None:
        self._directory = directory
        self._name = name

    def post(self, path: str, body: Mapping[str, Any], seconds: float) -> ServerAnswer:
        """Raises NoAnswer and RequestRefused, as `get` does."""
        return self._send("POST", path, json.dumps(body).encode(), seconds)

    def get(self, path: str, seconds: float) -> ServerAnswer:
        """`path` follows that of the API; `seconds` is the time for the whole answer."""
        return self._send("GET", path, None, seconds)

    def _send(self, method: str, path: str, body: bytes | None, seconds: float) -> ServerAnswer:
        known = self._connection()
        host, port = _address(known.url)
        headers = {"Authorization": f"Bearer {known.token}", "Content-Type": "application/json"}
        try:
            with _connected(host, port, seconds) as server:
                server.request(method, PATH + path, body, headers)
                response = server.getresponse()
                status, content = response.status, response.read(BODY_LIMIT)
        except (OSError, HTTPException, ValueError) as fault:
            raise NoAnswer(f"{known.url} gave no answer ({fault or type(fault).__name__})") from fault
        if status >= ERRORS_FROM:
            words = error_in(content) or f"{known.url} answered with the status {status}."
            raise RequestRefused(words)
        if status not in DONE:
            raise NoAnswer(f"{known.url} answered with the status {status}")
        try:
            return answer_in(content)
        except ValueError as fault:
            raise NoAnswer(f"{known.url} answered something else ({fault})") from fault

    def _connection(self) -> ConnectedAgent:
        try:
            found = connection(self._directory, self._name)
        except (OSError, ValueError) as fault:
            raise NoAnswer(f"the connection {self._name} could not be read ({fault})") from fault
        if found is None:
            raise NoAnswer(f"there is no connection {self._name}")
        if not found.url:
            raise NoAnswer("its server has not been started yet")
        return found


def _address(url: str) -> tuple[str, int]:
    """The host and the port of a server on this machine. Raises NoAnswer."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if host not in HOSTS or port is None or parts.scheme != "http":
        raise NoAnswer(f"{url} is not an address on this machine")
    return host, port


@contextmanager
def _connected(host: str, port: int, seconds: float) -> Iterator[HTTPConnection]:
    """A connection that ends after some seconds, however slowly the other end sends."""
    with closing(HTTPConnection(host, port, timeout=seconds)) as server:
        server.connect()
        timer = Timer(seconds, _end, (server.sock,))
        timer.daemon = True
        timer.start()
        try:
            yield server
        finally:
            timer.cancel()


def _end(connected: socket.socket) -> None:
    with suppress(OSError):
        connected.shutdown(socket.SHUT_RDWR)
