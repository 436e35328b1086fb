"""The review in a browser: no key press is lost, and unsaved decisions are shown."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Page, Route, expect

from tests.browser.chromium import LOST, Watched, poll
from tests.browser.scenarios import decide, finished_run, undo_all
from tests.browser.test_shots import GENERIC_FONTS, keep
from tests.factories import assistant, call, chain, result, session_bytes, text, user
from tests.files import place
from tests.server import Server, start_server

PROPOSALS = 240
"""More than fit on two pages of a review."""
FAILED = "the server responded with a status of"
Opener = Callable[..., Watched]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    base = tmp_path_factory.mktemp("review")
    steps = [
        said
        for step in range(PROPOSALS + 10)
        for said in (
            *([user(f"Mend part {step // 30} of the long parser.")] if step % 30 == 0 else []),
            assistant(call(f"c{step}", path=f"src/{step}.py")),
            result(f"c{step}", "\n".join(f"line {n} of {step}" for n in range(40))),
        )
    ]
    place(base / "sessions" / "long.jsonl", session_bytes(chain(*steps, assistant(text("Mended.")))))
    with start_server(base) as running:
        yield running


@pytest.fixture(scope="module")
def run(server: Server) -> str:
    return finished_run(server, server.session("long parser"), keep="3")


@pytest.fixture
def review(server: Server, run: str) -> Iterator[str]:
    """The URL of a review without decisions."""
    yield f"{run}/review"
    undo_all(server, run)


def counts(page: Page) -> tuple[int, int]:
    """The number of undecided proposals, and of all proposals."""
    shown = page.locator("#bar .stats div", has_text="Undecided").inner_text()
    undecided, total = re.findall(r"[\d,]+", shown)
    return int(undecided.replace(",", "")), int(total.replace(",", ""))


def wait_for_undecided(page: Page, count: int) -> None:
    """Wait for this number as long as anything is decided within the time limit."""
    bar = page.locator("#bar")
    while (shown := bar.get_attribute("data-undecided")) != str(count):
        expect(bar).not_to_have_attribute("data-undecided", shown or "")


def hold_decisions(page: Page) -> list[Route]:
    """Keep decisions from reaching the server from now on; returns them as they come."""
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    page.route("**/decide", hold)
    return held


def press(page: Page, *keys: str) -> None:
    for key in keys:
        page.keyboard.press(key)


def current(page: Page) -> str:
    one = page.locator("article.proposal.is-current")
    expect(one).to_have_count(1)
    return one.get_attribute("id") or ""


# ---- keys ------------------------------------------------------------------------------------------------


def test_every_press_of_a_counts_past_the_end_of_a_window_and_after_a_reload(
    server: Server, review: str, browse: Opener
) -> None:
    page = browse(server).open(review)
    undecided, total = counts(page)
    assert undecided == total > 200
    press(page, "n")
    current(page)
    press(page, *["a"] * 130)
    wait_for_undecided(page, total - 130)
    page.reload()
    expect(page.locator("article.proposal.is-current")).to_have_count(0)
    press(page, "n")
    current(page)
    press(page, *["a"] * (total - 130))
    wait_for_undecided(page, 0)
    press(page, "a")
    expect(page.locator("#message")).to_contain_text("Nothing to approve here")
    page.reload()
    wait_for_undecided(page, 0)
    assert counts(page) == (0, total)


@pytest.mark.parametrize("key", ["n", "a", "A", "x"])
def test_where_the_first_window_is_decided_a_key_goes_to_what_is_undecided(
    server: Server, run: str, review: str, browse: Opener, key: str
) -> None:
    for turn in range(1, 5):
        decide(server, run, approve_turn=str(turn))
    page = browse(server).open(review)
    press(page, key)
    at = current(page)
    expect(page.locator(f"#{at}[data-open]")).to_be_visible()
    expect(page.locator(f"#{at}")).to_be_focused()


def test_what_is_undecided_before_the_window_is_found(
    server: Server, run: str, review: str, browse: Opener
) -> None:
    page = browse(server).open(review)
    first = page.locator("article.proposal").first.get_attribute("id")
    for turn in range(2, 10):
        decide(server, run, approve_turn=str(turn))
    page.goto(f"{server.base}{review}?turn=8")
    press(page, "n")
    expect(page.locator("article.proposal.is-current")).to_have_id(first or "")


def test_k_moves_to_the_previous_window(server: Server, review: str, browse: Opener) -> None:
    page = browse(server).open(f"{review}?turn=8")
    before = page.locator("article.proposal").first.get_attribute("id")
    press(page, "j")
    while page.locator("article.proposal.is-current").get_attribute("id") != before:
        press(page, "k")
    press(page, "k")
    expect(page.locator(f"#{before}.is-current")).to_have_count(0)
    assert int(current(page).split("-")[1]) < int((before or "").split("-")[1])


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ("jk", "This is the first proposal."),
        ("ja" + "k" + "a", "Nothing to approve here: approved."),
        ("o", "No proposal is selected."),
        ("u", "There is nothing to undo"),
        ("jAkA", "Nothing is undecided in this turn."),
    ],
)
def test_a_key_without_effect_says_why(
    server: Server, review: str, browse: Opener, keys: str, words: str
) -> None:
    page = browse(server).open(review)
    for key in keys:
        press(page, key)
        expect(page.locator("article.proposal[data-sent]")).to_have_count(0)
    expect(page.locator("#message")).to_contain_text(words)


@pytest.mark.parametrize("width", [390, 1_000, 1_440])
def test_the_message_of_a_key_is_visible(server: Server, review: str, browse: Opener, width: int) -> None:
    page = browse(server, viewport={"width": width, "height": 900}).open(review)
    press(page, "j", "k")
    said = page.locator("#message")
    expect(said).to_contain_text("first proposal")
    box = said.bounding_box()
    assert box is not None
    assert box["width"] > 60
    assert box["height"] > 10
    assert box["y"] + box["height"] <= 900


@pytest.mark.parametrize("fonts", ["", GENERIC_FONTS], ids=["own", "generic"])
@pytest.mark.parametrize("width", [1_000, 1_440])
def test_the_bar_shows_all_counts_and_reject_all(
    server: Server, review: str, browse: Opener, width: int, fonts: str
) -> None:
    page = browse(server, viewport={"width": width, "height": 900}).open(review)
    if fonts:
        page.evaluate(fonts)
    for words in ("Tokens if committed", "Undecided", "Refused"):
        expect(page.locator("#bar dt", has_text=words)).to_be_in_viewport(ratio=1)
    for name in ("Approve all", "Reject all"):
        expect(page.get_by_role("button", name=name)).to_be_in_viewport(ratio=1)
    assert page.evaluate("document.scrollingElement.scrollWidth") <= width
    keep(page, f"review-bar-{width}-{'generic' if fonts else 'own'}")


def test_leaving_while_decisions_are_sent_asks_first(server: Server, review: str, browse: Opener) -> None:
    watched = browse(server)
    watched.expect("dialog: ")
    page = watched.open(review)
    _, total = counts(page)
    hold_decisions(page)
    press(page, "j", "a", "a", "a")
    expect(page.locator(".proposal[data-sent]")).to_have_count(3)
    dialogs: list[str] = []
    page.on("dialog", lambda dialog: dialogs.append(dialog.type))
    page.evaluate("() => { window.setTimeout(() => window.location.reload(), 0); }")
    poll(page, lambda: bool(dialogs))
    assert dialogs == ["beforeunload"]
    page.unroute("**/decide")
    wait_for_undecided(page, total - 3)


# ---- unsaved decisions -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "words"),
    [(500, "answered with an error (500)"), (403, "no longer knows this browser"), (0, "did not answer")],
)
def test_a_decision_that_could_not_be_sent_is_reported_and_reverted(
    server: Server, review: str, browse: Opener, status: int, words: str
) -> None:
    watched = browse(server)
    watched.expect(f"{FAILED} {status}" if status else "request failed|net::ERR")
    if status:
        watched.expect("Response Status Error Code")
    else:
        watched.expect("htmx:sendError")
        watched.expect("htmx:afterRequest")
    page = watched.open(review)
    _, total = counts(page)

    held = hold_decisions(page)
    press(page, "j")
    first = current(page)
    press(page, "a", "a", "a")
    expect(page.locator("article.proposal[data-sent]")).to_have_count(3)
    poll(page, lambda: bool(held))
    if status:
        held[0].fulfill(status=status)
    else:
        held[0].abort("connectionrefused")
    fault = page.get_by_role("alert")
    expect(fault).to_contain_text(words)
    expect(fault).to_contain_text("may not have been saved")
    expect(fault).to_be_in_viewport()
    expect(page.locator("#message")).to_contain_text("2 more decisions were not sent.")
    expect(page.locator("article.proposal[data-sent]")).to_have_count(0)
    expect(page.locator(f"#{first}[data-open]")).to_be_focused()
    page.unroute("**/decide")
    press(page, "a")
    wait_for_undecided(page, total - 1)
    expect(fault).to_be_empty()


def test_a_lost_server_is_noticed(tmp_path_factory: pytest.TempPathFactory, browse: Opener) -> None:
    base = tmp_path_factory.mktemp("gone")
    steps = [assistant(call("c1", path="a.py")), result("c1", "line\n" * 400)]
    turns = [user("Mend the lost parser."), *steps, user("Go on."), user("And on.")]
    place(base / "sessions" / "lost.jsonl", session_bytes(chain(*turns)))
    with start_server(base) as lost:
        watched = browse(lost)
        watched.expect(*LOST)
        page = watched.open(f"{finished_run(lost, lost.session('lost parser'))}/review")
        page.wait_for_load_state("networkidle")
        expect(page.locator("#lost")).to_be_hidden()
    expect(page.locator("#lost")).to_be_visible()
    expect(page.locator("#lost")).to_contain_text("connection to the server is lost")
    poll(page, lambda: not watched.missing())


# ---- two windows -----------------------------------------------------------------------------------------


def test_a_second_tab_does_not_approve_what_the_first_pinned(
    server: Server, review: str, browse: Opener
) -> None:
    watched = browse(server)
    watched.expect(f"{FAILED} 409")
    one, other = watched.open(review), watched.open(review)
    press(one, "j")
    pinned = current(one)
    press(one, "x")
    expect(one.locator(f"#{pinned}.is-kept")).to_be_visible()
    press(other, "j", "a")
    expect(other.get_by_role("alert")).to_contain_text("was rejected and pinned")
    expect(other.locator(f"#{pinned}.is-kept")).to_contain_text("rejected, pinned")
    _, total = counts(other)
    wait_for_undecided(other, total - 1)
    other.get_by_role("button", name="Approve all").click()
    wait_for_undecided(other, 0)
    expect(other.locator(f"#{pinned}.is-kept")).to_be_attached()
    press(one, "u")
    expect(one.get_by_role("alert")).to_contain_text("Nothing was undone")
    wait_for_undecided(one, 0)


def test_a_second_tab_without_script_is_refused_too(server: Server, review: str, browse: Opener) -> None:
    watched = browse(server, java_script_enabled=False)
    watched.expect(f"{FAILED} 409")
    one, other = watched.open(review), watched.open(review)
    proposal = one.locator("article.proposal").first
    name = proposal.get_attribute("id")
    proposal.get_by_role("button", name="Reject").click()
    expect(one.locator(f"#{name}.is-kept")).to_be_visible()
    other.locator(f"#{name}").get_by_role("button", name="Approve").click()
    expect(other.get_by_text("was rejected and pinned")).to_be_visible()
    other.get_by_role("link", name="Back to the review").click()
    expect(other.locator(f"#{name}.is-kept")).to_be_visible()
