"""The keys of the review: each does what the list of keys says, and none does anything while the user types."""

import re

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.acts import ids_of, number_of, press
from tests.browser.chromium import hold, poll, unready
from tests.browser.page_checks import have_no_faults_here
from tests.browser.scenarios import finished_run, undo_all
from tests.factories import mended_parser
from tests.server import place_in
from tests.wait import wait_until

TURNS = 4
HIDDEN = """(one) => {
    const box = one.getBoundingClientRect();
    const at = (y) => document.elementFromPoint(box.left + box.width / 2, y);
    return [box.top + 2, box.bottom - 2].filter((y) => !one.contains(at(y)));
}"""
RING = """(one) => {
    const style = getComputedStyle(one);
    return style.outlineStyle !== "none" || style.boxShadow !== "none";
}"""
NOTHING_UNSAVED = "dispatchEvent(new Event('beforeunload', {cancelable: true}))"


@pytest.fixture(scope="module")
def server(shared_server):
    with place_in(shared_server, "keys") as mine:
        mine.put("keyed.jsonl", mended_parser("keyed", turns=TURNS, steps=4, lines=80))
        yield mine


@pytest.fixture(scope="module")
def run(server):
    return finished_run(server, server.session("keyed parser"), keep="20")


@pytest.fixture
def page(server, run, browse):
    """A review without decisions."""
    found = browse(server).open(f"{run}?by=turn")
    yield found
    wait_until(lambda: found.evaluate(NOTHING_UNSAVED))
    found.close()
    undo_all(server, run)


def rows(page: Page) -> Locator:
    return page.locator("li.proposal")


def names_of(page: Page) -> list[str]:
    """The ids of all lines, of groups and of proposals, in order."""
    return ids_of(page.locator(".group__row, li.proposal"))


def first_rows(page: Page) -> list[str]:
    return ids_of(rows(page))


def is_current(page: Page, name: str) -> Locator:
    """Wait until only this line is current, and its link has the focus."""
    one = page.locator(".is-current")
    expect(one).to_have_count(1)
    expect(one).to_have_id(name)
    link = one.locator(".disclose, .proposal__what").first
    expect(link).to_be_focused()
    return link


def says(page: Page, words: str) -> None:
    expect(page.locator("#message")).to_contain_text(words)


def status(page: Page, name: str, style: str) -> None:
    expect(page.locator(f"#{name}.is-{style}")).to_be_attached()


def test_j_and_k_and_the_arrows_go_to_the_next_and_the_previous_line(page):
    names = names_of(page)
    assert len(names) > TURNS
    for number, name in enumerate(names):
        press(page, ("j", "ArrowDown")[number % 2])
        is_current(page, name)
    press(page, "k", "ArrowUp")
    is_current(page, names[-3])
    press(page, "j", "j", "j")
    says(page, "This is the last row.")


@pytest.mark.parametrize(("width", "height"), [(1_440, 420), (390, 640)])
def test_the_focus_is_visible_and_not_hidden_by_a_bar(page, width, height):
    page.set_viewport_size({"width": width, "height": height})
    press(page, "j", "j", "s", "k")
    names = names_of(page)
    for key, name in [*(("j", name) for name in names[1:]), *(("k", name) for name in reversed(names[:-1]))]:
        press(page, key)
        one = is_current(page, name)
        assert one.evaluate(HIDDEN) == [], f"{name} is hidden after {key}"
        assert one.evaluate(RING)
    press(page, "n", "N")
    for key in ("Enter", "ArrowLeft"):
        press(page, key)
        expect(page.locator("li.is-current .proposal__open")).to_have_count(1 if key == "Enter" else 0)
        assert page.locator(".is-current .proposal__what").evaluate(HIDDEN) == [], f"hidden after {key}"


def test_a_approves_x_rejects_and_both_move_to_the_next_undecided_proposal(page):
    names = first_rows(page)
    press(page, "j", "j", "a")
    status(page, names[0], "approved")
    is_current(page, names[1])
    press(page, "x")
    status(page, names[1], "kept")
    is_current(page, names[2])


