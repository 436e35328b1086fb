"""The keys of the lists: sessions, runs and backups are gone through without a mouse, and no key is silent."""

import re

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.acts import press
from tests.browser.chromium import unready
from tests.browser.page_checks import VIEWS, View, have_no_faults_here
from tests.browser.scenarios import approve_everything, finished_run, place_titled, title
from tests.factories import chain, session_bytes, user
from tests.files import place
from tests.server import start_server

PLAIN = 62
"""With the others, sessions for two pages of the list."""
ANOTHER_RESPONSE = """() => document.addEventListener(
    "htmx:afterSwap", () => window.htmx.trigger("#agents-waiting", "htmx:beforeSwap"), {once: true}
)"""
"""Have the response about agents that wait arrive between the first swap and what htmx does a moment after it."""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """Two runs, one of them committed, so that there is a backup; and more sessions than a page lists."""
    base = tmp_path_factory.mktemp("rows")
    for number in range(PLAIN):
        place(base / "sessions" / f"plain-{number}.jsonl", session_bytes(chain(user(f"Plain {number}."))))
    for name in ("planned", "written"):
        place_titled(base / "sessions", name)
    with start_server(base) as running:
        finished_run(running, running.session(title("planned")))
        run = finished_run(running, running.session(title("written")))
        approve_everything(running, run)
        yes = ["unopened", "names"]
        assert running.post(f"{run}/confirm", f"{run}/confirm", yes=yes) == f"{run}/result"
        yield running


def rows(page: Page) -> Locator:
    return page.locator("[data-stop]")


def is_current(page: Page, number: int) -> None:
    """Wait until only this row is marked, and its link has the focus."""
    expect(page.locator(".is-current")).to_have_count(1)
    expect(rows(page).nth(number)).to_have_class(re.compile("is-current"))
    expect(rows(page).nth(number).locator("a, button").first).to_be_focused()


def says(page: Page, words: str) -> None:
    expect(page.locator("#said")).to_have_text(words)


def test_rows_of_the_list_are_gone_through_and_opened(server, browse):
    page = browse(server).open("/")
    press(page, "k", "k")
    is_current(page, 0)
    says(page, "This is the first row of this page")
    press(page, "j", "ArrowDown", "ArrowUp")
    is_current(page, 1)
    name = rows(page).nth(1).locator("a.name").inner_text()
    press(page, "Enter")
    expect(page.locator("h1")).to_have_text(name)


def test_pages_and_filters_of_the_list_have_keys(server, browse):
    page = browse(server).open("/?sort=name")
    press(page, "[")
    says(page, "This is the first page")
    press(page, "]")
    expect(page).to_have_url(re.compile(r"\?sort=name&page=2$"))
    press(page, "f")
    expect(page.locator(".filters [aria-current]")).to_contain_text("Needs you")
    press(page, "F")
    expect(page.locator(".filters [aria-current]")).to_contain_text("All")


def test_n_goes_to_the_next_session_that_waits(server, browse):
    page = browse(server).open("/?sort=name")
    press(page, "n")
    expect(page.locator(".is-current a.mark--go")).to_contain_text("plan ready")
    have_no_faults_here(page, "list-with-a-proposal", VIEWS.index(View(1_440, "light", "own")))
    press(page, "n")
    says(page, "Nothing waits for you below this row")


def test_a_wide_window_previews_the_row_with_the_cursor_and_c_compacts_it(server, browse):
    page = browse(server).open("/?sort=name")
    expect(page.locator("#preview")).to_be_hidden()
    page.set_viewport_size({"width": 1_920, "height": 1_080})
    press(page, "j", "j")
    name = rows(page).nth(1).locator("a.name").inner_text()
    expect(page.locator("#preview h2")).to_have_text(name)
    have_no_faults_here(page, "list-with-a-preview", VIEWS.index(View(1_440, "dark", "own")))
    press(page, "c")
    page.wait_for_url("**/compact")


