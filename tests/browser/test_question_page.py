"""The page of a question, and the banner, for people who use a keyboard, a screen reader or a phone."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.asking_bridge import AskingBridge
from tests.browser.chromium import Watched
from tests.browser.test_shots import HEIGHT, WIDTHS, faults_at_this_width
from tests.factories import session_bytes, working_session
from tests.files import place
from tests.server import Server, start_server
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
def server(tmp_path: Path) -> Iterator[Server]:
    recorded = working_session()
    recorded[1]["message"]["content"] = LONG_TITLE
    place(tmp_path / "sessions" / "work.jsonl", session_bytes(recorded))
    roots = [{"path": str(tmp_path / "sessions"), "agent": "pi", "reader": "pi"}]
    with start_server(tmp_path, REDLINE_ROOTS=json.dumps(roots)) as running:
        running.session("work.jsonl")
        yield running


@pytest.fixture
def bridge(server: Server) -> AskingBridge:
    """The bridge of an agent that waits for a review."""
    asking = AskingBridge(server.data, server.plain, server.root / "work.jsonl")
    asking.ask()
    wait_until(lambda: asking.poll()["state"] == "waiting")
    return asking


def test_a_long_title_fits(server: Server, browse: Opener, bridge: AskingBridge) -> None:
    faults: list[str] = []
    for path in ("/", f"/handshakes/{bridge.number}", "/handshakes/"):
        page = browse(server).open(path)
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": HEIGHT})
            faults += [f"{path}, {width} px: {fault}" for fault in faults_at_this_width(page, path)]
    assert not faults, "\n".join(faults)


def test_nothing_moves_until_something_is_decided(
    server: Server, browse: Opener, bridge: AskingBridge
) -> None:
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


def test_another_page_is_told_what_was_decided(server: Server, browse: Opener, bridge: AskingBridge) -> None:
    page = browse(server).open(f"/handshakes/{bridge.number}")
    news = page.locator("#handshake-news")
    expect(news).to_be_empty()
    bridge.report("withdrawn")
    expect(news).to_have_text("Declined")
