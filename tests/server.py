"""A real server on a real socket, with its own data, home and roots, and a browser or a socket that is logged in."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from http.cookiejar import CookieJar
from pathlib import Path
from typing import IO, Any

from websockets.sync.client import ClientConnection, connect
from websockets.typing import Origin

from tests.heartbeats import start_heartbeats
from tests.html import csrf_field, elements, hidden_fields, links, parse, text_of
from tests.paths import PROJECT
from tests.wait import WAIT_SECONDS, wait_until


class LoopbackConnection(http.client.HTTPConnection):
    """A connection to this machine, whatever the name: browsers resolve names below localhost, resolvers may not."""

    loopback = "127.0.0.1"

    def connect(self) -> None:
        self.sock = socket.create_connection((self.loopback, self.port))


class LoopbackHandler(urllib.request.HTTPHandler):
    """Opens URLs of servers on this machine."""

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(LoopbackConnection, req)


def opener(cookies: CookieJar | None = None) -> urllib.request.OpenerDirector:
    """An opener for the address that a server printed; with its own cookies, or with the given ones."""
    jar = CookieJar() if cookies is None else cookies
    return urllib.request.build_opener(LoopbackHandler(), urllib.request.HTTPCookieProcessor(jar))


@dataclass
class Server:
    """A running server, and a client that is logged in."""

    child: subprocess.Popen[bytes]
    address: str
    root: Path
    data: Path
    environment: dict[str, str]
    ends: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    """Closed with the server. No thread may outlive it: later tests fork, and SQLite's locks do not survive that."""

    def __post_init__(self) -> None:
        self.base = self.address.split("/launch")[0]
        self.cookies = CookieJar()
        self._opener = opener(self.cookies)
        self.port = int(self.base.rsplit(":", 1)[1])
        self.plain = f"http://127.0.0.1:{self.port}"
        """The base URL for scripts."""

    def let_in(self) -> None:
        self._opener.open(self.address).close()

    def keep_alive(self, run: int) -> threading.Event:
        """Send heartbeats for a run without a worker, until the event is set or the server ends."""
        over = threading.Event()
        self.ends.callback(start_heartbeats(self.data / "redline.sqlite3", run, over).join)
        self.ends.callback(over.set)
        return over

    def get(self, path: str) -> str:
        with self._opener.open(self.base + path) as answer:
            text: str = answer.read().decode()
        return text

    def text(self, path: str) -> str:
        """The words of a page."""
        return text_of(self.get(path))

    def post(self, page: str, path: str, **values: str | list[str]) -> str:
        """Post a form of a page with its hidden fields; returns the URL of the resulting page."""
        shown = parse(self.get(page))
        forms = [one for one in elements(shown, "form") if one.attributes.get("action") == path]
        sent = {**csrf_field(shown), **(hidden_fields(forms[0]) if forms else {}), **values}
        body = urllib.parse.urlencode(sent, doseq=True).encode()
        request = urllib.request.Request(self.base + path, body, {"Origin": self.base})
        with self._opener.open(request) as answer:
            return str(answer.geturl()).removeprefix(self.base)

    def socket(self, path: str, **headers: str) -> ClientConnection:
        """A WebSocket as a page of this server opens it; `Origin`, `Cookie` and the host (`at`) can be overridden."""
        base = f"http://{headers['at']}:{self.port}" if "at" in headers else self.base
        cookie = "; ".join(f"{one.name}={one.value}" for one in self.cookies)
        more = {"Cookie": headers.get("Cookie", cookie)}
        return connect(
            base.replace("http", "ws") + path,
            origin=Origin(headers.get("Origin", base)),
            additional_headers=more,
            sock=socket.create_connection(("127.0.0.1", self.port)),
        )

    def wait_for(self, found: Callable[[], Any]) -> Any:
        """The first true result of `found`."""

        def look() -> Any:
            assert self.child.poll() is None, "the server has ended"
            return found()

        return wait_until(look)

    def session(self, text: str) -> str:
        """The URL of the listed session with this text in its row or its URL; waits for one."""

        def look() -> str | None:
            # The list is sorted by what the sessions record, often long ago: it may be on a later page.
            for number in (1, 2, 3):
                for row in elements(self.get(f"/?page={number}"), "tbody tr"):
                    address = links(row)[0][1]
                    if text in text_of(row) or text in address:
                        return address
            return None

        return str(self.wait_for(look))


@contextlib.contextmanager
def start_server(
    base: Path,
    *,
    roots: Path | None = None,
    stderr: IO[bytes] | None = None,
    command: Sequence[str] = (sys.executable, "-P", "-m", "redline"),
    arguments: Sequence[str] = (),
    started_in: Path | None = None,
    **environment: str,
) -> Iterator[Server]:
    """Start a server whose data and home are below `base`, with `roots` (by default an empty directory there).

    It is started in `started_in`, by default in `base`, by `command`.
    """
    root = roots or base / "sessions"
    for directory in (base / "home", root):
        directory.mkdir(parents=True, exist_ok=True)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("REDLINE_")}
    around = {
        **kept,
        "REDLINE_DATA_DIR": str(base / "data"),
        "HOME": str(base / "home"),
        "REDLINE_ROOTS": json.dumps([{"path": str(root), "agent": "atomic"}]),
        "PYTHONPATH": str(PROJECT),
        **environment,
    }
    child = subprocess.Popen(
        [*command, "serve", "--port", "0", "--json", *arguments],
        env=around,
        stdout=subprocess.PIPE,
        stderr=stderr,
        cwd=started_in or base,
    )
    try:
        assert child.stdout is not None
        server = Server(child, json.loads(child.stdout.readline())["address"], root, base / "data", around)
        server.let_in()
        with server.ends:
            yield server
    finally:
        child.terminate()
        try:
            child.wait(timeout=WAIT_SECONDS)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        if child.stdout is not None:
            child.stdout.close()


def put_session(server: Server, source: Path, name: str = "") -> Path:
    """A quiet copy of a session in the server's root."""
    copy = server.root / (name or source.name)
    shutil.copyfile(source, copy)
    then = time.time() - 3_600
    os.utime(copy, (then, then))
    return copy
