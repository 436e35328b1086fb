"""Performance of the pages: a real server on a real socket, with 5,000 sessions and one of 120 MB.

Times are those of whole requests over the loopback interface, so slightly more than the server's own. Queries are
counted in a separate process, on the same database.
"""

import contextlib
import itertools
import json
import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import urlencode

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect
from websockets.typing import Origin

from sessions_app.server.children import DIRECTORY, redline_command

from .figures import Figure
from .rendered import rendered_entries, time_rendering
from .scale import LARGE_BYTES, LARGE_ENTRIES, MEGABYTE, environment_on, run_code, run_command
from .sessions import generate, write_session

SESSIONS: Final = 5_000
REVIEWED_ENTRIES, REVIEWED_BYTES = 2_000, 2_400
ROUNDS: Final = 15
EVENTS: Final = 200
GROUP_DECISION: Final = 200
"""The number of proposals in one bulk decision."""
WAIT_SECONDS: Final = 180
QUIET_SECONDS: Final = 3_600
IDLE_SECONDS: Final = 2

HTMX: Final = {"HX-Request": "true"}
_CSRF: Final = re.compile(r'name="csrfmiddlewaretoken" value="([^"]+)"')
_ROW: Final = re.compile(r'data-seq="(\d+)"')
_COUNT_QUERIES: Final = """
import json, sys
import django
django.setup()
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.conf import settings
from sessions_app.web.credentials import COOKIE, new_launch_cookie
from sessions_app.server.running_server import browser_host
browser = Client(headers={"host": browser_host(settings.REDLINE_DATA_DIR)})
browser.cookies[COOKIE] = new_launch_cookie()
counts = []
for path in sys.argv[1:]:
    browser.get(path)
    with CaptureQueriesContext(connection) as queries:
        browser.get(path)
    counts.append(len(queries))
print(json.dumps(counts))
"""


class BenchBrowser:
    """One connection to a server, with the cookies of a browser that is logged in."""

    def __init__(self, address: str) -> None:
        self.host = address.split("//")[1].split("/")[0]
        self.cookies: dict[str, str] = {}
        # Browsers resolve names below localhost to this machine; other resolvers need not know them.
        self.loopback = ("127.0.0.1", int(self.host.rpartition(":")[2]))
        self._connection = HTTPConnection(*self.loopback, timeout=WAIT_SECONDS)
        self._used = time.monotonic()
        self.ask("GET", address.split(self.host)[1])

    def ask(self, method: str, path: str, body: str | None = None, **headers: str) -> tuple[str, str]:
        """Send a request; returns the text of the response and its Location header, empty if there is none."""
        cookie = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        more = {"Host": self.host, "Cookie": cookie, "Origin": f"http://{self.host}", **headers}
        if body is not None:
            more["Content-Type"] = "application/x-www-form-urlencoded"
        if time.monotonic() - self._used > IDLE_SECONDS:
            # The server closes unused connections; the next request opens a new one.
            self._connection.close()
        self._connection.request(method, path, body, more)
        answer = self._connection.getresponse()
        text = answer.read().decode()
        self._used = time.monotonic()
        for name, value in answer.getheaders():
            if name.lower() == "set-cookie":
                key, _, rest = value.partition("=")
                self.cookies[key] = rest.split(";")[0]
        if answer.status >= 400:
            raise RuntimeError(f"{method} {path} was answered with {answer.status}: {text[:300]}")
        return text, answer.getheader("Location", "") or ""

    def get(self, path: str, **headers: str) -> str:
        return self.ask("GET", path, **headers)[0]

    def post(self, page: str, path: str, values: Mapping[str, str | list[str]], **headers: str) -> tuple[str, str]:
        """Post a form whose CSRF token is on `page`."""
        found = _CSRF.search(page)
        token = found[1] if found is not None else ""
        return self.ask("POST", path, urlencode({"csrfmiddlewaretoken": token, **values}, doseq=True), **headers)

    def milliseconds(self, path: str) -> float:
        """The duration of one request for a page."""
        began = time.perf_counter()
        self.get(path)
        return 1_000 * (time.perf_counter() - began)

    def time(self, path: str) -> float:
        """The median response time of a page in milliseconds, after one warm-up round."""
        return median_of(lambda: self.get(path), ROUNDS)


