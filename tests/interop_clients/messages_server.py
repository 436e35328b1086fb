"""A Messages endpoint on loopback for a real client: it plays queued replies, and keeps every request."""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Final, Self

HOST: Final = "127.0.0.1"
USAGE: Final = {"input_tokens": 20, "output_tokens": 7}


@dataclass(frozen=True, slots=True)
class ScriptedReply:
    """Content blocks, or an HTTP error if `status` is given."""

    blocks: Sequence[Mapping[str, Any]] = ()
    usage: Mapping[str, int] = field(default_factory=dict)
    status: int = 200
    error: str = "scripted"
    """What an HTTP error says."""


def said(text: str, **usage: int) -> ScriptedReply:
    return ScriptedReply([text_block(text)], usage)


def text_block(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def thinking_block(text: str) -> dict[str, Any]:
    return {"type": "thinking", "thinking": text, "signature": "c2lnbmVk"}


def call_block(call_id: str, name: str, **arguments: object) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": arguments}


class MessagesServer:
    """The endpoint in a thread, from `__enter__` to `__exit__`. Without a queued reply it says "done"."""

    def __init__(self) -> None:
        self.replies: deque[ScriptedReply] = deque()
        self.requests: list[dict[str, Any]] = []
        """The bodies of all requests for a reply, in order of arrival."""
        self.before_reply: Callable[[], object] = lambda: None
        """Called while a client waits for its reply."""
        self._server = ThreadingHTTPServer((HOST, 0), _handler(self))
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def base_url(self) -> str:
        return f"http://{HOST}:{self._server.server_port}"

    def answer(self, body: dict[str, Any]) -> tuple[ScriptedReply, int]:
        """The reply to a request, and the number of the request. One without tools is a side request: for a title."""
        self.before_reply()
        with self._lock:
            self.requests.append(body)
            is_scripted = bool(body.get("tools") and self.replies)
            return self.replies.popleft() if is_scripted else said("done"), len(self.requests)


def _handler(server: MessagesServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            if self.path.partition("?")[0] != "/v1/messages":
                self._send(404, "application/json", b"{}")
                return
            reply, number = server.answer(body)
            if reply.status != 200:
                error = {"type": "error", "error": {"type": "api_error", "message": reply.error}}
                self._send(reply.status, "application/json", json.dumps(error).encode())
            elif body.get("stream"):
                self._send(200, "text/event-stream", b"".join(_events(body["model"], reply, number)))
            else:
                message = _message(body["model"], reply, number)
                self._send(200, "application/json", json.dumps(message).encode())

        def do_HEAD(self) -> None:
            self._send(200, "application/json", b"")

        def do_GET(self) -> None:
            self._send(404, "application/json", b"{}")

        def _send(self, status: int, kind: str, data: bytes) -> None:
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *args: object) -> None:
            """Nothing is logged."""

    return Handler


def _message(model: str, reply: ScriptedReply, number: int) -> dict[str, Any]:
    calls = any(block["type"] == "tool_use" for block in reply.blocks)
    return {
        "id": f"msg_scripted{number:06}",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": list(reply.blocks),
        "stop_reason": "tool_use" if calls else "end_turn",
        "stop_sequence": None,
        "usage": {**USAGE, **reply.usage},
    }


def _events(model: str, reply: ScriptedReply, number: int) -> Iterator[bytes]:
    message = _message(model, reply, number)
    usage, stop = message["usage"], message["stop_reason"]
    yield _event("message_start", message={**message, "content": [], "stop_reason": None})
    for index, block in enumerate(reply.blocks):
        start, deltas = _parts(block)
        yield _event("content_block_start", index=index, content_block=start)
        for delta in deltas:
            yield _event("content_block_delta", index=index, delta=delta)
        yield _event("content_block_stop", index=index)
    yield _event("message_delta", delta={"stop_reason": stop, "stop_sequence": None}, usage=usage)
    yield _event("message_stop")


def _parts(block: Mapping[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A block as it begins, and what is added to it."""
    if block["type"] == "text":
        return {**block, "text": ""}, [{"type": "text_delta", "text": block["text"]}]
    if block["type"] == "thinking":
        deltas = [
            {"type": "thinking_delta", "thinking": block["thinking"]},
            {"type": "signature_delta", "signature": block["signature"]},
        ]
        return {**block, "thinking": "", "signature": ""}, deltas
    arguments = json.dumps(block["input"])
    return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": arguments}]


def _event(kind: str, **fields: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()
