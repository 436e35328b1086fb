"""Promises of the server: it says where it is, it is alone, it stops when it is told to."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.cookiejar import CookieJar
from pathlib import Path

import pytest

from tests.building import PROJECT, chain, raw, user
from tests.serving import Server, served

linux = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="there is no /proc to look at")


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "sessions").mkdir()
    (tmp_path / "sessions" / "a.jsonl").write_bytes(raw(chain(user("hello from a real session"))))
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
        opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))
        page = opener.open(address).read().decode()
        base = address.split("/launch")[0]
        for _ in range(200):
            if "hello from a real session" in page:
                break
            time.sleep(0.1)  # it is indexed behind, in a process of its own
            page = opener.open(base).read().decode()
        assert "hello from a real session" in page
        assert opener.open(f"{base}/static/redline/redline.css").status == 200
        with pytest.raises(urllib.error.HTTPError, match="403"):
            urllib.request.urlopen(base)
        child.send_signal(signal.SIGINT)
        assert child.wait(timeout=20) == 0


def test_a_second_server_on_the_same_data_is_refused(environment: dict[str, str]) -> None:
    with server(environment):
        second = subprocess.run(
            command("serve", "--port", "0"), env=environment, capture_output=True, check=False
        )
        assert second.returncode == 4
        assert json.loads(second.stdout)["error"]["code"] == "already_served"


def test_a_port_that_is_taken_is_said(environment: dict[str, str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        refused = subprocess.run(
            command("serve", "--port", port), env=environment, capture_output=True, check=False
        )
    assert refused.returncode == 4
    assert json.loads(refused.stdout)["error"]["code"] == "port_taken"


def test_another_address_lets_another_browser_in(environment: dict[str, str]) -> None:
    with server(environment) as (_, first):
        urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar())).open(first).close()
        port = first.split(":")[2].split("/")[0]
        made = subprocess.run(
            command("address", "--port", port), env=environment, capture_output=True, check=True
        )
        address = json.loads(made.stdout)["address"]
        opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))
        assert opener.open(address).status == 200


# ---- what runs beside it -----------------------------------------------------------------------------------


def children_of(process: int) -> list[int]:
    listed = Path(f"/proc/{process}/task/{process}/children").read_text(encoding="ascii")
    return [int(child) for child in listed.split()]


def is_running(process: int) -> bool:
    """Whether there is such a process; one that has ended and waits to be asked for its exit code is none."""
    try:
        state = Path(f"/proc/{process}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2]
    except FileNotFoundError:
        return False
    return state.split()[0] != "Z"


def wait_until(happened: Callable[[], object]) -> None:
    deadline = time.monotonic() + 20
    while not happened():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)


@pytest.fixture
def followed(tmp_path: Path) -> Iterator[Server]:
    """A server whose follower works."""
    (tmp_path / "sessions").mkdir()
    (tmp_path / "sessions" / "a.jsonl").write_bytes(raw(chain(user("followed"))))
    with served(tmp_path) as running:
        running.session("followed")
        yield running


@linux
def test_an_interrupt_ends_it_and_its_children_also_with_an_open_socket(followed: Server) -> None:
    children = children_of(followed.child.pid)
    assert children
    with followed.socket("/ws/sessions") as socket:
        socket.send(json.dumps({"query": ""}))
        socket.recv(timeout=20)
        followed.child.send_signal(signal.SIGINT)
        assert followed.child.wait(timeout=10) == 0
    assert not any(map(is_running, children))


@linux
def test_children_end_by_themselves_where_the_server_was_killed(followed: Server) -> None:
    children = children_of(followed.child.pid)
    assert children
    followed.child.kill()
    followed.child.wait()
    wait_until(lambda: not any(map(is_running, children)))


@linux
def test_a_follower_that_was_killed_is_replaced_and_misses_nothing(followed: Server) -> None:
    os.kill(children_of(followed.child.pid)[0], signal.SIGKILL)
    (followed.root / "b.jsonl").write_bytes(raw(chain(user("written meanwhile"))))
    followed.session("written meanwhile")


def test_a_root_that_cannot_be_looked_at_is_said_and_the_others_are_served(tmp_path: Path) -> None:
    (tmp_path / "sessions").mkdir()
    (tmp_path / "sessions" / "a.jsonl").write_bytes(raw(chain(user("readable"))))
    (tmp_path / "file").write_text("no directory", encoding="utf-8")
    roots = [{"path": str(tmp_path / name)} for name in ("file", "sessions", "not-there-yet")]
    with (
        (tmp_path / "stderr").open("wb") as stderr,
        served(tmp_path, stderr=stderr, REDLINE_ROOTS=json.dumps(roots)) as running,
    ):
        running.session("readable")
        running.wait_for(lambda: "is not a directory" in running.get("/"))
    told = (tmp_path / "stderr").read_text(encoding="utf-8").splitlines()
    assert [line for line in told if "W001" in line] == [
        f"redline: warning: The root {tmp_path}/file is not a directory. Take it out of the roots, or make it a "
        "directory that this user may read. (redline.W001)"
    ]


def test_a_second_start_waits_for_no_session_to_be_read(tmp_path: Path) -> None:
    """Pages answer while a root that takes seconds is read; what is known already is on the first of them."""
    large = raw(chain(*(user(f"word {number} " * 20) for number in range(6_000))))
    (tmp_path / "sessions").mkdir()
    (tmp_path / "sessions" / "known.jsonl").write_bytes(raw(chain(user("known before"))))
    with served(tmp_path) as running:
        running.session("known before")
    for number in range(20):
        (tmp_path / "sessions" / f"{number}.jsonl").write_bytes(large)
    with served(tmp_path) as running:
        page = running.get("/")
        assert "known before" in page
        assert page.count("<tr>") < 20