def test_after_the_last_row_of_a_group_the_next_group_is_opened(page):
    groups = page.locator("section.group")
    expect(groups.nth(1).locator("li")).to_have_count(0)
    names = first_rows(page)
    press(page, "j", "j", *("a" for _ in names))
    expect(groups.nth(1).locator("li.is-current")).to_have_count(1)
    expect(groups.nth(1).locator("li.is-current .proposal__what")).to_be_focused()
    expect(groups.first).to_contain_text(f"{len(names)} approved")


def test_n_skips_decided_proposals_and_capital_n_goes_back(page):
    names = first_rows(page)
    press(page, "j", "j", "j", "a")
    status(page, names[1], "approved")
    press(page, "k", "k")
    is_current(page, names[0])
    press(page, "n")
    is_current(page, names[2])
    press(page, "N")
    is_current(page, names[0])


def test_u_undoes_only_the_last_step_and_goes_to_it(page):
    names = first_rows(page)
    press(page, "j", "j", "a", "x")
    status(page, names[1], "kept")
    press(page, "j", "u")
    status(page, names[1], "open")
    status(page, names[0], "approved")
    is_current(page, names[1])


def test_undoing_a_group_goes_to_its_line_and_undoing_a_hidden_row_opens_its_group(page):
    header = names_of(page)[0]
    first = first_rows(page)[0]
    press(page, "j", "j", "a")
    status(page, first, "approved")
    press(page, "ArrowLeft")
    expect(page.locator("section.group").first.locator("li:visible")).to_have_count(0)
    press(page, "]", "u")
    is_current(page, first)
    press(page, "A")
    expect(page.locator(f"#{header}")).to_contain_text("approved")
    press(page, "u")
    is_current(page, header)
    expect(page.locator(f"#{header}")).to_have_attribute("data-undecided", re.compile("[1-9]"))


def test_brackets_go_to_groups(page):
    headers = ids_of(page.locator(".group__row"))
    assert len(headers) == TURNS
    for keys, at in (("]", 0), ("]", 1), ("[", 0), ("j[", 0)):
        press(page, *keys)
        is_current(page, headers[at])
    press(page, "[")
    says(page, "This is the first group.")


def test_capital_a_and_x_decide_the_group_and_nothing_else(page):
    groups = page.locator("section.group")
    headers = ids_of(page.locator(".group__row"))
    press(page, "]", "A")
    expect(groups.first).to_contain_text("approved")
    is_current(page, headers[1])
    expect(groups.nth(1)).not_to_contain_text("approved")
    press(page, "X")
    expect(groups.nth(1)).to_contain_text("rejected")
    is_current(page, headers[2])
    expect(groups.nth(2)).not_to_contain_text("rejected")


def test_enter_and_the_arrows_fold_groups_and_proposals_open_and_shut(page):
    first = first_rows(page)[0]
    opened = page.locator(f"#{first} .proposal__open")
    press(page, "j", "j", "Enter")
    expect(opened).to_contain_text("embedded planner")
    press(page, "Enter")
    expect(opened).to_have_count(0)
    press(page, "ArrowRight")
    expect(opened).to_be_visible()
    press(page, "ArrowRight")
    says(page, "This proposal is open.")
    press(page, "ArrowLeft")
    expect(opened).to_have_count(0)
    press(page, "ArrowLeft")
    expect(page.locator("section.group").first.locator("li:visible")).to_have_count(0)
    press(page, "ArrowLeft")
    says(page, "This group is shut.")
    press(page, "Enter")
    expect(page.locator(f"#{first}")).to_be_visible()


def test_enter_on_a_box_opens_its_proposal_and_undoes_nothing(page):
    first, second = first_rows(page)[:2]
    press(page, "j", "j", "a")
    status(page, first, "approved")
    page.locator(f"#{second} .tick").focus()
    press(page, "Enter")
    expect(page.locator(f"#{second} .proposal__open")).to_be_visible()
    page.reload()
    expect(page.locator("#bar .sum__now data.red")).to_be_attached()


