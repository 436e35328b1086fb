"""Promises of the map of a review as a way through it: each entry is named, with what was decided, and leads there."""

from datetime import UTC, datetime
from typing import Any

from django.test import Client

from compaction_app.core.decisions import Kind
from compaction_app.models import Run
from compaction_app.review.presenter import ReviewDesk
from compaction_app.review.review_place import place_at_point, place_of
from compaction_app.runs.reviews import decide
from tests.compaction_app.review.review_page import leads, page
from tests.html import element

NOW = datetime(2026, 3, 1, tzinfo=UTC)
JSON = {"accept": "application/json"}


def place(browser: Client, run: Run, query: str) -> Any:
    answer = browser.get(f"/runs/{run.pk}/place?{query}", headers=JSON)
    assert answer.status_code == 200
    return answer.json()


def test_each_entry_is_named_with_its_turn_its_tokens_and_what_was_decided(browser, run):
    first, second = leads(run)[:2]
    decide(run, Kind.REJECT, [second], NOW)
    desk = ReviewDesk(run)
    entries = desk.transcript.entries
    for target, words in ((first, "undecided"), (second, "rejected")):
        number = desk.review.items[target].position + 1
        found = place(browser, run, f"number={number}")
        assert found["name"].startswith(f"turn 1, read {desk.line(desk.review.items[target]).words}, ")
        assert found["name"].endswith(f" tokens, {words}")
        assert found["address"].endswith(f"at={target.entry_id}#p-{number - 1}")
    assert place(browser, run, "number=1")["name"].endswith("tokens, stays")
    assert place(browser, run, "number=1")["address"].endswith(f"/entries/{entries[0].entry_id}")


def test_a_call_leads_to_the_proposal_that_it_is_decided_with(browser, run):
    desk = ReviewDesk(run)
    leader = leads(run)[0]
    follower = desk.review.followers[leader][0]
    found = place(browser, run, f"number={desk.review.items[follower].position + 1}")
    assert f"at={leader.entry_id}#" in found["address"]


def test_a_point_is_the_entry_that_is_drawn_there_and_a_frame_stands_around_it(run):
    desk = ReviewDesk(run)
    for number in range(1, len(desk.transcript) + 1):
        found = place_of(desk, number)
        assert found.number == number
        before = desk.struck_map.before
        if before[number] - before[number - 1] < desk.struck_map.tokens // 100:
            continue
        middle = (before[number - 1] + before[number]) // 2
        cells = middle * 60 * 120 // desk.struck_map.ground.tokens
        there = place_at_point(desk, cells % 120 * 3, cells // 120 * 10)
        assert there == found
        assert found.top <= cells // 120 * 10 <= found.top + found.height
    assert place_at_point(desk, 0, 0).number == 1
    assert place_of(desk, 999_999).number == len(desk.transcript)


def test_page_keys_go_by_turns(run):
    desk = ReviewDesk(run)
    starts = [start + 1 for start in desk.outline.turn_starts]
    assert len(starts) == 2
    first, second, last = starts[0], starts[1], len(desk.transcript)
    inside = place_of(desk, second - 2)
    assert (inside.previous_turn, inside.next_turn) == (first, second)
    assert place_of(desk, second).previous_turn == first
    assert place_of(desk, second).next_turn == last


def test_without_script_the_slider_goes_to_the_proposal(browser, run):
    slider = element(page(browser, run, "?by=tool"), ".place__range")
    number = int(str(slider.attributes["value"]))
    first = next(item for item in ReviewDesk(run).leads if item.position == number - 1)
    answer = browser.get(f"/runs/{run.pk}/place?by=tool&number={number}")
    assert answer.status_code in (302, 303)
    assert answer["Location"].startswith(f"/runs/{run.pk}/review?by=tool&at={first.target.entry_id}#p-")


def test_the_edge_of_the_map_and_numbers_that_are_none_name_the_nearest_entry(browser, run):
    for query in ("x=-3&y=-3", "number=0", "number=x", "x=1", ""):
        assert place(browser, run, query)["number"] == 1
