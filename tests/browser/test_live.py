"""Promises of pages that move by themselves: nothing is lost or doubled, whatever happens to the way in between."""

from __future__ import annotations

import os
import re
import signal
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from playwright.sync_api import Page, WebSocketRoute, expect

from tests.browser.chromium import Watched, poll
from tests.browser.staging import LONG_STEPS, put_titled, title, worker_of
from tests.factories import assistant, chain, session_bytes, text
from tests.server import Server, start_server
from tests.wait import WAIT_SECONDS

Opener = Callable[..., Watched]
ABNORMAL = 1006
"""The code of a socket whose connection broke."""
OVER = "Review what it proposes"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    base = tmp_path_factory.mktemp("live")
    for name in ("watched", "cut", "killed", "stopped"):
        put_titled(base / "sessions", name, steps=LONG_STEPS, words=10)
    for name in ("quiet", "busy"):
        put_titled(base / "sessions", name)
    with start_server(base) as running:
        running.session(title("busy"))
        yield running


def started(watched: Watched, name: str) -> tuple[Page, int]:
    """The page of a run, marked so that a reload would be seen, and its worker, stopped once something is proposed.

    `SIGCONT` lets the worker continue. It is stopped by what the database has: a browser may show it late.
    """
    server = watched.server
    page = watched.open(server.session(title(name)) + "/compact")
    page.get_by_label("Keep", exact=True).fill("30")
    before = newest_run(server)
    page.get_by_role("button", name="Start planning").click()
    server.wait_for(lambda: newest_run(server) > before and has_proposal(server, newest_run(server)))
    pid = worker_of(server, f"/runs/{newest_run(server)}")
    assert pid is not None, "the run was over too soon"
    os.kill(pid, signal.SIGSTOP)
    while not can_be_written(server.data / "redline.sqlite3"):
        # It was stopped in the middle of a transaction: nobody else could write.
        os.kill(pid, signal.SIGCONT)
        os.kill(pid, signal.SIGSTOP)
    page.wait_for_url(re.compile(r"/runs/\d+$"))
    page.evaluate("window.stayed = true")
    expect(page.locator("#log [data-seq]")).to_have_count(row_count(server, newest_run(server)))
    return page, pid


def newest_run(server: Server) -> int:
    return number_of(server, "SELECT max(id) FROM compaction_app_run")


def has_proposal(server: Server, run: int) -> bool:
    return number_of(server, "SELECT count(*) FROM compaction_app_proposal WHERE run_id = ?", run) > 0


def row_count(server: Server, run: int) -> int:
    return number_of(server, "SELECT count(*) FROM compaction_app_runevent WHERE run_id = ?", run)


def number_of(server: Server, query: str, *values: int) -> int:
    with closing(sqlite3.connect(server.data / "redline.sqlite3", timeout=WAIT_SECONDS)) as connection:
        return int(connection.execute(query, values).fetchone()[0] or 0)


def can_be_written(database: Path) -> bool:
    with closing(sqlite3.connect(database, timeout=0.2, isolation_level=None)) as connection:
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return False
        connection.execute("ROLLBACK")
    return True


def shown_rows(page: Page) -> list[int]:
    return [int(row.get_attribute("data-seq") or "") for row in page.locator("#log [data-seq]").all()]


def is_whole(page: Page, server: Server) -> None:
    """Every row is there once, in order: as many as a page that is loaded now has."""
    loaded = row_count(server, newest_run(server))
    expect(page.locator("#log [data-seq]")).to_have_count(loaded)
    assert shown_rows(page) == list(range(1, loaded + 1))
    assert page.evaluate("window.stayed")


def path_of(page: Page) -> str:
    return "/" + page.url.split("/", 3)[3]


def test_a_run_arrives_row_by_row(server: Server, browse: Opener) -> None:
    page, worker = started(browse(server), "watched")
    expect(page.get_by_role("link", name=OVER)).to_be_hidden()
    had = len(shown_rows(page))
    os.kill(worker, signal.SIGCONT)
    expect(page.get_by_role("link", name=OVER)).to_be_visible()
    assert len(shown_rows(page)) > had
    expect(page.locator("#facts")).to_contain_text("planned")
    is_whole(page, server)


def test_a_lost_connection_is_said_and_goes_on_where_it_was(server: Server, browse: Opener) -> None:
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
    page, pid = started(watched, "cut")

    poll(page, lambda: sockets)
    is_down = True
    sockets[-1].close(code=ABNORMAL)
    expect(page.locator("#lost")).to_be_visible()
    expect(page.locator("#lost")).to_contain_text("connection to the server is lost")
    had = len(shown_rows(page))
    os.kill(pid, signal.SIGCONT)
    server.wait_for(lambda: len(re.findall("data-seq", server.get(path_of(page)))) > had)
    assert len(shown_rows(page)) == had
    is_down = False
    expect(page.locator("#lost")).to_be_hidden()
    expect(page.get_by_role("link", name=OVER)).to_be_visible()
    assert len(sockets) == 2
    is_whole(page, server)


def test_a_killed_worker_is_said_and_its_run_resumes_to_the_end(server: Server, browse: Opener) -> None:
    page, pid = started(browse(server), "killed")
    os.kill(pid, signal.SIGKILL)
    server.wait_for(lambda: worker_of(server, path_of(page)) is None)
    # The server watches the run for the length of a lease before it gives it up.
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
    page, pid = started(browse(server), "stopped")
    page.get_by_role("button", name="Stop the run").click()
    expect(page.locator("#facts")).to_contain_text("stopping")
    os.kill(pid, signal.SIGCONT)
    expect(page.locator("#facts")).to_contain_text("stopped")
    expect(page.locator("#note")).to_contain_text("It was stopped.")
    expect(page.get_by_role("link", name=OVER)).to_be_visible()


def test_the_list_moves_and_leaves_what_is_typed_alone(server: Server, browse: Opener) -> None:
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
    expect(page.get_by_text("No session matches")).to_be_visible()
    assert page.evaluate("window.stayed === document.querySelector('#q')")


def append(path: Path) -> None:
    """One more entry, as an agent writes it."""
    last = path.read_bytes().splitlines()[-1]
    entry = session_bytes(chain(assistant(text("One more.")))[1:])
    parent = re.search(rb'"id": "(e\d+)"', last)
    assert parent is not None
    with path.open("ab") as file:
        file.write(entry.replace(b'"e1"', b'"added"').replace(b"null", b'"' + parent[1] + b'"'))
