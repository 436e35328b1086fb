"""The review in a browser: no key press is lost, and unsaved decisions are shown."""

import re

import pytest
from playwright.sync_api import Page, Route, expect

from compaction_app.pages.review.presenter import ROWS
from tests.browser.acts import each, press
from tests.browser.chromium import Watched, hold, poll
from tests.browser.page_checks import GENERIC_FONTS, have_no_faults_here, keep
from tests.browser.scenarios import decide, finished_run, undo_all
from tests.factories import mended_parser
from tests.html import elements
from tests.server import Server, place_in

PROPOSALS = 2 * ROWS + 10
"""More than a group lists at first, and after it was asked for more."""
FAILED = "the server responded with a status of"


@pytest.fixture(scope="module")
def server(shared_server):
    with place_in(shared_server, "review") as mine:
        mine.put("long.jsonl", mended_parser("long", turns=PROPOSALS // 15 + 1, steps=15, lines=40))
        yield mine


@pytest.fixture(scope="module")
def run(server):
    return finished_run(server, server.session("long parser"), keep="3")


@pytest.fixture
def review(server, run):
    """The URL of a review without decisions."""
    yield run
    undo_all(server, run)


def counts(page: Page) -> tuple[int, int]:
    """The number of undecided proposals, and of all proposals."""
    undecided = int(page.locator("#bar").get_attribute("data-undecided") or "")
    total = re.search(r"([\d,]+) proposals", page.locator("#sums").inner_text())
    assert total is not None
    return undecided, int(total[1].replace(",", ""))


def groups_of(server: Server, run: str, by: str = "turn") -> list[str]:
    shown = elements(server.get(f"{run}?by={by}"), "section[data-key]")
    return [str(group.attributes["data-key"]) for group in shown]


def wait_for_undecided(page: Page, count: int) -> None:
    """Wait for this number as long as anything is decided within the time limit."""
    bar = page.locator("#bar")
    while (shown := bar.get_attribute("data-undecided")) != str(count):
        expect(bar).not_to_have_attribute("data-undecided", shown or "")


def current_row(page: Page) -> str:
    one = page.locator("li.proposal.is-current")
    expect(one).to_have_count(1)
    return one.get_attribute("id") or ""


def three_sent(page: Page) -> Route:
    """Approve the first three proposals; the requests do not arrive, of which the first is returned."""
    held = hold(page, "**/decide")
    press(page, "n")
    current_row(page)
    press(page, "a", "a", "a")
    expect(page.locator("li.proposal[data-sent]")).to_have_count(3)
    poll(page, lambda: bool(held))
    return held[0]


def rejected_in_another_tab(watched: Watched, review: str) -> tuple[Page, Page, str]:
    """Two tabs, in the first of which a row was rejected, and so pinned; and that row."""
    watched.expect(f"{FAILED} 409")
    one, other = watched.open(f"{review}?by=turn"), watched.open(f"{review}?by=turn")
    press(one, "n")
    pinned = current_row(one)
    press(one, "x")
    expect(one.locator(f"#{pinned}.is-kept")).to_be_visible()
    return one, other, pinned


# ---- keys ------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_every_press_of_a_counts_past_the_rows_that_are_loaded_and_after_a_reload(server, review, browse):
    page = browse(server).open(review)
    undecided, total = counts(page)
    assert undecided == total > 2 * ROWS
    half = total // 2
    press(page, "n")
    current_row(page)
    press(page, *["a"] * half)
    wait_for_undecided(page, total - half)
    page.reload()
    expect(page.locator(".is-current")).to_have_count(0)
    press(page, "n")
    current_row(page)
    press(page, *["a"] * (total - half))
    wait_for_undecided(page, 0)
    press(page, "a")
    expect(page.locator("#message")).to_contain_text("Nothing to approve here")
    page.reload()
    wait_for_undecided(page, 0)
    assert counts(page) == (0, total)


def test_where_the_first_groups_are_decided_a_key_goes_to_what_is_undecided(server, run, review, browse):
    for group in groups_of(server, run)[:4]:
        decide(server, run, by="turn", approve_group=group)
    page = browse(server).open()
    for key in "naAx":
        page.goto(f"{server.base}{review}?by=turn&open=none")
        press(page, key)
        at = current_row(page)
        expect(page.locator(f"#{at}[data-undecided]")).to_be_visible()
        expect(page.locator(f"#{at} .proposal__what")).to_be_focused()


def test_what_is_undecided_above_the_cursor_is_found(server, run, review, browse):
    first, *others = groups_of(server, run)
    for group in others:
        decide(server, run, by="turn", approve_group=group)
    page = browse(server).open(f"{review}?by=turn&open={others[-1]}")
    press(page, "]", "]", "]", "n")
    at = current_row(page)
    expect(page.locator(f"#g-{first} #{at}")).to_be_visible()


WITHOUT_EFFECT = {
    "jk": "This is the first row.",
    "j[": "This is the first group.",
    "o": "No proposal is selected.",
    "jo": "This is a group: go to one of its proposals.",
    "js": "Only proposals can be selected",
    "u": "There is nothing to undo",
    "gc": "Nothing is approved yet",
    "jjakka": "This is a group",
    "jjaka": "Nothing to approve here: approved.",
    "jA[A": "Nothing is undecided in this group.",
}


def test_a_key_without_effect_says_why(server, run, review, browse):
    page = browse(server).open()
    for keys, words in WITHOUT_EFFECT.items():
        page.goto(f"{server.base}{review}?by=turn")
        for key in keys:
            press(page, key)
            expect(page.locator("li[data-sent], .group[data-sent]")).to_have_count(0)
        expect(page.locator("#message")).to_contain_text(words)
        undo_all(server, run)


def test_the_message_of_a_key_is_visible_in_each_width(server, review, browse):
    page = browse(server).open(review)
    for width in (390, 1_000, 1_440):
        page.set_viewport_size({"width": width, "height": 900})
        page.reload()
        press(page, "j", "k")
        said = page.locator("#message")
        expect(said).to_contain_text("first row")
        expect(said).to_be_in_viewport(ratio=1)
        box = said.bounding_box()
        assert box is not None
        assert box["width"] > 60
        assert box["height"] > 10


def test_the_bar_shows_all_counts_in_each_width_and_in_other_fonts(server, review, browse):
    page = browse(server).open(review)
    for fonts in ("own", "generic"):
        if fonts == "generic":
            page.evaluate(GENERIC_FONTS)
        for width in (1_000, 1_440):
            page.set_viewport_size({"width": width, "height": 900})
            for words in ("Approved", "Undecided", "Rejected", "Opened"):
                expect(page.locator(".plan-head__counts > span", has_text=words)).to_be_in_viewport(ratio=1)
            expect(page.locator("#bar button[name=undo]")).to_be_in_viewport(ratio=1)
            assert page.evaluate("document.scrollingElement.scrollWidth") <= width
            keep(page, f"review-bar-{width}-{fonts}")


def test_on_a_phone_four_buttons_decide_with_a_thumb(server, review, browse):
    page = browse(server, viewport={"width": 390, "height": 800}).open(review)
    bar = page.locator(".review-keys")
    buttons = bar.get_by_role("button")
    expect(buttons).to_have_text(["Approve", "Reject", "Next", "Undo"])
    for button in each(buttons):
        box = button.bounding_box()
        assert box is not None
        assert box["height"] >= 44
    _, total = counts(page)
    bar.get_by_role("button", name="Next").click()
    bar.get_by_role("button", name="Approve").click()
    wait_for_undecided(page, total - 1)
    bar.get_by_role("button", name="Undo").click()
    wait_for_undecided(page, total)


def test_a_range_is_selected_with_the_mouse_and_shift(server, review, browse):
    page = browse(server).open(review)
    ticks = page.locator(".proposal .tick")
    ticks.nth(1).click()
    ticks.nth(4).click(modifiers=["Shift"])
    expect(page.locator("#picked")).to_have_text("4 selected")
    _, total = counts(page)
    page.locator("#pick").get_by_role("button", name="Reject").click()
    wait_for_undecided(page, total - 4)
    expect(page.locator("li.proposal.is-kept")).to_have_count(4)


def test_leaving_while_decisions_are_sent_asks_first(server, review, browse):
    watched = browse(server)
    watched.expect("dialog: ")
    page = watched.open(review)
    _, total = counts(page)
    three_sent(page)
    dialogs: list[str] = []
    page.on("dialog", lambda dialog: dialogs.append(dialog.type))
    page.evaluate("() => { window.setTimeout(() => window.location.reload(), 0); }")
    poll(page, lambda: bool(dialogs))
    assert dialogs == ["beforeunload"]
    page.unroute("**/decide")
    wait_for_undecided(page, total - 3)


def test_the_button_that_leads_to_confirm_waits_for_the_decisions_that_are_being_sent(server, review, browse):
    page = browse(server).open(review)
    three_sent(page)
    page.get_by_role("button", name=re.compile("^Approve all .* and confirm$")).click()
    page.unroute("**/decide")
    page.wait_for_url(re.compile("/confirm$"))
    page.goto(f"{server.base}{review}")
    wait_for_undecided(page, 0)


# ---- unsaved decisions -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "words"), [(500, "answered with an error (500)"), (403, "no longer knows this browser")]
)
def test_a_decision_that_was_answered_with_an_error_is_reported_and_reverted(server, review, browse, status, words):
    watched = browse(server)
    watched.expect(f"{FAILED} {status}", "Response Status Error Code")
    page = watched.open(review)
    _, total = counts(page)
    request = three_sent(page)
    first = page.locator("li.proposal[data-sent]").first.get_attribute("id")
    request.fulfill(status=status)
    fault = page.get_by_role("alert")
    expect(fault).to_contain_text(words)
    expect(fault).to_contain_text("may not have been saved")
    expect(page.locator("#message")).to_contain_text("2 more decisions were not sent.")
    expect(page.locator("li.proposal[data-sent]")).to_have_count(0)
    expect(page.locator(f"#{first}[data-undecided] .proposal__what")).to_be_focused()
    page.unroute("**/decide")
    press(page, "a")
    wait_for_undecided(page, total - 1)
    expect(fault).to_be_empty()


def test_decisions_that_get_no_answer_are_kept_and_sent_when_the_server_is_back(server, review, browse):
    watched = browse(server)
    watched.expect("request failed|net::ERR", "htmx:sendError", "htmx:afterRequest")
    page = watched.open(review)
    _, total = counts(page)
    three_sent(page).abort("connectionrefused")
    fault = page.get_by_role("alert")
    expect(fault).to_contain_text("Redline does not answer. 3 decisions are kept in this tab")
    page.unroute("**/decide")
    fault.get_by_role("button", name="Try now").click()
    wait_for_undecided(page, total - 3)
    expect(fault).to_be_empty()
    expect(page.locator("li.proposal.is-approved")).to_have_count(3)


# ---- two windows -----------------------------------------------------------------------------------------


def test_a_second_tab_does_not_approve_what_the_first_pinned(server, review, browse):
    one, other, pinned = rejected_in_another_tab(browse(server), review)
    press(other, "n", "a")
    expect(other.get_by_role("alert")).to_contain_text("was rejected and pinned")
    expect(other.locator(f"#{pinned}.is-kept")).to_contain_text("rejected")
    _, total = counts(other)
    wait_for_undecided(other, total - 1)
    press(other, "A")
    expect(other.locator("section.group").first).to_contain_text("approved")
    press(one, "u")
    expect(one.get_by_role("alert")).to_contain_text("Nothing was undone")
    expect(one.locator("section.group").first.locator(".group__state")).to_contain_text("approved")


def test_after_a_refusal_the_next_decisions_are_made_and_the_refused_one_can_be_made_anyway(server, review, browse):
    _, other, pinned = rejected_in_another_tab(browse(server), review)
    _, total = counts(other)
    held = hold(other, "**/decide")
    press(other, "n", "a")
    expect(other.locator("li.proposal[data-sent]")).to_have_count(1)
    second = current_row(other)
    # The undo is of the decision that is refused: it must not undo what the first tab decided.
    press(other, "u", "a")
    poll(other, lambda: bool(held))
    other.unroute("**/decide")
    expect(other.locator(f"#{second}.is-approved")).to_be_visible()
    wait_for_undecided(other, total - 2)
    expect(other.locator(f"#{pinned}.is-kept .proposal__what")).to_be_focused()
    fault = other.get_by_role("alert")
    expect(fault).to_contain_text("was rejected and pinned")
    have_no_faults_here(other, "review-decided-elsewhere", 1)
    fault.get_by_role("button", name="Approve anyway").click()
    expect(other.locator(f"#{pinned}.is-approved")).to_be_visible()
    expect(fault).to_be_empty()


def test_a_second_tab_without_script_is_refused_too(server, review, browse):
    watched = browse(server, java_script_enabled=False)
    watched.expect(f"{FAILED} 409")
    one, other = watched.open(review), watched.open(review)
    name = one.locator("li.proposal").first.get_attribute("id")
    for page in (one, other):
        page.locator(f"#{name} .proposal__what").click()
    one.locator(f"#{name}").get_by_role("button", name="Reject").click()
    expect(one.locator(f"#{name}.is-kept")).to_be_visible()
    other.locator(f"#{name}").get_by_role("button", name="Approve").click()
    expect(other.get_by_text("was rejected and pinned")).to_be_visible()
    expect(other.get_by_role("link", name="Back to the review")).to_be_visible()
    other.get_by_role("button", name="Approve anyway").click()
    expect(other.locator(f"#{name}.is-approved")).to_be_visible()
