"""The tree in a browser: its keys move through the rows and never into nothing, and a fold opens in place."""

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.factories import assistant, chain, message, text, user
from tests.server import place_in


@pytest.fixture(scope="module")
def server(shared_server):
    """A session of eight turns, with a branch that leaves after the last but one."""
    talk = chain(*(said for at in range(8) for said in (user(f"Part {at}."), assistant(text("Done.")))))
    talk.insert(-2, message("side", "e14", user("Aside.")))
    with place_in(shared_server, "tree") as mine:
        mine.put("tree.jsonl", talk)
        yield mine


@pytest.fixture
def page(server, browse):
    return browse(server).open(f"{server.session('Part 0.')}/tree")


def row(page: Page, words: str) -> Locator:
    return page.locator(".knot__text", has_text=words)


def test_keys_move_the_focus_from_row_to_row(page):
    for key, words in (
        ("k", "Aside."),
        ("k", "Part 6."),
        ("k", "turns without"),
        ("ArrowUp", "Part 0."),
        ("j", "turns"),
    ):
        page.keyboard.press(key)
        expect(row(page, words)).to_be_focused()


def test_brackets_move_to_the_next_fork(page):
    page.keyboard.press("[")
    expect(row(page, "Aside.")).to_be_focused()
    page.keyboard.press("[")
    expect(row(page, "Part 6.")).to_be_focused()
    page.keyboard.press("]")
    expect(row(page, "Aside.")).to_be_focused()


def test_enter_opens_a_fold_and_selects_a_row_in_place(page):
    row(page, "turns without").focus()
    page.keyboard.press("Enter")
    expect(row(page, "Part 1.")).to_be_focused()
    row(page, "Aside.").focus()
    page.keyboard.press("Enter")
    expect(page.locator("aside p").first).to_have_text("Aside.")
    expect(row(page, "Aside.")).to_be_focused()
    # What was opened stays open, also for whoever gets the address.
    page.reload()
    expect(row(page, "Part 1.")).to_be_visible()
    expect(page.locator("aside p").first).to_have_text("Aside.")
    page.go_back()
    expect(page.locator("aside p").first).to_have_text("Part 7.")


def test_slash_goes_to_the_search_and_escape_leaves_it(page):
    page.keyboard.press("/")
    expect(page.get_by_label("Label or text")).to_be_focused()
    page.keyboard.type("j part")
    expect(page.get_by_label("Label or text")).to_have_value("j part")
    page.keyboard.press("Escape")
    expect(row(page, "Part 7.")).to_be_focused()


def test_an_id_is_copied(server, browse):
    watched = browse(server, permissions=["clipboard-read", "clipboard-write"])
    page = watched.open(f"{server.session('Part 0.')}/tree?at=side")
    page.get_by_role("button", name="Copy the id").click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == "side"


def test_the_tree_works_without_a_script(server, browse):
    watched = browse(server, java_script_enabled=False)
    page = watched.open(f"{server.session('Part 0.')}/tree")
    row(page, "turns without").click()
    row(page, "Aside.").click()
    expect(page.locator("aside p").first).to_have_text("Aside.")
    expect(row(page, "Part 1.")).to_be_visible()
    expect(page.get_by_role("button", name="Copy the id")).to_be_hidden()
    page.get_by_role("link", name="Compare with the active branch").click()
    expect(page.get_by_role("heading", name="Two branches")).to_be_visible()
