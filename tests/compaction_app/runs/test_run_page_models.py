"""Promises of the page of a model's run: what streams appears in its place, and a reload changes nothing."""

import re
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from compaction_app.models import Run
from compaction_app.providers.types import dollars
from compaction_app.runs.commands import start_run
from compaction_app.runs.presenter import ARGUMENTS_SHOWN, PAGE_ROWS, TEXT_SHOWN, THOUGHT_SHOWN, follow_run
from tests.html import addresses, element, elements, ids, missing, text_of, texts
from tests.run_factories import (
    HOST,
    MODEL,
    PREPARED,
    RunFactory,
    add_plan,
    add_turn,
    answered_event,
    asked_event,
    pieces_of,
    streamed_event,
)

HOSTILE = '<img src=x onerror=alert(1)> {{ run }} \u202e"\x1b[2J'


@pytest.fixture
def run(session):
    return start_run(session, planner="embedded", requested_parameters={})


@pytest.fixture
def factory(run, redline):
    return RunFactory(redline.data / "redline.sqlite3", run.pk)


@pytest.fixture
def look(browser, run):
    """The page of the run, as it is now."""

    def page(address: str = "") -> str:
        answer = browser.get(f"/plans/{run.pk}{address or '/log'}")
        assert answer.status_code == 200
        return answer.content.decode()

    return page


def words(page: str) -> str:
    """The text of the log."""
    return text_of(element(page, "#log"))


def beside(page: str) -> str:
    """The text on the traffic."""
    return text_of(element(page, "#traffic"))


def words_of_bar(page: str) -> str:
    """What is next to Stop on a narrow screen."""
    return text_of(element(page, "#brief"))


def test_a_turn_shows_all_that_came_and_progress_and_cost_are_next_to_stop(factory, look):
    add_plan(factory, turns=2)
    shown = words(look())
    for message in (
        f"Request 1 · 38,567 characters to {HOST}",
        "The largest entries are listings of the same directory",
        "I search for what replaced them first.",
        "context_search_transcript pattern tui-renderer.ts",
        "9 entries deleted, 9 calls went with them.",
        "412 tokens out, 12,040 in, $0.012",
        f"Retry 1, after 2 s: {HOST} is overloaded (529).",
        "412 tokens out, 20,040 in (8,000 from the provider’s cache), $0.012",
        "12 old results of 80,000 characters dropped from the conversation with the model",
        "The target is not reached",
    ):
        assert message in shown
    assert shown.index("38,567 characters") < shown.index("The largest entries") < shown.index("I search for")
    assert "The answer is still coming." not in shown
    assert "pending" not in shown
    assert words_of_bar(look()) == "21.6% struck $0.024"
    factory.end("target_met")
    assert words_of_bar(look()) == ""


def test_a_call_is_shown_as_soon_as_it_has_a_name_and_becomes_its_result(factory, look):
    factory.add_all([PREPARED, asked_event(1), streamed_event(1, ["call", 0, "context_delete"])])
    assert "context_delete pending The answer is still coming." in words(look())
    factory.add_all([streamed_event(1, ["arguments", 0, '{"dele']), streamed_event(1, ["arguments", 0, 'tions": []'])])
    assert 'context_delete {"deletions": [] pending' in words(look())
    factory.add_all([answered_event(1)])
    factory.add_call(1, 0, "context_delete", {"deletions": []}, sentence="Nothing was deleted.")
    shown = words(look())
    assert "1 context_delete deletions 0: Nothing was deleted." in shown
    assert "pending" not in shown


def test_a_turn_that_broke_off_shows_its_calls_as_not_run(factory, look):
    factory.add_all(
        [PREPARED, asked_event(1), streamed_event(1, ["call", 0, "context_delete"], ["arguments", 0, '{"de'])]
    )
    factory.end("failed", f"{HOST} closed the connection.", f"{HOST} closed the connection.")
    ended = f"The run ended: failed. {HOST} closed the connection."
    assert not missing(words(look()), 'context_delete {"de not run The answer broke off.', ended)


