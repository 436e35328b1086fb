"""A real server on a real socket, with its own data, home and roots, and a browser or a socket that is logged in."""

import contextlib
import copy
import http.client
import json
import os
import re
import shutil
import socket
import sqlite3
import subprocess
import sys
import threading
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from http.cookiejar import CookieJar
from pathlib import Path
from typing import IO, Any, Final

from websockets.sync.client import ClientConnection, connect
from websockets.typing import Origin

from sessions_app.models import UNQUOTED
from sessions_app.server.running_server import launch_address, running_server
from tests.factories import session_bytes
from tests.files import place
from tests.heartbeats import start_heartbeats
from tests.html import csrf_field, elements, hidden_fields, parse, text_of
from tests.paths import PROJECT
from tests.wait import WAIT_SECONDS, wait_until


def plan_at(address: str) -> str:
    """The address of the plan that is made or reviewed on a page."""
    found = re.search(r"(?:/plans/|[?&]plan=)(\d+)", address)
    assert found is not None, address
    return f"/plans/{found[1]}"


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


ADDRESS: Final = """
    SELECT root_id, relative_path, root.path, size FROM sessions_app_session AS session
    JOIN sessions_app_root AS root ON root.id = root_id
    WHERE root.path || '/' || relative_path LIKE ? ESCAPE '!' AND NOT missing
    AND (state IS NOT NULL OR fault <> '') AND (instr(relative_path, ?) OR instr(title, ?)) ORDER BY session.id
"""
"""The sessions below a directory with a text in their name or title."""


@dataclass
class Server:
    """A running server, and a client that is logged in; or a place in one that others use too (`place_in`)."""

    child: subprocess.Popen[bytes]
    address: str
    root: Path
    data: Path
    environment: dict[str, str]
    ends: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    """Closed with the server. No thread may outlive it: later tests fork, and SQLite's locks do not survive that."""
    project: str = ""
    """The working directory of the sessions in this place; empty if the whole server belongs to one test."""

    def __post_init__(self) -> None:
        self.base = self.address.split("/launch")[0]
        self.cookies = CookieJar()
        self._opener = opener(self.cookies)
        self.port = int(self.base.rsplit(":", 1)[1])
        self.plain = f"http://127.0.0.1:{self.port}"
        """The base URL for scripts."""

    def let_in(self) -> None:
        self._opener.open(self.address).close()

    def new_launch_path(self) -> str:
        """The path that admits one more browser."""
        running = running_server(self.data)
        assert running is not None
        return launch_address(self.data, running).removeprefix(self.base)

    def keep_alive(self, run: int) -> threading.Event:
        """Send heartbeats for a run without a worker, until the event is set or the server ends."""
        over = threading.Event()
        self.ends.callback(start_heartbeats(self.data / "redline.sqlite3", run, over).join)
        self.ends.callback(over.set)
        return over

    def send(self, request: urllib.request.Request | str) -> str:
        with self._opener.open(request) as answer:
            text: str = answer.read().decode()
        return text

    def get(self, path: str) -> str:
        return self.send(self.base + path)

    def text(self, path: str) -> str:
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

    @property
    def list_path(self) -> str:
        """The path of the list of the sessions here."""
        return f"/?{urllib.parse.urlencode({'project': self.project})}" if self.project else "/"

    def put(self, name: str, recorded: Sequence[dict[str, Any] | bytes]) -> Path:
        """A quiet session in this place: its header says that it belongs to the project of the place."""
        if self.project:
            recorded = [{**recorded[0], "cwd": self.project}, *recorded[1:]]
        return place(self.root / name, session_bytes(recorded))

    def session(self, text: str, below: Path | None = None) -> str:
        """The URL of the session with this text in its title or its name, in this place or `below` another directory;
        waits until there is one, and the index has all of it."""
        pattern = re.sub("([!%_])", r"!\1", f"{below or self.root}/") + "%"

        def look() -> str | None:
            with contextlib.closing(sqlite3.connect(self.data / "redline.sqlite3", timeout=WAIT_SECONDS)) as index:
                row = index.execute(ADDRESS, (pattern, text, text)).fetchone()
            if row is None or not is_whole(Path(row[2], row[1]), row[3]):
                return None
            return f"/sessions/{row[0]}/{urllib.parse.quote(row[1], safe=UNQUOTED)}"

        return str(self.wait_for(look))


def is_whole(path: Path, size: int) -> bool:
    """Whether the index has read this many bytes of a session because it has no more. Long ones are read in steps."""
    return path.suffix != ".jsonl" or path.stat().st_size == size


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


@contextlib.contextmanager
def place_in(server: Server, name: str, *, agent: str = "atomic") -> Iterator[Server]:
    """A place in the server that tests share: a directory and a project of its own, for sessions of this agent.

    Only its sessions are in its list, at `list_path`. Afterwards they are gone.
    """
    mine = copy.copy(server)
    mine.root, mine.project, mine.ends = (server.root.parent / agent / name, f"/work/{name}", contextlib.ExitStack())
    mine.root.mkdir()
    try:
        with mine.ends:
            yield mine
    finally:
        shutil.rmtree(mine.root)


@contextlib.contextmanager
def start_shared_server(base: Path) -> Iterator[Server]:
    """A server for many tests, each of which takes its `place_in` it: its roots have sessions of Atomic and of pi."""
    place(base / "data" / "demo_made", b"").parent.chmod(0o700)
    roots = [
        {"path": str(base / "atomic"), "agent": "atomic"},
        {"path": str(base / "pi"), "agent": "pi", "reader": "pi"},
    ]
    (base / "pi").mkdir()
    with start_server(base, roots=base / "atomic", REDLINE_ROOTS=json.dumps(roots)) as server:
        yield server
