"""HTTP as raw bytes on a socket, for requests that no client would send."""

import contextlib
import socket
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPMessage, HTTPResponse

from tests.server import Server
from tests.wait import WAIT_SECONDS


@dataclass
class Answer:
    status: int
    headers: HTTPMessage
    body: bytes

    def header(self, name: str) -> str | None:
        """The header's value; it must occur only once."""
        (value,) = self.headers.get_all(name, [None])
        return value


def host_of(server: Server) -> str:
    return server.base.removeprefix("http://")


def cookie_of(server: Server) -> str:
    return "; ".join(f"{one.name}={one.value}" for one in server.cookies)


@contextlib.contextmanager
def connected(server: Server) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", server.port), timeout=WAIT_SECONDS) as opened:
        yield opened


def status_at(at: str, host: str, path: str, server: Server, **headers: str) -> int:
    """The status with which the server answers a request for this host at one of its addresses."""
    connection = HTTPConnection(at, server.port, timeout=WAIT_SECONDS)
    try:
        connection.request("GET", path, headers={"Host": f"{host}:{server.port}", **headers})
        return connection.getresponse().status
    finally:
        connection.close()


def read_to_end(opened: socket.socket) -> bytes:
    """Everything until the server closes the connection, in whatever way."""
    came = b""
    with contextlib.suppress(ConnectionError):
        while piece := opened.recv(65_536):
            came += piece
    return came


def answer_on(opened: socket.socket) -> Answer:
    """The next response on the connection."""
    answer = HTTPResponse(opened)
    answer.begin()
    return Answer(answer.status, answer.headers, answer.read())


def head(method: str, path: str, server: Server, **headers: str) -> bytes:
    """The head of a request to the server; underscores in names become hyphens, and Host can be overridden."""
    lines = {"Host": host_of(server), **{name.replace("_", "-"): value for name, value in headers.items()}}
    fields = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"{method} {path} HTTP/1.1\r\n{fields}\r\n".encode("latin-1")


def ask(server: Server, request: bytes, body: Iterable[bytes] = ()) -> Answer:
    """The first response to a request; the body is sent only as far as the server reads it."""
    with connected(server) as opened:
        opened.sendall(request)
        with contextlib.suppress(ConnectionError):
            for piece in body:
                opened.sendall(piece)
        return answer_on(opened)