class BenchServer:
    """A server on a data directory, stopped at the end of the block."""

    def __init__(self, data: Path, roots: list[Path], *, agent: str = "atomic", reader: str = "atomic-0.8") -> None:
        listed = [{"path": str(root), "agent": agent, "reader": reader} for root in roots]
        self.environment = environment_on(data, REDLINE_ROOTS=json.dumps(listed))

    def __enter__(self) -> Self:
        self._child = subprocess.Popen(  # noqa: S603  # ours
            redline_command("serve", "--port", "0", "--json"),
            cwd=DIRECTORY,
            env=self.environment,
            stdout=subprocess.PIPE,
        )
        if self._child.stdout is None:
            raise RuntimeError("the server has no output")
        self.browser = BenchBrowser(json.loads(self._child.stdout.readline())["address"])
        return self

    def __exit__(self, *_: object) -> None:
        self._child.terminate()
        self._child.wait()

    def kill(self) -> None:
        """Kill the server; its children are not notified."""
        self._child.kill()
        self._child.wait()

    @property
    def processor_seconds(self) -> float | None:
        """The processor time of the server process so far, user and system, on Linux."""
        if sys.platform != "linux":
            return None
        # The number of the clock of another process: see clock_getcpuclockid(3).
        return time.clock_gettime(~self._child.pid << 3 | 2)

    @property
    def resident_mb(self) -> float | None:
        """Memory of the server process, if the system reports it."""
        status = Path(f"/proc/{self._child.pid}/status")
        if not status.exists():
            return None
        found = re.search(r"VmRSS:\s+(\d+) kB", status.read_text())
        return round(int(found[1]) * 1024 / MEGABYTE, 1) if found is not None else None


def median_of(act: Callable[[], object], rounds: int) -> float:
    act()
    times = []
    for _ in range(rounds):
        started = time.perf_counter()
        act()
        times.append((time.perf_counter() - started) * 1000)
    return round(statistics.median(times), 1)


def pages() -> Iterator[Figure]:
    """All figures of the pages, on one server, and its memory afterwards."""
    with tempfile.TemporaryDirectory(prefix="redline-bench-") as name:
        base = Path(name)
        many, large, data = base / "many", base / "large", base / "data"
        for directory in (many, large):
            directory.mkdir()
        for number in range(SESSIONS):
            write_session(many / f"{number:05}.jsonl", generate(entries=4, entry_bytes=300, seed=number))
        mean = LARGE_BYTES // LARGE_ENTRIES
        path = large / "large.jsonl"
        write_session(path, generate(entries=LARGE_ENTRIES, entry_bytes=mean, seed=2))
        reviewed = large / "reviewed.jsonl"
        write_session(reviewed, generate(entries=REVIEWED_ENTRIES, entry_bytes=REVIEWED_BYTES, seed=5))
        rendered = large / "rendered.jsonl"
        write_session(rendered, rendered_entries())
        for quiet in (path, reviewed, rendered):
            os.utime(quiet, (time.time() - QUIET_SECONDS,) * 2)
        run_command(data, "index", str(many))
        with BenchServer(data, [many, large]) as server:
            yield from _while_indexing(server)
            yield from _list(server, data)
            yield from _session(server, data, path)
            yield from time_rendering(server.browser, address_of(server, "rendered"), median_of, ROUNDS)
            yield from _review(server, data)
            yield from _events(server)
            yield Figure("serving_memory", server.resident_mb, "MB", 350)


def address_of(server: BenchServer, name: str) -> str:
    """The path of the session with this file name, once it is indexed."""
    deadline = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < deadline:
        found = re.search(rf'href="(/sessions/\d+/{name}\.jsonl)"', server.browser.get("/?sort=size"))
        if found is not None and "entries" in server.browser.get(found[1]):
            return found[1]
        time.sleep(0.1)
    raise RuntimeError(f"{name} was not indexed in {WAIT_SECONDS} s")


