"""Promises of a review that is open in two windows: no decision overrides a different one made meanwhile."""

import urllib.error
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.test import Client

from compaction_app.core.review_fold import ReviewStatus
from compaction_app.models import Decision, Run
from compaction_app.review.lines import ref_of
from compaction_app.runs.reviews import review_of
from sessions_app.sessionlog.entries import Target
from tests.browser.scenarios import decide, finished_run, place_titled, title, undecided_keys
from tests.compaction_app.review.review_page import HTMX, extent, group_keys, leads, page, post, shown_entries, version
from tests.html import addresses, element, elements, field, text_of, values
from tests.server import place_in


class Window:
    """A page of a review that was loaded before anything was decided, and another window."""

    def __init__(self, browser: Client, run: Run) -> None:
        self.browser, self.run = browser, run
        self.targets = leads(run)
        self.first = self.targets[0]
        shown = page(browser, run)
        self.fields = {"seen": field(shown, "seen"), **extent(shown)}
        (self.group,) = group_keys(page(browser, run, "?by=turn"))
        self.picked = [ref_of(target) for target in self.targets]

    def press(self, in_place: bool = False, **sent: Any) -> Any:
        """Press a button of the page that was loaded before."""
        return post(self.browser, self.run, in_place, **{**self.fields, **sent})

    def elsewhere(self, **sent: Any) -> Any:
        """Press a button in the other window."""
        return post(self.browser, self.run, **sent)

    def standing(self) -> ReviewStatus:
        return review_of(self.run).items[self.first].standing


@pytest.fixture
def window(browser, run):
    return Window(browser, run)


in_both = pytest.mark.parametrize("in_place", [True, False])


@in_both
@pytest.mark.parametrize("button", ["approve", "add"])
def test_what_another_window_pinned_is_not_approved(window, button, in_place):
    window.elsewhere(reject=ref_of(window.first))
    answer = window.press(in_place, **{button: ref_of(window.first)})
    assert answer.status_code == 409
    assert f"in another window: {window.first} was rejected and pinned. Nothing was decided." in text_of(answer)
    assert window.standing() is ReviewStatus.REJECTED
    assert Decision.objects.count() == 1


def test_a_refused_decision_shows_the_current_state_and_can_then_be_made(window):
    window.elsewhere(reject=ref_of(window.first))
    response = window.press(True, approve=ref_of(window.first))
    assert shown_entries(response) == [window.first.entry_id]
    assert "rejected" in text_of(response)
    assert window.press(True, seen=field(response, "seen"), approve=ref_of(window.first)).status_code == 200
    assert window.standing() is ReviewStatus.APPROVED


def test_a_pin_on_the_other_side_of_a_pair_is_noticed(window):
    window.elsewhere(reject=ref_of(review_of(window.run).followers[window.first][0]))
    answer = window.press(approve=ref_of(window.first))
    assert answer.status_code == 409
    assert f"{window.first} is kept with its pair, which was pinned" in text_of(answer)


def test_what_was_decided_alike_is_not_decided_twice(window):
    window.elsewhere(approve=ref_of(window.first))
    assert window.press(approve=ref_of(window.first)).status_code == 303
    assert Decision.objects.count() == 1


def test_a_decision_on_something_else_is_kept_and_brings_what_the_other_window_did(window):
    other = window.targets[1]
    window.elsewhere(reject=ref_of(other))
    response = window.press(True, approve=ref_of(window.first))
    assert set(shown_entries(response)) == {window.first.entry_id, other.entry_id}
    assert field(response, "seen") == str(version(window.run))


@pytest.mark.parametrize("button", ["approve_picked", "reject_picked", "approve_group", "reject_group"])
@pytest.mark.parametrize("meanwhile", ["approve", "reject"])
def test_a_bulk_decision_is_refused_if_another_window_decided_differently(window, meanwhile, button):
    window.elsewhere(**{meanwhile: ref_of(window.first)})
    sent = {"pick": window.picked, "by": "turn", button: window.group}
    is_alike = button.startswith(meanwhile)
    for in_place in (True, False) if not is_alike else (True,):
        assert (window.press(in_place, **sent).status_code == 409) is not is_alike
    assert Decision.objects.count() == (2 if is_alike else 1)


