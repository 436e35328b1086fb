"""The Back button shows whole, consistent pages, and the browser keeps no session content for it."""

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser.acts import confirm_all
from tests.browser.scenarios import decide, finished_run, title, titled_session, undecided_keys
from tests.html import elements, parse, text_of
from tests.server import place_in

STORED = """() => [window.sessionStorage, window.localStorage].flatMap((store) => Object.entries(store))"""

FETCH = "([address, headers]) => fetch(address, { headers }).then((answer) => answer.text())"


@pytest.fixture(scope="module")
def server(shared_server):
    with place_in(shared_server, "history") as mine:
        for name in ("first", "second"):
            mine.put(f"{name}.jsonl", titled_session(name))
        yield mine


def is_whole_list(page: Page, text: str, rows: int) -> None:
    """Expect the complete page of the list, and a filter box that matches its rows."""
    expect(page.locator("table.sessions tr[id]")).to_have_count(rows)
    expect(page.locator("header.site-header")).to_have_count(1)
    expect(page.get_by_role("heading", level=1)).to_have_text("Sessions")
    expect(page.get_by_label("Filter by name or project")).to_have_value(text)


def test_back_shows_the_list_that_matches_its_filter_box(server, browse):
    server.session(title("first"))
    server.session(title("second"))
    page = browse(server).open(server.list_path)
    is_whole_list(page, "", 2)
    page.get_by_label("Filter by name or project").fill("second")
    page.wait_for_url("**/?q=second*")
    is_whole_list(page, "second", 1)
    page.go_back()
    page.wait_for_url(server.base + server.list_path)
    is_whole_list(page, "", 2)
    page.goto(f"{server.base}{server.list_path}&q=second")
    page.get_by_role("link", name=title("second")).click()
    expect(page.get_by_role("heading", level=1)).to_contain_text(title("second"))
    page.go_back()
    is_whole_list(page, "second", 1)


def test_a_restored_page_is_whole(server, browse):
    page = browse(server).open("/")
    for address in ("/", server.session(title("first"))):
        assert "<html" not in page.evaluate(FETCH, [address, {"HX-Request": "true"}]), address
        restored = {"HX-Request": "true", "HX-History-Restore-Request": "true"}
        assert "<html" in page.evaluate(FETCH, [address, restored]), address


def test_the_browser_keeps_no_content_of_a_session(server, browse):
    address = server.session(title("first"))
    run = finished_run(server, address)
    page = browse(server).open("/")
    page.get_by_label("Filter by name or project").press_sequentially("first")
    page.wait_for_url("**/?q=first*")
    for path in (address, run, run, "/"):
        page.goto(server.base + path)
    page.go_back()
    stored = page.evaluate(STORED)
    assert {name for name, _ in stored} <= {"htmx-current-path-for-history", "redline.tell"}
    assert all("Mend" not in value and len(value) < 200 for _, value in stored)


def test_back_to_a_refused_form_shows_its_page(server, browse):
    watched = browse(server)
    watched.expect("the server responded with a status of 409")
    run = finished_run(server, server.session(title("second")))
    decide(server, run, approve=undecided_keys(server, run)[0])
    page = watched.open(f"{run}/confirm")
    confirm_all(page)
    server.put("second.jsonl", titled_session("second", steps=4))
    page.get_by_role("button", name="Back up and save the edit").click()
    expect(page.get_by_role("alert")).to_be_visible()
    page.goto(server.base + "/")
    page.go_back()
    expect(page.locator("header.site-header")).to_be_visible()
    expect(page).to_have_url(f"{server.base}{run}/confirm")


def test_an_address_that_only_accepts_post_redirects_to_the_page_of_its_form(server):
    session = server.session(title("first"))
    run = finished_run(server, session)
    first, plan = title("first"), f"Plan {run.removeprefix('/plans/')}"
    pages = {
        f"{run}/decide": f"{plan}, {len(undecided_keys(server, run))} undecided: {first}",
        **dict.fromkeys(
            [f"{run}/{name}" for name in ("stop", "resume", "again")], f"{plan}, planned, the target is met: {first}"
        ),
        **dict.fromkeys([f"{session}/{name}" for name in ("reader", "read-anew", "migrate")], first),
        f"{session}/backups/any/verify": f"Backups: {first}",
        "/settings/providers/openai/agreement": "Models",
    }
    for address, words in pages.items():
        named = text_of(elements(parse(server.get(address)), "title")[0])
        assert re.fullmatch(rf"(\(\d+\) )?{re.escape(words)} · Redline", named), address
