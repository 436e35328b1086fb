"""Promises of a run's socket, on a real server: each row after those on the page arrives once, in order."""

import asyncio
import contextlib
import json
import signal
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from asgiref.testing import ApplicationCommunicator
from channels.routing import URLRouter
from django.db import OperationalError
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection

import compaction_app.runs.consumers
import sessions_app.pages.list
from compaction_app.routing import websocket_urlpatterns as of_runs
from compaction_app.runs import commands
from compaction_app.runs.worker import work
from compaction_app.scripted.server import ScriptedProvider
from sessions_app.routing import websocket_urlpatterns as of_sessions
from sessions_app.web import page_socket
from tests.browser.scenarios import (
    event_count,
    paused_run,
    place_titled,
    proposal_count,
    query_number,
    run_number,
    start_run,
    title,
    titled_session,
)
from tests.html import element, elements
from tests.run_factories import PREPARED, RunFactory, answered_event, asked_event as was_asked, streamed_event
from tests.scripted_models import add_provider, start_model
from tests.server import Server, place_in, start_server
from tests.wait import WAIT_SECONDS, wait_until


def rows_in(message: object) -> list[int]:
    """The numbers of the rows that a message draws."""
    return [int(str(one.attributes["data-seq"])) for one in elements(str(message), "[data-seq]")]


@pytest.fixture(scope="module")
def server(shared_server):
    with place_in(shared_server, "run-socket") as mine:
        mine.put("small.jsonl", titled_session("small", steps=12, words=40))
        yield mine


def start(server: Server, name: str) -> str:
    """Start a run; returns the path of its page."""
    return start_run(server, server.session(title(name))) + "/log"


def arrived(socket: ClientConnection) -> list[int]:
    """The rows that arrive until the server says that nothing more can come."""
    seen: list[int] = []
    with contextlib.suppress(ConnectionClosed):
        while True:
            seen += rows_in(socket.recv(timeout=WAIT_SECONDS))
    assert socket.close_code == 1000
    return seen


def test_nonsense_on_the_socket_is_ignored_and_a_run_that_is_not_there_closes_it(server):
    page = start(server, "small")
    with server.socket(f"/ws{page}") as socket:
        for nonsense in ("", "[]", '{"after": "0"}', '{"after": -1}', '{"after": true}', "{" * 4_000):
            socket.send(nonsense)
        socket.send('{"after": 0}')
        seen = arrived(socket)
    assert seen == rows_in(server.get(page)) == list(range(1, len(seen) + 1))
    with server.socket("/ws/plans/999999/log") as socket:
        socket.send('{"after": 0}')
        assert arrived(socket) == []


def test_another_site_or_an_unknown_browser_cannot_listen(server):
    (known,) = [cookie.name for cookie in server.cookies if cookie.name.startswith("redline_launch")]
    host = server.base.removeprefix("http://")
    origins = ("http://127.0.0.1:1", "http://evil.example", "null", f"https://{host}", f"http://{host}/")
    strangers = [{"Origin": one} for one in origins] + [{"Cookie": ""}, {"Cookie": f"{known}=forged"}]
    for headers in strangers:
        with pytest.raises(InvalidStatus):
            server.socket("/ws/plans/1/log", **headers)


def test_a_run_outlives_its_killed_server_and_ends_with_an_interrupted_one(tmp_path):
    """Ends its own servers: the worker of a killed one continues, and that of an interrupted one ends with it."""
    place_titled(tmp_path / "sessions", "long", steps=1_500, words=40)
    with start_server(tmp_path) as first:
        page, worker = paused_run(first, lambda: start(first, "long"), lambda run: event_count(first, run) > 0)
        had = rows_in(first.get(page))
        first.child.kill()
        first.child.wait()
        worker.resume()
    with start_server(tmp_path) as second, ScriptedProvider() as provider:
        second.wait_for(lambda: "the target is met" in second.text(page))
        seen = rows_in(second.get(page))
        assert len(seen) > len(had)
        assert seen == list(range(1, len(seen) + 1))
        add_provider(second, "scripted", provider.base_url("openai"), "stalls")
        run = run_number(start_model(second, second.session(title("long")), "scripted/stalls"))
        second.wait_for(lambda: proposal_count(second, run))
        second.child.send_signal(signal.SIGINT)
        assert second.child.wait(timeout=WAIT_SECONDS) == 0
        state = "SELECT count(*) FROM compaction_app_run WHERE id = ? AND state = 'interrupted'"
        wait_until(lambda: query_number(second, state, run), "its run was not interrupted")


Talk = Callable[[ApplicationCommunicator], Awaitable[None]]


def talk(path: str, talked: Talk, query: bytes = b"") -> None:
    """Open a socket of this process, and talk over it."""

    async def whole() -> None:
        scope = {"type": "websocket", "path": path, "headers": [], "query_string": query, "subprotocols": []}
        socket = ApplicationCommunicator(URLRouter([*of_sessions, *of_runs]), scope)
        await socket.send_input({"type": "websocket.connect"})
        assert (await socket.receive_output(10))["type"] == "websocket.accept"
        await talked(socket)
        await socket.send_input({"type": "websocket.disconnect", "code": 1000})
        await socket.wait(10)

    asyncio.run(whole())


def failing_at(look: Callable[..., Any], number: int, fault: Exception) -> Callable[..., Any]:
    """The check for news, which fails once."""
    looks = iter(range(1, 1_000))

    def once(*given: Any) -> Any:
        if next(looks) == number:
            raise fault
        return look(*given)

    return once


