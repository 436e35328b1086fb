"""A stand-in for Redline in docs/handshake.md: it decides what a test decides, and keeps all that it was sent."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from tests.wait import wait_until

TOKEN: Final = "a-token-of-the-stand-in"  # noqa: S105  it opens nothing
PATH: Final = "/api/handshakes"
WAITING: Final = "Redline waits for your review: http://127.0.0.1/handshakes/7"
WAIT: Final = {"do": "wait", "state": "waiting", "message": WAITING, "seconds": 600}

Answer = Mapping[str, Any]


class StandIn:
    """The server in a thread, and its connection file. It can be stopped and started again at the same port."""

    def __init__(self, connection_file: Path, agent: str = "pi") -> None:
        self.connection_file = connection_file
        self.answer: Answer = WAIT
        """The decision at present, for every question."""
        self.answer_to: Callable[[int], Answer] = lambda _polls: self.answer
        """The decision after so many polls."""
        self.verified: Answer = {
            "do": "continue",
            "state": "applied",
            "message": "Redline verified the plan.",
        }
        """The answer to a report that the plan was applied."""
        self.refusal: tuple[int, str] | None = None
        """A status and a message with which every request is refused."""
        self.location = ""
        """Where every request is redirected to."""
        self.grace = 30.0
        self.poll = 0.02
        self.questions: list[dict[str, Any]] = []
        self.polls = 0
        self.reports: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self._agent = agent
        self._lock = threading.Lock()
        self._server: ThreadingHTTPServer | None = None
        self._port = 0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self, port: int | None = None) -> None:
        ThreadingHTTPServer.allow_reuse_address = True
        self._server = ThreadingHTTPServer(
            ("127.0.0.1", self._port if port is None else port), _handler(self)
        )
        self._port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        self.write_connection(f"http://127.0.0.1:{self._port}")

    def stop(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def write_connection(self, url: str) -> None:
        fields = {
            "name": self._agent,
            "agent": self._agent,
            "project": "",
            "url": url,
            "token": TOKEN,
            "bridge": 1,
        }
        self.connection_file.write_text(json.dumps(fields), encoding="utf-8")

    def next_question(self, number: int = 1) -> dict[str, Any]:
        """The question with this number; waits for it, and for a poll after it."""
        wait_until(lambda: len(self.questions) >= number and self.polls, "the bridge did not ask")
        return self.questions[number - 1]

    def report(self) -> dict[str, Any]:
        """The first report; waits for it."""
        wait_until(lambda: self.reports, "the bridge did not report")
        return self.reports[0]

    def respond(self, path: str, body: dict[str, Any] | None) -> tuple[int, dict[str, Any]]:
        with self._lock:
            self.paths.append(path)
            if self.refusal is not None:
                status, message = self.refusal
                return status, {"error": {"code": "refused", "message": message}}
            common = {"id": 7, "seconds": 0.0, "poll": self.poll, "grace": self.grace, "message": ""}
            if body is None:
                self.polls += 1
            elif path == PATH:
                self.questions.append(body)
                if body.get("test"):
                    return 200, {**common, "do": "continue", "state": "tested"}
            else:
                self.reports.append(body)
                verified = self.verified if body["outcome"] == "applied" else {}
                return 200, {**common, "do": "continue", "state": body["outcome"], **verified}
            return 200, {**common, **self.answer_to(self.polls)}


def edits_of(*edits: tuple[str, Any]) -> Answer:
    """An approved plan: the targets, each with the content that replaces it, or None."""
    listed = [
        {"targetId": target, "replacement": None if content is None else {"content": content}}
        for target, content in edits
    ]
    return {"do": "apply", "state": "approved", "edits": listed}


def _handler(stand_in: StandIn) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self._respond(json.loads(self.rfile.read(int(self.headers["content-length"]))))

        def do_GET(self) -> None:
            self._respond(None)

        def _respond(self, body: dict[str, Any] | None) -> None:
            assert self.headers["authorization"] == f"Bearer {TOKEN}"
            status, answer = stand_in.respond(self.path, body)
            data = json.dumps(answer).encode()
            self.send_response(302 if stand_in.location else status)
            if stand_in.location:
                self.send_header("location", stand_in.location)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *args: object) -> None:
            """Nothing is logged."""

    return Handler