@pytest.mark.parametrize(
    ("pieces", "message"),
    [
        ([], "No answer came."),
        ([["text", ""]], "No answer came."),
        ([["thought", "I"]], "The answer broke off."),
        ([["call", 0, "context_delete"]], "The answer broke off."),
    ],
)
def test_an_answer_of_which_nothing_came_did_not_break_off(factory, look, pieces, message):
    factory.add_all([PREPARED, asked_event(1), streamed_event(1, *pieces)])
    factory.end("failed", f"{HOST} refused the key (401).", f"{HOST} refused the key (401).")
    shown = words(look())
    assert message in shown
    assert ("The answer broke off." in shown) is (message == "The answer broke off.")


def test_a_nudge_names_its_sender_and_receiver(factory, look):
    factory.add_all([PREPARED])
    factory.add("nudged", text="The target is not reached. Delete more.")
    assert "Redline to the model: The target is not reached. Delete more." in words(look())
    Run.objects.filter(pk=factory.run).update(planner="embedded")
    assert "Redline to the planner: The target is not reached. Delete more." in words(look())


def test_the_calls_after_the_one_that_met_the_target_are_not_run(factory, look):
    calls = [["call", index, f"context_read_{index}"] for index in range(3)]
    factory.add_all([PREPARED, asked_event(1), streamed_event(1, *calls), answered_event(1, calls=3)])
    factory.add_call(1, 0, "context_read_0", {})
    factory.end("target_met")
    assert not missing(words(look()), "context_read_1 not run context_read_2 not run", "412 tokens out")


def test_a_run_whose_worker_is_gone_leaves_nothing_pending(factory, look):
    factory.add_all([PREPARED, asked_event(1), streamed_event(1, ["text", "I look."], ["call", 0, "context_delete"])])
    factory.set_state("interrupted", "Its worker ended.")
    assert "I look. context_delete not run The answer broke off." in words(look())


def test_an_attempt_that_begins_again_gives_no_anchor_twice(factory, look):
    for _ in range(2):
        factory.calls = 0
        factory.add_all([PREPARED, asked_event(1), streamed_event(1, ["call", 0, "context_delete"]), answered_event(1)])
        factory.add_call(1, 0, "context_delete", {"deletions": []})
    anchors = ids(look())
    assert len(set(anchors)) == len(anchors)
    assert anchors.count("ev-1") == 1


def test_everything_from_a_model_is_shown_as_text(factory, look):
    factory.add_all([PREPARED, asked_event(1)])
    factory.add("retried", turn=1, attempt=1, seconds=1.5, why=HOSTILE)
    factory.add_all(
        [streamed_event(1, ["thought", HOSTILE], ["text", HOSTILE], ["call", 0, HOSTILE], ["arguments", 0, HOSTILE])]
    )
    shown = '<img src=x onerror=alert(1)> {{ run }} \\u202e"\\x1b[2J'
    for page, times in ((look(), 5), (look("/requests/2"), 4)):
        assert not elements(page, "img")
        assert text_of(page).count(shown) == times


def test_a_finished_turn_is_cut_and_links_to_the_rest(factory, look):
    thought, message = "T" * (THOUGHT_SHOWN + 7), "S" * (TEXT_SHOWN + 9)
    factory.add_all([PREPARED, asked_event(1)])
    began = factory.seq
    for kind, all_of_it in (("thought", thought), ("text", message)):
        factory.add_all(streamed_event(1, piece) for piece in pieces_of([kind], all_of_it, 4_000))
    assert not missing(look(), thought, message)
    factory.add_all([answered_event(1)])
    page = look()
    for kind, letter, shown, length in (
        ("thought", "T", THOUGHT_SHOWN, len(thought)),
        ("text", "S", TEXT_SHOWN, len(message)),
    ):
        part = element(page, f"#turn-{began}-{kind}")
        assert text_of(part) == f"{letter * shown}… All {length:,} characters"
        assert addresses(part) == [f"/plans/{factory.run}/requests/{began}"]
    assert not missing(look(f"/requests/{began}"), thought, message)


