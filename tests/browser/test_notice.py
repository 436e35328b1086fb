"""System notifications about new proposals: only if enabled, as text, and once.

The system's own display is out of reach; a stand-in for the browser's `Notification` records the notifications.
"""

import json
import re
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.chromium import Watched, poll
from tests.browser.scenarios import newest_run
from tests.factories import assistant, message, session_bytes, text, working_session
from tests.files import append_as_agent
from tests.server import Server, place_in, start_server

Opener = Callable[..., Watched]
WINDOW = 50_000
HOSTILE = "Mend <img src=x onerror=alert(1)> \u202e the parser."
STAND_IN = """
(() => {
  if (window.location.protocol === "about:") return;
  window.openSockets = 0;
  window.WebSocket = class extends WebSocket {
    constructor(...given) { super(...given); this.addEventListener("open", () => { window.openSockets += 1; }); }
  };
  const told = [];
  let permission = window.sessionStorage.getItem("permission") || "%s";
  window.toldBySystem = told;
  window.Notification = class extends EventTarget {
    constructor(title, options) { super(); told.push({ title, ...options }); window.lastNotice = this; }
    static get permission() { return permission; }
    static async requestPermission() {
      if (!navigator.userActivation.isActive) throw new Error("nobody pressed a button");
      permission = "granted";
      window.sessionStorage.setItem("permission", permission);
      return permission;
    }
    close() { this.closed = true; }
  };
})();
"""


@pytest.fixture(scope="module")
def planning_server(tmp_path_factory):
    """A server that plans sessions itself as soon as the windows of their models are full."""
    around = {"REDLINE_PLAN_BY_ITSELF": "true", "REDLINE_WINDOWS": json.dumps({"small-model": WINDOW})}
    base = tmp_path_factory.mktemp("notice")
    with start_server(base, roots=base / "atomic", **around) as running:
        yield running


@pytest.fixture
def server(planning_server, tmp_path):
    """A place with a session."""
    recorded = working_session()
    recorded[1]["message"]["content"] = HOSTILE
    with place_in(planning_server, tmp_path.name) as mine:
        mine.put("work.jsonl", recorded)
        mine.session("the parser.")
        yield mine


def fill(server: Server) -> None:
    """Let an agent fill the window of its model; when the test ends, the plan that results is dismissed."""
    usage = {"totalTokens": WINDOW}
    last = assistant(text("Done."), provider="p", model="small-model", usage=usage)
    append_as_agent(server.root / "work.jsonl", session_bytes([message("last", "e27", last)]))
    server.ends.callback(lambda: server.post("/inbox", f"/plans/{newest_run(server)}/dismiss"))


def window(browse: Opener, server: Server, permission: str = "granted") -> Watched:
    watched = browse(server)
    watched.context.grant_permissions(["notifications"], origin=server.base)
    watched.context.add_init_script(STAND_IN % permission)
    return watched


def notices(page: Page) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = page.evaluate("window.toldBySystem")
    return found


def connected(page: Page) -> None:
    page.locator("#listing[data-asked]").wait_for()


def test_an_enabled_page_notifies_of_a_proposal_as_text(server, browse):
    page = window(browse, server, permission="default").open("/inbox")
    expect(page.locator("#notice")).to_be_visible()
    page.get_by_role("button", name="Notify me in this browser").click()
    expect(page.get_by_role("button", name="Stop notifying me in this browser")).to_be_visible()
    page.goto(server.base + "/")
    connected(page)
    fill(server)
    expect(page.locator("#waiting")).to_be_visible()
    expect(page.locator("#waiting span").first).to_have_text("1")
    [notice] = poll(page, lambda: notices(page))
    assert notice["title"] == "A plan is ready for review"
    assert "<img src=x onerror=alert(1)>" in notice["body"]
    assert "\u202e" not in notice["body"]
    expect(page.locator("img")).to_have_count(0)
    with page.expect_popup() as opened:
        page.evaluate("window.lastNotice.dispatchEvent(new Event('click'))")
    expect(opened.value.get_by_role("link", name="the parser")).to_be_visible()
    expect(opened.value).to_have_url(re.compile(r"/plans/\d+$"))
    expect(page).to_have_title(re.compile(r"^\(1\) "))
    opened.value.goto(f"{server.base}/inbox")
    opened.value.get_by_role("button", name="Dismiss").click()
    expect(page.locator("#waiting")).to_be_hidden()
    expect(page).to_have_title(re.compile(r"^[^(]"))


def test_every_page_notifies_with_the_same_tag(server, browse):
    watched = window(browse, server)
    listed = watched.open("/")
    connected(listed)
    settings = watched.open("/settings")
    poll(settings, lambda: settings.evaluate("window.openSockets === 1"))
    fill(server)
    expect(listed.locator("#waiting")).to_be_visible()
    expect(settings.locator("#waiting")).to_be_visible()
    tags = [notice["tag"] for page in (listed, settings) for notice in poll(page, partial(notices, page))]
    assert len(tags) == 2
    assert len(set(tags)) == 1, "the system shows one of a tag"


@pytest.mark.parametrize("permission", ["default", "granted"])
def test_without_opting_in_and_after_opting_out_there_is_no_notification(server, browse, permission):
    page = window(browse, server, permission).open("/inbox")
    if permission == "granted":
        page.get_by_role("button", name="Stop notifying me in this browser").click()
    expect(page.get_by_role("button", name="Notify me in this browser")).to_be_visible()
    page.goto(server.base + "/")
    connected(page)
    fill(server)
    expect(page.locator("#waiting")).to_be_visible()
    assert notices(page) == []


def test_the_page_reports_that_the_browser_refuses_notifications(server, browse):
    page = window(browse, server, permission="denied").open("/inbox")
    expect(page.locator("#notice")).to_contain_text("Notifications are blocked")
    expect(page.locator("#notice button")).to_be_hidden()
