"""EDGE: a model server on loopback that records what a client sends, and gives each request a short answer.

    with ModelServer() as server:
        ...
        assert server.requests[0].path == "/v1/messages"

It speaks the three dialects of the clients: Anthropic's Messages, and OpenAI's Responses and Chat Completions.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from sessions_app.sessionlog.jsjson import parse

from .answers import Answer, short_answer

if TYPE_CHECKING:
    from http.server import BaseHTTPRequestHandler

HOST: Final = "127.0.0.1"
BODY_LIMIT: Final = 1 << 29
"""Bytes of a request that are read; a larger one is refused."""


class ModelRequest(NamedTuple):
    """A request of a client: its path without the query, and its JSON document."""

    path: str
    body: Mapping[str, Any]


class ModelServer:
    """The server, from `__enter__` to `__exit__`. `answer` is called by several threads."""

    def __init__(self, answer: Callable[[ModelRequest], Answer] | None = None) -> None:
        self.requests: list[ModelRequest] = []
        """The requests so far, in order of arrival."""
        self._answer = answer or (lambda request: short_answer(request.path, request.body))
        # Imported here: every command loads this module, and hardly one of them starts a server.
        from http.server import ThreadingHTTPServer

        self._server = ThreadingHTTPServer((HOST, 0), self._handler())
        self._server.daemon_threads = True
        self._server.block_on_close = False
        self._thread = threading.Thread(target=self._server.serve_forever, name="model-server", daemon=True)

    @property
    def url(self) -> str:
        """The base URL, without a path."""
        return f"http://{HOST}:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def receive(self, path: str, raw: bytes) -> Answer:
        """Record a request, and answer it."""
        try:
            body = parse(raw)
        except ValueError:
            body = None
        if not isinstance(body, dict):
            return Answer.error(400, "The body is not a JSON object")
        request = ModelRequest(path, body)
        self.requests.append(request)
        return self._answer(request)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        from http.server import BaseHTTPRequestHandler

        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self._send(Answer.error(404, "Not found"))

            def do_HEAD(self) -> None:
                self._send(Answer.error(404, "Not found"))

            def do_POST(self) -> None:
                raw = _body(self)
                path = self.path.partition("?")[0]
                too_large = Answer.error(413, "The body is too large")
                self._send(server.receive(path, raw) if raw is not None else too_large)

            def _send(self, answer: Answer) -> None:
                self.close_connection = True
                self.send_response(answer.status)
                self.send_header("content-type", answer.content_type)
                self.send_header("content-length", str(len(answer.body)))
                self.send_header("connection", "close")
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(answer.body)

            def log_message(self, *_: Any) -> None:
                """Nothing is logged."""

        return Handler


def _body(handler: BaseHTTPRequestHandler) -> bytes | None:
    """The body of a request; None if it is too large."""
    if handler.headers.get("transfer-encoding", "").lower() != "chunked":
        size = int(handler.headers.get("content-length") or 0)
        return handler.rfile.read(size) if size <= BODY_LIMIT else None
    body = bytearray()
    while size := int(handler.rfile.readline().split(b";")[0].strip() or b"0", 16):
        if len(body) + size > BODY_LIMIT:
            return None
        body += handler.rfile.read(size)
        handler.rfile.readline()
    handler.rfile.readline()
    return bytes(body)