@in_both
@pytest.mark.parametrize(
    ("button", "words", "standing"),
    [("approve", "Approve anyway", ReviewStatus.APPROVED), ("reopen", "Reopen anyway", ReviewStatus.UNDECIDED)],
)
def test_a_refused_decision_can_be_made_anyway(window, button, words, standing, in_place):
    window.elsewhere(reject=ref_of(window.first))
    refused = window.press(in_place, by="tool", **{button: ref_of(window.first)})
    assert refused.status_code == 409
    pressed = element(refused, f"button[name={button}]")
    assert text_of(pressed).strip() == words
    answer = window.press(in_place, seen=field(refused, "seen"), **{button: pressed.attributes["value"]})
    assert answer.status_code == (200 if in_place else 303)
    assert window.standing() is standing
    if not in_place:
        assert f"/plans/{window.run.pk}?by=tool" in addresses(refused)


@in_both
@pytest.mark.parametrize("button", ["approve_picked", "approve_group"])
def test_the_rest_of_a_refused_bulk_decision_can_be_decided(window, button, in_place):
    sent = {"pick": window.picked, "by": "turn", button: window.group}
    window.elsewhere(reject=ref_of(window.first))
    refused = window.press(in_place, **sent)
    assert text_of(element(refused, f"button[name={button}]")).strip() == "Approve the rest"
    if not in_place:
        assert values(refused, "pick") == window.picked
        assert field(refused, "by") == "turn"
    window.press(in_place, **sent, seen=field(refused, "seen"))
    assert window.standing() is ReviewStatus.REJECTED
    assert review_of(window.run).undecided == 0


def test_a_refused_bulk_decision_offers_nothing_if_nothing_is_left(window):
    window.elsewhere(reject_picked="1", pick=window.picked)
    refused = window.press(True, approve_picked="1", pick=window.picked)
    assert refused.status_code == 409
    assert not elements(refused, "button[name=approve_picked]")


def test_narrowing_that_was_refused_is_offered_with_its_blocks(browser, run):
    post(browser, run, add="e2")
    seen = version(run)
    post(browser, run, reject="e2")
    refused = post(browser, run, seen=seen, narrow="e2", block=["e2:0"])
    assert refused.status_code == 409
    assert values(refused, "block") == ["e2:0"]
    assert text_of(element(refused, "button[name=narrow]")).strip() == "Delete only these anyway"
    post(browser, run, seen=field(refused, "seen"), narrow="e2", block=values(refused, "block"))
    assert Target("e2", 0) in review_of(run).goes


@pytest.mark.parametrize("meanwhile", ["approve", "undo"])
def test_undo_is_refused_if_the_last_step_has_changed(window, meanwhile):
    window.elsewhere(reject=ref_of(window.targets[1]))
    seen = version(window.run)
    window.elsewhere(**{meanwhile: ref_of(window.first)})
    rows, answer = Decision.objects.count(), window.press(seen=seen, undo="1")
    assert answer.status_code == 409
    assert "Nothing was undone" in text_of(answer)
    assert Decision.objects.count() == rows
    assert window.elsewhere(undo="1").status_code == 303


def test_an_undo_in_another_window_is_reported(window):
    window.elsewhere(approve=ref_of(window.first))
    seen = version(window.run)
    window.elsewhere(undo="1")
    answer = window.press(seen=seen, reopen=ref_of(window.first))
    assert answer.status_code == 409
    assert f"{window.first} is undecided again" in text_of(answer)


def test_a_decision_without_the_version_it_was_made_on_is_refused(window):
    for seen in ("", "x", "-1", "1.5", "99999999999"):
        answer = window.press(seen=seen, approve=ref_of(window.first))
        assert (answer.status_code, "Nothing was decided" in text_of(answer)) == (422, True), seen
    assert not Decision.objects.exists()


def test_every_form_of_the_review_names_its_version(browser, window):
    window.elsewhere(approve=ref_of(window.first))
    run, stays = window.run, f"/plans/{window.run.pk}/stays?from=0&to=99"
    for address in (f"/plans/{run.pk}", stays):
        assert values(browser.get(address), "seen") == [str(version(run))], address
    assert not values(browser.get(stays, headers=HTMX), "seen")


def test_of_two_windows_that_decide_at_once_one_is_refused(shared_server):
    with place_in(shared_server, "windows") as server, ThreadPoolExecutor(2) as pool:
        place_titled(server.root, "raced")
        address = finished_run(server, server.session(title("raced")))

        def press(button: str, name: str, seen: str) -> int:
            try:
                decide(server, address, **{button: name, "seen": seen})
            except urllib.error.HTTPError as refused:
                return refused.code
            return 200

        for name in undecided_keys(server, address):
            seen = field(server.get(address), "seen")
            assert sorted(pool.map(press, ("approve", "reject"), (name, name), (seen, seen))) == [200, 409]
