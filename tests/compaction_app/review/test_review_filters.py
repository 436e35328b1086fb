"""Promises of the filters of a review: they combine, each can be taken away, and the numbers stay those of the plan."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qsl, urlencode

import pytest
from django.test import Client

from compaction_app.core.reasons import ONLY_THERE
from compaction_app.core.review_fold import Kind, ReviewStatus
from compaction_app.models import Proposal, Run
from compaction_app.pages.review import presenter as review_pages
from compaction_app.pages.review.presenter import ReviewDesk
from compaction_app.pages.review.views import place_at_point, place_of
from compaction_app.review.account import account_of, undecided_look
from compaction_app.review.grouped_review import filter_of
from compaction_app.runs.reviews import decide
from sessions_app.sessionlog.context import significant
from tests.compaction_app.review.review_page import (
    HTMX,
    everything,
    group_keys,
    leads,
    page,
    planned,
    post,
    shown_entries,
)
from tests.factories import assistant, call, chain, result, text, thinking, user, working_session
from tests.html import Source, addresses, element, elements, links, text_of, texts

NOW = datetime(2026, 3, 1, tzinfo=UTC)
TOOLS = ("read", "bash", "search", "fetch", "list")
COMBINED = (
    {"tool": "bash"},
    {"kind": "output", "over": "200"},
    {"q": "of step 1"},
    {"q": "/of step [13]/", "over": "200"},
    {"undecided": "1", "kind": "output"},
    {"tool": "list", "by": "turn", "undecided": "1"},
)


@pytest.fixture
def mixed(known_root):
    """A run with proposals of five tools, of several sizes, one approved and one rejected."""
    steps: list[Any] = []
    for step in range(20):
        tool = TOOLS[step % len(TOOLS)]
        steps += [user(f"Do step {step}.")] if step % 7 == 0 else []
        steps += [
            assistant(thinking(f"idea {step} " * 20), call(f"c{step}", tool, path=f"src/{step}.py")),
            result(f"c{step}", f"output of step {step} " * (10 + 8 * step), name=tool),
        ]
    ends = [assistant(text("Done.")), user("Good.")]
    made = planned(known_root, chain(*steps, *ends), compression_ratio=0.1)
    decide(made, Kind.APPROVE, leads(made)[:1], NOW)
    decide(made, Kind.REJECT, leads(made)[-1:], NOW)
    return made


def all_open(browser: Client, mixed: Run, fields: dict[str, str]) -> Any:
    """The page with this filter and all of its groups open."""
    query = f"?{urlencode(fields)}"
    keys = group_keys(page(browser, mixed, query))
    return page(browser, mixed, query + "".join(f"&open={key}" for key in keys))


def expected(mixed: Run, fields: dict[str, str]) -> set[str]:
    """The entries that a filter without a text has to leave."""
    desk, wanted = ReviewDesk(mixed), filter_of(fields)
    return {
        item.target.entry_id
        for item in desk.leads
        if wanted.tool in ("", desk.line(item).tool)
        and wanted.kind in ("", desk.line(item).kind)
        and desk.size(item) > wanted.over
        and (not wanted.undecided or item.standing is ReviewStatus.UNDECIDED)
    }


def chip_links(source: Source) -> Sequence[tuple[str, str, bool]]:
    """The chips that can be pressed: their counts, addresses, and whether they are on."""
    return [
        (
            text_of(element(chip, ".chip__count")).strip(),
            str(chip.attributes["href"]).partition("?")[2],
            "aria-current" in chip.attributes,
        )
        for chip in elements(source, "#chips a.chip")
    ]


@pytest.mark.parametrize("fields", COMBINED, ids="-".join)
def test_filters_combine_and_their_sums_are_what_is_approved_and_would_be(browser, mixed, fields):
    shown = all_open(browser, mixed, fields)
    entries = set(shown_entries(shown))
    assert entries
    assert entries <= expected(mixed, fields)
    if "q" not in fields:
        assert entries == expected(mixed, fields)
    desk = ReviewDesk(mixed, filter_of(fields))
    sums = desk.found_sum()
    assert sums.count == len(shown_entries(shown)) == sum(group.count for group in desk.page()["groups"])
    approved = desk.approved_tokens(desk.listed(desk.found))
    assert sums.tokens == approved + desk.sum_of(desk.found).tokens
    groups = [group.tokens for group in desk.page()["groups"] if group.undecided]
    assert sums.tokens <= approved + sum(groups) + len(groups), "each is rounded"
    total, found = desk.summary.tokens.planned, text_of(element(shown, "#found"))
    assert f"{sums.count} of {desk.summary.total} proposals" in found
    assert f"−{significant(sums.tokens):,} of −{significant(total):,}" in found


@pytest.mark.parametrize("fields", [{}, *COMBINED], ids=lambda fields: "-".join(fields) or "none")
def test_each_chip_says_how_many_proposals_it_leaves_and_one_that_is_on_can_be_taken_away(browser, mixed, fields):
    chips = chip_links(page(browser, mixed, f"?{urlencode(fields)}"))
    assert sum(on for _, _, on in chips) == len(fields.keys() - {"by"})
    for count, query, on in chips:
        if on:
            there = page(browser, mixed, f"?{query}")
            assert sum(one for _, _, one in chip_links(there)) == len(fields.keys() - {"by"}) - 1
        else:  # the sum of a filter is that of its rows, as shown above
            wanted = filter_of(dict(parse_qsl(query, keep_blank_values=True)))
            assert ReviewDesk(mixed, wanted).found_sum().count == int(count), query


def test_the_chip_of_names_counts_the_texts_that_confirm_asks_about(browser, known_root):
    """Also one that is grouped by another part of its reason."""
    run = planned(known_root, working_session(steps=12))
    first, second = run.proposals.filter(source=Proposal.Source.PLANNER).order_by("order")[:2]
    for row, start in ((first, "An old output"), (second, "Removed so that e3 can stay")):
        run.proposals.filter(pk=row.pk).update(reason=f"{start}; 2 of the 9 {ONLY_THERE}")
    (chip,) = [words for words in texts(page(browser, run), "#chips a.chip") if words.startswith("Names only here")]
    count = undecided_look(account_of(run)).unread_names.count
    assert chip.split()[-1] == str(count)
    assert count >= 2


def test_the_fields_of_the_filter_work_without_script(browser, mixed):
    shown = page(browser, mixed, "?by=turn&tool=bash&kind=output&reason=&over=200&undecided=1&q=")
    for name, value in (("tool", "bash"), ("kind", "output"), ("reason", "")):
        chosen = elements(shown, f"#filter-menu select[name={name}] option[selected]")
        assert [one.attributes["value"] for one in chosen] == ([value] if value else [])
        assert len(elements(shown, f"#filter-menu select[name={name}] option")) > 1
    assert element(shown, "#filter-over").attributes["value"] == "200"
    fields = elements(shown, "#filter-menu select, #filter-menu input, #filter-menu button")
    assert {one.attributes["form"] for one in fields} == {"filter"}
    assert element(shown, "#filter input[name=by]").attributes["value"] == "turn"


def test_a_filter_that_leaves_nothing_says_so_and_leads_back(browser, mixed):
    shown = page(browser, mixed, "?by=tool&tool=bash&over=999999")
    assert "No proposal matches" in text_of(shown)
    assert f"/plans/{mixed.pk}?by=tool" in addresses(shown)
    assert any(words.startswith("Over 999,999 tokens") for words, _ in links(shown))
    assert "No proposal matches" in text_of(page(browser, mixed, "?reason=gone"))


def test_when_all_that_a_filter_leaves_is_decided_the_page_says_what_is_left(browser, mixed):
    key = group_keys(page(browser, mixed, "?by=tool&tool=bash&undecided=1"))[0]
    post(browser, mixed, by="tool", tool="bash", undecided="1", approve_group=key)
    shown = page(browser, mixed, "?by=tool&tool=bash&undecided=1")
    assert "All of these are decided" in text_of(shown)
    left = sum(item.standing is ReviewStatus.UNDECIDED for item in ReviewDesk(mixed).leads)
    assert (f"Show the {left}", f"/plans/{mixed.pk}?by=tool&undecided=1") in links(shown)
    assert f"/plans/{mixed.pk}/confirm" in addresses(shown)
    post(browser, mixed, **everything(mixed))
    assert "undecided," not in text_of(element(page(browser, mixed, "?undecided=1"), ".empty"))


def test_decisions_move_nothing_out_of_the_part_that_is_loaded_next(browser, mixed, monkeypatch):
    monkeypatch.setattr(review_pages, "ROWS", 3)
    desk = ReviewDesk(mixed, filter_of({"by": "reason", "undecided": "1"}))
    group = max(desk.groups, key=lambda one: len(desk.listed(one.leads)))
    waiting = [item.target.entry_id for item in desk.listed(group.leads)]
    first = page(browser, mixed, f"?undecided=1&open={group.key}")
    assert shown_entries(first) == waiting[:3]
    later = str(element(first, ".group__more a").attributes["hx-get"])
    decide(mixed, Kind.APPROVE, [item.target for item in desk.listed(group.leads)[:2]], NOW)
    part = browser.get(later, headers=HTMX)
    assert shown_entries(part) == waiting[3:6]


JSON = {"accept": "application/json"}


def place(browser: Client, run: Run, query: str) -> Any:
    answer = browser.get(f"/plans/{run.pk}/place?{query}", headers=JSON)
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
    assert place(browser, run, "number=1")["name"].endswith("tokens, kept")
    assert place(browser, run, "number=1")["address"].endswith(f"/entries/{entries[0].entry_id}")


def test_a_call_leads_to_the_proposal_that_it_is_decided_with(browser, run):
    desk, leader = ReviewDesk(run), leads(run)[0]
    follower = desk.review.followers[leader][0]
    found = place(browser, run, f"number={desk.review.items[follower].position + 1}")
    assert f"at={leader.entry_id}#" in found["address"]


def test_a_point_is_the_entry_that_is_drawn_there_and_a_frame_stands_around_it(run):
    desk = ReviewDesk(run)
    for number in range(1, len(desk.transcript) + 1):
        found = place_of(desk, number)
        assert found["number"] == number
        before = desk.struck_map.before
        if before[number] - before[number - 1] < desk.struck_map.tokens // 100:
            continue
        middle = (before[number - 1] + before[number]) // 2
        cells = middle * 60 * 120 // desk.struck_map.ground.tokens
        there = place_at_point(desk, cells % 120 * 3, cells // 120 * 10)
        assert there == found
        assert found["top"] <= cells // 120 * 10 <= found["top"] + found["height"]
    assert place_at_point(desk, 0, 0)["number"] == 1
    assert place_of(desk, 999_999)["number"] == len(desk.transcript)


def test_page_keys_go_by_turns(run):
    desk = ReviewDesk(run)
    starts = [start + 1 for start in desk.outline.turn_starts]
    assert len(starts) == 2
    first, second, last = starts[0], starts[1], len(desk.transcript)
    inside = place_of(desk, second - 2)
    assert (inside["previous_turn"], inside["next_turn"]) == (first, second)
    assert place_of(desk, second)["previous_turn"] == first
    assert place_of(desk, second)["next_turn"] == last


def test_without_script_the_slider_goes_to_the_proposal(browser, run):
    slider = element(page(browser, run, "?by=tool"), ".place__range")
    number = int(str(slider.attributes["value"]))
    first = next(item for item in ReviewDesk(run).leads if item.position == number - 1)
    answer = browser.get(f"/plans/{run.pk}/place?by=tool&number={number}")
    assert answer.status_code in (302, 303)
    assert answer["Location"].startswith(f"/plans/{run.pk}?by=tool&at={first.target.entry_id}#p-")


def test_the_edge_of_the_map_and_numbers_that_are_none_name_the_nearest_entry(browser, run):
    for query in ("x=-3&y=-3", "number=0", "number=x", "x=1", ""):
        assert place(browser, run, query)["number"] == 1
