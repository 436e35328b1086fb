"""Promises of the list that moves by itself, on a real server: what it shows, to whom, and without disturbing."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from socket import create_connection
from typing import Any

import pytest
from playwright.sync_api import sync_playwright
from websockets.exceptions import ConnectionClosedError, InvalidStatus
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Origin

from sessions_app.list.consumers import asked_in
from tests.browser.chromium import MISSING, find_chromium
from tests.factories import assistant, chain, session_bytes, text, user
from tests.files import place
from tests.server import Server, start_server
from tests.wait import WAIT_SECONDS


@pytest.fixture(scope="module", params=["told", "polled"])
def server(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server with two sessions; once with what the system tells of changes, once comparing directories."""
    base = tmp_path_factory.mktemp("live-list")
    place(base / "sessions" / "apples.jsonl", session_bytes(chain(user("count the apples"))))
    place(base / "sessions" / "pears.jsonl", session_bytes(chain(user("count the pears"))))
    polling = {"WATCHFILES_FORCE_POLLING": "1"} if request.param == "polled" else {}
    with start_server(base, **polling) as running:
        running.session("count the pears")
        yield running


def list_socket(server: Server, query: str = "", asked: int = 1) -> ClientConnection:
    socket = server.socket("/ws/sessions")
    socket.send(json.dumps({"query": query, "asked": asked}))
    return socket


def drawn_until(socket: ClientConnection, wanted: str) -> str:
    """The first drawing that holds something."""
    deadline = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < deadline:
        drawn = str(socket.recv(timeout=WAIT_SECONDS))
        if re.search(wanted, drawn):
            return drawn
    raise AssertionError(f"nothing that was drawn holds {wanted}")


# ---- it moves ----------------------------------------------------------------------------------------------


def test_a_session_that_is_written_to_moves_up_and_is_live(server: Server) -> None:
    with list_socket(server) as socket:
        drawn_until(socket, "count the apples")
        with (server.root / "apples.jsonl").open("ab") as file:
            file.write(session_bytes(chain(assistant(text("two")))[1:]).replace(b'"e1"', b'"e2"'))
        drawn = drawn_until(socket, "live, just written to")
    assert drawn.index("count the apples") < drawn.index("count the pears")
    assert drawn.startswith('<div id="listing" data-asked="1">')
    assert 'id="summary" hx-swap-oob="true"' in drawn


def test_the_socket_sends_the_list_that_the_page_shows(server: Server) -> None:
    with list_socket(server, "?q=pears") as socket:
        drawn = drawn_until(socket, "count the pears")
        assert "count the apples" not in drawn
        socket.send(json.dumps({"query": "?q=apples", "asked": 2}))
        drawn = drawn_until(socket, 'data-asked="2"')
    assert "count the apples" in drawn
    assert "count the pears" not in drawn


def test_a_new_session_appears(server: Server) -> None:
    with list_socket(server, "?sort=name") as socket:
        drawn_until(socket, "count the apples")
        name = f"{server.root.parent.name}.jsonl"
        place(server.root / "new" / name, session_bytes(chain(user("count what is new"))))
        drawn_until(socket, "count what is new")


def test_the_page_shows_the_same_rows_without_a_socket(server: Server) -> None:
    with list_socket(server, "?q=pears") as socket:
        drawn = drawn_until(socket, "count the pears")
    page = server.get("/?q=pears")
    rows = re.compile(r"<tbody>.*</tbody>", re.DOTALL)
    assert rows.search(drawn)[0] == rows.search(page)[0]  # type: ignore[index]


# ---- to whom, and on what words ----------------------------------------------------------------------------


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
    # As after a name of theirs was made to lead here: the origin is the host, and the browser brings the cookie.
    with create_connection(("127.0.0.1", port)) as way, pytest.raises(InvalidStatus, match="403"):
        connect(
            f"ws://evil.example:{port}/ws/sessions",
            sock=way,
            origin=Origin(f"http://evil.example:{port}"),
            additional_headers={"Cookie": cookie},
        )


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
    assert asked_in(message) is None