def test_s_and_shift_with_arrows_select_and_a_applies_to_the_selection(page):
    names = first_rows(page)
    press(page, "j", "j", "Shift+ArrowDown", "Shift+ArrowDown")
    expect(page.locator("#picked")).to_have_text("3 selected")
    press(page, "s")
    expect(page.locator("#picked")).to_have_text("2 selected")
    expect(page.locator("#picked-tokens")).to_have_text(re.compile(r"^\s*−[\d,]+\s*$"))
    press(page, "a")
    for name in names[:2]:
        status(page, name, "approved")
    status(page, names[2], "open")
    expect(page.locator("#pick")).to_be_hidden()
    press(page, "s", "Escape")
    expect(page.locator("#pick")).to_be_hidden()


def test_e_v_and_plus_fold_open_what_they_are_about(page):
    first = page.locator(f"#{first_rows(page)[0]}")
    press(page, "j", "j", "e")
    says(page, "This proposal is one block")
    expect(first.locator(".proposal__open")).to_be_visible()
    press(page, "v")
    expect(first.locator(".staying").first).to_be_visible()
    press(page, "+")
    expect(first.locator("button[name=add]").first).to_be_focused()


def test_c_and_plus_work_on_a_proposal_that_is_shut(page):
    first, second = (page.locator(f"#{name}") for name in first_rows(page)[:2])
    here = page.url
    press(page, "j", "j", "v")
    expect(first.locator(".staying").first).to_be_visible()
    press(page, "n", "+")
    expect(second.locator("button[name=add]").first).to_be_focused()
    assert page.url == here


@pytest.mark.parametrize("by", ["key", "mouse"])
def test_no_key_is_lost_behind_a_link_that_is_pressed_twice(page, by):
    first, second = first_rows(page)[:2]
    press(page, "j", "j", "Enter")
    fold = page.locator(f"#{first} .fold a").first
    expect(fold).to_be_visible()
    held = hold(page, "**/stays?*")
    if by == "key":
        press(page, "v", "v")
    else:
        fold.dblclick()
    press(page, "j", "Enter")
    poll(page, lambda: bool(held))
    page.unroute("**/stays?*")
    expect(page.locator(f"#{second} .proposal__open")).to_be_visible()
    is_current(page, second)


def test_a_link_that_a_response_draws_again_while_it_waits_is_followed(page):
    first, second = first_rows(page)[:2]
    press(page, "j", "j", "Enter")
    fold = page.locator(f"#{first} .fold a").first
    expect(fold).to_be_visible()
    held = hold(page, "**/decide")
    page.locator(f"#{first}").get_by_role("button", name=re.compile("^Approve")).click()
    poll(page, lambda: bool(held))
    fold.click()
    press(page, "j", "Enter")
    page.unroute("**/decide")
    expect(page.locator(f"#{first}.is-approved .staying").first).to_be_visible()
    expect(page.locator(f"#{second} .proposal__open")).to_be_visible()


def test_a_click_on_a_proposal_opens_it_although_an_undo_moves_the_cursor_first(page):
    first, second, third = first_rows(page)[:3]
    press(page, "j", "j", "a")
    status(page, first, "approved")
    is_current(page, second)
    held = hold(page, "**/decide")
    press(page, "u", "v")
    poll(page, lambda: bool(held))
    page.locator(f"#{third} .proposal__what").click()
    page.unroute("**/decide")
    expect(page.locator(f"#{third} .proposal__open")).to_be_visible()


def test_a_proposal_that_has_the_focus_keeps_it_when_it_is_drawn_again(page):
    second, third = first_rows(page)[1:3]
    press(page, "j", "j", "j", "v")
    expect(page.locator(f"#{second} .staying").first).to_be_visible()
    held = hold(page, "**/decide")
    page.locator(f"#{second} button[name=add]").first.click()
    poll(page, lambda: bool(held))
    page.locator(f"#{third} .proposal__what").focus()
    page.unroute("**/decide")
    expect(page.get_by_text("added by you").first).to_be_visible()
    is_current(page, third)
    press(page, "Enter")
    expect(page.locator(f"#{third} .proposal__open")).to_be_visible()


def test_o_opens_the_session_at_the_entry(page):
    press(page, "j", "j", "o")
    page.wait_for_url(re.compile("/entries/"))


