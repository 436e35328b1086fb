"""An agent that waits: every open page says so at once, and the review lets it continue.

The page of its question is also for people who use a keyboard, a screen reader or a phone.
"""

import re
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Page, expect

from tests.asking_bridge import AskingBridge
from tests.browser.acts import confirm_all
from tests.browser.chromium import Watched
from tests.browser.page_checks import have_no_faults
from tests.factories import working_session
from tests.server import place_in
from tests.wait import wait_until

MARK_LISTENING = """
window.WebSocket = class extends WebSocket {
  constructor(...given) {
    super(...given);
    this.addEventListener("open", () => document.documentElement.setAttribute("data-listening", ""));
  }
};
"""
"""Marks a page whose socket is open: what happens from then on reaches it."""
RECORD_SPEECH = """
window.spoken = 0;
new MutationObserver((changes) => {
  const elements = changes.map(({ target }) => target.closest ? target : target.parentElement);
  window.spoken += elements.filter((element) => !element.closest("[aria-live=off]")).length;
}).observe(document.querySelector("#agents-waiting"), { childList: true, subtree: true, characterData: true });
"""
"""Counts the changes in the banner that a screen reader reads out."""
LONG_TITLE = "Read @packages/coding-agent/src/main.ts and @packages/coding-agent/src/tui/tui-renderer.ts " * 3


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
    """The bridge of an agent that has this session; what it asks ends with the test."""
    asking = AskingBridge(server.data, server.plain, server.root / "work.jsonl")
    yield asking
    asking.report("withdrawn")


@pytest.fixture
def question(server, browse, bridge):
    """The page of a question that waits for a review."""
    bridge.ask()
    wait_until(lambda: bridge.poll()["state"] == "waiting")
    return browse(server).open(f"/inbox/agents/{bridge.number}")


def listening(watched: Watched, path: str = "/") -> Page:
    """A page in a new tab, whose socket is open."""
    watched.context.add_init_script(MARK_LISTENING)
    page = watched.open(path)
    expect(page.locator("html[data-listening]")).to_be_attached()
    return page


def banner(page: Page) -> None:
    expect(page.locator("#agents-waiting")).to_contain_text("pi waits for your review of")
    expect(page).to_have_title(re.compile(r"^\(\d+\) pi waits until \d\d:\d\d · "))
    expect(page.locator("#agents-waiting [data-waiting-since]")).to_have_text(re.compile(r"^asked \d+:\d\d ago$"))
    expect(page.locator("#agents-waiting [data-ends]")).to_have_text(re.compile(r"^, \d+:\d\d left$"))


def test_every_open_page_says_at_once_who_waits(server, browse, bridge):
    watched = browse(server)
    pages = [listening(watched, path) for path in ("/", "/settings", "/inbox")]
    bridge.ask()
    for page in pages:
        banner(page)
    bridge.report("withdrawn")
    for page in pages:
        expect(page.locator(".banner--asked")).to_have_count(0)
        expect(page).not_to_have_title(re.compile("waits"))


def test_what_is_approved_is_applied_and_shown(server, browse, bridge):
    page = listening(browse(server))
    bridge.ask()
    banner(page)
    page.get_by_role("link", name=re.compile("^Review −")).first.click()
    expect(page).to_have_url(re.compile(r"/plans/\d+$"))
    page.get_by_role("button", name=re.compile("^Approve all .* and confirm$")).click()
    expect(page).to_have_url(re.compile("/confirm$"))
    confirm_all(page)
    page.get_by_role("button", name="Approve and let pi continue").click()
    expect(page.get_by_role("heading", name="pi applies what you approved")).to_be_visible()
    answer = bridge.answered()
    assert answer["do"] == "apply"
    bridge.report("applied", leaf=bridge.apply(answer))
    expect(page.get_by_role("heading", name="pi has what you approved")).to_be_visible()
    page.get_by_role("link", name="See what was written").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("deleted")


def test_a_declined_agent_does_what_was_chosen(server, browse, bridge):
    page = listening(browse(server))
    bridge.ask(reason="threshold")
    banner(page)
    page.get_by_role("link", name="Let it continue…").first.click()
    page.get_by_role("button", name="pi compacts as usual").click()
    expect(page.get_by_role("heading", name="Declined")).to_be_visible()
    assert bridge.answered()["do"] == "compact"


def test_the_pages_of_a_question_fit_and_are_accessible_although_the_title_is_long(server, browse, bridge):
    watched = browse(server)
    page = listening(watched)
    bridge.ask()
    banner(page)
    pages = {
        "asked": f"/inbox/agents/{bridge.number}",
        "questions": "/inbox/agents",
        "asked-review": urlsplit(bridge.poll()["review"]).path,
        "asked-list": "/",
    }
    have_no_faults(watched, pages)


def test_nothing_moves_until_something_is_decided(question):
    question.wait_for_load_state("networkidle")
    left = question.locator("#handshake [data-ends]")
    expect(left).to_contain_text("left")
    button = question.get_by_role("button", name="pi stops the turn")
    button.focus()
    question.evaluate(RECORD_SPEECH)
    before = left.inner_text()
    with question.expect_response(lambda answer: answer.status == 204):
        expect(left).not_to_have_text(before)
    expect(button).to_be_focused()
    assert question.evaluate("window.spoken") == 0
    question.keyboard.press("Enter")
    expect(question.get_by_role("heading", name="Declined")).to_be_visible()


def test_another_page_is_told_what_was_decided(question, bridge):
    news = question.locator("#handshake-news")
    expect(news).to_be_empty()
    bridge.report("withdrawn")
    expect(news).to_have_text("Declined")
