"""A fake provider on a real socket: it records requests, and echoes each key in its answers wherever possible."""

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

KEY_HEADERS = ("x-api-key", "authorization")


class EchoProvider(ThreadingHTTPServer):
    """`received` are the headers of each request, `bodies` its contents.

    The first part of the path selects the answer: a status with an error of its dialect (`/401/v1`), a page (`/html`),
    a redirection (`/redirect`, to `aim`), an error in the event stream (`/stream`), an answer of the model that
    contains the key (`/says`), or one call (`/good`).
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.received: list[dict[str, str]] = []
        self.bodies: list[Any] = []
        self.aim = ""

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def keys(self) -> list[str]:
        """The keys in requests, in any header."""
        return [value for headers in self.received for name, value in headers.items() if name in KEY_HEADERS]


class _Handler(BaseHTTPRequestHandler):
    server: EchoProvider

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.received.append(headers)
        self.server.bodies.append(body)
        said = f"You sent {headers} and {headers.get('x-api-key') or headers.get('authorization')}, it is wrong."
        way = self.path.split("/")[1]
        if b'"assistant"' in body:
            way = "400"  # a run ends here
        if way.isdigit():
            fault = {"type": "error", "error": {"type": "authentication_error", "message": said, "code": said}}
            self._answer(int(way), "application/json", json.dumps(fault), {"x-echo": said})
        elif way == "html":
            self._answer(404, "text/html", f"<html><title>{said}</title><body>{said}</body></html>")
        elif way == "redirect":
            self._answer(307, "text/plain", said, {"location": self.server.aim})
        elif way == "stream":
            event = {"error": {"type": "api_error", "message": said, "code": 400}}
            events = f"event: error\ndata: {json.dumps({'type': 'error', **event})}\n\ndata: [DONE]\n\n"
            self._answer(200, "text/event-stream", events)
        elif way == "says":
            self._answer(200, "text/event-stream", _said_in_pieces(said))
        else:
            call = {"id": "c1", "type": "function", "function": {"name": "say_ready", "arguments": '{"ready":true}'}}
            chunk = {"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, **call}]}}]}
            end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}
            events = "".join(f"data: {json.dumps(one)}\n\n" for one in (chunk, end))
            self._answer(200, "text/event-stream", f"{events}data: [DONE]\n\n")

    def _answer(self, status: int, kind: str, text: str, more: dict[str, str] | None = None) -> None:
        data = text.encode()
        self.send_response(status)
        for name, value in {"content-type": kind, "content-length": str(len(data)), **(more or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


def _said_in_pieces(said: str) -> str:
    """An answer of the model that contains the request: in its reasoning, its text, and a call, cut anywhere."""
    cut = [said[at : at + 7] for at in range(0, len(said), 7)]
    deltas: list[dict[str, Any]] = [{"reasoning_content": piece} for piece in cut]
    deltas += [{"content": piece} for piece in cut]
    deltas += [{"tool_calls": [{"index": 0, "id": said, "function": {"name": said, "arguments": '{"pattern":"'}}]}]
    deltas += [{"tool_calls": [{"index": 0, "function": {"arguments": json.dumps(piece)[1:-1]}}]} for piece in cut]
    deltas += [{"tool_calls": [{"index": 0, "function": {"arguments": '"}'}}]}]
    chunks = [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}
    return "".join(f"data: {json.dumps(one)}\n\n" for one in (*chunks, end)) + "data: [DONE]\n\n"


@contextlib.contextmanager
def start_echo_provider() -> Iterator[EchoProvider]:
    """An echo provider that serves in a separate thread."""
    echo = EchoProvider()
    thread = threading.Thread(target=echo.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield echo
    finally:
        echo.shutdown()
        thread.join()
        echo.server_close()
