"""The list in a browser: updates disturb neither the filter nor the focus, and a lost server is announced."""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from playwright.sync_api import Page, WebSocketRoute, expect

from tests.browser.chromium import LOST, Watched, poll
from tests.browser.scenarios import finished_run, title, titled_session
from tests.factories import assistant, chain, message, session_bytes, text, user
from tests.files import append_as_agent, place
from tests.server import Server, place_in, start_server


@pytest.fixture(scope="module")
def server(shared_server):
    with place_in(shared_server, "list") as mine:
        add_session(mine, "count the pears")
        mine.session("count the pears")
        yield mine


@pytest.fixture
def page(server, browse):
    return open_list(browse(server))


def open_list(watched: Watched) -> Page:
    """The list, once it has received its first update."""
    page = watched.open(watched.server.list_path)
    page.wait_for_selector("#listing[data-asked]")
    return page


def add_session(server: Server, title: str) -> Path:
    return server.put(f"{title.replace(' ', '-')}.jsonl", chain(user(title)))


def test_updates_keep_the_focus_and_the_text_of_the_filter(server, page):
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
    path = add_session(server, "more pears")
    page.wait_for_selector("text=more pears")
    append_as_agent(path, session_bytes([message("e2", "e1", assistant(text("One more.")))]))
    first = page.locator("table.sessions tr[id]").first
    expect(first).to_contain_text("more pears")
    expect(first.locator(".mark--live")).to_be_visible()


def test_a_session_that_appears_is_announced_and_leaves_the_focus_on_its_row(server, page):
    expect(page.get_by_role("status").filter(has_text="new session")).to_have_count(0)
    link = page.get_by_role("link", name="count the pears")
    link.focus()
    link.evaluate("link => { link.dataset.mark = 'old element'; }")
    add_session(server, "something above")
    expect(page.locator("#said")).to_have_text("1 new session")
    expect(page.get_by_text("something above")).to_be_visible()
    expect(link).to_be_focused()
    expect(link).not_to_have_attribute("data-mark", "old element")


def test_an_update_does_not_swallow_a_click(server, browse):
    page = browse(server).context.new_page()
    received: list[str | bytes] = []
    page.on("websocket", lambda socket: socket.on("framereceived", lambda data: received.extend([data])))
    page.goto(server.base + server.list_path)
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


def test_a_lost_server_is_announced_and_a_form_sent_to_it_says_that_nothing_was_done(tmp_path, browse):
    """It ends its server. An open review says the same."""
    place(tmp_path / "sessions" / "one.jsonl", session_bytes(titled_session("lost")))
    with start_server(tmp_path) as server:
        watched = browse(server)
        watched.expect(*LOST)
        review = watched.open(finished_run(server, server.session(title("lost"))))
        review.wait_for_load_state("networkidle")
        page = open_list(watched)
        for one in (page, review):
            expect(one.locator("#lost")).to_be_hidden()
        server.child.terminate()
        for one in (page, review):
            expect(one.locator("#lost")).to_be_visible()
            expect(one.locator("#lost")).to_contain_text("The connection to the server is lost since")
        page.get_by_role("button", name="Theme").click()
        page.get_by_role("button", name="Dark").click()
        expect(page.locator("#unanswered")).to_contain_text("nothing was done")
        expect(page.locator("h1")).to_have_text("Sessions")
        poll(page, lambda: not watched.missing())


def test_a_lost_connection_is_tried_again_on_request(server, browse):
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