def test_slash_searches_and_escape_shows_everything_again(page):
    all_rows = page.locator("section.group")
    expect(all_rows).to_have_count(TURNS)
    press(page, "/")
    expect(page.locator("#find")).to_be_focused()
    page.keyboard.type("/2_[01]\\.py/")
    press(page, "Enter")
    page.wait_for_url(re.compile("q="))
    expect(page.locator("section.group")).to_have_count(1)
    expect(rows(page)).to_have_count(2)
    expect(page.locator("li.is-current .proposal__what")).to_be_focused()
    press(page, "Escape")
    expect(page.locator("section.group")).to_have_count(TURNS)


def test_f_opens_the_fields_of_the_filter_and_escape_shuts_them(page):
    press(page, "j", "f")
    expect(page.get_by_label("Tool", exact=True)).to_be_focused()
    have_no_faults_here(page, "review-filter", 2)
    page.get_by_label("Tool", exact=True).focus()
    press(page, "Escape")
    expect(page.locator("#filter-menu")).to_be_hidden()
    press(page, "f")
    page.get_by_label("Larger than").fill("999999")
    press(page, "Enter")
    page.wait_for_url(re.compile("over=999999"))
    expect(page.get_by_role("heading", name="No proposal matches")).to_be_visible()
    page.get_by_role("link", name=re.compile("Over 999,999 tokens")).click()
    expect(page.locator("section.group")).to_have_count(TURNS)


def test_the_slider_under_the_map_names_entries_and_goes_to_their_proposals(page):
    second = first_rows(page)[1]
    slider, name = page.get_by_label("Place in the context"), page.locator(".place__name")
    expect(name).to_contain_text("undecided")
    slider.focus()
    press(page, "PageUp")
    expect(name).to_contain_text("turn 1, you Mend the keyed parser")
    here = page.url
    slider.fill(str(int(second.split("-")[1]) + 1))
    expect(name).to_contain_text("undecided")
    press(page, "Enter")
    is_current(page, second)
    expect(page.locator(f"#{second} .proposal__open")).to_be_visible()
    assert page.url == here
    press(page, "a")
    status(page, second, "approved")
    slider.focus()
    press(page, "j")
    expect(page.locator(".is-current .proposal__what, .is-current .disclose").first).to_be_focused()


@pytest.mark.parametrize(("key", "where"), [("s", "/$"), ("t", "/tree$"), ("p", "/select$")])
def test_g_goes_places(page, key, where):
    press(page, "g", key)
    page.wait_for_url(re.compile(where))


def test_g_c_goes_to_the_commit_once_something_is_approved(page):
    press(page, "g", "c")
    says(page, "Nothing is approved yet")
    press(page, "j", "j", "a")
    expect(page.get_by_role("link", name=re.compile("^Confirm 1 "))).to_be_visible()
    press(page, "g", "c")
    page.wait_for_url(re.compile("/confirm$"))


def test_a_question_mark_lists_the_keys_and_escape_closes_the_list(page):
    press(page, "?")
    dialog = page.locator("#keys-help")
    expect(dialog).to_be_visible()
    for words in ("approve", "reject", "undo the last step", "next and previous undecided"):
        expect(dialog).to_contain_text(words)
    press(page, "a", "x", "u", "j")
    press(page, "Escape")
    expect(dialog).to_be_hidden()
    is_undecided(page)


def test_keys_do_nothing_while_the_user_types_or_with_a_modifier(page):
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
    expect(page.locator(".is-current")).to_have_id(first)
    is_undecided(page)


def test_of_decisions_pressed_before_the_page_hears_them_each_is_made_once(server, run, page, browse):
    names = first_rows(page)
    with unready(browse(server), f"{run}?by=turn") as early:
        press(early, "j", "j", "a", "a", "a", "j", "x", "x")
    is_current(early, names[3])
    for name, style in zip(names, ("approved", "open", "kept", "open"), strict=False):
        status(early, name, style)


def is_undecided(page: Page) -> None:
    page.reload()
    expect(page.locator("li.proposal[data-undecided]")).to_have_count(number_of(rows(page)))