def test_a_socket_survives_malformed_messages(server: Server) -> None:
    with server.socket("/ws/sessions") as socket:
        for message in [*HOSTILE, b"\x00\xff"]:
            socket.send(message)
        socket.send(json.dumps({"query": "?q=pears"}))
        assert "count the pears" in str(socket.recv(timeout=WAIT_SECONDS))


@pytest.mark.parametrize("length", [5_000, 100_000])
def test_an_oversized_message_closes_the_socket(server: Server, length: int) -> None:
    with server.socket("/ws/sessions") as socket:
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
        drawn_until(socket, progress)
        # Also for a page that is opened amidst of it.
        assert re.search(progress, server.get("/"))
        drawn = drawn_until(socket, "24 sessions in 2 roots")
        while "Indexing:" in drawn:
            drawn = str(socket.recv(timeout=WAIT_SECONDS))
        assert "Indexing:" not in server.get("/")


def test_without_any_session_the_demo_appears(tmp_path: Path) -> None:
    with start_server(tmp_path) as server:
        assert "No sessions yet" not in server.get("/")
        with list_socket(server) as socket:
            drawn = drawn_until(socket, "Demo: ")
        assert "kept here" in drawn
        assert "mark--due" in drawn
        assert (tmp_path / "data" / "sessions").stat().st_mode & 0o777 == 0o700
        server.get(server.session("Demo: "))


# ---- in a browser ------------------------------------------------------------------------------------------


@contextmanager
def chromium(server: Server) -> Iterator[Any]:
    """The list in a browser that is known, moving already."""
    executable = find_chromium()
    assert executable is not None, MISSING
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=executable, args=["--no-sandbox", "--disable-gpu", "--no-first-run"]
        )
        context = browser.new_context()
        context.add_cookies(
            [{"name": one.name, "value": one.value or "", "url": server.base} for one in server.cookies]
        )
        page = context.new_page()
        page.goto(server.base)
        page.wait_for_selector("#listing[data-asked]")
        yield page
        browser.close()


@pytest.fixture
def page(server: Server) -> Iterator[Any]:
    complaints: list[str] = []
    with chromium(server) as found:
        found.on("console", lambda message: complaints.append(message.text))
        found.on("pageerror", lambda error: complaints.append(str(error)))
        yield found
    assert complaints == []


def grow(server: Server, words: str) -> None:
    """Another session; its words are the title of a row."""
    place(server.root / f"{words.replace(' ', '-')}.jsonl", session_bytes(chain(user(words))))


def test_updates_keep_the_focus_and_text_of_the_filter(server: Server, page: Any) -> None:
    page.evaluate("document.querySelector('#q').dataset.mine = 'yes'")
    page.focus("#q")
    page.keyboard.type("pea")
    page.wait_for_url("**/?q=pea*")
    page.wait_for_selector("#listing[data-asked='2']")
    grow(server, "a pea that is new")
    page.wait_for_selector("text=a pea that is new")
    page.keyboard.type("rs")
    assert page.evaluate("document.querySelector('#q').value") == "pears"
    assert page.evaluate("document.activeElement.id") == "q"
    assert page.evaluate("document.querySelector('#q').dataset.mine") == "yes"
    page.wait_for_selector("#listing[data-asked='3']")
    assert "a pea that is new" not in page.inner_text("#listing")
    grow(server, "more pears")
    page.wait_for_selector("text=more pears")


def test_updates_keep_the_focus_on_a_row(server: Server, page: Any) -> None:
    link = page.get_by_role("link", name="count the pears")
    link.focus()
    page.evaluate("document.activeElement.dataset.old = 'yes'")
    grow(server, "something above")
    page.wait_for_selector("text=something above")
    assert page.evaluate("document.activeElement.textContent") == "count the pears"
    assert page.evaluate("document.activeElement.dataset.old") is None


def test_a_lost_server_is_announced(tmp_path: Path) -> None:
    with start_server(tmp_path) as server, chromium(server) as page:
        assert not page.is_visible("#lost")
        server.child.terminate()
        page.wait_for_selector("#lost", state="visible")
