"""A whole review without a mouse: few key presses for hundreds of proposals, and none of them ignored."""

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser.acts import number_of
from tests.browser.scenarios import finished_run, query_number, run_number
from tests.factories import assistant, call, chain, result, text, user
from tests.server import place_in

PROPOSALS = 370
REJECTIONS = 12
MOST_PRESSES = 120
BUTTON = "document.activeElement.matches('button[type=submit]') && document.activeElement.form.method === 'post'"
BOX = "document.activeElement.matches('input[name=yes]:not(:checked)')"


@pytest.fixture(scope="module")
def server(shared_server):
    tools = ("read", "bash", "search", "fetch")
    steps = [
        said
        for step in range(PROPOSALS + 40)
        for said in (
            *([user(f"Mend part {step // 40} of the wide parser.")] if step % 40 == 0 else []),
            assistant(call(f"c{step}", tools[step % 4], path=f"src/{step % 90}.py")),
            result(f"c{step}", "\n".join(f"line {n} of {step}" for n in range(30)), name=tools[step % 4]),
        )
    ]
    with place_in(shared_server, "desk") as mine:
        mine.put("wide.jsonl", chain(*steps, assistant(text("Mended.")), user("Good.")))
        yield mine


class Keyboard:
    """The keys of a page, counted."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.presses = 0

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)
            self.presses += 1


@pytest.mark.long
def test_hundreds_of_proposals_are_reviewed_and_committed_with_few_keys(server, browse):
    run = finished_run(server, server.session("wide parser"), keep="5")
    page = browse(server).open(f"{run}?by=tool")
    bar = page.locator("#bar")
    assert int(bar.get_attribute("data-undecided") or "") >= PROPOSALS
    groups = number_of(page.locator("section.group"))
    keyboard = Keyboard(page)
    for group in range(groups):
        # The first group is open; after a group was approved, the cursor is on the line of the next one.
        keyboard.press("]" if group == 0 else "Enter")
        keyboard.press("j")
        for _ in range(REJECTIONS // groups):
            keyboard.press("x", "n")
        keyboard.press("A")
    expect(bar).to_have_attribute("data-undecided", "0")
    expect(bar.locator("dl div", has_text="Rejected").locator("dd")).to_have_text(str(REJECTIONS))
    decisions = "SELECT count(*) FROM compaction_app_decision WHERE run_id = ?"
    assert query_number(server, decisions, run_number(run)) == REJECTIONS + groups
    keyboard.press("g", "c")
    page.wait_for_url(re.compile("/commit$"))
    while not page.evaluate(BUTTON):
        keyboard.press("Tab")
        if page.evaluate(BOX):
            keyboard.press("Space")
        assert keyboard.presses < MOST_PRESSES
    keyboard.press("Enter")
    page.wait_for_url(re.compile("/result$"))
    assert keyboard.presses < MOST_PRESSES
