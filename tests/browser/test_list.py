"""The list in a browser: updates disturb neither the filter nor the focus, and a lost server is announced."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from playwright.sync_api import Page, WebSocketRoute, expect

from tests.browser.chromium import LOST, Watched, poll
from tests.factories import chain, session_bytes, user
from tests.files import place
from tests.server import Server, start_server

Opener = Callable[..., Watched]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    base = tmp_path_factory.mktemp("list")
    with start_server(base) as running:
        add_session(running, "count the pears")
        running.session("count the pears")
        yield running


@pytest.fixture
def page(server: Server, browse: Opener) -> Page:
    return open_list(browse(server))


def open_list(watched: Watched) -> Page:
    """The list, once it has received its first update."""
    page = watched.open()
    page.wait_for_selector("#listing[data-asked]")
    return page


def add_session(server: Server, title: str) -> None:
    place(server.root / f"{title.replace(' ', '-')}.jsonl", session_bytes(chain(user(title))))


def test_updates_keep_the_focus_and_the_text_of_the_filter(server: Server, page: Page) -> None:
    page.evaluate("document.querySelector('#q').dataset.mark = 'same element'")
    page.focus("#q")
    page.keyboard.insert_text("pea")
    page.wait_for_url("**/?q=pea*")
    page.wait_for_selector("#listing[data-asked='2']")
    add_session(server, "a pea that is new")
    page.wait_for_selector("text=a pea that is new")
    page.keyboard.insert_text("rs")
    expect(page.locator("#q")).to_have_value("pears")
    expect(page.locator("#q")).to_be_focused()
    expect(page.locator("#q")).to_have_attribute("data-mark", "same element")
    page.wait_for_selector("#listing[data-asked='3']")
    expect(page.locator("#listing")).not_to_contain_text("a pea that is new")
    add_session(server, "more pears")
    page.wait_for_selector("text=more pears")


def test_a_session_that_appears_is_announced(server: Server, page: Page) -> None:
    expect(page.get_by_role("status").filter(has_text="new session")).to_have_count(0)
    add_session(server, "one more pear")
    expect(page.locator("#said")).to_have_text("1 new session")
    expect(page.get_by_text("one more pear")).to_be_visible()


def test_updates_keep_the_focus_on_a_row(server: Server, page: Page) -> None:
    link = page.get_by_role("link", name="count the pears")
    link.focus()
    link.evaluate("link => { link.dataset.mark = 'old element'; }")
    add_session(server, "something above")
    page.wait_for_selector("text=something above")
    expect(link).to_be_focused()
    expect(link).not_to_have_attribute("data-mark", "old element")


def test_an_update_does_not_swallow_a_click(server: Server, browse: Opener) -> None:
    page = browse(server).context.new_page()
    received: list[str | bytes] = []
    page.on("websocket", lambda socket: socket.on("framereceived", lambda data: received.extend([data])))
    page.goto(server.base)
    page.wait_for_selector("#listing[data-asked]")
    page.get_by_role("link", name="count the pears").hover()
    page.mouse.down()
    add_session(server, "comes too early")
    poll(page, lambda: any("comes too early" in str(each) for each in received))
    expect(page.get_by_text("comes too early")).to_have_count(0)
    page.mouse.move(2, 400)
    page.mouse.up()
    expect(page.get_by_text("comes too early")).to_be_visible()
    page.get_by_role("link", name="count the pears").hover()
    page.mouse.down()
    add_session(server, "comes too late")
    poll(page, lambda: any("comes too late" in str(each) for each in received))
    page.mouse.up()
    expect(page.get_by_role("heading", level=1)).to_contain_text("count the pears")


def test_a_lost_server_is_announced(tmp_path: Path, browse: Opener) -> None:
    with start_server(tmp_path) as server:
        watched = browse(server)
        watched.expect(*LOST)
        page = open_list(watched)
        expect(page.locator("#lost")).to_be_hidden()
        server.child.terminate()
        expect(page.locator("#lost")).to_be_visible()
        expect(page.locator("#lost")).to_contain_text("is lost since")
        poll(page, lambda: not watched.missing())


def test_a_form_that_is_sent_to_a_lost_server_says_that_nothing_was_done(
    tmp_path: Path, browse: Opener
) -> None:
    with start_server(tmp_path) as server:
        watched = browse(server)
        watched.expect(*LOST)
        page = open_list(watched)
        server.child.terminate()
        expect(page.locator("#lost")).to_be_visible()
        page.get_by_role("button", name="Theme").click()
        page.get_by_role("button", name="Dark").click()
        expect(page.locator("#unanswered")).to_contain_text("nothing was done")
        expect(page.locator("h1")).to_have_text("Sessions")
        poll(page, lambda: not watched.missing())


def test_a_lost_connection_is_tried_again_on_request(server: Server, browse: Opener) -> None:
    watched = browse(server)
    is_down = True
    tries: list[WebSocketRoute] = []

    def connect(socket: WebSocketRoute) -> None:
        tries.append(socket)
        if is_down:
            socket.close(code=1006)
        else:
            socket.connect_to_server()

    watched.context.route_web_socket(re.compile("/ws/sessions$"), connect)
    watched.context.clock.install()
    page = watched.open("/")
    expect(page.locator("#lost")).to_be_visible()
    # The page does not connect again on its own before the button is pressed.
    page.clock.pause_at(datetime.now(UTC) + timedelta(hours=1))
    expect(page.locator("#lost")).to_be_visible()
    is_down = False
    page.get_by_role("button", name="Try now").click()
    expect(page.locator("#lost")).to_be_hidden()
