"""Live pages: no row is lost or duplicated, whatever happens to the connection."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, WebSocketRoute, expect

from tests.browser.chromium import Watched, poll
from tests.browser.scenarios import (
    LONG_STEPS,
    PausedWorker,
    event_count,
    newest_run,
    paused_run,
    place_titled,
    proposal_count,
    run_number,
    title,
)
from tests.factories import assistant, chain, session_bytes, text
from tests.server import Server, start_server

Opener = Callable[..., Watched]
ABNORMAL = 1006
"""The close code of a broken connection."""
OVER = "Review the proposals"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    base = tmp_path_factory.mktemp("live")
    for name in ("watched", "cut", "killed", "stopped"):
        place_titled(base / "sessions", name, steps=LONG_STEPS, words=10)
    for name in ("quiet", "busy"):
        place_titled(base / "sessions", name)
    with start_server(base) as running:
        running.session(title("busy"))
        yield running


def paused_page(watched: Watched, name: str) -> tuple[Page, PausedWorker]:
    """The page of a run, marked so that a reload is noticed, and its worker, paused after its first proposal."""
    server = watched.server
    page = watched.open(server.session(title(name)) + "/compact")
    page.get_by_label("Keep", exact=True).fill("30")

    def start() -> str:
        before = newest_run(server)
        page.get_by_role("button", name="Start planning").click()
        server.wait_for(lambda: newest_run(server) > before)
        return f"/runs/{newest_run(server)}"

    path, worker = paused_run(server, start, lambda run: proposal_count(server, run) > 0)
    page.wait_for_url(f"**{path}")
    page.evaluate("window.stayed = true")
    expect(page.locator("#log [data-seq]")).to_have_count(event_count(server, run_number(path)))
    return page, worker


def shown_rows(page: Page) -> list[int]:
    return [int(row.get_attribute("data-seq") or "") for row in page.locator("#log [data-seq]").all()]


def is_whole(page: Page, server: Server) -> None:
    """Expect every row of the run once, in order."""
    loaded = event_count(server, newest_run(server))
    expect(page.locator("#log [data-seq]")).to_have_count(loaded)
    assert shown_rows(page) == list(range(1, loaded + 1))
    assert page.evaluate("window.stayed")


def test_a_run_arrives_row_by_row(server: Server, browse: Opener) -> None:
    page, worker = paused_page(browse(server), "watched")
    expect(page.get_by_role("link", name=OVER)).to_be_hidden()
    expect(page).to_have_title(re.compile(r"^Run [0-9]+, running [0-9.]+%: .* · Redline$"))
    had = len(shown_rows(page))
    worker.resume()
    expect(page.get_by_role("link", name=OVER)).to_be_visible()
    assert len(shown_rows(page)) > had
    expect(page).to_have_title(re.compile(r"^Run [0-9]+, planned, the target is met: .* · Redline$"))
    expect(page.locator("#facts")).to_contain_text("planned")
    is_whole(page, server)


def test_a_lost_connection_is_reported_and_resumed_where_it_broke(server: Server, browse: Opener) -> None:
    watched = browse(server)
    sockets: list[WebSocketRoute] = []
    is_down = False

    def connect(socket: WebSocketRoute) -> None:
        if is_down:
            socket.close(code=ABNORMAL)
            return
        sockets.append(socket)
        socket.connect_to_server()

    watched.context.route_web_socket(re.compile("/ws/runs/"), connect)
    page, worker = paused_page(watched, "cut")

    poll(page, lambda: sockets)
    is_down = True
    sockets[-1].close(code=ABNORMAL)
    expect(page.locator("#lost")).to_be_visible()
    expect(page.locator("#lost")).to_contain_text("connection to the server is lost")
    had = len(shown_rows(page))
    worker.resume()
    server.wait_for(lambda: event_count(server, newest_run(server)) > had)
    assert len(shown_rows(page)) == had
    is_down = False
    expect(page.locator("#lost")).to_be_hidden()
    expect(page.get_by_role("link", name=OVER)).to_be_visible()
    assert len(sockets) == 2
    is_whole(page, server)


def test_a_killed_worker_is_reported_and_its_run_can_be_resumed(server: Server, browse: Opener) -> None:
    page, worker = paused_page(browse(server), "killed")
    worker.kill()
    # The server waits for the length of a lease before it gives the run up.
    expect(page.locator("#facts")).to_contain_text("interrupted: its worker is gone")
    expect(page.locator("#note")).to_contain_text("Nothing was written.")
    is_whole(page, server)
    page.get_by_role("link", name="Resume…").click()
    page.get_by_role("button", name="Resume").click()
    expect(page.locator("#facts")).to_contain_text("planned, the target is met")
    expect(page.get_by_role("link", name=OVER)).to_be_visible()
    page.evaluate("window.stayed = true")
    is_whole(page, server)


def test_a_run_is_stopped_from_its_page(server: Server, browse: Opener) -> None:
    page, worker = paused_page(browse(server), "stopped")
    page.get_by_role("button", name="Stop the run").click()
    expect(page.locator("#facts")).to_contain_text("stopping")
    worker.resume()
    expect(page.locator("#facts")).to_contain_text("stopped")
    expect(page.locator("#note")).to_contain_text("It was stopped.")
    expect(page.get_by_role("link", name=OVER)).to_be_visible()


def test_the_list_is_updated_without_changing_typed_text(server: Server, browse: Opener) -> None:
    page = browse(server).open("/")
    page.locator("#listing[data-asked]").wait_for()
    field = page.get_by_label("Filter by name or project")
    field.focus()
    page.keyboard.insert_text("parser")
    page.wait_for_url("**/?q=parser*")
    page.locator("#listing[data-asked='2']").wait_for()
    page.evaluate("window.stayed = document.querySelector('#q')")
    append(server.root / "busy.jsonl")
    first = page.locator("table.sessions tbody tr").first
    expect(first).to_contain_text(title("busy"))
    expect(first).to_contain_text("live, just written to")
    page.keyboard.insert_text("x")
    expect(field).to_have_value("parserx")
    expect(field).to_be_focused()
    expect(page.get_by_text("No matching sessions")).to_be_visible()
    assert page.evaluate("window.stayed === document.querySelector('#q')")


def append(path: Path) -> None:
    """Append one more entry, as an agent does."""
    last = path.read_bytes().splitlines()[-1]
    entry = session_bytes(chain(assistant(text("One more.")))[1:])
    parent = re.search(rb'"id": "(e\d+)"', last)
    assert parent is not None
    with path.open("ab") as file:
        file.write(entry.replace(b'"e1"', b'"added"').replace(b"null", b'"' + parent[1] + b'"'))