def test_typing_in_the_filter_is_not_a_key(server, browse):
    page = browse(server).open("/")
    press(page, "/", "j", "k", "f")
    expect(page.locator("#q")).to_be_focused()
    expect(page.locator("#q")).to_have_value("jkf")
    expect(page.locator(".is-current")).to_have_count(0)


def test_a_row_that_is_drawn_again_stays_current(server, browse):
    page = browse(server).open("/?sort=name")
    press(page, "j", "j", "j")
    is_current(page, 2)
    name = rows(page).nth(2).locator("a.name").inner_text()
    place(server.root / "added.jsonl", session_bytes(chain(user("Added while it is open."))))
    expect(page.locator("#listing")).to_contain_text("Added while it is open.")
    current = page.locator(".is-current a.name")
    expect(current).to_have_text(name)
    expect(current).to_be_focused()
    press(page, "j")
    expect(current).not_to_have_text(name)


def test_the_inbox_is_gone_through_a_plan_is_opened_and_dismissed_by_its_key(server, browse):
    page = browse(server).open("/inbox")
    press(page, "n")
    is_current(page, 0)
    expect(rows(page).first).to_contain_text(title("planned"))
    press(page, "n")
    says(page, "Nothing waits for you below this row")
    press(page, "Enter")
    expect(page).to_have_url(re.compile(r"/plans/\d+$"))
    page.goto(f"{server.base}/inbox")
    press(page, "j", "e")
    expect(page.get_by_role("status").filter(has_text="is dismissed")).to_be_visible()
    expect(page.get_by_text("Nothing needs you.")).to_be_visible()


def test_backups_are_gone_through_and_verified(server, browse):
    page = browse(server).open("/history/backups")
    press(page, "v")
    expect(page.locator("#all-backups .mark")).to_contain_text("Verified")
    press(page, "j", "Enter")
    expect(page.get_by_role("link", name="Conversation")).to_be_visible()
    press(page, "j", "v")
    expect(rows(page).first).to_contain_text("Verified")
    is_current(page, 0)
    press(page, "j")
    says(page, "This is the last row of this page")


def test_a_row_that_is_drawn_again_keeps_the_focus_although_another_response_comes_at_the_same_time(server, browse):
    page = browse(server).open("/history/backups")
    page.get_by_role("link", name=title("written")).click()
    expect(page.get_by_role("link", name="Conversation")).to_be_visible()
    page.evaluate(ANOTHER_RESPONSE)
    press(page, "j", "v")
    expect(rows(page).first).to_contain_text("Verified")
    expect(page.locator(".htmx-settling")).to_have_count(0)
    is_current(page, 0)


@pytest.mark.parametrize("address", ["/", "/inbox", "/history/backups"])
def test_the_keys_of_a_list_are_on_its_list_of_keys(address, server, browse):
    page = browse(server).open(address)
    press(page, "?")
    expect(page.locator("#keys-help")).to_contain_text("next, previous row")
    press(page, "j")
    expect(page.locator(".is-current")).to_have_count(0)


def test_keys_pressed_before_the_page_hears_them_move_in_order(server, browse):
    with unready(browse(server), "/?sort=name") as page:
        press(page, "j", "j", "j", "k")
    is_current(page, 1)
    press(page, "j")
    is_current(page, 2)


def test_what_is_typed_before_the_page_hears_it_is_in_the_field(server, browse):
    with unready(browse(server), "/") as page:
        press(page, "/", *"planned")
    expect(page.locator("#q")).to_be_focused()
    expect(page.locator("#q")).to_have_value("planned")
    expect(rows(page)).to_have_count(1)


def test_a_key_that_submits_a_form_is_not_kept_for_a_page_that_does_not_hear_it(server, browse):
    sent: list[str] = []
    with unready(browse(server), "/history/backups") as page:
        page.on("request", lambda request: sent.append(request.method))
        press(page, "v", "j")
    is_current(page, 0)
    assert "POST" not in sent
