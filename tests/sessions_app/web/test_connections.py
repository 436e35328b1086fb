"""Strangers cannot lock anybody out, however much they send."""

import asyncio
import contextlib
import json
import re
import resource
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from uvicorn import Config
from uvicorn.server import ServerState

from sessions_app.server import connections
from sessions_app.server.connections import BoundedProtocol
from tests.factories import chain, user
from tests.raw_http import answer_on, ask, connected, cookie_of, head, read_to_end
from tests.server import Server
from tests.wait import WAIT_SECONDS

linux = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="there is no /proc to look at")
PIECE = b"x" * 65_536
HALF = b"GET / HTTP/1.1\r\nHost: x\r\n"
POST = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n"
REFUSED = b"(refused)"
"""Marks requests that the application answers without reading them; it is not sent."""
RESETTING = (socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
"""Closed with this option, a connection answers whatever the server still sends with a reset."""


@contextlib.contextmanager
def no_error_logged(server: Server) -> Iterator[None]:
    log = server.data / "logs" / "redline.log"
    before = log.stat().st_size
    yield
    assert not re.search(" ERROR |Traceback", log.read_bytes()[before:].decode())


def memory_of(server: Server) -> int:
    """The server's peak memory in bytes since it was last forgotten."""
    status = Path(f"/proc/{server.child.pid}/status").read_text(encoding="ascii")
    return int(status.split("VmHWM:")[1].split()[0]) * 1024


def is_closed(opened: socket.socket) -> bool:
    """Whether the server has closed the connection."""
    opened.setblocking(False)
    try:
        return opened.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


TOO_LONG = {
    "one header": {"X-Long": "x" * 70_000},
    "many headers": {f"X-{number}": "x" for number in range(101)},
    "many long headers": {f"X-{number}": "x" * 1_000 for number in range(70)},
}


@pytest.mark.parametrize("headers", TOO_LONG.values(), ids=TOO_LONG)
def test_too_many_or_too_long_headers_are_refused(server, headers):
    answer = ask(server, head("GET", "/", server, **headers))
    assert (answer.status, answer.header("Connection")) == (431, "close")
    handshake = {"Upgrade": "websocket", "Connection": "Upgrade", "Cookie": cookie_of(server)}
    with connected(server) as opened:
        opened.sendall(head("GET", "/ws/sessions", server, **handshake, **headers))
        assert b" 101 " not in read_to_end(opened)


def test_headers_as_many_and_as_long_as_browsers_send_are_accepted(server):
    headers = {f"X-{number}": "x" * 600 for number in range(90)}
    assert ask(server, head("GET", "/", server, Cookie=cookie_of(server), **headers)).status == 200


@linux
def test_endless_headers_use_little_memory(server):
    server.get("/")
    Path(f"/proc/{server.child.pid}/clear_refs").write_text("5")  # forgets the peak: others have used the server before
    before = memory_of(server)
    for _ in range(300):
        with connected(server) as opened, contextlib.suppress(ConnectionError):
            opened.sendall(HALF + b"X-Long: ")
            for _ in range(16):
                opened.sendall(PIECE)
    with contextlib.ExitStack() as all_of_them:
        for _ in range(500):
            opened = all_of_them.enter_context(connected(server))
            with contextlib.suppress(ConnectionError):
                opened.sendall(HALF + b"X-Long: " + PIECE[:60_000])
    assert memory_of(server) - before < 5_000_000


def test_a_thousand_half_sent_requests_do_not_lock_others_out(server):
    with contextlib.ExitStack() as all_of_them:
        half_sent = [all_of_them.enter_context(connected(server)) for _ in range(1_000)]
        for one in half_sent:
            one.sendall(HALF)
        assert "Sessions" in server.text("/")
        with server.socket("/ws/sessions") as known:
            known.send(json.dumps({"query": ""}))
            assert "sessions" in str(known.recv(timeout=60))
        server.wait_for(lambda: sum(map(is_closed, half_sent)) >= 1_000 - connections.MOST_WAITING)


@linux
def test_the_limit_of_open_files_is_raised(server):
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert resource.prlimit(server.child.pid, resource.RLIMIT_NOFILE) == (most, most)


def test_half_of_the_descriptors_are_reserved_for_files():
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (500, before[1]))
        assert connections.most_connections() == 250
        connections.raise_descriptor_limit()
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == before[1]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