def _while_indexing(server: BenchServer) -> Iterator[Figure]:
    """The slowest response of the list while the large session is being indexed."""
    slowest, deadline = 0.0, time.monotonic() + WAIT_SECONDS
    while time.monotonic() < deadline:
        started = time.perf_counter()
        page = server.browser.get("/?sort=size")
        slowest = max(slowest, (time.perf_counter() - started) * 1000)
        if "large.jsonl" in page and f"{LARGE_ENTRIES:,}" in page:
            break
        time.sleep(0.02)
    yield Figure("page_while_indexing_slowest", round(slowest, 1), "ms", 400)


def _queries(server: BenchServer, paths: list[str]) -> list[int]:
    counts: list[int] = json.loads(run_code(server.environment, _COUNT_QUERIES, *paths))
    return counts


def _kilobytes(page: str) -> float:
    return round(len(page.encode()) / 1000, 1)


def _list(server: BenchServer, data: Path) -> Iterator[Figure]:
    del data
    yield Figure("list_5000_warm", server.browser.time("/"), "ms", 60)
    yield Figure("list_5000_queries", _queries(server, ["/"])[0], "queries", 8)
    yield Figure("list_5000_html", _kilobytes(server.browser.get("/")), "KB", 150)


def time_session_page(server: BenchServer, path: Path, prefix: str) -> Iterator[Figure]:
    """The times of the page of the session `large`, first with nothing cached, then with everything cached."""
    browser, address = server.browser, address_of(server, "large")
    cold = []
    for second in range(3):
        # A new modification time invalidates everything cached for the session.
        os.utime(path, (time.time() - QUIET_SECONDS - second,) * 2)
        time.sleep(1)
        started = time.perf_counter()
        browser.get(address)
        cold.append((time.perf_counter() - started) * 1000)
    yield Figure(f"{prefix}_large_cold", round(statistics.median(cold), 1), "ms", 700)
    yield Figure(f"{prefix}_large_warm", browser.time(address), "ms", 100)


def _session(server: BenchServer, data: Path, path: Path) -> Iterator[Figure]:
    del data
    yield from time_session_page(server, path, "session")
    browser, address = server.browser, address_of(server, "large")
    yield Figure("session_large_queries", _queries(server, [address])[0], "queries", 12)
    page = browser.get(address)
    yield Figure("session_large_html", _kilobytes(page), "KB", 250)
    later = re.search(r'hx-get="([^"]+at=[^"]+)"', page)
    if later is None:
        raise RuntimeError("the page has no link to a later part")
    window = later[1].replace("&amp;", "&")
    yield Figure("session_large_window", median_of(lambda: browser.get(window, **HTMX), ROUNDS), "ms", 40)


def _review(server: BenchServer, data: Path) -> Iterator[Figure]:
    del data
    browser, address = server.browser, address_of(server, "reviewed")
    run = planned(browser, address, keep="50")
    review = run
    page = browser.get(review)
    yield Figure("review_proposals", _proposals(server, run), "proposals", None)
    yield Figure("review_warm", browser.time(review), "ms", 100)
    yield Figure("review_queries", _queries(server, [review])[0], "queries", 20)
    yield Figure("review_html", _kilobytes(page), "KB", 200)
    keys = _proposal_keys(browser, review, page)
    shown = {name: ",".join(re.findall(rf'name="{name}"\s+value="([^"]*)"', page)) for name in ("rows", "groups")}
    steps = iter(range(10_000))

    def decide(**pressed: str | list[str]) -> None:
        # Each decision creates the next version of the review.
        browser.post(page, f"{run}/decide", {**pressed, **shown, "seen": str(next(steps))}, **HTMX)

    one, kinds = itertools.cycle(keys), itertools.cycle(("approve_picked", "reopen_picked"))
    yield Figure("review_decision", median_of(lambda: decide(approve=next(one)), ROUNDS), "ms", 60)
    decide(reopen_picked="1", pick=keys)
    many = median_of(lambda: decide(**{next(kinds): "1"}, pick=keys), ROUNDS)
    yield Figure("review_group_decision", many, "ms", 150)


