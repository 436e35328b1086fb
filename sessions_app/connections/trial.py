"""EDGE: a test of a connection: the agent's installed program runs in an empty home, and its bridge requests a review.

    program ─▶ its own mechanism ─▶ bridge ─▶ a listener here ─▶ the running server, with the connection's token

The listener shows that the bridge requested a review, whether or not a server runs. The user's configuration of the
agent, other extensions and hooks are not used.
"""

from __future__ import annotations

import http.client
import json
import tempfile
import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple, Self
from urllib.parse import urlsplit

import msgspec

from sessions_app.agents.base import Agent
from sessions_app.agents.edge.dry_resume import ClientUnusable
from sessions_app.agents.edge.installed_version import installed_version, program_on_path
from sessions_app.server.connection_files import PATH, ConnectedAgent, connection_path, new_secret, write_connection

HOST: Final = "127.0.0.1"
BODY_LIMIT: Final = 1_000_000
SECONDS: Final = 10
"""How long the server may take to answer."""
TESTED: Final = {
    "id": 0,
    "state": "tested",
    "do": "continue",
    "message": "",
    "seconds": 0,
    "poll": 1,
    "grace": 0,
}


class ConnectionTest(NamedTuple):
    """The result of a test."""

    has_asked: bool | None
    """Whether the bridge requested a review; None if the program was not found."""
    is_answered: bool | None
    """Whether the server answered; None if the request was not forwarded."""
    sentence: str


def try_connection(agent: Agent, one: ConnectedAgent, redline: Callable[[Path], str], url: str = "") -> ConnectionTest:
    """Test a connection. With the `url` of the server, the request is forwarded to it.

    `redline` returns this installation's command for a data directory, quoted for a shell.
    """
    program = program_on_path(agent.client.program)
    if program is None or agent.bridge is None:
        return ConnectionTest(
            None, None, f"Not tested: the program {agent.client.program} was not found in the directories of PATH."
        )
    version = ".".join(map(str, installed_version(agent.client.program) or ("(unknown version)",)))
    label = f"{agent.label} {version}"
    # What the program left running may still write.
    with (
        tempfile.TemporaryDirectory(prefix="redline-connect-", ignore_cleanup_errors=True) as scratch,
        Listener(one.token, url) as listener,
    ):
        data, home = Path(scratch, "data"), Path(scratch, "home")
        for directory in (data, home):
            directory.mkdir(mode=0o700)
        stand_in = msgspec.structs.replace(
            one, url=listener.url, token=listener.token, project="", made_at=datetime.now(UTC)
        )
        write_connection(data, stand_in)
        try:
            words = agent.bridge.try_out(program, home, connection_path(data, one.name), redline(data))
        except ClientUnusable as fault:
            return ConnectionTest(False, None, f"The test did not work: {label} could not be used: {fault}")
        if not listener.requests:
            return ConnectionTest(False, None, f"The test failed: {label} ran, but did not ask. It said: {words}")
        how = f"{label} was run in an empty home with this bridge, and asked"
        if not url:
            return ConnectionTest(True, None, f"Tested: {how}.")
        if listener.failures:
            return ConnectionTest(
                True, False, f"{how}, but Redline did not accept the question: {listener.failures[0]}"
            )
        return ConnectionTest(True, True, f"Tested: {how}; Redline answered.")


class Listener:
    """A server on loopback that records the tests of a bridge, and forwards them."""

    def __init__(self, token: str, url: str) -> None:
        self.token = new_secret()
        self.requests: list[Mapping[str, Any]] = []
        self.failures: list[str] = []
        self._onward = (token, url)
        self._server = ThreadingHTTPServer((HOST, 0), self._handler())
        self._server.daemon_threads = True
        self._server.block_on_close = False
        self._thread = threading.Thread(target=self._server.serve_forever, name="connection-test", daemon=True)

    @property
    def url(self) -> str:
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

    def receive(self, path: str, authorization: str, body: bytes) -> tuple[int, bytes]:
        """The status and the body of the answer to a request."""
        try:
            requested = json.loads(body)
        except ValueError:
            requested = None
        if path != PATH or authorization != f"Bearer {self.token}" or not isinstance(requested, dict):
            return 404, b"{}"
        self.requests.append(requested)
        token, url = self._onward
        if not url or requested.get("test") is not True:
            return 200, json.dumps(TESTED).encode()
        try:
            status, answer = _send_on(url, token, body)
        except (OSError, http.client.HTTPException) as fault:
            self.failures.append(str(fault) or type(fault).__name__)
            return 200, json.dumps(TESTED).encode()
        if status != http.client.OK:
            self.failures.append(f"status {status}")
        return status, answer

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        listener = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                self.close_connection = True
                size = min(int(self.headers.get("content-length") or 0), BODY_LIMIT)
                body = self.rfile.read(size)
                status, answer = listener.receive(self.path, self.headers.get("authorization", ""), body)
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(answer)))
                self.send_header("connection", "close")
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: Any) -> None:
                """Nothing is logged."""

        return Handler


def _send_on(url: str, token: str, body: bytes) -> tuple[int, bytes]:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=SECONDS)
    try:
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        connection.request("POST", PATH, body, headers)
        response = connection.getresponse()
        return response.status, response.read(BODY_LIMIT)
    finally:
        connection.close()
