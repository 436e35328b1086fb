"""The page of a question, and the banner, for people who use a keyboard, a screen reader or a phone."""

from collections.abc import Callable

import pytest
from playwright.sync_api import expect

from tests.asking_bridge import AskingBridge
from tests.browser.chromium import Watched
from tests.browser.page_checks import have_no_faults
from tests.factories import working_session
from tests.server import place_in
from tests.wait import wait_until

Opener = Callable[..., Watched]
LONG_TITLE = "Read @packages/coding-agent/src/main.ts and @packages/coding-agent/src/tui/tui-renderer.ts " * 3
RECORD_SPEECH = """
window.spoken = 0;
new MutationObserver((changes) => {
  const elements = changes.map(({ target }) => target.closest ? target : target.parentElement);
  window.spoken += elements.filter((element) => !element.closest("[aria-live=off]")).length;
}).observe(document.querySelector("#agents-waiting"), { childList: true, subtree: true, characterData: true });
"""
"""Counts the changes in the banner that a screen reader reads out."""


@pytest.fixture
def server(shared_server, tmp_path):
    recorded = working_session()
    recorded[1]["message"]["content"] = LONG_TITLE
    with place_in(shared_server, tmp_path.name, agent="pi") as mine:
        mine.put("work.jsonl", recorded)
        mine.session("work.jsonl")
        yield mine


@pytest.fixture
def bridge(server):
    """The bridge of an agent that waits for a review, at most until the test ends."""
    asking = AskingBridge(server.data, server.plain, server.root / "work.jsonl")
    asking.ask()
    wait_until(lambda: asking.poll()["state"] == "waiting")
    yield asking
    asking.report("withdrawn")


def test_a_long_title_fits(server, browse, bridge):
    pages = {"list": "/", "question": f"/handshakes/{bridge.number}", "questions": "/handshakes/"}
    have_no_faults(browse(server), {f"{name}-of-a-long-title": path for name, path in pages.items()})


def test_nothing_moves_until_something_is_decided(server, browse, bridge):
    page = browse(server).open(f"/handshakes/{bridge.number}")
    page.wait_for_load_state("networkidle")
    left = page.locator("#handshake [data-ends]")
    expect(left).to_contain_text("left")
    button = page.get_by_role("button", name="pi stops the turn")
    button.focus()
    page.evaluate(RECORD_SPEECH)
    before = left.inner_text()
    with page.expect_response(lambda answer: answer.status == 204):
        expect(left).not_to_have_text(before)
    expect(button).to_be_focused()
    assert page.evaluate("window.spoken") == 0
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Declined")).to_be_visible()


def test_another_page_is_told_what_was_decided(server, browse, bridge):
    page = browse(server).open(f"/handshakes/{bridge.number}")
    news = page.locator("#handshake-news")
    expect(news).to_be_empty()
    bridge.report("withdrawn")
    expect(news).to_have_text("Declined")