def _proposal_keys(browser: BenchBrowser, review: str, page: str) -> list[str]:
    """GROUP_DECISION proposals of a review, from the first rows of its groups on."""
    keys: list[str] = []
    waiting = re.findall(r'data-rows="([^"]+)"', page)
    while len(keys) < GROUP_DECISION:
        part = browser.get(review + waiting.pop(0).replace("&amp;", "&"), **HTMX)
        keys += re.findall(r'data-key="([^"]+)"', part)
        waiting = re.findall(r'hx-get="([^"]+part=group[^"]+)"', part) + waiting
    return keys[:GROUP_DECISION]


def _proposals(server: BenchServer, run: str) -> int:
    count = "import django; django.setup(); from compaction_app.models import Proposal; "
    count += f"print(Proposal.objects.filter(run={run.rsplit('/', 1)[1]}).count())"
    return int(run_code(server.environment, count))


def planned(browser: BenchBrowser, address: str, **fields: str) -> str:
    """Start a run, and return its path once it has ended."""
    run = _started(browser, address, **fields)
    deadline = time.monotonic() + WAIT_SECONDS
    while f'href="{run}"' not in browser.get(run):
        if time.monotonic() > deadline:
            raise RuntimeError(f"{run} did not end in {WAIT_SECONDS} s")
        time.sleep(0.1)
    return run


def _started(browser: BenchBrowser, address: str, **fields: str) -> str:
    form = f"{address}/compact"
    return browser.post(browser.get(form), form, {"planner": "embedded", **fields})[1]


def _events(server: BenchServer) -> Iterator[Figure]:
    """From a row's timestamp, taken before it is written, to its arrival at a socket."""
    browser, address = server.browser, address_of(server, "reviewed")
    arrived: dict[tuple[str, int], float] = {}
    while len(arrived) < EVENTS:
        run = _started(browser, address, keep="30")
        for seq, moment in follow(browser, run):
            arrived[run, seq] = moment
        with contextlib.suppress(RuntimeError):
            planned(browser, address)
    written = _written(server, {run for run, _ in arrived})
    waits = [1000 * (moment - written[key]) for key, moment in arrived.items()]
    yield Figure("event_to_socket_median", round(statistics.median(waits), 1), "ms", 60)
    yield Figure("events_measured", len(waits), "events", None)


def follow(browser: BenchBrowser, run: str) -> Iterator[tuple[int, float]]:
    """The number and arrival time of each row of a run at a socket, until the run ends."""
    cookie = "; ".join(f"{name}={value}" for name, value in browser.cookies.items())
    with connect(
        f"ws://{browser.host}/ws{run}",
        origin=Origin(f"http://{browser.host}"),
        additional_headers={"Cookie": cookie},
        sock=socket.create_connection(browser.loopback),
    ) as events:
        events.send('{"after": 0}')
        with contextlib.suppress(ConnectionClosed):
            while True:
                text = str(events.recv(timeout=WAIT_SECONDS))
                moment = time.time()
                for seq in map(int, _ROW.findall(text)):
                    yield seq, moment


def _written(server: BenchServer, runs: set[str]) -> dict[tuple[str, int], float]:
    numbers = [run.rsplit("/", 1)[1] for run in runs]
    code = (
        "import django, json; django.setup(); from compaction_app.models import RunEvent; "
        f"print(json.dumps([(f'/plans/{{e.run_id}}/log', e.seq, e.at.timestamp()) "
        f"for e in RunEvent.objects.filter(run__in={numbers})]))"
    )
    rows: list[Any] = json.loads(run_code(server.environment, code))
    return {(run, seq): moment for run, seq, moment in rows}
