"""The tree in a browser: its keys move through the rows and never into nothing, and a fold opens in place.

In a walk through it an entry is labelled, the agent moved there and back, and a fork made.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from sessions_app.sessionlog.tree import labels
from sessions_app.storage.session_loader import load_session
from tests.factories import assistant, chain, message, text, user
from tests.server import place_in


def talk(name: str, turns: int) -> list[dict[str, Any]]:
    return chain(*(said for at in range(turns) for said in (user(f"{name} {at}."), assistant(text("Done.")))))


@pytest.fixture(scope="module")
def server(shared_server):
    """A session of eight turns, with a branch that leaves after the last but one; and two to be changed."""
    forked = talk("Part", 8)
    forked.insert(-2, message("side", "e14", user("Aside.")))
    with place_in(shared_server, "tree") as mine:
        mine.put("tree.jsonl", forked)
        for name in ("keys", "plain"):
            mine.put(f"{name}.jsonl", talk(name, 3))
        yield mine


@pytest.fixture
def page(server, browse):
    return browse(server).open(f"{server.session('Part 0.')}/tree")


def row(page: Page, words: str) -> Locator:
    return page.locator(".knot__text", has_text=words)


def test_keys_move_the_focus_from_row_to_row(page):
    rows = ("Aside.", "Part 6.", "turns without", "Part 0.", "turns")
    for key, words in zip(("k", "k", "k", "ArrowUp", "j"), rows, strict=True):
        page.keyboard.press(key)
        expect(row(page, words)).to_be_focused()


def test_brackets_move_to_the_next_fork(page):
    for key, words in (("[", "Aside."), ("[", "Part 6."), ("]", "Aside.")):
        page.keyboard.press(key)
        expect(row(page, words)).to_be_focused()


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
    page = browse(server, java_script_enabled=False).open(f"{server.session('Part 0.')}/tree")
    row(page, "turns without").click()
    row(page, "Aside.").click()
    expect(page.locator("aside p").first).to_have_text("Aside.")
    expect(row(page, "Part 1.")).to_be_visible()
    expect(page.get_by_role("button", name="Copy the id")).to_be_hidden()
    page.get_by_role("link", name="Compare with the active branch").click()
    expect(page.get_by_role("heading", name="Two branches")).to_be_visible()


# ---- a walk ----------------------------------------------------------------------------------------------


def branch_of(path: Path) -> list[str]:
    loaded = load_session(path)
    return [entry.id for entry in loaded.tree.branch(loaded.leaf_id)]


def walk(page: Page, path: Path, name: str, choose_label: Callable[[], object]) -> None:
    """Label turn 2, move before it, move back, and fork before it."""
    before = path.read_bytes()

    choose_label()
    page.get_by_role("textbox", name="Label").fill("the good part")
    page.get_by_role("button", name="Save the label").click()
    expect(page.get_by_role("status").filter(has_text="Labelled")).to_be_visible()
    expect(page.locator(".knot .tag", has_text="the good part")).to_be_visible()
    assert dict(labels(load_session(path).tree)) == {"e3": "the good part"}

    page.get_by_role("link", name="Move here…").click()
    expect(page.get_by_text("by a move back to")).to_be_visible()
    page.get_by_role("button", name="Move here").click()
    expect(page.locator(".chosen__again")).to_have_text(f"{name} 1.")
    assert branch_of(path)[:-1] == ["e1", "e2"]

    page.get_by_role("link", name="move back").click()
    page.get_by_role("button", name="Move here").click()
    expect(page.get_by_text("Moved: the next prompt follows that entry.")).to_be_visible()
    assert "e6" in branch_of(path)

    page.locator(".knot__text", has_text=f"{name} 1.").click()
    expect(page.locator(".chosen__text")).to_have_text(f"{name} 1.")
    page.get_by_role("link", name="Fork from here…").click()
    page.get_by_role("button", name="Make the fork").click()
    expect(page.get_by_text("A new session was made:")).to_be_visible()
    expect(page.locator(".chosen__again")).to_have_text(f"{name} 1.")
    heads = {
        one: json.loads(one.read_bytes().splitlines()[0]).get("parentSession") for one in path.parent.glob("*.jsonl")
    }
    (fork,) = (one for one, parent in heads.items() if parent == str(path))
    assert [entry.id for entry in load_session(fork).tree.entries] == ["e1", "e2"]
    assert path.read_bytes().startswith(before)


def test_a_walk_with_keys(server, browse):
    page = browse(server).open(f"{server.session('keys 0.')}/tree?at=e3")
    walk(page, server.root / "keys.jsonl", "keys", lambda: page.keyboard.press("e"))


def test_a_walk_without_a_script(server, browse):
    page = browse(server, java_script_enabled=False).open(f"{server.session('plain 0.')}/tree?at=e3")
    walk(page, server.root / "plain.jsonl", "plain", page.get_by_role("link", name="Label…").click)