HANDSHAKE = {
    "Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
}  # fmt: skip


def known_to(server: Server) -> dict[str, str]:
    """The headers of a browser that is logged in."""
    return {"Cookie": cookie_of(server), "Origin": server.base}


def nonsense(server: Server) -> dict[str, bytes]:
    known, chunked = known_to(server), {"Transfer_Encoding": "chunked"}

    def handshake(path: str = "/ws/sessions", **headers: str) -> bytes:
        return head("GET", path, server, **{**HANDSHAKE, **headers})

    return {
        "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        "no request": b"\0" * 100 + b"\r\n\r\n",
        "no host": b"GET / HTTP/1.1\r\n\r\n",
        "two hosts": b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: 127.0.0.1\r\n\r\n",
        "two lengths": head("POST", "/", server, Content_Length="5, 6"),
        "a length below nothing": head("POST", "/", server, Content_Length="-1"),
        "a proxy's address": head("GET", "http://evil.example/", server, Cookie=cookie_of(server)),
        "a tunnel": head("CONNECT", "evil.example:443", server, Cookie=cookie_of(server)),
        "no address": head("OPTIONS", "*", server, Cookie=cookie_of(server)),
        "broken chunks to the gate": head("POST", "/", server, **chunked) + b"zz\r\n",
        "broken chunks to a page": head("POST", "/settings", server, **chunked, **known) + b"5\r\nhello\r\nzz\r\n",
        "broken chunks after an answer": head("POST", "/", server, **chunked) + b"5\r\nhello\r\n",
        "another protocol": head("GET", "/", server, Connection="Upgrade, HTTP2-Settings", Upgrade="h2c"),
        "a socket without key": handshake(**{"Sec-WebSocket-Key": ""}),
        "a socket of another version": handshake(**{"Sec-WebSocket-Version": "99"}),
        "a socket by another method": head("POST", "/ws/sessions", server, **HANDSHAKE, **known),
        "a socket with a long line": handshake(**known, X_Long="x" * 9_000),
        "a socket of an unknown browser": handshake(),
        "a socket at no address": handshake("/ws/nowhere", **known),
        "a socket of no run": handshake(f"/ws/plans/{'9' * 5_000}/log", **known),
        "a socket of a run with a long number": handshake(f"/ws/plans/{'9' * 19}/log", **known),
        "a socket at the root": handshake("/", **known),
    }


def test_malformed_input_closes_the_connection_without_an_error(server):
    with no_error_logged(server), contextlib.ExitStack() as all_of_them:
        opened = {name: all_of_them.enter_context(connected(server)) for name in nonsense(server)}
        for name, sent in nonsense(server).items():
            opened[name].sendall(sent)
        assert "Sessions" in server.text("/"), "others are served meanwhile"
        answered = opened["broken chunks after an answer"]
        assert answer_on(answered).status == 403
        answered.sendall(b"zz\r\n")
        for name, one in opened.items():
            assert not re.search(b" 101 | 500 ", read_to_end(one)), name
    assert "Sessions" in server.text("/")


class Clock(asyncio.SelectorEventLoop):
    """An event loop whose clock the test moves."""

    now = 0.0

    def time(self) -> float:
        return self.now

    def pass_by(self, seconds: float) -> None:
        self.now += seconds
        self.run_until_complete(asyncio.sleep(0))


@pytest.fixture
def clock():
    clock = Clock()
    yield clock
    for task in asyncio.all_tasks(clock):
        task.cancel()
    clock.run_until_complete(asyncio.sleep(0))
    clock.close()


class Opened:
    """A connection that was just accepted; every operation on it is immediate."""

    def __init__(self, clock: Clock, state: ServerState, application: Any = None) -> None:
        config = Config(
            application or never_answered,
            log_config=None,
            lifespan="off",
            h11_max_incomplete_event_size=connections.HEADER_BYTES,
            timeout_keep_alive=connections.IDLE_SECONDS,
        )
        config.load()
        protocol = BoundedProtocol(config=config, server_state=state, app_state={}, _loop=clock)
        self.receive, self.pause_writing = protocol.data_received, protocol.pause_writing
        self._transport = mock.Mock(asyncio.Transport, is_closing=lambda: self.is_closed)
        self._transport.get_protocol.return_value = protocol
        self._transport.get_extra_info.return_value = None
        protocol.connection_made(self._transport)

    @property
    def is_closed(self) -> bool:
        return self._transport.close.called or self._transport.abort.called


