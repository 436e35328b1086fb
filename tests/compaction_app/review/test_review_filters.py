"""Promises of the filters of a review: they combine, each can be taken away, and the numbers stay those of the plan."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qsl, urlencode

import pytest
from django.test import Client

from compaction_app.core.decisions import Kind
from compaction_app.core.review_fold import ReviewStatus
from compaction_app.models import Run
from compaction_app.review import presenter as review_pages
from compaction_app.review.filters import filter_of
from compaction_app.review.presenter import ReviewDesk
from compaction_app.runs.reviews import decide
from sessions_app.sessionlog.measure import significant
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
from tests.factories import assistant, call, chain, result, text, thinking, user
from tests.html import Source, addresses, element, elements, links, text_of

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
def run(known_root):
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


def all_open(browser: Client, run: Run, fields: dict[str, str]) -> Any:
    """The page with this filter and all of its groups open."""
    query = f"?{urlencode(fields)}"
    keys = group_keys(page(browser, run, query))
    return page(browser, run, query + "".join(f"&open={key}" for key in keys))


def expected(run: Run, fields: dict[str, str]) -> set[str]:
    """The entries that a filter without a text has to leave."""
    desk, wanted = ReviewDesk(run), filter_of(fields)
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
            str(chip.attributes["href"]),
            "aria-current" in chip.attributes,
        )
        for chip in elements(source, "#chips a.chip")
    ]


@pytest.mark.parametrize("fields", COMBINED, ids="-".join)
def test_filters_combine_and_their_sums_are_those_of_their_rows(browser, run, fields):
    shown = all_open(browser, run, fields)
    entries = set(shown_entries(shown))
    assert entries
    assert entries <= expected(run, fields)
    if "q" not in fields:
        assert entries == expected(run, fields)
    desk = ReviewDesk(run, filter_of(fields))
    sums = desk.found_sum()
    opened = [group.opened for group in desk.page(group_keys(shown)).groups if group.opened is not None]
    tokens = [row.tokens for part in opened for row in part.rows if row.signed]
    assert sums.count == len(shown_entries(shown)) == sum(group.count for group in desk.page().groups)
    assert sums.tokens == sum(tokens) == sum(group.tokens for group in desk.page().groups)
    total = desk.summary.tokens.planned
    found = text_of(element(shown, "#found"))
    assert f"{sums.count} of {desk.summary.total} proposals" in found
    assert f"−{significant(sums.tokens):,} of −{significant(total):,}" in found


@pytest.mark.parametrize("fields", [{}, *COMBINED], ids=lambda fields: "-".join(fields) or "none")
def test_each_chip_says_how_many_proposals_it_leaves_and_one_that_is_on_can_be_taken_away(browser, run, fields):
    chips = chip_links(page(browser, run, f"?{urlencode(fields)}"))
    assert sum(on for _, _, on in chips) == len(fields.keys() - {"by"})
    for count, query, on in chips:
        if on:
            there = page(browser, run, query)
            assert sum(one for _, _, one in chip_links(there)) == len(fields.keys() - {"by"}) - 1
        else:  # the sum of a filter is that of its rows, as shown above
            wanted = filter_of(dict(parse_qsl(query.removeprefix("?"), keep_blank_values=True)))
            assert ReviewDesk(run, wanted).found_sum().count == int(count), query


def test_the_fields_of_the_filter_work_without_script(browser, run):
    shown = page(browser, run, "?by=turn&tool=bash&kind=output&reason=&over=200&undecided=1&q=")
    for name, value in (("tool", "bash"), ("kind", "output"), ("reason", "")):
        chosen = elements(shown, f"#filter-menu select[name={name}] option[selected]")
        assert [one.attributes["value"] for one in chosen] == ([value] if value else [])
        assert len(elements(shown, f"#filter-menu select[name={name}] option")) > 1
    assert element(shown, "#filter-over").attributes["value"] == "200"
    fields = elements(shown, "#filter-menu select, #filter-menu input, #filter-menu button")
    assert {one.attributes["form"] for one in fields} == {"filter"}
    assert element(shown, "#filter input[name=by]").attributes["value"] == "turn"


def test_a_filter_that_leaves_nothing_says_so_and_leads_back(browser, run):
    shown = page(browser, run, "?by=tool&tool=bash&over=999999")
    assert "No proposal matches" in text_of(shown)
    assert "?by=tool" in addresses(shown)
    assert any(words.startswith("Over 999,999 tokens") for words, _ in links(shown))
    assert "No proposal matches" in text_of(page(browser, run, "?reason=gone"))


def test_when_all_that_a_filter_leaves_is_decided_the_page_says_what_is_left(browser, run):
    key = group_keys(page(browser, run, "?by=tool&tool=bash&undecided=1"))[0]
    post(browser, run, by="tool", tool="bash", undecided="1", approve_group=key)
    shown = page(browser, run, "?by=tool&tool=bash&undecided=1")
    assert "All of these are decided" in text_of(shown)
    left = sum(item.standing is ReviewStatus.UNDECIDED for item in ReviewDesk(run).leads)
    assert (f"Show the {left}", "?by=tool&undecided=1") in links(shown)
    assert f"/runs/{run.pk}/commit" in addresses(shown)
    post(browser, run, **everything(run))
    assert "undecided," not in text_of(element(page(browser, run, "?undecided=1"), ".empty"))


def test_decisions_move_nothing_out_of_the_part_that_is_loaded_next(browser, run, monkeypatch):
    monkeypatch.setattr(review_pages, "ROWS", 3)
    desk = ReviewDesk(run, filter_of({"by": "reason", "undecided": "1"}))
    group = max(desk.groups, key=lambda one: len(desk.listed(one.leads)))
    waiting = [item.target.entry_id for item in desk.listed(group.leads)]
    first = page(browser, run, f"?undecided=1&open={group.key}")
    assert shown_entries(first) == waiting[:3]
    later = str(element(first, ".group__more a").attributes["hx-get"])
    decide(run, Kind.APPROVE, [item.target for item in desk.listed(group.leads)[:2]], NOW)
    part = browser.get(f"/runs/{run.pk}/review{later}", headers=HTMX)
    assert shown_entries(part) == waiting[3:6]
