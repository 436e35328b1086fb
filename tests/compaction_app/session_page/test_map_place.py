"""Promises of the token map as a way through a session: each place has one entry, a name and an address."""

from typing import Any
from urllib.parse import parse_qs, urlsplit

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


def place(browser: Client, address: str, **query: Any) -> Any:
    answered = browser.get(f"{address}/place", query, headers=JSON)
    assert answered.status_code == 200, answered.content
    return answered.json()


def test_each_entry_of_the_context_has_a_name_and_an_address(browser, idle_root):
    address = add_session(idle_root, "a.jsonl", chain(*TALK))
    found = [place(browser, address, number=number) for number in range(1, 7)]
    assert [one["name"] for one in found] == [
        "turn 1, user: Mend the parser., about 4 tokens",
        "turn 1, assistant: I look. read src/parse.py, about 17 tokens",
        "turn 1, read src/parse.py, about 1,000 tokens",
        "turn 1, assistant: It is mended., about 4 tokens",
        "turn 2, assistant: They pass., about 3 tokens",
        "turn 3, user: Thanks., about 2 tokens",
    ]
    assert [parse_qs(urlsplit(one["address"]).query)["at"] for one in found] == [
        [name] for name in ("e1", "e2", "e3", "e4", "e6", "e8")
    ]
    assert {one["total"] for one in found} == {6}


def test_page_keys_go_to_the_beginning_of_turns(browser, idle_root):
    address = add_session(idle_root, "a.jsonl", chain(*TALK))
    found = [place(browser, address, number=number) for number in range(1, 7)]
    assert [one["next_turn"] for one in found] == [5, 5, 5, 5, 6, 6]
    assert [one["previous_turn"] for one in found] == [1, 1, 1, 1, 1, 5]


def test_a_point_is_the_entry_that_is_drawn_there(browser, idle_root):
    address = add_session(idle_root, "a.jsonl", chain(*TALK))
    assert place(browser, address, x=0, y=0)["number"] == 1
    assert place(browser, address, x=180, y=300)["number"] == 3
    assert place(browser, address, x=359, y=596)["number"] == 6
    assert place(browser, address, x=-9, y=-900)["number"] == 1
    assert place(browser, address, x=10**9, y=10**9)["number"] == 6
    middle = place(browser, address, x=180, y=300)
    assert middle["top"] <= 300 <= middle["top"] + middle["height"]


def test_numbers_beyond_the_context_mean_its_ends(browser, idle_root):
    address = add_session(idle_root, "a.jsonl", chain(*TALK))
    assert place(browser, address, number=-5)["number"] == 1
    assert place(browser, address, number=99)["number"] == 6


def test_without_a_script_the_form_goes_there(browser, idle_root):
    address = add_session(idle_root, "a.jsonl", chain(*TALK))
    answered = browser.get(f"{address}/place", {"number": 3, "view": "all"}, headers={"Accept": "text/html,*/*"})
    assert answered.status_code == 303
    assert answered["Location"] == f"{address}?view=all&at=e3"


def test_the_slider_stands_at_the_page(browser, idle_root):
    address = add_session(idle_root, "a.jsonl", chain(*TALK))
    for view in ("sees", "all"):
        page = browser.get(address, {"view": view, "at": "e4"})
        (slider,) = elements(page, "aside [type=range]")
        assert (slider.attributes["value"], slider.attributes["max"]) == ("4", "6")
        assert text_of(element(page, "aside output")) == slider.attributes["aria-valuetext"]


def test_what_is_no_place_is_refused(browser, idle_root):
    address = add_session(idle_root, "a.jsonl", chain(*TALK))
    assert browser.get(f"{address}/place", {"number": "x"}, headers=JSON).status_code == 404
    assert browser.get(f"{address}/place", {"leaf": "nobody"}, headers=JSON).status_code == 404
    empty = add_session(idle_root, "b.jsonl", chain({"type": "custom"}))
    assert not elements(browser.get(empty), "[type=range]")
    assert browser.get(f"{empty}/place", {"number": 1}, headers=JSON).status_code == 303


def test_a_name_is_inert(browser, idle_root):
    address = add_session(idle_root, "a.jsonl", chain(*TALK[:6]))
    assert place(browser, address, number=5)["name"] == "turn 2, user: <b>And</b>\\x1b[2J the tests?, about 7 tokens"
