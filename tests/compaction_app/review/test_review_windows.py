"""Promises of a review that is open in two windows: no decision overrides a different one made meanwhile."""

from __future__ import annotations

import urllib.error
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from compaction_app.core.review_fold import ReviewStatus
from compaction_app.models import Decision, Run
from compaction_app.review.target_ref import ref_of
from compaction_app.runs.reviews import review_of
from sessions_app.sessionlog.targets import Target
from tests.browser.scenarios import decide, finished_run, place_titled, title, undecided_keys
from tests.compaction_app.review.review_page import (
    HTMX,
    extent,
    group_keys,
    leads,
    page,
    post,
    shown_entries,
    version,
)
from tests.html import addresses, element, elements, field, text_of, values
from tests.server import start_server


@pytest.fixture
def stale(browser: Client, run: Run) -> dict[str, Any]:
    """What the form of a page carries that was loaded before anything was decided."""
    shown = page(browser, run)
    return {"seen": field(shown, "seen"), **extent(shown)}


@pytest.fixture
def first(run: Run) -> Target:
    return leads(run)[0]


@pytest.mark.parametrize("in_place", [True, False])
@pytest.mark.parametrize("button", ["approve", "add"])
def test_what_another_window_pinned_is_not_approved(
    browser: Client, run: Run, stale: dict[str, Any], first: Target, button: str, in_place: bool
) -> None:
    post(browser, run, reject=ref_of(first))
    answer = post(browser, run, in_place, **stale, **{button: ref_of(first)})
    assert answer.status_code == 409
    assert f"in another window: {first} was rejected and pinned. Nothing was decided." in text_of(answer)
    assert review_of(run).items[first].standing is ReviewStatus.REJECTED
    assert Decision.objects.count() == 1


def test_a_refused_decision_shows_the_current_state_and_can_then_be_made(
    browser: Client, run: Run, stale: dict[str, Any], first: Target
) -> None:
    post(browser, run, reject=ref_of(first))
    response = post(browser, run, True, **stale, approve=ref_of(first))
    assert shown_entries(response) == [first.entry_id]
    assert "rejected" in text_of(response)
    answer = post(browser, run, True, **{**stale, "seen": field(response, "seen")}, approve=ref_of(first))
    assert answer.status_code == 200
    assert review_of(run).items[first].standing is ReviewStatus.APPROVED


def test_a_pin_on_the_other_side_of_a_pair_is_noticed(
    browser: Client, run: Run, stale: dict[str, Any], first: Target
) -> None:
    call = review_of(run).followers[first][0]
    post(browser, run, reject=ref_of(call))
    answer = post(browser, run, **stale, approve=ref_of(first))
    assert answer.status_code == 409
    assert f"{first} stays with its pair, which was pinned" in text_of(answer)


def test_what_was_decided_alike_is_not_decided_twice(
    browser: Client, run: Run, stale: dict[str, Any], first: Target
) -> None:
    post(browser, run, approve=ref_of(first))
    assert post(browser, run, **stale, approve=ref_of(first)).status_code == 303
    assert Decision.objects.count() == 1


def test_a_decision_on_something_else_is_kept_and_brings_what_the_other_window_did(
    browser: Client, run: Run, stale: dict[str, Any], first: Target
) -> None:
    other = leads(run)[1]
    post(browser, run, reject=ref_of(other))
    response = post(browser, run, True, **stale, approve=ref_of(first))
    assert set(shown_entries(response)) == {first.entry_id, other.entry_id}
    assert field(response, "seen") == str(version(run))


@pytest.mark.parametrize("in_place", [True, False])
@pytest.mark.parametrize("button", ["approve_picked", "reject_picked", "approve_group", "reject_group"])
@pytest.mark.parametrize("meanwhile", ["approve", "reject"])
def test_a_bulk_decision_is_refused_if_another_window_decided_differently(
    browser: Client,
    run: Run,
    stale: dict[str, Any],
    first: Target,
    meanwhile: str,
    button: str,
    in_place: bool,
) -> None:
    (group,) = group_keys(page(browser, run, "?by=turn"))
    picked = {"pick": [ref_of(target) for target in leads(run)], "by": "turn"}
    post(browser, run, **{meanwhile: ref_of(first)})
    answer = post(browser, run, in_place, **stale, **picked, **{button: group})
    alike = button.startswith(meanwhile)
    assert (answer.status_code == 409) is not alike
    assert Decision.objects.count() == (2 if alike else 1)


@pytest.mark.parametrize("in_place", [True, False])
@pytest.mark.parametrize(
    ("button", "words", "standing"),
    [
        ("approve", "Approve anyway", ReviewStatus.APPROVED),
        ("reopen", "Reopen anyway", ReviewStatus.UNDECIDED),
    ],
)
def test_a_refused_decision_can_be_made_anyway(
    browser: Client,
    run: Run,
    stale: dict[str, Any],
    first: Target,
    button: str,
    words: str,
    standing: ReviewStatus,
    in_place: bool,
) -> None:
    post(browser, run, reject=ref_of(first))
    refused = post(browser, run, in_place, **stale, by="tool", **{button: ref_of(first)})
    assert refused.status_code == 409
    pressed = element(refused, f"button[name={button}]")
    assert text_of(pressed).strip() == words
    answer = post(
        browser,
        run,
        in_place,
        **{**stale, "seen": field(refused, "seen"), button: pressed.attributes["value"]},
    )
    assert answer.status_code == (200 if in_place else 303)
    assert review_of(run).items[first].standing is standing
    if not in_place:
        assert "review?by=tool" in addresses(refused)