def test_the_arguments_of_a_call_that_did_not_run_are_cut_and_no_other_request_is_found(factory, browser, look):
    factory.add_all([PREPARED, asked_event(1)])
    assert browser.get(f"/plans/{factory.run}/requests/1").status_code == 404
    assert browser.get(f"/plans/{factory.run}/requests/99").status_code == 404
    factory.add_all([streamed_event(1, ["call", 0, "context_delete"])])
    factory.add_all(streamed_event(1, piece) for piece in pieces_of(["arguments", 0], "A" * 5_000, 500))
    assert "A" * 5_000 in look()
    factory.end("cancelled")
    assert max(map(len, re.findall("A+", words(look())))) == ARGUMENTS_SHOWN


def test_a_long_run_shows_its_last_turns_whole(factory, look):
    factory.add_all([PREPARED])
    turns = PAGE_ROWS // 3 + 10
    for turn in range(1, turns + 1):
        streamed = streamed_event(turn, ["text", f"I look at part {turn}."])
        factory.add_all([asked_event(turn), streamed, answered_event(turn)])
        factory.add_call(turn, 0, "context_read_entry", {})
    page = look()
    numbers = [int(head.split()[1]) for head in texts(page, ".turn__head b")]
    assert numbers == list(range(numbers[0], turns + 1))
    assert PAGE_ROWS <= 3 * len(numbers) <= PAGE_ROWS + 3
    assert words(page).startswith(f"Request {numbers[0]} ")
    assert f"{3 * (numbers[0] - 1) + 1} earlier events" in text_of(page)
    assert len(elements(look("?all=1"), ".turn")) == turns


def test_streamed_text_is_sent_once_at_any_length(factory):
    """A hundred kilobytes in three hundred rows: each look sends what is new, and reads two tables once."""
    factory.add_all([PREPARED, asked_event(1)])
    found = follow_run(factory.run, 0, None, 200)
    sent, queries = 0, []
    for piece in pieces_of(["text"], "x" * 100_000, 333):
        factory.add_all([streamed_event(1, piece)])
        with CaptureQueriesContext(connection) as captured:
            found = follow_run(factory.run, found.shown.seq, found.shown, 200)
        assert [change.place for change in found.changes] == ["turn-2-text"]
        assert found.steps is None
        sent += sum(len(change.text) for change in found.changes)
        queries.append(len(captured))
    assert (sent, max(queries)) == (100_000, 2)


def test_no_event_is_shown_before_what_is_beside_the_log_counts_it(factory, look):
    """A worker may write between the query of the run's row and that of its events."""
    factory.add_all([PREPARED, asked_event(1)])
    runs = Run.objects.filter(pk=factory.run)
    runs.update(last_seq=1)
    found = follow_run(factory.run, 0, None, 200)
    assert found.shown.seq == 1
    assert element(look(), "#seen").attributes["data-upto"] == "1"
    runs.update(last_seq=2)
    assert follow_run(factory.run, 1, found.shown, 200).shown.seq == 2


def test_a_page_of_fifty_calls_with_what_streamed_needs_few_queries(factory, look):
    events: list[Any] = [PREPARED]
    for turn in range(1, 51):
        streamed = [streamed_event(turn, ["thought", "and so on, "])] * 110
        events += [asked_event(turn), *streamed, answered_event(turn)]
    factory.insert_all(events)
    with CaptureQueriesContext(connection) as captured:
        page = look()
    assert len(elements(page, ".turn")) == 50
    assert len(captured) < 15


