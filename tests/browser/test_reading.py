"""The page of a session in a browser: the token map and keys lead through it, and entries are copied from it."""

import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.acts import ids_of, press
from tests.factories import assistant, chain, mended_parser, message, result, session_bytes, text, user
from tests.files import append_as_agent
from tests.server import place_in

TURNS = 12


@pytest.fixture(scope="module")
def server(shared_server):
    with place_in(shared_server, "reading") as mine:
        mine.put("mapped.jsonl", mended_parser("mapped", turns=TURNS, steps=3, lines=40))
        yield mine


@pytest.fixture
def page(server, browse):
    return browse(server).open(server.session("mapped parser"))


def named(page: Page) -> Locator:
    return page.locator("aside output")


def test_pointing_at_the_map_names_an_entry_and_a_click_goes_there(page):
    drawn = page.locator("aside svg.map")
    box = drawn.bounding_box()
    assert box is not None
    first = named(page).inner_text()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    expect(named(page)).to_have_text(re.compile(r"turn [67], .+ tokens"))
    page.mouse.move(box["x"] - 200, box["y"])
    expect(named(page)).to_have_text(first)
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    expect(page).to_have_url(re.compile("[?&]at=e"))
    expect(named(page)).to_have_text(re.compile(r"turn [67], "))


def test_the_slider_goes_by_entry_and_by_turn_and_enter_goes_there(page):
    slider = page.locator("aside [type=range]")
    slider.focus()
    steps = {"ArrowRight": "2", "PageDown": "9", "End": str(8 * TURNS), "PageUp": "89", "Home": "1"}
    for key, number in steps.items():
        page.keyboard.press(key)
        expect(slider).to_have_value(number)
        turn = (int(number) - 1) // 8 + 1
        expect(named(page)).to_have_text(re.compile(f"^turn {turn}, "))
        expect(slider).to_have_attribute("aria-valuetext", re.compile(f"^turn {turn}, "))
    press(page, "PageDown", "Enter")
    expect(page).to_have_url(re.compile("[?&]at=e9$"))
    expect(page.locator("article").first).to_contain_text("part 2.")


def test_without_script_the_slider_has_a_button(server, browse):
    page = browse(server, java_script_enabled=False).open(server.session("mapped parser"))
    slider = page.locator("aside [type=range]")
    slider.focus()
    slider.press("ArrowRight")
    page.locator("aside").get_by_role("button", name="Go").click()
    expect(page).to_have_url(re.compile("[?&]at=e2$"))


# ---- what stays in sight --------------------------------------------------------------------------------


def test_title_turn_and_next_step_stay_in_sight_when_the_head_has_scrolled_away(page):
    stick = page.locator("[data-stick]")
    expect(stick).to_be_hidden()
    page.locator("#e33").scroll_into_view_if_needed()
    page.mouse.wheel(0, 600)
    expect(stick).to_be_visible()
    expect(stick).to_contain_text("mapped parser")
    expect(stick.locator("[data-turn-here]")).to_have_text(re.compile("^[345]$"))
    stick.get_by_role("link", name="Find in this session").click()
    expect(page.locator("#search-session")).to_be_focused()
    press(page, "Escape", "c")
    expect(page).to_have_url(re.compile("/compact"))


def test_without_script_the_next_step_stays_in_sight_too(server, browse):
    page = browse(server, java_script_enabled=False).open(server.session("mapped parser"))
    page.mouse.wheel(0, 2000)
    page.locator("[data-stick]").get_by_role("link", name="Compact…").click()
    expect(page).to_have_url(re.compile("/compact"))


# ---- keys ------------------------------------------------------------------------------------------------


def focused(page: Page) -> str:
    return str(page.evaluate("document.activeElement.id"))


def test_keys_go_from_entry_to_entry_and_from_turn_to_turn(page):
    steps = {"j": "e1", "]": "e9", "k": "e8", "[": "e1"}
    for key, entry_id in steps.items():
        press(page, key)
        assert focused(page) == entry_id
    press(page, "k")
    expect(page.locator("#said")).to_have_text("This is the first entry")
    press(page, "j", "j", "Enter")
    output = page.locator("#e3")
    expect(output).to_contain_text("line 39 of 1_0")
    expect(output).to_be_focused()
    press(page, "Enter")
    expect(output).not_to_contain_text("line 39 of 1_0")


def test_keys_go_on_where_the_page_ends(page):
    page.locator("#e40 a.ref").focus()
    press(page, "j")
    expect(page.locator("#e41")).to_be_visible()
    press(page, "j")
    expect(page.locator("#e41")).to_be_focused()


def test_no_key_is_silent(page):
    status = page.locator("#said")
    for key in "yo":
        press(page, key)
        expect(status).to_have_text("No entry is chosen: j chooses the next one")
    press(page, "?")
    expect(page.locator("#keys-help")).to_contain_text("next, previous turn")
    press(page, "Escape")
    expect(page.locator("#keys-help")).to_be_hidden()
    press(page, "j", "j", "o")
    expect(page).to_have_url(re.compile("/entries/e2$"))
    press(page, "g", "t")
    expect(page).to_have_url(re.compile("/tree"))


