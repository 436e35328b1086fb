"""The server: it prints its address, runs alone on its data, supervises its children, and stops on request.

Its tests start servers, because they end or configure them.
"""

import asyncio
import gc
import json
import os
import signal
import urllib.error
from copy import copy
from http.cookiejar import CookieJar
from pathlib import Path
from unittest import mock

import pytest

import redline.serving
from lab_app.hindsight import service
from sessions_app.server import children
from sessions_app.server.running_server import only_server
from tests.factories import chain, session_bytes, user, working_session
from tests.files import place
from tests.html import missing
from tests.server import opener, start_server
from tests.wait import WAIT_SECONDS, wait_until

linux = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="there is no /proc to look at")


def test_a_second_server_on_the_same_data_is_refused(redline):
    with only_server(redline.data):
        assert redline.call("serve", "--port", "0", "--json").refusal == "4 already_served"


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


@linux
def test_an_interrupt_ends_the_server_and_its_children_even_with_an_open_socket(tmp_path):
    """It is interrupted, after it has shown the pages to the browser that has its address, and to no other."""
    place(tmp_path / "sessions" / "a.jsonl", session_bytes(chain(user("followed"))))
    with start_server(tmp_path) as server:
        assert "followed" in server.text(server.session("followed"))
        assert "{" in server.get("/static/redline/redline.css")
        with pytest.raises(urllib.error.HTTPError, match="403"):
            opener().open(server.base)
        children = children_of(server.child.pid)
        assert children
        with server.socket("/ws/sessions") as socket:
            socket.send(json.dumps({"query": ""}))
            socket.recv(timeout=WAIT_SECONDS)
            server.child.send_signal(signal.SIGINT)
            assert server.child.wait(timeout=WAIT_SECONDS) == 0
    assert not any(map(is_running, children))


@linux
def test_a_killed_follower_is_replaced_and_children_end_when_the_server_is_killed(tmp_path):
    place(tmp_path / "sessions" / "a.jsonl", session_bytes(chain(user("followed"))))
    with start_server(tmp_path) as server:
        server.session("followed")
        os.kill(children_of(server.child.pid)[0], signal.SIGKILL)
        (server.root / "b.jsonl").write_bytes(session_bytes(chain(user("written meanwhile"))))
        server.session("written meanwhile")
        children = children_of(server.child.pid)
        assert children
        server.child.kill()
        server.child.wait()
    wait_until(lambda: not any(map(is_running, children)))


@pytest.fixture(scope="module")
def configured(tmp_path_factory):
    """A server of plain browsers, two of whose roots cannot be read."""
    base = tmp_path_factory.mktemp("configured")
    place(base / "sessions" / "work.jsonl", session_bytes(working_session()))
    place(base / "file", b"no directory")
    roots = json.dumps([{"path": str(base / name)} for name in ("file", "sessions", "not-there-yet")])
    with (
        (base / "stderr").open("wb") as stderr,
        start_server(base, stderr=stderr, arguments=["--plain"], REDLINE_ROOTS=roots) as running,
    ):
        yield running


def test_an_unreadable_root_is_reported_and_the_others_are_served(configured):
    configured.session("Mend the parser.")
    configured.wait_for(lambda: "is not a directory" in configured.text("/"))
    base = configured.data.parent
    printed = (base / "stderr").read_text(encoding="utf-8").splitlines()
    remedy = "Delete it from the folders, or make it a directory that this user can read. (redline.W001)"
    warning = f"redline: warning: The root {base}/file is not a directory. {remedy}"
    assert [line for line in printed if "W001" in line] == [warning]


def test_a_run_whose_worker_cannot_start_says_so(configured):
    address = configured.session("Mend the parser.")
    mistaken = place(configured.data / "redline.toml", b"live_minute = 3\n")
    page = configured.post(f"{address}/compact", f"{address}/compact", keep="50", planner="embedded")
    configured.wait_for(lambda: "Its worker could not be started (exit code 2)" in configured.text(page))
    mistaken.unlink()
    log = (configured.data / "logs" / "redline.log").read_text(encoding="utf-8")
    assert not missing(log, "worker --until-idle: redline: live_minute", "Run 1 was given up")


def test_a_browser_can_be_logged_in_at_two_servers_on_one_machine(configured, shared_server):
    """To a browser all ports of 127.0.0.1 are one site, and it sends the cookies of both to both."""
    cookies = CookieJar()
    for cookie in map(copy, [*configured.cookies, *shared_server.cookies]):
        cookie.domain = "127.0.0.1"
        cookies.set_cookie(cookie)
    assert sum("launch" in cookie.name for cookie in cookies) == 2
    assert opener(cookies).open(configured.base).status == 200


@pytest.fixture
def child(tmp_path, monkeypatch):
    """Make children of this process run a script instead of Redline."""

    def put(script: str) -> None:
        path = tmp_path / "child"
        path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        path.chmod(0o700)
        monkeypatch.setattr(children.sys, "executable", str(path))

    return put


def test_output_of_a_child_that_is_not_a_fact_is_ignored(child):
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


def test_the_error_output_of_a_child_is_logged_line_by_line(child, caplog):
    child("echo one >&2; head -c 3000000 /dev/zero | tr '\\0' x >&2; echo >&2; printf 'a\\377b' >&2")
    assert asyncio.run(children.Children(print).run("worker", "--plan", "1")) == 0
    one, long, last = [record.getMessage() for record in caplog.records]
    assert (one, last) == ("worker --plan 1: one", "worker --plan 1: a\\xffb")
    assert len(long) < 2 * children.COMPLAINT_LIMIT


def failing(error: Exception) -> mock.Mock:
    """Children, of which the first cannot be run, and the second is cancelled."""
    return mock.Mock(run=mock.AsyncMock(side_effect=[error, asyncio.CancelledError]))


def test_the_follower_is_restarted_after_any_error(monkeypatch):
    started = failing(ValueError("not foreseen"))
    monkeypatch.setattr(redline.serving, "FOLLOW_AGAIN_SECONDS", 0)
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(redline.serving._follow(started))
    assert started.run.await_args_list == [mock.call("index", "--follow")] * 2


def test_compactions_are_looked_at_when_some_are_due(monkeypatch):
    started = failing(OSError("no process could be started"))
    due = mock.Mock(**{"exists.side_effect": [False, True, True]})
    monkeypatch.setattr(redline.serving, "LOOK_BACK_SECONDS", 0)
    monkeypatch.setattr(service, "due_sessions", lambda _now: due)
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(redline.serving._look_back(started))
    assert started.run.await_args_list == [mock.call("costs", "--update")] * 2
    assert due.exists.call_count == 3


@pytest.mark.parametrize("ends", ["fails", "works"])
def test_a_server_starts_and_stops_whatever_its_background_work_does(monkeypatch, ends):
    """Sessions that are known are shown before all are read, and an error does not keep it from stopping."""

    async def work(*given: object) -> None:
        if ends == "fails":
            raise ValueError("not foreseen")
        await asyncio.Event().wait()

    for task in ("_follow", "_look_after_workers"):
        monkeypatch.setattr(redline.serving, task, work)
    send = mock.AsyncMock()
    gc.unfreeze()
    asyncio.run(redline.serving.lifespan({}, lambda: asyncio.sleep(0), send))
    sent = [call.args[0]["type"] for call in send.await_args_list]
    assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
    # What was loaded before the first request is not scanned by the garbage collector.
    assert gc.get_freeze_count()
    gc.unfreeze()