@pytest.fixture
def run(session):
    return commands.start_run(session, planner="embedded", requested_parameters={}).pk


BUSY = OperationalError("database is locked")


def test_a_socket_outlives_a_busy_database_and_misses_no_row(run, monkeypatch):
    consumers = compaction_app.runs.consumers
    monkeypatch.setattr(consumers, "ROW_CHECK_SECONDS", 0.02)
    monkeypatch.setattr(consumers, "follow_run", failing_at(consumers.follow_run, 2, BUSY))
    monkeypatch.setattr(consumers, "_draw", failing_at(consumers._draw, 2, BUSY))
    seen: list[int] = []

    async def watch(socket: ApplicationCommunicator) -> None:
        await socket.send_input({"type": "websocket.receive", "text": '{"after": 0}'})
        assert "waiting for a worker" in (await socket.receive_output(10))["text"]
        await asyncio.to_thread(work, run, "one")
        while (message := await socket.receive_output(10))["type"] == "websocket.send":
            seen.extend(rows_in(message["text"]))
        assert message["code"] == page_socket.OVER

    talk(f"/ws/plans/{run}/log", watch)
    assert seen
    assert seen == list(range(1, len(seen) + 1))


def test_a_page_in_the_middle_of_a_turn_gets_only_what_is_new(run, redline):
    factory = RunFactory(redline.data / "redline.sqlite3", run)
    begun = streamed_event(1, ["text", "It had "], ["call", 0, "context_delete"])
    factory.add_all([PREPARED, was_asked(1), begun])
    messages: list[str] = []

    async def watch(socket: ApplicationCommunicator) -> None:
        await socket.send_input({"type": "websocket.receive", "text": f'{{"after": {factory.seq}}}'})
        messages.append((await socket.receive_output(10))["text"])
        factory.add_all([streamed_event(1, ["text", "this <b> "])])
        factory.add_all([streamed_event(1, ["text", "too."], ["arguments", 0, "{"])])
        messages.append((await socket.receive_output(10))["text"])
        factory.add_all([answered_event(1)])
        factory.add_call(1, 0, "context_delete", {})
        factory.end("target_met")
        while (said := await socket.receive_output(10))["type"] == "websocket.send":
            messages.append(said["text"])
        assert said["code"] == page_socket.OVER

    talk(f"/ws/plans/{run}/log", watch)
    first, second, *rest = messages
    assert "turn-2" not in first
    appended = [(one.attributes["hx-swap-oob"], one.text()) for one in elements(second, '[hx-swap-oob^="beforeend"]')]
    assert appended == [("beforeend:#turn-2-text", "this <b> too."), ("beforeend:#turn-2-call-0-arguments", "{")]
    assert (rows_in(second), element(second, "#seen").attributes["data-upto"]) == ([], str(factory.seq - 3))
    after = "".join(rest)
    call = element(after, "#ev-1")
    assert call.attributes["hx-swap-oob"] == "outerHTML:#turn-2-call-0"
    assert rows_in(call.html) != []
    assert elements(after, '[hx-swap-oob="innerHTML:#turn-2-end"]')
    assert "It had" not in second + after


def test_the_panel_of_a_session_gets_the_progress_whole_and_learns_that_planning_has_ended(run):
    messages: list[str] = []

    async def watch(socket: ApplicationCommunicator) -> None:
        await socket.send_input({"type": "websocket.receive", "text": '{"after": 0}'})
        messages.append((await socket.receive_output(10))["text"])
        await asyncio.to_thread(work, run, "one")
        while (message := await socket.receive_output(10))["type"] == "websocket.send":
            messages.append(message["text"])
        assert message["code"] == page_socket.OVER

    talk(f"/ws/plans/{run}/log", watch, b"panel")
    for message in messages:
        assert element(message, "#progress").attributes["hx-swap-oob"] == "true"
        assert not elements(message, "[data-seq]")
    assert not elements(messages[0], "[data-ended]")
    assert str(element(messages[-1], "[data-ended]").attributes["data-ended"]).endswith(f"/compact?plan={run}")


@pytest.mark.parametrize("path", ["/ws/plans/{run}/log", "/ws/sessions"])
def test_a_defect_closes_a_socket_so_that_its_page_connects_again(run, monkeypatch, path):
    of_runs, of_list = compaction_app.runs.consumers, sessions_app.pages.list
    monkeypatch.setattr(of_runs, "follow_run", failing_at(of_runs.follow_run, 1, ZeroDivisionError()))
    monkeypatch.setattr(of_list, "draw", failing_at(of_list.draw, 1, ZeroDivisionError()))

    async def watch(socket: ApplicationCommunicator) -> None:
        await socket.send_input({"type": "websocket.receive", "text": '{"after": 0, "query": ""}'})
        assert await socket.receive_output(10) == {"type": "websocket.close", "code": 1011}

    talk(path.format(run=run), watch)


@pytest.mark.usefixtures("known_root")
def test_the_list_is_drawn_again_after_a_busy_database(monkeypatch):
    consumers = sessions_app.pages.list
    monkeypatch.setattr(consumers, "DRAW_SECONDS", 0.02)
    monkeypatch.setattr(consumers, "draw", failing_at(consumers.draw, 2, BUSY))

    async def watch(socket: ApplicationCommunicator) -> None:
        for asked in (1, 2):
            hello = json.dumps({"query": "", "asked": asked})
            await socket.send_input({"type": "websocket.receive", "text": hello})
            message = (await socket.receive_output(10))["text"]
            assert element(message, "#listing").attributes["data-asked"] == str(asked)

    talk("/ws/sessions", watch)