async def never_answered(scope: object, receive: object, send: object) -> None:
    await asyncio.get_running_loop().create_future()


async def refused(scope: object, receive: object, send: Any) -> None:
    await send({"type": "http.response.start", "status": 403, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body", "body": b""})


def opened_each_second(clock: Clock, state: ServerState) -> list[Opened]:
    """Three connections."""
    made = []
    for _ in range(3):
        clock.now += 1
        made.append(Opened(clock, state))
    return made


def test_the_longest_waiting_connection_makes_room(clock, monkeypatch):
    monkeypatch.setattr(connections, "MOST_WAITING", 3)
    state = ServerState()
    busy, taking_nothing = Opened(clock, state), Opened(clock, state)
    for one in (busy, taking_nothing):
        one.receive(HALF + b"\r\n")
    made = opened_each_second(clock, state)
    assert not any(one.is_closed for one in [busy, taking_nothing, *made])
    clock.now += 1
    taking_nothing.pause_writing()
    assert [one.is_closed for one in made] == [True, False, False]
    made += opened_each_second(clock, state)
    assert [one.is_closed for one in made] == [True, True, True, False, False, False]
    assert taking_nothing.is_closed
    assert not busy.is_closed


def test_a_new_connection_is_closed_while_all_others_are_busy(clock, monkeypatch):
    monkeypatch.setattr(connections, "MOST_CONNECTIONS", 2)
    state = ServerState()
    busy = [Opened(clock, state), Opened(clock, state)]
    for one in busy:
        one.receive(HALF + b"\r\n")
    assert Opened(clock, state).is_closed
    assert not any(one.is_closed for one in busy)


def test_half_sent_headers_have_a_total_limit(clock, monkeypatch):
    monkeypatch.setattr(connections, "WAITING_BYTES", 100_000)
    made = opened_each_second(clock, ServerState())
    for one in made:
        one.receive(HALF + b"X-Long: " + b"x" * 40_000)
    assert [one.is_closed for one in made] == [True, False, False]


def test_a_body_is_waited_for_while_it_comes_and_while_the_application_does_not_read_it(clock):
    opened = Opened(clock, ServerState())
    opened.receive(POST)
    for _ in range(10):
        opened.receive(b"x" * connections.BODY_BYTES)
        clock.pass_by(connections.BODY_SECONDS)
        assert not opened.is_closed
    opened.receive(b"x" * (connections.BODY_BYTES - 1))
    clock.pass_by(connections.BODY_SECONDS)
    assert opened.is_closed
    opened = Opened(clock, ServerState())
    opened.receive(POST + PIECE + b"x")
    for _ in range(10):
        clock.pass_by(connections.BODY_SECONDS)
        assert not opened.is_closed


def test_the_header_timeout_does_not_run_while_a_request_is_processed(clock):
    slow, worked_on = Opened(clock, ServerState()), Opened(clock, ServerState())
    slow.receive(HALF)
    worked_on.receive(HALF + b"\r\n" + HALF)
    clock.pass_by(connections.HEADER_SECONDS - 1)
    slow.receive(b"X-More: x\r\n")
    clock.pass_by(1)
    assert slow.is_closed
    assert not worked_on.is_closed


@pytest.mark.parametrize(
    ("sent", "later", "seconds"),
    [
        (b"", b"", connections.HEADER_SECONDS),
        (b"GE", b"", connections.HEADER_SECONDS),
        (HALF, b"", connections.HEADER_SECONDS),
        (POST, b"", connections.BODY_SECONDS),
        (POST, b"x" * 500, connections.BODY_SECONDS),
        (POST + REFUSED, b"x" * 500, connections.UNREAD_SECONDS),
        (HALF + b"\r\n" + REFUSED, b"GET / HT", connections.HEADER_SECONDS),
        (HALF + b"\r\n" + REFUSED, b"", connections.IDLE_SECONDS),
    ],
    ids=[
        "nothing", "half a line", "half of the headers", "headers without their body", "half of a body",
        "half of a refused body", "half of a second request", "nothing after a request",
    ],
)  # fmt: skip
def test_a_connection_whose_client_sends_nothing_more_is_closed(clock, sent, later, seconds):
    opened = Opened(clock, ServerState(), refused if sent.endswith(REFUSED) else never_answered)
    for data in filter(None, (sent.removesuffix(REFUSED), later)):
        opened.receive(data)
        for _ in range(10):
            clock.pass_by(0)
    clock.pass_by(seconds - 1)
    assert not opened.is_closed
    clock.pass_by(1)
    assert opened.is_closed


def answers(server: Server) -> dict[str, bytes]:
    """A request for each kind of response."""
    known = known_to(server)
    return {
        "a page": head("GET", "/", server, **known),
        "a style": head("GET", "/static/redline/redline.css", server),
        "a script of a library": head("GET", "/static/django_htmx/htmx.min.js", server),
        "a redirect": head("GET", "/runs", server, **known),
        "no page": head("GET", "/nowhere", server, **known),
        "no style": head("GET", "/static/nowhere.css", server),
        "an address that only acts": head("GET", "/plans/1/stop", server, **known),
        "a wrong method": head("OPTIONS", "/plans/1/stop", server, **known),
        "an unknown browser": head("GET", "/", server),
        "a script without token": head("GET", "/api/runs/1", server),
        "a foreign host": head("GET", "/static/redline/redline.css", server, Host="evil.example"),
        "a form without its token": head("POST", "/settings", server, **known),
        "a body that is too long": head("POST", "/settings", server, **known, Content_Length="3000000"),
        "headers that are too long": head("GET", "/", server, X_Long="x" * 65_600),
        "headers that do not end": head("GET", "/", server, X_Long="x" * 70_000)[:-2],
        "no HTTP": b"nonsense\r\n\r\n",
        "a socket": head("GET", "/ws/sessions", server, **HANDSHAKE, **known),
        "a socket of an unknown browser": head("GET", "/ws/sessions", server, **HANDSHAKE),
        "a socket at no address": head("GET", "/ws/nowhere", server, **HANDSHAKE, **known),
    }


def test_every_response_has_isolation_headers_and_does_not_name_the_server(server):
    seen = set()
    for name, sent in answers(server).items():
        answer = ask(server, sent)
        seen.add(answer.status)
        assert answer.header("Server") is None, name
        assert "camera=()" in str(answer.header("Permissions-Policy")), name
        assert answer.header("Cross-Origin-Resource-Policy") == "same-origin", name
        if "socket" not in name:
            assert answer.header("Cross-Origin-Opener-Policy") == "same-origin", name
            assert answer.header("X-Content-Type-Options") == "nosniff", name
            assert "default-src 'none'" in str(answer.header("Content-Security-Policy")), name
    assert seen == {101, 200, 301, 303, 400, 401, 403, 404, 405, 413, 431}


def test_closing_a_tab_is_not_an_error(server):
    """At any moment: while a page is rendered, while a session is downloaded, while a socket sends updates."""
    server.put("long.jsonl", chain(user("Long."), *(user(f"word {n} " * 200) for n in range(2_000))))
    page = server.session("Long.")
    known = known_to(server)
    sent = [
        head("GET", page, server, **known),
        head("GET", f"{page}/download", server, **known),
        head("POST", "/settings", server, **known, Content_Length="1000") + b"x",
        head("POST", "/import", server, **known, Content_Length="9000000") + PIECE,
        head("GET", "/ws/sessions", server, **HANDSHAKE, **known),
    ]
    with no_error_logged(server):
        for length in (0, 1, 200, 100_000, 1_000_000):
            for request in sent:
                with connected(server) as opened:
                    opened.sendall(request)
                    while length > 0 and (piece := opened.recv(length)):
                        length -= len(piece)
                    opened.setsockopt(*RESETTING)
        for number in range(10):
            with server.socket("/ws/sessions") as watching:
                watching.send(json.dumps({"query": f"?q={number}", "asked": number}))
                if number % 2:
                    watching.recv(timeout=WAIT_SECONDS)
                watching.socket.setsockopt(*RESETTING)
                watching.socket.close()
        server.get("/")
