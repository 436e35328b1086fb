"""Evidence appears where a proposal is opened, and a preview of a selection while a pattern is typed."""

import pytest
from playwright.sync_api import Page, expect

from tests.browser.acts import press
from tests.browser.chromium import hold
from tests.browser.scenarios import finished_run
from tests.factories import assistant, call, chain, result, text, user
from tests.server import place_in
from tests.wait import wait_until

OLD = [f"def function_{number}() -> None:" for number in range(40)]
NEW = [*OLD[:30], *(f"def renamed_{number}() -> None:" for number in range(40))]


@pytest.fixture(scope="module")
def server(shared_server):
    work = [
        user("Mend the parser in src/a.py."),
        assistant(call("c1", path="src/a.py")),
        result("c1", "\n".join(OLD)),
        assistant(text("Mended.")),
        user("Look again."),
        assistant(call("c2", path="src/a.py")),
        result("c2", "\n".join(NEW)),
        assistant(text("It is.")),
    ]
    with place_in(shared_server, "evidence") as mine:
        mine.put("short.jsonl", chain(*work))
        yield mine


@pytest.fixture(scope="module")
def run(server):
    return finished_run(server, server.session("the parser"), keep="60")


def undecided_of(page: Page) -> int:
    return int(page.locator("#bar").get_attribute("data-undecided") or "")


@pytest.mark.parametrize("width", [390, 1_440])
def test_evidence_appears_where_a_proposal_is_opened(server, run, browse, width):
    page = browse(server, viewport={"width": width, "height": 900}).open(run)
    undecided = undecided_of(page)
    expect(page.locator(".proposal__still").first).to_contain_text("30 of 40")
    press(page, "n", "Enter")
    opened = page.locator(".proposal__open .evidence")
    expect(opened).to_contain_text("Only 30 of 40 lines are kept in later entries, unchanged; 10 are not.")
    expect(opened.locator(".is-lost")).to_have_count(10)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    # Keys act on the row while and after its evidence is loaded.
    page.keyboard.press("a")
    expect(page.locator("#bar")).to_have_attribute("data-undecided", str(undecided - 1))
    page.keyboard.press("u")
    expect(page.locator("#bar")).to_have_attribute("data-undecided", str(undecided))


def test_what_loads_slowly_has_a_place_until_it_is_there(server, run, browse):
    page = browse(server).open(run)
    held = hold(page, "**/evidence?*")
    press(page, "n", "Enter")
    expect(page.locator(".evidence > .htmx-request")).to_be_visible()
    bars = "getComputedStyle(document.querySelector('.evidence'), '::after').height"
    wait_until(lambda: page.evaluate(bars) == "32px", "nothing shows that it is being loaded")
    held.pop().continue_()
    expect(page.locator(".evidence").first).to_contain_text("Only 30 of 40 lines")


def test_a_preview_follows_the_pattern_that_is_typed(server, run, browse):
    watched = browse(server)
    undecided = undecided_of(watched.open(run))
    page = watched.open(f"{run}/select")
    previews = {
        "renamed_7": "1 more cannot be deleted",
        "/(/": "The pattern cannot be used",
        "/function_3[0-9]/": "1 proposal",
    }
    for typed, words in previews.items():
        page.get_by_label("Text, or a pattern between slashes", exact=True).fill(typed)
        expect(page.locator("#preview")).to_contain_text(words)
    page.get_by_role("button", name="Approve 1", exact=True).click()
    expect(page.get_by_role("status").first).to_contain_text("You selected everything with /function_3[0-9]/.")
    page.wait_for_load_state()
    page.keyboard.press("u")
    expect(page.locator("#bar")).to_have_attribute("data-undecided", str(undecided))


def test_a_plan_is_started_from_what_is_like_an_entry(server, run, browse):
    page = browse(server).open(f"{server.session('the parser')}?view=all")
    press(page, "j", "j", "j", "+")
    expect(page.get_by_role("link", name="everything older than this")).to_be_visible()
    page.get_by_role("link", name="all results of read").click()
    page.get_by_role("button", name="Start a plan from 1").click()
    expect(page.get_by_role("main")).to_contain_text("You selected what this plan proposes.")
