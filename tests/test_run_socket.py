"""Promises of a run's socket, on a real server: each row arrives once, in order, from where the page stands."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection

from tests.building import raw
from tests.running import working_session
from tests.serving import Server, served

SEQ = re.compile(r'data-seq="(\d+)"')


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    base = tmp_path_factory.mktemp("run-socket")
    root = base / "sessions"
    root.mkdir()
    for name, steps in (("small", 12), ("long", 1_500)):
        path = root / f"{name}.jsonl"
        recorded = working_session(steps=steps, words=40)
        recorded[1]["message"]["content"] = f"Mend the {name} parser."
        path.write_bytes(raw(recorded))
        os.utime(path, (time.time() - 3_600,) * 2)
    with served(base) as running:
        yield running


def start(server: Server, name: str) -> str:
    """Start a run; gives the path of its page."""
    address = server.session(f"Mend the {name} parser.")
    return server.post(f"{address}/compact", f"{address}/compact", keep="50", planner="embedded")


def socket_of(server: Server, page: str) -> ClientConnection:
    return server.socket(f"/ws{page}")


def arrived(socket: ClientConnection) -> list[int]:
    """The rows that arrive until the server says that nothing more can come."""
    seen: list[int] = []
    with contextlib.suppress(ConnectionClosed):
        while True:
            seen += map(int, SEQ.findall(str(socket.recv(timeout=60))))
    assert socket.close_code == 1000
    return seen


def test_a_run_is_watched_to_its_end(server: Server) -> None:
    page = start(server, "long")
    with socket_of(server, page) as socket:
        socket.send('{"after": 0}')
        seen = arrived(socket)
    assert len(seen) > 5
    assert seen == list(range(1, len(seen) + 1))
    assert list(map(int, SEQ.findall(server.get(page)))) == seen


def test_a_lost_connection_goes_on_from_where_the_page_stands(server: Server) -> None:
    page = start(server, "small")
    with socket_of(server, page) as socket:
        socket.send('{"after": 0}')
        whole = arrived(socket)
    with socket_of(server, page) as socket:
        socket.send('{"after": 3}')
        assert arrived(socket) == whole[3:]


@pytest.mark.parametrize(
    "said", ["", "[]", '{"after": "0"}', '{"after": -1}', '{"after": true}', "{" * 5_000]
)
def test_nonsense_on_the_socket_is_ignored(server: Server, said: str) -> None:
    page = start(server, "small")
    with socket_of(server, page) as socket:
        socket.send(said)
        socket.send('{"after": 0}')
        assert arrived(socket)[0] == 1


def test_a_run_that_is_not_there_closes_the_socket(server: Server) -> None:
    with server.socket("/ws/runs/999999") as socket:
        socket.send('{"after": 0}')
        assert arrived(socket) == []


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://127.0.0.1:1"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Cookie": ""},
        {"Cookie": "redline_launch=forged"},
    ],
    ids=str,
)
def test_another_site_or_an_unknown_browser_cannot_listen(server: Server, headers: dict[str, str]) -> None:
    with pytest.raises(InvalidStatus):
        server.socket("/ws/runs/1", **headers)


def test_a_run_can_be_stopped_from_its_page(server: Server) -> None:
    page = start(server, "long")
    server.post(page, f"{page}/stop")
    server.wait_for(lambda: "Stop the run" not in server.get(page))
    assert re.search("stopped|the target is met", server.get(page))


def test_a_killed_worker_is_seen_and_its_run_resumes(server: Server) -> None:
    page = start(server, "long")
    worker = int(server.wait_for(lambda: _worker(page)))
    os.kill(worker, signal.SIGKILL)
    # The lease ends by itself; no page has to be looked at for that.
    server.wait_for(lambda: "interrupted" in server.get(page) or "the target is met" in server.get(page))
    if "interrupted" in server.get(page):
        server.post(page, f"{page}/resume")
        server.wait_for(lambda: "the target is met" in server.get(page))


def _worker(page: str) -> str | None:
    """The process that works on a run, by its command line."""
    wanted = ["worker", "--run", page.rsplit("/", 1)[1]]
    for found in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = found.read_bytes().decode().rstrip("\0").split("\0")
        except OSError:
            continue
        if words[-3:] == wanted:
            return found.parent.name
    return None


def test_an_interrupted_server_leaves_its_run_interrupted_and_the_next_one_resumes_it(tmp_path: Path) -> None:
    root = tmp_path / "sessions"
    root.mkdir()
    path = root / "long.jsonl"
    path.write_bytes(raw(working_session(steps=3_000, words=40)))
    os.utime(path, (time.time() - 3_600,) * 2)
    with served(tmp_path) as first:
        address = first.session("Mend the parser.")
        page = first.post(f"{address}/compact", f"{address}/compact", keep="30", planner="embedded")
        first.wait_for(lambda: SEQ.search(first.get(page)))
        first.child.send_signal(signal.SIGINT)
        assert first.child.wait(timeout=20) == 0
    with served(tmp_path) as second:
        shown = second.get(page)
        if "interrupted" in shown:
            second.post(page, f"{page}/resume")
        second.wait_for(lambda: "the target is met" in second.get(page))
        seen = list(map(int, SEQ.findall(second.get(page))))
        assert seen == list(range(1, len(seen) + 1))


def test_a_worker_of_its_own_works_on_what_the_server_leaves_in_the_rows(tmp_path: Path) -> None:
    root = tmp_path / "sessions"
    root.mkdir()
    path = root / "small.jsonl"
    path.write_bytes(raw(working_session()))
    os.utime(path, (time.time() - 3_600,) * 2)
    with served(tmp_path, REDLINE_WORK_IN="worker") as server:
        address = server.session("Mend the parser.")
        page = server.post(f"{address}/compact", f"{address}/compact", keep="50", planner="embedded")
        assert "waiting for a worker" in server.get(page)
        with socket_of(server, page) as socket:
            socket.send('{"after": 0}')
            command = [sys.executable, "-m", "redline", "worker"]
            with subprocess.Popen(command, env=server.environment, stdout=subprocess.PIPE) as worker:
                # Nothing is announced between the two: the socket finds the rows by looking.
                seen = arrived(socket)
                worker.terminate()
                assert worker.wait(timeout=20) == 0
        assert seen == list(range(1, len(seen) + 1))
        assert "the target is met" in server.get(page)
