"""The server: it prints its address, runs alone on its data, supervises its children, and stops on request."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import redline.serving
from sessions_app import children
from tests.factories import chain, session_bytes, user, working_session
from tests.files import place
from tests.html import elements, text_of
from tests.paths import PROJECT
from tests.server import Server, opener, start_server
from tests.wait import WAIT_SECONDS, wait_until

linux = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="there is no /proc to look at")


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "sessions").mkdir()
    (tmp_path / "sessions" / "a.jsonl").write_bytes(session_bytes(chain(user("hello from a real session"))))
    return {
        **os.environ,
        "REDLINE_DATA_DIR": str(tmp_path / "data"),
        "HOME": str(tmp_path),
        "REDLINE_ROOTS": json.dumps([{"path": str(tmp_path / "sessions"), "agent": "atomic"}]),
        "PYTHONPATH": str(PROJECT),
    }


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "redline", *arguments, "--json"]


@contextmanager
def server(environment: dict[str, str]) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """A running server on a free port, and the address that it printed."""
    child = subprocess.Popen(command("serve", "--port", "0"), env=environment, stdout=subprocess.PIPE)
    try:
        assert child.stdout is not None
        yield child, json.loads(child.stdout.readline())["address"]
    finally:
        child.kill()
        child.wait()
        if child.stdout is not None:
            child.stdout.close()


def test_the_printed_address_leads_to_the_pages_and_an_interrupt_ends_it(environment: dict[str, str]) -> None:
    with server(environment) as (child, address):
        browser = opener()
        page = browser.open(address).read().decode()
        base = address.split("/launch")[0]
        for _ in range(200):
            if "hello from a real session" in page:
                break
            time.sleep(0.1)  # it is indexed in the background
            page = browser.open(base).read().decode()
        assert "hello from a real session" in page
        assert browser.open(f"{base}/static/redline/redline.css").status == 200
        with pytest.raises(urllib.error.HTTPError, match="403"):
            opener().open(base)
        child.send_signal(signal.SIGINT)
        assert child.wait(timeout=WAIT_SECONDS) == 0


def test_a_second_server_on_the_same_data_is_refused(environment: dict[str, str]) -> None:
    with server(environment):
        second = subprocess.run(
            command("serve", "--port", "0"), env=environment, capture_output=True, check=False
        )
        assert second.returncode == 4
        assert json.loads(second.stdout)["error"]["code"] == "already_served"


def test_a_port_in_use_is_reported(environment: dict[str, str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        refused = subprocess.run(
            command("serve", "--port", port), env=environment, capture_output=True, check=False
        )
    assert refused.returncode == 4
    assert json.loads(refused.stdout)["error"]["code"] == "port_taken"


# ---- child processes ---------------------------------------------------------------------------------------


def children_of(process: int) -> list[int]:
    listed = Path(f"/proc/{process}/task/{process}/children").read_text(encoding="ascii")
    return [int(child) for child in listed.split()]


def is_running(process: int) -> bool:
    """Whether the process exists and is not a zombie."""
    try:
        state = Path(f"/proc/{process}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2]
    except FileNotFoundError:
        return False
    return state.split()[0] != "Z"


@pytest.fixture
def followed(tmp_path: Path) -> Iterator[Server]:
    """A server with a working follower."""
    (tmp_path / "sessions").mkdir()
    (tmp_path / "sessions" / "a.jsonl").write_bytes(session_bytes(chain(user("followed"))))
    with start_server(tmp_path) as running:
        running.session("followed")
        yield running


@linux
def test_an_interrupt_ends_the_server_and_its_children_even_with_an_open_socket(followed: Server) -> None:
    children = children_of(followed.child.pid)
    assert children
    with followed.socket("/ws/sessions") as socket:
        socket.send(json.dumps({"query": ""}))
        socket.recv(timeout=WAIT_SECONDS)
        followed.child.send_signal(signal.SIGINT)
        assert followed.child.wait(timeout=WAIT_SECONDS) == 0
    assert not any(map(is_running, children))


@linux
def test_children_end_when_the_server_is_killed(followed: Server) -> None:
    children = children_of(followed.child.pid)
    assert children
    followed.child.kill()
    followed.child.wait()
    wait_until(lambda: not any(map(is_running, children)))


@linux
def test_a_killed_follower_is_replaced_and_misses_nothing(followed: Server) -> None:
    os.kill(children_of(followed.child.pid)[0], signal.SIGKILL)
    (followed.root / "b.jsonl").write_bytes(session_bytes(chain(user("written meanwhile"))))
    followed.session("written meanwhile")


def test_an_unreadable_root_is_reported_and_the_others_are_served(tmp_path: Path) -> None:
    (tmp_path / "sessions").mkdir()
    (tmp_path / "sessions" / "a.jsonl").write_bytes(session_bytes(chain(user("readable"))))
    (tmp_path / "file").write_text("no directory", encoding="utf-8")
    roots = [{"path": str(tmp_path / name)} for name in ("file", "sessions", "not-there-yet")]
    with (
        (tmp_path / "stderr").open("wb") as stderr,
        start_server(tmp_path, stderr=stderr, REDLINE_ROOTS=json.dumps(roots)) as running,
    ):
        running.session("readable")
        running.wait_for(lambda: "is not a directory" in running.text("/"))
    printed = (tmp_path / "stderr").read_text(encoding="utf-8").splitlines()
    assert [line for line in printed if "W001" in line] == [
        f"redline: warning: The root {tmp_path}/file is not a directory. Remove it from the roots, or make it a "
        "directory that this user can read. (redline.W001)"
    ]


def test_a_second_start_does_not_wait_for_sessions_to_be_read(tmp_path: Path) -> None:
    """Pages answer while a slow root is read; sessions that are already known are on the first of them."""
    large = session_bytes(chain(*(user(f"word {number} " * 20) for number in range(6_000))))
    (tmp_path / "sessions").mkdir()
    (tmp_path / "sessions" / "known.jsonl").write_bytes(session_bytes(chain(user("known before"))))
    with start_server(tmp_path) as running:
        running.session("known before")
    for number in range(20):
        (tmp_path / "sessions" / f"{number}.jsonl").write_bytes(large)
    with start_server(tmp_path) as running:
        page = running.get("/")
        assert "known before" in text_of(page)
        assert len(elements(page, "tbody tr")) < 20


def test_a_run_whose_worker_cannot_start_says_so(tmp_path: Path) -> None:
    place(tmp_path / "sessions" / "work.jsonl", session_bytes(working_session()))
    with (tmp_path / "stderr").open("wb") as stderr, start_server(tmp_path, stderr=stderr) as running:
        address = running.session("Mend the parser.")
        (running.data / "redline.toml").write_text("live_minute = 3\n", encoding="utf-8")
        page = running.post(f"{address}/compact", f"{address}/compact", keep="50", planner="embedded")
        running.wait_for(lambda: "could not be started" in running.text(page))
        assert "Its worker could not be started (exit code 2)" in running.text(page)
        log = (running.data / "logs" / "redline.log").read_text(encoding="utf-8")
    assert "worker --until-idle: redline: live_minute" in log
    assert "Run 1 was given up" in log


def test_a_browser_can_be_logged_in_at_two_plain_servers_on_one_machine(tmp_path: Path) -> None:
    """To a browser all ports of 127.0.0.1 are one site, and it sends the cookies of both to both."""
    with (
        start_server(tmp_path / "one", arguments=["--plain"]) as one,
        start_server(tmp_path / "two", arguments=["--plain"]) as two,
    ):
        browser = opener(one.cookies)
        browser.open(one.base)
        for cookie in two.cookies:
            one.cookies.set_cookie(cookie)
        assert browser.open(one.base).status == browser.open(two.base).status == 200


@pytest.fixture
def child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Make children of this process run a script instead of Redline."""

    def put(script: str) -> None:
        path = tmp_path / "child"
        path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        path.chmod(0o700)
        monkeypatch.setattr(children.sys, "executable", str(path))

    return put