def test_a_cost_has_only_significant_decimals():
    costs = (0, 0.00001, 0.0004, 0.0123, 0.05, 0.5, 1.236, 1234.5)
    shown = "$0.00; less than $0.0001; $0.0004; $0.012; $0.05; $0.50; $1.24; $1,234.50"
    assert "; ".join(map(dollars, costs)) == shown


def test_what_was_sent_and_received_is_added_up(factory, look):
    assert "Nothing has left this machine yet." in text_of(look())
    factory.add_all([PREPARED, asked_event(1, 30_000), answered_event(1), asked_event(2, 40_000)])
    factory.add_all([answered_event(2, cacheRead=9_000, estimated=True)])
    page = look()
    assert HOST in texts(page, "#traffic dd")
    for message in (
        "70,000 characters",
        "about 33,080 tokens, 9,000 of them from its cache",
        "3,280 characters",
        "about 824 tokens",
        "about $0.024",
    ):
        assert message in beside(page)
    assert f"planned by {MODEL} (high)" in text_of(page)


def test_unreported_tokens_are_not_shown_as_a_total(factory, look):
    factory.add_all([PREPARED, asked_event(1, 30_000)])
    assert beside(look()).endswith("Sent 30,000 characters Received nothing yet Tokens, cost not reported yet")
    assert "$" not in words_of_bar(look())
    factory.end("failed", "It is gone.")
    assert beside(look()).endswith("Received nothing Tokens, cost not reported")


def test_what_streams_counts_before_its_tokens_are_reported(factory, look):
    factory.add_all([PREPARED, asked_event(1, 30_000)])
    assert factory.usage is not None
    factory.usage |= {"received": 90, "cost": None}
    factory.add_all([streamed_event(1, ["text", "x" * 90])])
    assert beside(look()).endswith("Received 90 characters Tokens, cost not reported yet")
    factory.usage |= {"input": 7_500, "output": 23, "estimated": True}
    factory.end("cancelled")
    assert "about 7,500 tokens Received 90 characters about 23 tokens Cost unknown: no price" in beside(look())


def test_the_list_says_who_planned_and_what_it_cost(factory, browser):
    def row() -> str:
        return text_of(element(browser.get("/inbox"), "tbody"))

    factory.add_all([PREPARED, asked_event(1)])
    assert not missing(row(), MODEL, "not reported yet")
    factory.add_all([answered_event(1)])
    assert "$0.012" in row()
    assert "about" not in row()
    factory.add_all([asked_event(2), answered_event(2, estimated=True)])
    factory.end("target_met")
    assert "about $0.024" in row()
    Run.objects.update(planner="embedded", usage=None)
    assert "embedded" in row()
    assert "$" not in row()


def test_a_resumed_run_names_the_host_it_sends_to(factory, look, browser):
    factory.add_all([PREPARED, asked_event(1)])
    assert "sends to" not in text_of(look())
    add_turn(factory, 2)
    factory.end("failed", "The credit is used up.")
    assert f"sends to {HOST} again" in text_of(look())
    Run.objects.update(base_url="https://gateway.example:8443/api")
    assert "sends to gateway.example:8443 again" in text_of(look())
    Run.objects.update(planner="embedded", base_url="", usage=None, state="interrupted")
    page = look()
    assert "Resume" in text_of(page)
    assert "sends to" not in text_of(page)


def test_the_embedded_planner_sends_nothing(look):
    assert "Nothing left this machine: the embedded planner works offline." in text_of(look())


def test_a_failed_run_can_be_retried_and_reviewed_if_something_was_validated(factory, look):
    factory.add_all([PREPARED, asked_event(1)])
    factory.end("failed", f"{HOST}: the credit is used up.")
    page = look()
    assert "Try again" in text_of(page)
    assert "Review the proposals" not in text_of(page)
    factory.set_state("running")
    add_turn(factory, 2)
    factory.end("failed", f"{HOST}: the credit is used up.")
    assert not missing(text_of(look()), "Review the proposals", f"{HOST}: the credit is used up. Nothing was written.")
