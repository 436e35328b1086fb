"""What every page has at its top: the list of its keys, the keys that lead elsewhere, and the theme."""

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser.acts import press
from tests.browser.chromium import intercept
from tests.browser.page_checks import VIEWS, View, have_no_faults_here
from tests.factories import chain, user
from tests.server import place_in

GROUND = "getComputedStyle(document.body).backgroundColor"
LIGHT, DARK = "rgb(251, 250, 246)", "rgb(23, 22, 20)"


@pytest.fixture(scope="module")
def server(shared_server):
    with place_in(shared_server, "frame") as mine:
        mine.put("one.jsonl", chain(user("Mend it."), user("And this.")))
        yield mine


def help_of(page: Page) -> str:
    page.keyboard.press("?")
    shown = page.get_by_role("dialog", name="This page")
    expect(shown).to_be_visible()
    words = shown.inner_text()
    page.keyboard.press("Escape")
    expect(shown).to_be_hidden()
    return words


@pytest.mark.parametrize("path", ["/", "/inbox", "/settings/models", "/settings", "/import", "/history"])
def test_a_question_mark_shows_the_keys_of_every_page(server, browse, path):
    assert "to the sessions" in help_of(browse(server).open(path))


def test_while_the_help_is_open_the_page_hears_no_key_and_the_focus_returns(server, browse):
    page = browse(server).open("/")
    opener = page.get_by_role("button", name="Help on this page")
    opener.click()
    shown = page.get_by_role("dialog", name="This page: Sessions")
    expect(shown.get_by_role("listitem")).to_have_count(5)
    have_no_faults_here(page, "help", VIEWS.index(View(1_440, "light", "own")))
    press(page, "g", "i", "j")
    expect(page).to_have_url(f"{server.base}/")
    expect(page.locator(".is-current")).to_have_count(0)
    press(page, "?")
    expect(shown).to_be_hidden()
    expect(opener).to_be_focused()


def test_the_help_opens_without_a_script(server, browse):
    page = browse(server, java_script_enabled=False).open("/")
    page.get_by_role("button", name="Help on this page").click()
    expect(page.get_by_role("heading", name="This page: Sessions")).to_be_visible()


def test_keys_lead_from_page_to_page(server, browse):
    session = server.session("Mend it.")
    page = browse(server).open(session)
    for keys, path in (("gt", f"{session}/tree"), ("gc", session), ("gi", "/inbox"), ("gs", "/")):
        press(page, *keys)
        expect(page).to_have_url(f"{server.base}{path}")


def test_a_letter_alone_and_a_letter_that_is_typed_lead_nowhere(server, browse):
    page = browse(server).open(f"{server.session('Mend it.')}/tree")
    page.keyboard.press("l")
    page.get_by_label("Label or text").fill("")
    page.keyboard.type("gl?")
    expect(page.get_by_label("Label or text")).to_have_value("gl?")
    expect(page).to_have_url(f"{server.base}{server.session('Mend it.')}/tree")
    expect(page.get_by_role("dialog", name="This page")).to_be_hidden()


@pytest.mark.parametrize("script", [True, False], ids=["with a script", "without one"])
def test_a_theme_is_chosen_and_drawn_at_once(server, browse, script):
    page = browse(server, color_scheme="light", java_script_enabled=script).open("/settings")
    page.get_by_role("button", name="Theme").click()
    page.get_by_role("button", name="Dark").click()
    expect(page).to_have_url(f"{server.base}/settings")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    if script:
        assert page.evaluate(GROUND) == DARK
        page.get_by_role("button", name="Theme").click()
        page.get_by_role("button", name="As the system").click()
        expect(page.locator("html:not([data-theme])")).to_be_attached()
        assert page.evaluate(GROUND) == LIGHT


def test_a_request_without_an_answer_is_reported(server, browse):
    watched = browse(server)
    watched.expect("ERR_CONNECTION_REFUSED|request failed", "htmx:")
    page = watched.open(f"{server.session('Mend it.')}/tree")
    intercept(page, re.compile("at="), lambda route: route.abort("connectionrefused"))
    page.get_by_role("link", name="Mend it.").last.click()
    said = page.get_by_text("Redline does not answer")
    expect(said).to_be_visible()
    # The answer to a request that the page makes by itself does not hide it; that to a person's does.
    page.evaluate("address => htmx.ajax('GET', address, {swap: 'none'})", page.url)
    expect(said).to_be_visible()
    page.unroute_all()
    page.get_by_role("link", name="Mend it.").last.click()
    expect(said).to_be_hidden()
