"""Live updates of the list over its socket, on a real server: what they contain, and who receives them."""

import asyncio
import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from websockets.exceptions import ConnectionClosedError, InvalidStatus
from websockets.sync.client import ClientConnection

import redline.serving
from sessions_app.pages.list import draw, subscription_in
from sessions_app.server.broadcast import SESSIONS
from tests.factories import assistant, chain, session_bytes, text, user
from tests.html import element, elements, links, text_of
from tests.server import Server, place_in
from tests.wait import WAIT_SECONDS


@pytest.fixture(scope="module")
def server(shared_server):
    with place_in(shared_server, "live-list") as mine:
        for name in ("apples", "pears"):
            mine.put(f"{name}.jsonl", chain(user(f"count the {name}")))
        mine.session("count the pears")
        mine.session("count the apples")
        yield mine


@contextmanager
def list_socket(server: Server, query: str = "") -> Iterator[ClientConnection]:
    """A socket that has asked for the list of this place with this query."""
    with server.socket("/ws/sessions") as socket:
        ask(server, socket, query, 1)
        yield socket


def ask(server: Server, socket: ClientConnection, query: str, number: int) -> None:
    socket.send(json.dumps({"query": f"{server.list_path.removeprefix('/')}{query}", "asked": number}))


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
    return [links(row)[0][0] for row in elements(source, "#listing tr[id]")]


def number_of(update: str) -> str | None:
    """The number of the message that an update answers."""
    return element(update, "#listing").attributes["data-asked"]


def test_a_session_that_is_written_to_moves_up_and_is_live(server):
    with list_socket(server) as socket:
        update_with(socket, "count the apples")
        with (server.root / "apples.jsonl").open("ab") as file:
            file.write(session_bytes(chain(assistant(text("two")))[1:]).replace(b'"e1"', b'"e2"'))
        update = update_with(socket, "live")
    assert titles(update).index("count the apples") < titles(update).index("count the pears")
    assert number_of(update) == "1"
    assert element(update, "#summary").attributes["hx-swap-oob"] == "true"


def test_the_socket_sends_the_list_that_the_page_shows(server):
    with list_socket(server, "&q=pears") as socket:
        update = update_with(socket, "count the pears")
        assert titles(update) == ["count the pears"]
        page = server.get(f"{server.list_path}&q=pears")
        assert element(update, "tbody").html == element(page, "tbody").html
        ask(server, socket, "&q=apples", 2)
        update = update_with(socket, "count the apples")
    assert titles(update) == ["count the apples"]
    assert number_of(update) == "2"


def test_a_new_session_appears(server):
    with list_socket(server, "&sort=name") as socket:
        update_with(socket, "count the apples")
        (server.root / "new").mkdir()
        server.put("new/s.jsonl", chain(user("count what is new")))
        update_with(socket, "count what is new")


@pytest.mark.parametrize(
    "headers",
    [
        *({"Cookie": cookie} for cookie in ("", "redline_launch=forged")),
        *({"Origin": origin} for origin in ("http://127.0.0.1:1", "http://evil.example", "null")),
        # As after DNS rebinding: the origin is the host, and the browser sends the cookie.
        {"at": "evil.example"},
    ],
)
def test_a_socket_from_elsewhere_is_refused(server, headers):
    with pytest.raises(InvalidStatus, match="403"):
        server.socket("/ws/sessions", **headers)


HOSTILE = [
    *("", "no json", "[" * 4_000, "{}", '{"query": 7}', '{"query": null}', '{"query": "?q=\\ud800"}'),
    *('{"query": "?q=a", "asked": -1}', '{"query": "?q=a", "asked": "1"}'),
]


def test_a_socket_survives_malformed_messages(server):
    assert [message for message in HOSTILE if subscription_in(message) is not None] == []
    with server.socket("/ws/sessions") as socket:
        for message in [*HOSTILE, b"\x00\xff"]:
            socket.send(message)
        ask(server, socket, "&q=pears", 1)
        assert "count the pears" in text_of(str(socket.recv(timeout=WAIT_SECONDS)))


def test_an_oversized_message_closes_the_socket(server):
    for address in ("/ws/sessions", "/ws/sessions/1", "/ws/plans/1/log"):
        for length in (5_000, 100_000):
            with server.socket(address) as socket:
                socket.send("x" * length)
                with pytest.raises(ConnectionClosedError):
                    socket.recv(timeout=WAIT_SECONDS)
            assert socket.close_code == 1009, (address, length)


def test_indexing_in_progress_is_drawn_in_an_open_list(known_root):
    """The server passes on what the follower tells it; the page shows the same."""
    subscription = subscription_in('{"query": "", "asked": 1}')
    assert subscription is not None
    counts = {"done": 12, "found": 24, "bytes": 1_200_000, "of_bytes": 2_400_000, "file": "a.jsonl"}
    for indexing, is_shown in ((counts, True), (None, False)):
        redline.serving._relay(asyncio.Event(), {"group": SESSIONS, "indexing": indexing})
        assert ("Indexing: 12 of 24 sessions, 1.2 MB of 2.4 MB" in text_of(draw(subscription))) is is_shown
