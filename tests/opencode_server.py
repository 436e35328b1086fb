"""A server that speaks OpenCode's HTTP interface on a test database, in another process, which has it open.

    with opencode_server(store.database) as server:
        server.behave(busy=True)

Like the real one, it writes and shows of a part only the fields it knows, and makes a part that is patched but missing.
A process serves one database after the other, each at an address of its own.
"""

import atexit
import base64
import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

KNOWN: Final[dict[str, tuple[str, ...]]] = {
    "text": ("type", "text", "synthetic", "ignored", "time", "metadata"),
    "reasoning": ("type", "text", "time", "metadata"),
    "tool": ("type", "callID", "tool", "state", "metadata"),
    "step-start": ("type", "snapshot"),
    "step-finish": ("type", "reason", "snapshot", "cost", "tokens"),
}
KNOWN_IN_STATE: Final = ("status", "input", "output", "title", "metadata", "time", "attachments", "error")
CONTROL: Final = "/test/behaviour"
NOW: Final = 1_800_000_000_000


@dataclass(frozen=True, slots=True)
class ServedDatabase:
    """A running server."""

    url: str
    process: subprocess.Popen[str]

    def behave(self, **behaviour: object) -> None:
        """From now on: `busy`; `fail_at`, `fail_from`, `lose_at`, `spoil_at`, `stop_at`, `die_at` and `add_at` are
        numbers of a changing call, counted from 1; `version`; `raw` is the text of every answer, but for that of
        `/api/info`, if `info` is its text."""
        body = json.dumps(behaviour).encode()
        with urllib.request.urlopen(urllib.request.Request(self.url + CONTROL, body, method="POST")) as done:
            assert done.status == 200

    def end(self) -> None:
        """Close the database and the address."""
        _said(self.process, "")


_idle: list[subprocess.Popen[str]] = []


@contextmanager
def opencode_server(database: Path, password: str = "", user: str = "opencode") -> Iterator[ServedDatabase]:
    process = _idle.pop() if _idle else _started()
    server = ServedDatabase(_said(process, json.dumps([str(database), user, password])), process)
    try:
        yield server
    finally:
        if process.poll() is None:  # a test that lets it die waits for that
            server.end()
            _idle.append(process)


def _started() -> subprocess.Popen[str]:
    command = [sys.executable, "-P", __file__]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    atexit.register(_end, process)
    return process


