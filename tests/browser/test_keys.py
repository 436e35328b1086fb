"""The keys of the review: each does what the list of keys says, and none does anything while the user types."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.chromium import Watched
from tests.browser.scenarios import finished_run, undo_all
from tests.factories import assistant, call, chain, result, session_bytes, text, user
from tests.files import place
from tests.server import Server, start_server
from tests.wait import wait_until

TURNS = 4
HIDDEN = """(one) => {
    const box = one.getBoundingClientRect();
    const at = (y) => document.elementFromPoint(box.left + box.width / 2, y);
    const last = Math.min(box.bottom, box.top + 60) - 2;
    return [box.top + 2, last].filter((y) => !one.contains(at(y)));
}"""
RING = """(one) => {
    const style = getComputedStyle(one);
    return style.outlineStyle !== "none" || style.boxShadow !== "none";
}"""

NOTHING_UNSAVED = "dispatchEvent(new Event('beforeunload', {cancelable: true}))"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    base = tmp_path_factory.mktemp("keys")
    turns = [
        said
        for turn in range(1, TURNS + 1)
        for said in (
            user(f"Mend the keyed parser, part {turn}."),
            *(
                said
                for step in range(4)
                for said in (
                    assistant(text("I look."), call(f"c{turn}_{step}", path=f"src/{turn}_{step}.py")),
                    result(f"c{turn}_{step}", "\n".join(f"line {n} of {turn}_{step}" for n in range(80))),
                )
            ),
            assistant(text("Mended.")),
        )
    ]
    place(base / "sessions" / "keyed.jsonl", session_bytes(chain(*turns)))
    with start_server(base) as running:
        yield running


@pytest.fixture(scope="module")
def run(server: Server) -> str:
    return finished_run(server, server.session("keyed parser"), keep="20")


@pytest.fixture
def page(server: Server, run: str, browse: Callable[..., Watched]) -> Iterator[Page]:
    """A review without decisions."""
    found = browse(server).open(f"{run}/review")
    yield found
    wait_until(lambda: found.evaluate(NOTHING_UNSAVED))
    found.close()
    undo_all(server, run)


def proposals(page: Page) -> Locator:
    return page.locator("article.proposal")


def names_of(page: Page) -> list[str]:
    return [one.get_attribute("id") or "" for one in proposals(page).all()]


def is_current(page: Page, name: str) -> Locator:
    """Wait until only this proposal is current, and has the focus."""
    one = page.locator("article.proposal.is-current")
    expect(one).to_have_count(1)
    expect(one).to_have_id(name)
    expect(one).to_be_focused()
    return one


def press(page: Page, *keys: str) -> None:
    for key in keys:
        page.keyboard.press(key)


def test_j_and_k_go_to_the_next_and_the_previous_proposal(page: Page) -> None:
    names = names_of(page)
    assert len(names) > TURNS
    for name in names:
        press(page, "j")
        is_current(page, name)
    press(page, "k", "k")
    is_current(page, names[-3])


def test_the_focus_is_visible_and_not_hidden_by_a_bar(page: Page) -> None:
    names = names_of(page)
    for key, name in [*(("j", name) for name in names), *(("k", name) for name in reversed(names[:-1]))]:
        press(page, key)
        one = is_current(page, name)
        assert one.evaluate(HIDDEN) == [], f"{name} is hidden after {key}"
        assert one.evaluate(RING)


def test_a_approves_x_rejects_and_both_move_to_the_next_undecided_proposal(page: Page) -> None:
    names = names_of(page)
    press(page, "j", "a")
    expect(page.locator(f"#{names[0]}.is-approved")).to_be_visible()
    is_current(page, names[1])
    press(page, "x")
    expect(page.locator(f"#{names[1]}.is-kept")).to_be_visible()
    is_current(page, names[2])


def test_n_skips_decided_proposals(page: Page) -> None:
    names = names_of(page)
    press(page, "j", "j", "a")
    expect(page.locator(f"#{names[1]}.is-approved")).to_be_visible()
    press(page, "k", "k")
    is_current(page, names[0])
    press(page, "n")
    is_current(page, names[2])


def test_u_undoes_only_the_last_step(page: Page) -> None:
    names = names_of(page)
    press(page, "j", "a", "x")
    expect(page.locator(f"#{names[1]}.is-kept")).to_be_visible()
    press(page, "u")
    expect(page.locator(f"#{names[1]}[data-open]")).to_be_visible()
    expect(page.locator(f"#{names[0]}.is-approved")).to_be_visible()


def test_capital_a_approves_the_turn_and_nothing_else(page: Page) -> None:
    turns = page.locator("section.hunk")
    press(page, "j", "A")
    expect(turns.first.locator("article.proposal[data-open]")).to_have_count(0)
    expect(turns.first).to_contain_text("decided")
    expect(turns.nth(1).locator("article.proposal[data-open]")).not_to_have_count(0)
    expect(turns.nth(1).locator("article.proposal.is-approved")).to_have_count(0)


def test_a_question_mark_lists_the_keys_and_escape_closes_the_list(page: Page) -> None:
    press(page, "?")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_be_visible()
    for words in ("approve", "reject", "undo the last step", "next undecided"):
        expect(dialog).to_contain_text(words)
    press(page, "a", "x", "u", "j")
    press(page, "Escape")
    expect(dialog).to_be_hidden()
    is_undecided(page)


def test_keys_do_nothing_while_the_user_types_or_with_a_modifier(page: Page) -> None:
    press(page, "j")
    first = names_of(page)[0]
    is_current(page, first)
    page.evaluate("document.querySelector('main').append(document.createElement('textarea'))")
    field = page.locator("textarea")
    field.focus()
    page.keyboard.type("jknaxuAo?")
    expect(field).to_have_value("jknaxuAo?")
    field.evaluate("(one) => one.blur()")
    press(page, "Control+a", "Alt+x")
    expect(page.locator("article.proposal.is-current")).to_have_id(first)
    is_undecided(page)


def is_undecided(page: Page) -> None:
    page.reload()
    expect(page.locator("article.proposal[data-open]")).to_have_count(proposals(page).count())