@pytest.mark.parametrize("in_place", [True, False])
@pytest.mark.parametrize("button", ["approve_picked", "approve_group"])
def test_the_rest_of_a_refused_bulk_decision_can_be_decided(
    browser: Client, run: Run, stale: dict[str, Any], first: Target, button: str, in_place: bool
) -> None:
    (group,) = group_keys(page(browser, run, "?by=turn"))
    picked = [ref_of(target) for target in leads(run)]
    post(browser, run, reject=ref_of(first))
    refused = post(browser, run, in_place, **{**stale, "pick": picked, "by": "turn", button: group})
    pressed = element(refused, f"button[name={button}]")
    assert text_of(pressed).strip() == "Approve the rest"
    if not in_place:
        assert values(refused, "pick") == picked
        assert field(refused, "by") == "turn"
    seen = field(refused, "seen")
    post(browser, run, in_place, **{**stale, "pick": picked, "by": "turn", "seen": seen, button: group})
    review = review_of(run)
    assert review.items[first].standing is ReviewStatus.REJECTED
    assert review.undecided == 0


def test_a_refused_bulk_decision_offers_nothing_if_nothing_is_left(
    browser: Client, run: Run, stale: dict[str, Any]
) -> None:
    picked = [ref_of(target) for target in leads(run)]
    post(browser, run, reject_picked="1", pick=picked)
    refused = post(browser, run, True, **stale, approve_picked="1", pick=picked)
    assert refused.status_code == 409
    assert not elements(refused, "button[name=approve_picked]")


def test_narrowing_that_was_refused_is_offered_with_its_blocks(browser: Client, run: Run) -> None:
    post(browser, run, add="e2")
    seen = version(run)
    post(browser, run, reject="e2")
    refused = post(browser, run, seen=seen, narrow="e2", block=["e2:0"])
    assert refused.status_code == 409
    assert values(refused, "block") == ["e2:0"]
    assert text_of(element(refused, "button[name=narrow]")).strip() == "Delete only these anyway"
    post(browser, run, seen=field(refused, "seen"), narrow="e2", block=values(refused, "block"))
    assert Target("e2", 0) in review_of(run).goes


@pytest.mark.parametrize("meanwhile", [{"approve": 0}, {"undo": "1"}])
def test_undo_is_refused_if_the_last_step_has_changed(
    browser: Client, run: Run, first: Target, meanwhile: dict[str, Any]
) -> None:
    post(browser, run, reject=ref_of(leads(run)[1]))
    seen = version(run)
    post(browser, run, **{name: value or ref_of(first) for name, value in meanwhile.items()})
    rows = Decision.objects.count()
    answer = post(browser, run, seen=seen, undo="1")
    assert answer.status_code == 409
    assert "Nothing was undone" in text_of(answer)
    assert Decision.objects.count() == rows
    assert post(browser, run, undo="1").status_code == 303


def test_an_undo_in_another_window_is_reported(browser: Client, run: Run, first: Target) -> None:
    post(browser, run, approve=ref_of(first))
    seen = version(run)
    post(browser, run, undo="1")
    answer = post(browser, run, seen=seen, reopen=ref_of(first))
    assert answer.status_code == 409
    assert f"{first} is undecided again" in text_of(answer)


@pytest.mark.parametrize("seen", ["", "x", "-1", "1.5", "99999999999"])
def test_a_decision_without_the_version_it_was_made_on_is_refused(
    browser: Client, run: Run, first: Target, seen: str
) -> None:
    answer = post(browser, run, seen=seen, approve=ref_of(first))
    assert answer.status_code == 422
    assert "Nothing was decided" in text_of(answer)
    assert not Decision.objects.exists()


def test_every_form_of_the_review_names_its_version(browser: Client, run: Run, first: Target) -> None:
    post(browser, run, approve=ref_of(first))
    for address in ("review", "stays?from=0&to=99"):
        shown = browser.get(f"/runs/{run.pk}/{address}")
        assert values(shown, "seen") == [str(version(run))], address
    assert not values(browser.get(f"/runs/{run.pk}/stays?from=0&to=99", headers=HTMX), "seen")


def test_of_two_windows_that_decide_at_once_one_is_refused(tmp_path: Path) -> None:
    place_titled(tmp_path / "sessions", "raced")
    with start_server(tmp_path) as server, ThreadPoolExecutor(2) as pool:
        address = finished_run(server, server.session(title("raced")))

        def press(button: str, name: str, seen: str) -> int:
            try:
                decide(server, address, **{button: name, "seen": seen})
            except urllib.error.HTTPError as refused:
                return refused.code
            return 200

        for name in undecided_keys(server, address):
            seen = field(server.get(f"{address}/review"), "seen")
            answers = pool.map(press, ("approve", "reject"), (name, name), (seen, seen))
            assert sorted(answers) == [200, 409]