def _said(process: subprocess.Popen[str], line: str) -> str:
    """What the process answers."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(line + "\n")
    process.stdin.flush()
    return process.stdout.readline().strip()


def _end(process: subprocess.Popen[str]) -> None:
    with process:
        process.kill()


class ProtocolServer(ThreadingHTTPServer):
    def __init__(self, database: Path, user: str, password: str) -> None:
        super().__init__(("127.0.0.1", 0), ProtocolHandler)
        self.connection = sqlite3.connect(database, isolation_level=None, check_same_thread=False)
        self.connection.execute("SELECT id FROM session").fetchall()  # so that the file is open
        self.connection.row_factory = sqlite3.Row
        self.known = "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode() if password else ""
        self.behaviour: dict[str, Any] = {}
        self.changes = 0

    def rows(self, statement: str, *values: object) -> list[dict[str, Any]]:
        return [dict(row) for row in self.connection.execute(statement, values)]


class ProtocolHandler(BaseHTTPRequestHandler):
    server: ProtocolServer

    def do_GET(self) -> None:
        self._respond(self._read)

    def do_PATCH(self) -> None:
        self._respond(self._change)

    def do_DELETE(self) -> None:
        self._respond(self._change)

    def do_POST(self) -> None:
        if self.path == CONTROL:
            self.server.behaviour, self.server.changes = self._body(), 0
            self._send(200, {})

    def _respond(self, answer: Any) -> None:
        place = self.path.partition("?")[0].strip("/").split("/")
        if self.server.known not in ("", self.headers.get("authorization", "")):
            self._send(401, None)
        elif "info" in self.server.behaviour and place == ["api", "info"]:
            self._send(200, self.server.behaviour["info"])
        elif "raw" in self.server.behaviour:
            self._send(200, self.server.behaviour["raw"])
        else:
            answer(place)

    def _read(self, place: list[str]) -> None:
        if place == ["session", "status"]:
            is_busy = self.server.behaviour.get("busy")
            sessions = self.server.rows("SELECT id FROM session") if is_busy else []
            self._send(200, {row["id"]: {"type": "busy"} for row in sessions})
            return
        if place == ["global", "health"]:
            self._send(200, {"healthy": True, "version": self.server.behaviour.get("version", "1.18.33")})
            return
        table = "message" if len(place) == 4 else "session"
        found = self.server.rows(f"SELECT * FROM {table} WHERE id = ?", place[-1])  # noqa: S608  # one of two
        if not found:
            self._send(404, {"name": "NotFoundError"})
        elif table == "session":
            times = {"created": found[0]["time_created"], "updated": found[0]["time_updated"]}
            self._send(200, {"id": place[-1], "time": times, "directory": found[0]["directory"]})
        else:
            parts = self.server.rows("SELECT * FROM part WHERE message_id = ? ORDER BY id", place[-1])
            info = {**json.loads(found[0]["data"]), "id": place[-1]}
            self._send(200, {"info": info, "parts": list(map(_shown, parts))})

    def _change(self, place: list[str]) -> None:
        server, behaviour = self.server, self.server.behaviour
        server.changes += 1
        if server.changes == behaviour.get("die_at"):
            os._exit(9)
        if server.changes == behaviour.get("stop_at"):
            os.kill(os.getpid(), signal.SIGSTOP)  # as Ctrl-Z does: the change is made when it continues
        fails_from = behaviour.get("fail_from", server.changes + 1)
        if server.changes == behaviour.get("fail_at") or server.changes >= fails_from:
            self._send(500, {"name": "UnknownError"})
            return
        body = self._body() if self.command == "PATCH" else None
        _, session_id, _, message_id, _, row_id = place
        if server.changes == behaviour.get("spoil_at"):
            spoilt = {"type": "text", "text": "spoilt"}
            _write(server.connection, session_id, message_id, row_id, spoilt)
        elif server.changes != behaviour.get("lose_at"):
            _write(server.connection, session_id, message_id, row_id, body)
        if server.changes == behaviour.get("add_at"):
            server.connection.execute(
                "INSERT INTO part SELECT 'prt_9', message_id, session_id, 1, 1, data FROM part LIMIT 1"
            )
        self._send(200, True if body is None else body)

    def _body(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.rfile.read(int(self.headers["content-length"])))
        return found

    def _send(self, status: int, document: object) -> None:
        content = document.encode() if isinstance(document, str) else json.dumps(document).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        """Nothing is logged."""


def _write(
    connection: sqlite3.Connection, session_id: str, message_id: str, row_id: str, part: Mapping[str, Any] | None
) -> None:
    if part is None:
        connection.execute("DELETE FROM part WHERE id = ?", (row_id,))
        return
    data = json.dumps(_kept(part), separators=(",", ":"))
    connection.execute(
        "INSERT INTO part (id, message_id, session_id, time_created, time_updated, data) VALUES (?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (id) DO UPDATE SET data = excluded.data, time_updated = excluded.time_updated",
        (row_id, message_id, session_id, NOW, NOW, data),
    )


def _kept(part: Mapping[str, Any]) -> dict[str, Any]:
    kept = {name: part[name] for name in KNOWN[part["type"]] if name in part}
    if "state" in kept:
        kept["state"] = {name: kept["state"][name] for name in KNOWN_IN_STATE if name in kept["state"]}
    return kept


def _shown(row: Mapping[str, Any]) -> dict[str, Any]:
    ids = {"id": row["id"], "sessionID": row["session_id"], "messageID": row["message_id"]}
    return {**ids, **_kept(json.loads(row["data"]))}


def _serve(database: str, user: str, password: str) -> None:
    """Serve a database until the next line of the standard input."""
    with ProtocolServer(Path(database), user, password) as running:
        threading.Thread(target=running.serve_forever, args=[0.01]).start()
        print(f"http://127.0.0.1:{running.server_address[1]}", flush=True)
        sys.stdin.readline()
        running.shutdown()
        running.connection.close()


if __name__ == "__main__":
    # An empty line ends what is served, and is answered once it has ended; so is one when nothing is.
    for line in iter(sys.stdin.readline, ""):
        if line.strip():
            _serve(*json.loads(line))
        print(flush=True)
