"""The walk through a tree in a browser: an entry is labelled, the agent moved there and back, and a fork made."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from sessions_app.sessionlog.outline import labels
from sessions_app.storage.session_loader import load_session
from tests.factories import assistant, chain, text, user
from tests.server import place_in


@pytest.fixture(scope="module")
def server(shared_server):
    with place_in(shared_server, "navigation") as mine:
        for name in ("keys", "plain"):
            said = (one for at in range(3) for one in (user(f"{name} {at}."), assistant(text("Done."))))
            mine.put(f"{name}.jsonl", chain(*said))
        yield mine


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
    assert [entry.id for entry in load_session(path).tree.branch(load_session(path).leaf_id)][:-1] == ["e1", "e2"]

    page.get_by_role("link", name="move back").click()
    page.get_by_role("button", name="Move here").click()
    expect(page.get_by_text("Moved: the next prompt follows that entry.")).to_be_visible()
    assert "e6" in [entry.id for entry in load_session(path).tree.branch(load_session(path).leaf_id)]

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
