"""The page of a session in a browser: the token map leads through it."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.conftest import Opener
from tests.factories import assistant, call, chain, result, session_bytes, text, user
from tests.files import place
from tests.server import Server, start_server

TURNS = 12


def talk(turns: int = TURNS) -> bytes:
    messages = []
    for turn in range(1, turns + 1):
        messages += [
            user(f"Mend the mapped parser, part {turn}."),
            *(
                said
                for step in range(3)
                for said in (
                    assistant(text("I look."), call(f"c{turn}_{step}", path=f"src/{turn}_{step}.py")),
                    result(f"c{turn}_{step}", "\n".join(f"line {n} of {turn}_{step}" for n in range(40))),
                )
            ),
            assistant(text(f"Part {turn} is mended.")),
        ]
    return session_bytes(chain(*messages))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    base = tmp_path_factory.mktemp("reading")
    place(base / "sessions" / "mapped.jsonl", talk())
    with start_server(base) as running:
        yield running


@pytest.fixture
def page(server: Server, browse: Opener) -> Page:
    return browse(server).open(server.session("mapped parser"))


def named(page: Page) -> Locator:
    return page.locator("aside output")


def test_pointing_at_the_map_names_an_entry_and_a_click_goes_there(page: Page) -> None:
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


def test_the_slider_goes_by_entry_and_by_turn_and_enter_goes_there(page: Page) -> None:
    slider = page.locator("aside [type=range]")
    slider.focus()
    steps = {"ArrowRight": "2", "PageDown": "9", "End": str(8 * TURNS), "PageUp": "89", "Home": "1"}
    for key, number in steps.items():
        page.keyboard.press(key)
        expect(slider).to_have_value(number)
        turn = (int(number) - 1) // 8 + 1
        expect(named(page)).to_have_text(re.compile(f"^turn {turn}, "))
        expect(slider).to_have_attribute("aria-valuetext", named(page).inner_text())
    page.keyboard.press("PageDown")
    expect(slider).to_have_value("9")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("[?&]at=e9$"))
    expect(page.locator("article").first).to_contain_text("part 2.")


def test_without_script_the_slider_has_a_button(server: Server, browse: Opener) -> None:
    page = browse(server, java_script_enabled=False).open(server.session("mapped parser"))
    slider = page.locator("aside [type=range]")
    slider.focus()
    slider.press("ArrowRight")
    page.locator("aside").get_by_role("button", name="Go").click()
    expect(page).to_have_url(re.compile("[?&]at=e2$"))
