"""Live updates of the list over its socket, on a real server: what they contain, and who receives them."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from socket import create_connection

import pytest
from websockets.exceptions import ConnectionClosedError, InvalidStatus
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Origin

from sessions_app.list.consumers import subscription_in
from tests.factories import assistant, chain, session_bytes, text, user
from tests.files import place
from tests.html import element, elements, links, text_of, texts
from tests.server import Server, start_server
from tests.wait import WAIT_SECONDS


@pytest.fixture(scope="module", params=["notified", "polled"])
def server(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server with two sessions: once notified of changes by the system, once polling the directories."""
    base = tmp_path_factory.mktemp("live-list")
    place(base / "sessions" / "apples.jsonl", session_bytes(chain(user("count the apples"))))
    place(base / "sessions" / "pears.jsonl", session_bytes(chain(user("count the pears"))))
    polling = {"WATCHFILES_FORCE_POLLING": "1"} if request.param == "polled" else {}
    with start_server(base, **polling) as running:
        running.session("count the pears")
        yield running


@contextmanager
def list_socket(server: Server, query: str = "") -> Iterator[ClientConnection]:
    """A socket that has asked for the list with this query."""
    with server.socket("/ws/sessions") as socket:
        socket.send(json.dumps({"query": query, "asked": 1}))
        yield socket


def update_with(socket: ClientConnection, pattern: str) -> str:
    """The first update whose text matches."""
    deadline = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < deadline:
        update = str(socket.recv(timeout=WAIT_SECONDS))
        if re.search(pattern, text_of(update)):
            return update
    raise AssertionError(f"no update matches {pattern}")


def titles(source: str) -> list[str]:
    """The titles of the sessions, in the order of the list."""
    return [links(row)[0][0] for row in elements(source, "#listing tbody tr")]


def number_of(update: str) -> str | None:
    """The number of the message that an update answers."""
    return element(update, "#listing").attributes["data-asked"]


# ---- updates -----------------------------------------------------------------------------------------------


def test_a_session_that_is_written_to_moves_up_and_is_live(server: Server) -> None:
    with list_socket(server) as socket:
        update_with(socket, "count the apples")
        with (server.root / "apples.jsonl").open("ab") as file:
            file.write(session_bytes(chain(assistant(text("two")))[1:]).replace(b'"e1"', b'"e2"'))
        update = update_with(socket, "live, just written to")
    assert titles(update).index("count the apples") < titles(update).index("count the pears")
    assert number_of(update) == "1"
    assert element(update, "#summary").attributes["hx-swap-oob"] == "true"


def test_the_socket_sends_the_list_that_the_page_shows(server: Server) -> None:
    with list_socket(server, "?q=pears") as socket:
        update = update_with(socket, "count the pears")
        assert "count the apples" not in titles(update)
        socket.send(json.dumps({"query": "?q=apples", "asked": 2}))
        update = update_with(socket, "count the apples")
    assert titles(update) == ["count the apples"]
    assert number_of(update) == "2"


def test_a_new_session_appears(server: Server) -> None:
    with list_socket(server, "?sort=name") as socket:
        update_with(socket, "count the apples")
        name = f"{server.root.parent.name}.jsonl"
        place(server.root / "new" / name, session_bytes(chain(user("count what is new"))))
        update_with(socket, "count what is new")


def test_the_page_shows_the_same_rows_without_a_socket(server: Server) -> None:
    with list_socket(server, "?q=pears") as socket:
        update = update_with(socket, "count the pears")
    page = server.get("/?q=pears")
    assert element(update, "tbody").html == element(page, "tbody").html


# ---- who may connect, and with which messages --------------------------------------------------------------


@pytest.mark.parametrize(
    "headers",
    [
        {"Cookie": ""},
        {"Cookie": "redline_launch=forged"},
        {"Origin": "http://127.0.0.1:1"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
    ],
)
def test_a_socket_from_elsewhere_is_refused(server: Server, headers: dict[str, str]) -> None:
    with pytest.raises(InvalidStatus, match="403"):
        server.socket("/ws/sessions", **headers)


def test_a_foreign_host_is_refused(server: Server) -> None:
    port = server.port
    cookie = "; ".join(f"{one.name}={one.value}" for one in server.cookies)
    # As after DNS rebinding: the origin is the host, and the browser sends the cookie.
    with (
        create_connection(("127.0.0.1", port)) as way,
        pytest.raises(InvalidStatus, match="403"),
        connect(
            f"ws://evil.example:{port}/ws/sessions",
            sock=way,
            origin=Origin(f"http://evil.example:{port}"),
            additional_headers={"Cookie": cookie},
        ),
    ):
        pass


HOSTILE = [
    "",
    "no json",
    "[" * 4_000,
    "{}",
    '{"query": 7}',
    '{"query": null}',
    '{"query": "?q=a", "asked": -1}',
    '{"query": "?q=a", "asked": "1"}',
    '{"query": "?q=\\ud800"}',
]


@pytest.mark.parametrize("message", HOSTILE)
def test_a_malformed_message_is_ignored(message: str) -> None:
    assert subscription_in(message) is None


def test_a_socket_survives_malformed_messages(server: Server) -> None:
    with server.socket("/ws/sessions") as socket:
        for message in [*HOSTILE, b"\x00\xff"]:
            socket.send(message)
        socket.send(json.dumps({"query": "?q=pears"}))
        assert "count the pears" in text_of(str(socket.recv(timeout=WAIT_SECONDS)))


@pytest.mark.parametrize("address", ["/ws/sessions", "/ws/sessions/1", "/ws/runs/1"])
@pytest.mark.parametrize("length", [5_000, 100_000])
def test_an_oversized_message_closes_the_socket(server: Server, length: int, address: str) -> None:
    with server.socket(address) as socket:
        socket.send("x" * length)
        with pytest.raises(ConnectionClosedError):
            socket.recv(timeout=WAIT_SECONDS)
    assert socket.close_code == 1009


# ---- at the first start ------------------------------------------------------------------------------------


def test_indexing_in_progress_is_shown_on_the_page_and_over_the_socket(tmp_path: Path) -> None:
    large = session_bytes(chain(*(user(f"word {number} " * 20) for number in range(6_000))))
    for number in range(24):
        place(tmp_path / "sessions" / f"{number}.jsonl", large)
    progress = r"Indexing: \d+ of 24 sessions, [\d.,]+ [kM]B of [\d.,]+ MB"
    with start_server(tmp_path) as server, list_socket(server) as socket:
        update_with(socket, progress)
        # A page opened meanwhile shows it, too.
        assert re.search(progress, text_of(server.get("/")))
        update = update_with(socket, "24 sessions in 2 roots")
        while "Indexing:" in text_of(update):
            update = str(socket.recv(timeout=WAIT_SECONDS))
        assert "Indexing:" not in text_of(server.get("/"))


def test_without_any_session_the_demo_appears(tmp_path: Path) -> None:
    with start_server(tmp_path) as server:
        assert "No sessions yet" not in text_of(server.get("/"))
        with list_socket(server) as socket:
            update = update_with(socket, "Demo: ")
        (demo,) = texts(update, "#listing tbody tr")
        assert "imported" in demo
        assert "due" in demo.split()
        assert (tmp_path / "data" / "sessions").stat().st_mode & 0o777 == 0o700
        server.get(server.session("Demo: "))
