"""A server that speaks docs/handshake.md as a test says: it answers what is queued, and keeps what it was asked."""

import json
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from sessions_app.server.connection_files import ConnectedAgent, write_connection
from tests.wait import WAIT_SECONDS

HOST: Final = "127.0.0.1"
NUMBER: Final = 12
WAITING: Final[Mapping[str, Any]] = {
    "id": NUMBER,
    "state": "waiting",
    "do": "wait",
    "message": "Redline waits for your review: http://x.localhost:8000/runs/1",
    "seconds": 600.0,
    "poll": 0.05,
    "grace": 30,
}


@dataclass(frozen=True)
class Asked:
    """A request that the server received."""

    method: str
    path: str
    body: Any
    token: str


@dataclass
class Said:
    """An answer: an object, or bytes; `before` is called before it is sent."""

    body: Any = None
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    before: Callable[[], object] = lambda: None

    @property
    def data(self) -> bytes:
        return self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()


def decided(do: str, message: str = "Decided.", **fields: Any) -> Said:
    """An answer that ends a question."""
    return Said({**WAITING, "state": "declined", "do": do, "message": message, "seconds": 0, **fields})


def waiting(**fields: Any) -> Said:
    return Said({**WAITING, **fields})


class StandInRedline:
    """The server in a thread, from `__enter__` to `__exit__`. Without anything else, the agent waits."""

    def __init__(self, port: int = 0) -> None:
        self.answers: deque[Said] = deque()
        self.decide: Callable[[Asked], Said] = lambda _: waiting()
        """The answer if none is queued."""
        self.asked: list[Asked] = []
        self.changed = threading.Condition()
        self._server = ThreadingHTTPServer((HOST, port), _handler(self))
        self._server.daemon_threads = True

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def port(self) -> int:
        return self._server.server_port

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    @property
    def questions(self) -> list[Any]:
        return [one.body for one in self.asked if one.path == "/api/handshakes"]

    @property
    def outcomes(self) -> list[str]:
        """What was reported."""
        return [one.body["outcome"] for one in self.asked if one.method == "POST" and "outcome" in one.body]

    def connect(self, directory: Path, agent: str, name: str = "") -> str:
        """Write a connection into a data directory; returns its name."""
        made_at = datetime(2026, 1, 1, tzinfo=UTC)
        one = ConnectedAgent(name or agent, agent, self.url, "a-token", bridge=1, made_at=made_at)
        write_connection(directory, one)
        return one.name

    def wait_for(self, is_there: Callable[[], bool]) -> None:
        """Wait until something was asked."""
        with self.changed:
            assert self.changed.wait_for(is_there, WAIT_SECONDS), self.asked

    def answer(self, asked: Asked) -> Said:
        with self.changed:
            self.asked.append(asked)
            self.changed.notify_all()
            return self.answers.popleft() if self.answers else self.decide(asked)


def _handler(server: StandInRedline) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self._answer(json.loads(self.rfile.read(int(self.headers["content-length"]))))

        def do_GET(self) -> None:
            self._answer(None)

        def _answer(self, body: Any) -> None:
            token = self.headers.get("authorization", "").removeprefix("Bearer ")
            said = server.answer(Asked(self.command, self.path, body, token))
            said.before()
            self.send_response(said.status)
            for name, value in said.headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(said.data)

        def log_message(self, *args: object) -> None:
            """Nothing is logged."""

    return Handler
