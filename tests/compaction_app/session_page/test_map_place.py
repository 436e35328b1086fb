"""Promises of the token map as a way through a session: each place has one entry, a name and an address."""

from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from django.test import Client

from tests.factories import assistant, block, call, chain, compaction, result, text, user, whole
from tests.html import element, elements, text_of
from tests.sessions import add_session

JSON = {"Accept": "application/json"}
TALK = [
    user("Mend the parser."),
    assistant(text("I look."), call("c1", path="/home/dev/project/src/parse.py")),
    result("c1", "x" * 4_000),
    assistant(text("Removed."), text("It is mended.")),
    user("<b>And</b>\x1b[2J the tests?"),
    assistant(text("They pass."), usage={"totalTokens": 1_037}),
    compaction(block("e4", 0), whole("e5")),
    user("Thanks."),
]


@pytest.fixture
def address(idle_root):
    return add_session(idle_root, "a.jsonl", chain(*TALK))


def place(browser: Client, address: str, **query: Any) -> Any:
    answered = browser.get(f"{address}/place", query, headers=JSON)
    assert answered.status_code == 200, answered.content
    return answered.json()


def test_each_entry_has_a_name_and_an_address_and_page_keys_go_to_the_beginning_of_turns(browser, address):
    found = [place(browser, address, number=number) for number in range(1, 7)]
    assert [one["name"] for one in found] == [
        "turn 1, you: Mend the parser., about 4 tokens",
        "turn 1, assistant: I look. read src/parse.py, about 17 tokens",
        "turn 1, read src/parse.py, about 1,000 tokens",
        "turn 1, assistant: It is mended., about 4 tokens",
        "turn 2, assistant: They pass., about 3 tokens",
        "turn 3, you: Thanks., about 2 tokens",
    ]
    there = [parse_qs(urlsplit(one["address"]).query)["at"] for one in found]
    assert there == [[name] for name in ("e1", "e2", "e3", "e4", "e6", "e8")]
    assert {one["total"] for one in found} == {6}
    assert [one["next_turn"] for one in found] == [5, 5, 5, 5, 6, 6]
    assert [one["previous_turn"] for one in found] == [1, 1, 1, 1, 1, 5]


def test_a_point_is_the_entry_that_is_drawn_there_and_a_number_beyond_the_context_its_end(browser, address):
    points = {(0, 0): 1, (180, 300): 3, (359, 596): 6, (-9, -900): 1, (10**9, 10**9): 6}
    assert {(x, y): place(browser, address, x=x, y=y)["number"] for x, y in points} == points
    middle = place(browser, address, x=180, y=300)
    assert middle["top"] <= 300 <= middle["top"] + middle["height"]
    assert [place(browser, address, number=number)["number"] for number in (-5, 99)] == [1, 6]


def test_without_a_script_the_form_goes_there_and_the_slider_stands_at_the_page(browser, address):
    answered = browser.get(f"{address}/place", {"number": 3, "view": "all"}, headers={"Accept": "text/html,*/*"})
    assert (answered.status_code, answered["Location"]) == (303, f"{address}?view=all&at=e3")
    for view in ("sees", "all"):
        page = browser.get(address, {"view": view, "at": "e4"})
        (slider,) = elements(page, "aside [type=range]")
        assert (slider.attributes["value"], slider.attributes["max"]) == ("4", "6")
        assert text_of(element(page, "aside output")) == slider.attributes["aria-valuetext"]


def test_what_is_no_place_is_refused(browser, address, idle_root):
    for query in ({"number": "x"}, {"leaf": "nobody"}):
        assert browser.get(f"{address}/place", query, headers=JSON).status_code == 404
    empty = add_session(idle_root, "b.jsonl", chain({"type": "custom"}))
    assert not elements(browser.get(empty), "[type=range]")
    assert browser.get(f"{empty}/place", {"number": 1}, headers=JSON).status_code == 303


def test_a_name_is_inert(browser, idle_root):
    address = add_session(idle_root, "a.jsonl", chain(*TALK[:6]))
    assert place(browser, address, number=5)["name"] == "turn 2, you: <b>And</b>\\x1b[2J the tests?, about 7 tokens"