def test_an_entry_s_link_text_and_id_are_copied(server, browse):
    able = {"permissions": ["clipboard-read", "clipboard-write"]}
    page = browse(server, **able).open(server.session("mapped parser"))
    clipboard = "navigator.clipboard.readText()"
    page.locator("#e3").hover()
    status = page.locator("#said")
    for words, copied in {
        "Copy text": "\n".join(f"line {n} of 1_0" for n in range(40)),
        "Copy link": f"{page.url}/entries/e3",
        "Copy id": "e3",
    }.items():
        page.get_by_role("button", name=words).click()
        expect(status).to_contain_text("of e3 is copied")
        assert page.evaluate(clipboard) == copied
    press(page, "j", "y")
    expect(status).to_have_text("The link of e4 is copied")
    assert page.evaluate(clipboard) == f"{page.url}/entries/e4"


# ---- exports ---------------------------------------------------------------------------------------------


def test_an_exported_page_fetches_nothing_and_runs_nothing(server, browse, chromium, tmp_path):
    hostile = "<script>document.title = 'owned'</script><img src='https://evil.example/x' onerror='document.title=1'>"
    recorded = chain(user(hostile), assistant(text(f"{hostile}\n\n![x](https://evil.example/y)")), result("c", hostile))
    server.put("hostile.jsonl", recorded)
    page = browse(server).open(server.session("document.title"))
    page.get_by_role("button", name="Export").click()
    with page.expect_download() as download:
        page.get_by_role("link", name="Everything as HTML").click()
    saved = tmp_path / "page.html"
    download.value.save_as(saved)
    context = chromium.new_context()
    fetched: list[str] = []
    complaints: list[str] = []
    context.on("request", lambda request: fetched.append(request.url))
    context.on("console", lambda said: complaints.append(said.text))
    opened = context.new_page()
    opened.goto(saved.as_uri())
    expect(opened.locator("article")).to_have_count(3)
    expect(opened).to_have_title(re.compile("^<script>document.title"))
    context.close()
    assert fetched == [saved.as_uri()]
    assert complaints == []


# ---- following -------------------------------------------------------------------------------------------


def grow(path: Path, *messages: dict[str, Any]) -> None:
    """Append messages to a session of `chain`, as an agent does."""
    count = len(path.read_bytes().splitlines()) - 1
    for number, said in enumerate(messages, count + 1):
        append_as_agent(path, session_bytes([message(f"e{number}", f"e{number - 1}", said)]))


def test_new_entries_appear_at_the_end_and_are_counted_elsewhere(server, browse):
    path = server.put("growing.jsonl", chain(user("Watch it grow.")))
    page = browse(server).open(server.session("Watch it grow"))
    grow(path, assistant(text("It grows.")))
    expect(page.locator("#e2")).to_contain_text("It grows.")
    expect(page.locator("#newer a")).to_have_count(0)
    grow(path, *[assistant(text("\n\n".join(["a line"] * 40))), user("Go on.")] * 4)
    expect(page.locator("#e10")).to_be_attached()
    assert page.evaluate("scrollY") == 0
    grow(path, assistant(text("One more.")), user("And another."))
    expect(page.locator("#newer")).to_contain_text("2 new entries")
    expect(page.locator("#e11")).to_have_count(0)
    page.locator("#newer a").click()
    expect(page.locator("#e12")).to_be_in_viewport()
    expect(page.locator("#newer a")).to_have_count(0)
    assert ids_of(page.locator("article[id]")) == [f"e{n}" for n in range(1, 13)]


def test_the_map_the_turns_and_the_counts_follow_the_session(server, browse):
    path = server.put("followed.jsonl", chain(user("Follow me.")))
    page = browse(server).open(server.session("Follow me"))
    slider = page.locator("#map-wide [type=range]")
    slider.focus()
    grow(path, assistant(text("\n\n".join(["a line"] * 400))), user("Go on."))
    expect(page.locator("#views [aria-current]")).to_contain_text("3")
    expect(page.locator("#turns-wide")).to_contain_text("Go on.")
    expect(page.locator("#extent")).to_contain_text("2 turns, 3 entries")
    expect(slider).to_have_attribute("max", "3")
    expect(slider).to_be_focused()
    assert page.evaluate("scrollY") == 0
    page.keyboard.press("ArrowRight")
    expect(page.locator("#map-wide output")).to_contain_text("a line")
    grow(path, assistant(text("Done.")))
    expect(slider).to_have_attribute("max", "4")
    expect(slider).to_have_value("2")
    expect(page.locator("#map-wide output")).to_contain_text("a line")


def test_an_open_page_says_that_the_session_continues_on_another_branch(server, browse):
    path = server.put("forked.jsonl", chain(user("Turn round."), assistant(text("One way."))))
    page = browse(server).open(server.session("Turn round"))
    append_as_agent(path, session_bytes([message("x2", "e1", assistant(text("The other way.")))]))
    expect(page.locator("#newer")).to_contain_text("continues on another branch")
    expect(page.locator("#e2")).to_contain_text("One way.")
    page.locator("#newer a").click()
    expect(page.locator("#x2")).to_contain_text("The other way.")
    expect(page.locator("#newer a")).to_have_count(0)


def test_a_request_that_is_refused_says_why(server, browse):
    path = server.put("goes.jsonl", chain(*[user(f"Part {n}.") for n in range(90)]))
    watched = browse(server)
    watched.expect(r"the server responded with a status of (409|404)", r"Response Status Error")
    page = watched.open(f"{server.session('Part 0.')}?view=all")
    path.unlink()
    page.locator("#later a").click()
    expect(page.locator("#refused")).to_contain_text("The file is not there any more.")
    expect(page.locator("#refused")).to_contain_text("goes.jsonl")
    expect(page.locator("#e1")).to_be_visible()
