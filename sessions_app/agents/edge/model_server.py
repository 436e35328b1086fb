"""EDGE: a model server on loopback that records what a client sends, and gives each request a short answer.

    with ModelServer() as server:
        ...
        assert server.requests[0].path == "/v1/messages"

It speaks the three dialects of the clients: Anthropic's Messages, and OpenAI's Responses and Chat Completions.
"""

from __future__ import annotations

import json
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from sessions_app.sessionlog.jsjson import parse

if TYPE_CHECKING:
    from http.server import BaseHTTPRequestHandler


TEXT: Final = "OK"
"""The whole answer of the model."""
MESSAGES: Final = "/messages"
RESPONSES: Final = "/responses"
COMPLETIONS: Final = "/chat/completions"


class Answer(NamedTuple):
    """The response to a request."""

    status: int
    content_type: str
    body: bytes

    @classmethod
    def error(cls, status: int, message: str) -> Self:
        """An error response, with the message in the fields of every dialect."""
        fault = {"type": "error", "error": {"type": "invalid_request_error", "message": message}}
        return cls.document(fault, status)

    @classmethod
    def document(cls, value: Mapping[str, Any], status: int = 200) -> Self:
        """A JSON response."""
        return cls(status, "application/json", json.dumps(value).encode())

    @classmethod
    def stream(cls, events: Iterable[Mapping[str, Any]], *, end: bytes = b"") -> Self:
        """A stream of server-sent events; the type of an event, if it has one, is its name."""
        body = b"".join(
            (f"event: {event['type']}\n".encode() if "type" in event else b"")
            + b"data: "
            + json.dumps(event).encode()
            + b"\n\n"
            for event in events
        )
        return cls(200, "text/event-stream", body + end)


def short_answer(path: str, body: Mapping[str, Any], tokens: int = 1) -> Answer:
    """A short text in the dialect of a request, as a stream if requested.

    `tokens`: the usage reported by an answer to a Responses request.
    """
    is_stream = bool(body.get("stream"))
    if path.endswith(MESSAGES):
        return Answer.stream(_messages_events()) if is_stream else Answer.document(_message())
    if path.endswith(RESPONSES):
        return Answer.stream(_responses_events(tokens))
    if path.endswith(COMPLETIONS):
        whole = Answer.document(_completion("message"))
        return Answer.stream([_completion("delta")], end=b"data: [DONE]\n\n") if is_stream else whole
    return Answer.error(404, "Not found")


def _message() -> dict[str, Any]:
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "model",
        "content": [{"type": "text", "text": TEXT}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }


def _messages_events() -> Iterator[dict[str, Any]]:
    yield {"type": "message_start", "message": {**_message(), "content": [], "stop_reason": None}}
    yield {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
    yield {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": TEXT}}
    yield {"type": "content_block_stop", "index": 0}
    ending = {"stop_reason": "end_turn", "stop_sequence": None}
    yield {"type": "message_delta", "delta": ending, "usage": {"output_tokens": 1}}
    yield {"type": "message_stop"}


def _responses_events(tokens: int) -> Iterator[dict[str, Any]]:
    content = [{"type": "output_text", "text": TEXT, "annotations": []}]
    item = {"type": "message", "role": "assistant", "id": "msg_1", "content": content}
    usage = {"input_tokens": tokens, "output_tokens": 1, "total_tokens": tokens + 1}
    yield {"type": "response.created", "response": {"id": "resp_1"}}
    yield {"type": "response.output_item.done", "output_index": 0, "item": item}
    yield {"type": "response.completed", "response": {"id": "resp_1", "usage": usage, "output": [item]}}


def _completion(field: str) -> dict[str, Any]:
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion" if field == "message" else "chat.completion.chunk",
        "created": 1,
        "model": "model",
        "choices": [{"index": 0, field: {"role": "assistant", "content": TEXT}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    }


HOST: Final = "127.0.0.1"
BODY_LIMIT: Final = 1 << 29
"""The maximum size of a request in bytes; a larger one is refused."""


class LoopbackServer(ABC):
    """A server on loopback that runs from `__enter__` to `__exit__`. Several threads call `receive`."""

    def __init__(self) -> None:
        # Imported here: every command loads this module, and hardly one of them starts a server.
        from http.server import ThreadingHTTPServer

        self._server = ThreadingHTTPServer((HOST, 0), self._handler())
        self._server.daemon_threads = True
        self._server.block_on_close = False
        self._thread = threading.Thread(target=self._server.serve_forever, name=type(self).__name__, daemon=True)

    @property
    def url(self) -> str:
        """The base URL, without a path."""
        return f"http://{HOST}:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @abstractmethod
    def receive(self, path: str, authorization: str, raw: bytes) -> Answer:
        """The answer to a POST request with this path, without its query, this header and this body."""

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
                if raw is None:
                    self._send(Answer.error(413, "The body is too large"))
                else:
                    self._send(server.receive(self.path.partition("?")[0], self.headers.get("authorization", ""), raw))

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


class ModelRequest(NamedTuple):
    """A request of a client: its path without the query, and its JSON document."""

    path: str
    body: Mapping[str, Any]


class ModelServer(LoopbackServer):
    """Records the requests of a client. `answer` is called by several threads."""

    def __init__(self, answer: Callable[[ModelRequest], Answer] | None = None) -> None:
        super().__init__()
        self.requests: list[ModelRequest] = []
        """The requests so far, in order of arrival."""
        self._answer = answer or (lambda request: short_answer(request.path, request.body))

    def receive(self, path: str, authorization: str, raw: bytes) -> Answer:
        """Record a request, and answer it."""
        del authorization
        try:
            body = parse(raw)
        except ValueError:
            body = None
        if not isinstance(body, dict):
            return Answer.error(400, "The body is not a JSON object")
        request = ModelRequest(path, body)
        self.requests.append(request)
        return self._answer(request)


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