def test_output_of_a_child_that_is_not_a_fact_is_ignored(child: Callable[[str], None]) -> None:
    child(
        "echo '[1]'; echo 3; echo nonsense; head -c 100000 /dev/zero | tr '\\0' '['; echo; "
        """head -c 3000000 /dev/zero | tr '\\0' x; echo; echo '{"group": "defect"}'; echo '{"group": "last"}'; """
        "exit 7"
    )
    facts: list[object] = []

    def hear(fact: object) -> None:
        if fact == {"group": "defect"}:
            raise ZeroDivisionError
        facts.append(fact)

    assert asyncio.run(children.Children(hear).run("index")) == 7
    assert facts == [{"group": "last"}]


def test_the_error_output_of_a_child_is_logged_line_by_line(
    child: Callable[[str], None], caplog: pytest.LogCaptureFixture
) -> None:
    child("echo one >&2; head -c 3000000 /dev/zero | tr '\\0' x >&2; echo >&2; printf 'a\\377b' >&2")
    assert asyncio.run(children.Children(print).run("worker", "--run", "1")) == 0
    one, long, last = [record.getMessage() for record in caplog.records]
    assert (one, last) == ("worker --run 1: one", "worker --run 1: a\\xffb")
    assert len(long) < 2 * children.COMPLAINT_LIMIT


def test_the_follower_is_restarted_after_any_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class Failing:
        runs = 0

        async def run(self, *arguments: str) -> int:
            assert arguments == ("index", "--follow")
            self.runs += 1
            if self.runs == 1:
                raise ValueError("not foreseen")
            raise asyncio.CancelledError

    monkeypatch.setattr(redline.serving, "FOLLOW_AGAIN_SECONDS", 0)
    failing = Failing()
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(redline.serving._follow(failing))  # type: ignore[arg-type]
    assert failing.runs == 2


def test_compactions_are_looked_at_when_some_are_due(monkeypatch: pytest.MonkeyPatch) -> None:
    due = iter([False, True, True])

    class Due:
        def exists(self) -> bool:
            return next(due)

    class Noting:
        def __init__(self) -> None:
            self.runs: list[tuple[str, ...]] = []

        async def run(self, *arguments: str) -> int:
            self.runs.append(arguments)
            if len(self.runs) == 1:
                raise OSError("no process could be started")
            raise asyncio.CancelledError

    monkeypatch.setattr(redline.serving, "LOOK_BACK_SECONDS", 0)
    monkeypatch.setattr(redline.serving, "due_sessions", lambda _now: Due())
    noting = Noting()
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(redline.serving._look_back(noting))  # type: ignore[arg-type]  # it only runs children
    assert noting.runs == [("hindsight", "--update")] * 2
    assert next(due, None) is None


def test_a_server_shuts_down_after_any_error(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*given: object) -> None:
        raise ValueError("not foreseen")

    for task in ("_follow", "_look_after_workers"):
        monkeypatch.setattr(redline.serving, task, fail)
    sent: list[str] = []

    async def receive() -> None:
        await asyncio.sleep(0)

    async def send(message: dict[str, str]) -> None:
        sent.append(message["type"])

    gc.unfreeze()
    asyncio.run(redline.serving.lifespan({}, receive, send))
    assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
    # What was loaded before the first request is not scanned by the garbage collector.
    assert gc.get_freeze_count()
    gc.unfreeze()
