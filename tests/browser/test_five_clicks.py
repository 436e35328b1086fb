"""The main job, from a row of the list to a committed plan: five clicks and four pages. Ticks are not counted."""

import json
import re
from collections.abc import Callable

from playwright.sync_api import Page, expect

from sessions_app.agents.demo import TITLE
from tests.browser.acts import confirm_all
from tests.browser.agent_sessions import AgentHome, claude_session
from tests.browser.chromium import Watched
from tests.server import Server, start_server

TASK = "Mend the export of tables."


class Clicks:
    """Counts the clicks and the pages of a walk; a panel belongs to the page beside it."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.number = 0
        self.pages: list[str] = []
        page.on("framenavigated", lambda frame: self._arrive(frame.url) if frame == page.main_frame else None)

    def _arrive(self, address: str) -> None:
        path = re.sub(r"/compact$", "", address.partition("?")[0])
        if not self.pages or self.pages[-1] != path:
            self.pages.append(path)

    def click(self, role: str, name: str | re.Pattern[str], within: str = "body") -> None:
        self.page.locator(within).get_by_role(role, name=name).first.click()  # type: ignore[arg-type]  # a role of this module
        self.number += 1


def walk(page: Page, row: str) -> Clicks:
    """From the list to the result of a plan; the first page is the one behind the row."""
    clicks = Clicks(page)
    clicks.click("link", re.compile(row))
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    clicks.click("link", "Compact…", "#session-head")
    expect(page.get_by_role("heading", name="Compact", exact=True)).to_be_visible()
    clicks.click("button", re.compile("^Plan"))
    clicks.click("button", re.compile("^Approve all .* and confirm$"))
    expect(page).to_have_url(re.compile("/confirm"))
    confirm_all(page)
    clicks.click("button", re.compile("^Back up and"))
    expect(page).to_have_url(re.compile("/result$"))
    return clicks


def check(browse: Callable[[Server], Watched], server: Server, row: str) -> None:
    page = browse(server).open("/")
    clicks = walk(page, row)
    assert clicks.number == 5
    assert len(clicks.pages) == 4, clicks.pages
    page.close()  # before its server ends


def test_the_demo_is_compacted_in_five_clicks_and_four_pages(browse, tmp_path):
    """Starts its server: only a new installation has the demo."""
    with start_server(tmp_path) as server:
        server.wait_for(lambda: TITLE in server.get("/"))
        check(browse, server, TITLE)


def test_a_session_of_claude_code_is_compacted_in_five_clicks_and_four_pages(browse, tmp_path):
    """Starts its server: it finds the session in the home of its agent."""
    home = AgentHome(tmp_path / "home")
    home.claude(1, claude_session(TASK).content)
    with start_server(tmp_path, REDLINE_ROOTS=json.dumps(home.roots)) as server:
        server.wait_for(lambda: TASK in server.get("/"))
        check(browse, server, TASK)
