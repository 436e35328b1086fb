"""The search in a browser: reached by one key from every page, used without a mouse, and it leads to the place."""

import re

import pytest
from playwright.sync_api import expect

from tests.browser.acts import press
from tests.browser.page_checks import VIEWS, View, have_no_faults_here
from tests.factories import assistant, call, chain, result, text, user
from tests.html import text_of
from tests.server import place_in

TURNS = 60


@pytest.fixture(scope="module")
def server(shared_server):
    turns = [
        said
        for turn in range(1, TURNS + 1)
        for said in (
            user(f"Look for part {turn}."),
            assistant(text("I look."), call(f"c{turn}", path=f"src/{turn}.py")),
            result(f"c{turn}", "a needle" if turn in (2, 40) else f"line {turn}"),
        )
    ]
    with place_in(shared_server, "search") as mine:
        # The one that is written last was used last, and so comes first.
        mine.put("other.jsonl", chain(user("Where is the needle?")))
        mine.put("hay.jsonl", chain(*turns))
        mine.wait_for(lambda: "3 places in 2 sessions" in text_of(mine.get("/search?q=needle")))
        yield mine


@pytest.fixture
def page(server, browse):
    return browse(server).open("/")


def test_the_key_leads_to_the_nearest_field_and_twice_to_the_palette(page):
    page.keyboard.press("/")
    expect(page.locator("#q")).to_be_focused()
    page.keyboard.press("/")
    expect(page.locator("#palette-words")).to_be_focused()
    page.keyboard.type("needle")
    page.keyboard.press("Control+Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("3 places in 2 sessions")
    page.keyboard.press("/")
    expect(page.locator("#search-query")).to_be_focused()
    page.keyboard.press("/")
    expect(page.locator("#palette-words")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.locator("#palette")).to_be_hidden()
    expect(page.locator("#search-query")).to_be_focused()


def test_the_palette_goes_to_a_session_by_its_title(page):
    page.keyboard.press("Control+k")
    first = page.locator("#palette [aria-selected=true]")
    expect(first).to_contain_text("Look for part 1.")
    page.keyboard.type("where")
    expect(first).to_contain_text("Where is the needle?")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("Where is the needle?")


def test_what_is_typed_faster_than_the_answer_comes_opens_what_was_typed(page):
    page.keyboard.press("Control+k")
    page.keyboard.type("benchmark")
    page.keyboard.press("Enter")
    page.wait_for_url("**/insights/benchmark")


def test_the_palette_offers_what_the_page_does_and_the_turns_of_a_session(server, browse):
    page = browse(server).open(server.session("other.jsonl"))
    page.keyboard.press("Control+k")
    options = page.locator("#palette").get_by_role("option")
    page.keyboard.type("> compact")
    expect(options).to_have_text([re.compile("Compact…"), "Compaction settings…"])
    page.locator("#palette-words").fill("# needle")
    expect(options).to_have_text([re.compile("Where is the needle")])
    page.locator("#palette-words").fill("> compact")
    expect(options).to_have_text([re.compile("Compact…"), "Compaction settings…"])
    page.keyboard.press("Enter")
    page.wait_for_url("**/compact")


def test_escape_closes_the_palette_and_the_focus_returns(page):
    opener = page.get_by_role("link", name="Search, or go to")
    opener.press("Enter")
    expect(page.locator("#palette-words")).to_be_focused()
    expect(page.locator("#palette-words")).to_have_attribute("aria-activedescendant", "palette-0")
    page.keyboard.press("ArrowDown")
    expect(page.locator("#palette-words")).to_have_attribute("aria-activedescendant", "palette-1")
    have_no_faults_here(page, "palette", VIEWS.index(View(1_440, "dark", "own")))
    page.keyboard.press("Escape")
    expect(opener).to_be_focused()


def test_without_a_script_the_palette_is_the_search(server, browse):
    page = browse(server, java_script_enabled=False).open("/")
    page.get_by_role("link", name="Search, or go to").click()
    expect(page.locator("#search-query")).to_be_visible()


def test_a_slash_in_a_query_is_typed(page):
    page.keyboard.press("/")
    page.keyboard.type("a/b")
    expect(page.locator("#q")).to_have_value("a/b")


def test_places_are_reached_and_opened_by_keys(server, browse):
    page = browse(server).open("/search?q=needle")
    page.locator("#search-query").press("ArrowDown")
    expect(page.locator(".hit").nth(0)).to_be_focused()
    press(page, "j", "j", "k")
    expect(page.locator(".hit").nth(1)).to_be_focused()
    page.keyboard.press("Enter")
    page.wait_for_url("**/entries/*?q=needle")


def test_filters_narrow_without_loading_the_page(server, browse):
    page = browse(server).open("/search?q=needle")
    page.evaluate("window.unloaded = false")
    page.get_by_label("What people said").check()
    expect(page.get_by_role("heading", level=1)).to_have_text("1 place in 1 session")
    assert page.evaluate("window.unloaded") is False
    assert "in=said" in page.url
    page.get_by_label("What people said").uncheck()
    expect(page.get_by_role("heading", level=1)).to_have_text("3 places in 2 sessions")


def test_places_in_a_session_are_reached_by_keys_and_marked(server, browse):
    page = browse(server).open(server.session("hay.jsonl"))
    page.keyboard.press("/")
    expect(page.locator("#search-session")).to_be_focused()
    page.keyboard.type("needle")
    page.keyboard.press("Enter")
    expect(page.locator(".hit-steps [role=status]")).to_have_text("1 of 2")
    marked = "[...CSS.highlights.get('found')].map((range) => range.toString())"
    assert page.evaluate(marked) == ["needle"]
    first = page.url
    press(page, "Escape", "n")
    expect(page.locator(".hit-steps [role=status]")).to_have_text("2 of 2")
    press(page, "N")
    expect(page.locator(".hit-steps [role=status]")).to_have_text("1 of 2")
    assert page.url == first
