"""Promises of selections: nothing is selected before it was shown, and a selection is one step."""

import itertools
from typing import Any

import pytest
from django.test import Client

from compaction_app.core.review_fold import Kind, ReviewStatus
from compaction_app.core.states import RunState
from compaction_app.models import Run
from compaction_app.pages.review.presenter import ReviewDesk
from compaction_app.runs.commands import plan_again
from compaction_app.runs.reviews import decide, review_of, undo
from compaction_app.runs.worker import work
from sessions_app.index.indexer import index_file
from sessions_app.models import Session
from sessions_app.sessionlog.context import significant
from sessions_app.sessionlog.entries import Target
from tests.compaction_app.review.review_page import HTMX, planned, version
from tests.compaction_app.review.test_review_page import NOW
from tests.factories import assistant, call, chain, result, session_bytes, text, thinking, user
from tests.files import place
from tests.html import addresses, assert_inert, element, elements, hidden_fields, missing, text_of, text_sent, texts


def session(words: str = "npm run check") -> list[dict[str, Any]]:
    """Ten commands, of which some say the words, each with an output of its own; then a failed one, and an ending."""
    failed = (assistant(call("f", "bash", command=words)), result("f", "no", name="bash", error=True))
    said = [user("Mend it.")]
    for step in range(10):
        command = call(f"c{step}", "bash", command=words if step % 3 else "ls")
        output = " ".join(f"out_{step}_{number}" for number in range(100))
        said += [assistant(thinking(f"idea {step}"), text(f"Step {step}."), command)]
        said += [result(f"c{step}", output, name="bash")]
    return chain(*said, *failed, assistant(text("Done.")), user("Thanks."), assistant(text("Bye.")))


@pytest.fixture
def run(known_root):
    return planned(known_root, session(), keep=0.6)


def shown(browser: Client, run: Run, query: str, **headers: str) -> Any:
    answer = browser.get(f"/plans/{run.pk}/select?{query}", headers=headers)
    assert answer.status_code == 200
    return answer


def press(browser: Client, run: Run, source: Any, do: str) -> Any:
    """Press a button of a preview."""
    return browser.post(f"/plans/{run.pk}/select", {**hidden_fields(element(source, ".selection form")), "do": do})


def standing(run: Run) -> dict[Target, ReviewStatus]:
    """The status of each result that was proposed: they have odd ids."""
    return {item.target: item.standing for item in review_of(run).leads() if int(item.target.entry_id[1:]) % 2}


def test_a_preview_counts_what_is_proposed_what_could_be_added_and_what_stays(browser, run):
    before = version(run)
    page = shown(browser, run, "by=pattern&what=npm+run+check")
    proposed = [one for one in standing(run) if (int(one.entry_id[1:]) - 3) // 2 % 3]
    assert f"{len(proposed)} proposal" in text_of(element(page, ".selection__sum"))
    buttons = [f"Approve {len(proposed)}", f"Reject {len(proposed)}", f"Delete {6 - len(proposed)} more"]
    assert texts(page, ".selection form button") == buttons
    assert "1 more cannot be deleted" in text_of(element(page, ".selection"))
    assert "it contains a tool's error" in text_of(element(page, ".selection__refused"))
    assert version(run) == before


@pytest.mark.parametrize("do", ["approve", "reject"])
def test_a_selection_is_one_step_and_one_undo(browser, run, do):
    before, seen = standing(run), version(run)
    wanted = {"approve": ReviewStatus.APPROVED, "reject": ReviewStatus.REJECTED}[do]
    page = shown(browser, run, "by=tool&what=bash")
    answer = press(browser, run, page, do)
    assert (answer.status_code, answer["Location"]) == (303, f"/plans/{run.pk}")
    assert version(run) == seen + 1
    changed = {target for target, status in standing(run).items() if status is wanted}
    assert changed == before.keys()
    assert len(changed) > 1
    review, tokens = browser.get(answer["Location"]), ReviewDesk(run).summary.tokens.approved
    assert texts(page, ".selection__sum .tokens")[0] == f"about −{significant(tokens):,}" or do == "reject"
    said = f"−{significant(tokens):,}" if tokens else "tokens are kept"
    assert not missing(
        text_of(element(review, ".banner--note")),
        f"{len(changed)} of “Nothing later mentions it”",
        said,
        "One undo takes it back.",
    )
    undo(run, NOW)
    assert standing(run) == before


def test_what_was_not_proposed_is_added_in_one_step(browser, run):
    before = version(run)
    press(browser, run, shown(browser, run, "by=thinking"), "add")
    assert version(run) == before + 1
    added = [item for item in review_of(run).leads() if item.added]
    assert added
    assert {item.target.block_index for item in added} == {0}
    assert all(item.standing is ReviewStatus.APPROVED for item in added)


def test_what_was_decided_before_is_not_decided_again(browser, run):
    first, *others = standing(run)
    decide(run, Kind.REJECT, [first], NOW)
    page = shown(browser, run, "by=tool&what=bash")
    assert "1 is rejected" in text_of(element(page, ".selection__sum"))
    press(browser, run, page, "approve")
    assert standing(run)[first] is ReviewStatus.REJECTED
    assert {standing(run)[one] for one in others} == {ReviewStatus.APPROVED}


def test_a_selection_decided_elsewhere_or_in_an_earlier_preparation_is_refused_as_a_whole(browser, run):
    page = shown(browser, run, "by=tool&what=bash")
    decide(run, Kind.REJECT, [next(iter(standing(run)))], NOW)
    before = standing(run)
    assert "Nothing was decided" in text_sent(press(browser, run, page, "approve"), 409)
    assert standing(run) == before
    fields = {**hidden_fields(element(page, ".selection form")), "mark": "0" * 16, "do": "approve"}
    assert "planned again" in text_sent(browser.post(f"/plans/{run.pk}/select", fields), 409)


@pytest.mark.parametrize(
    ("query", "words", "status"),
    [
        ("by=pattern&what=", "say what to select", 409),
        ("by=size&what=1", "Nothing was selected", 422),
        ("by=pattern&what=nothing+of+this", "Nothing found", 200),
    ],
)
def test_a_criterion_that_cannot_be_used_or_finds_nothing_is_explained(browser, run, query, words, status):
    answer: Any = browser.get(f"/plans/{run.pk}/select?{query}")
    assert answer.status_code == status
    for page in (answer, shown(browser, run, query, **HTMX)):
        assert words in text_of(element(page, ".selection"))
        assert not elements(page, ".selection form button[value=approve]")


def suggested(page: Any) -> list[str]:
    return [" ".join(words.split()) for words in texts(page, ".selection__suggestions a")]


def test_what_is_worth_selecting_and_more_like_a_proposal_is_offered(browser, run):
    offers = ["all results of bash 11", "all thinking 10", "outputs that are repeated later"]
    assert suggested(shown(browser, run, "")) == offers
    offered = {
        "e5": ["all results of bash 11", "everything older than this 6"],
        "e4:0": ["all thinking 10", "everything older than this 4"],
        "e1": ["everything older than this"],
        "e99": [],
    }
    assert {like: suggested(shown(browser, run, f"like={like}")) for like in offered} == offered
    opened: Any = browser.get(f"/plans/{run.pk}?at=e5")
    assert f"/plans/{run.pk}/select?like=e5" in addresses(opened)


def test_everything_before_the_last_turns_is_offered(browser, known_root):
    turns = [(user(f"turn {number}"), assistant(text(f"answer {number}"))) for number in range(8)]
    run = planned(known_root, chain(*itertools.chain(*turns)), keep=0.9)
    offer = elements(shown(browser, run, ""), '.selection__suggestions a[href*="by=older"]')
    assert [" ".join(text_of(one).split()) for one in offer] == ["everything before the last 5 turns 6"]
    older = shown(browser, run, str(offer[0].attributes["href"]).removeprefix("?"))
    assert "3 more cannot be deleted" in text_of(element(older, ".selection"))


def test_more_reads_of_the_same_file_are_offered(browser, known_root):
    reads = [
        (assistant(call(f"r{number}", "read", path="src/a.py")), result(f"r{number}", f"def part_{number}():"))
        for number in range(3)
    ]
    said = (user("go on"), *itertools.chain(*reads), assistant(text("Fine.")), user("Bye."))
    run = planned(known_root, chain(*said), keep=0.9)
    assert "all reads of src/a.py but the last 2" in suggested(shown(browser, run, "like=e3"))


def test_a_selection_is_a_panel_of_the_review_whose_links_lead_back_to_it(browser, run):
    page = shown(browser, run, "by=tool&what=bash")
    assert elements(page, ".columns--panel .selection form")
    assert not elements(page, "#map")
    assert elements(page, "section.group .proposal")
    lines = [str(one.attributes["href"]) for one in elements(page, ".disclose, .proposal__what, #chips a")]
    assert lines
    assert all(line.startswith(f"/plans/{run.pk}?") for line in lines)


def test_in_place_only_the_preview_is_sent_and_a_run_that_was_not_planned_has_none(browser, run):
    page = shown(browser, run, "by=tool&what=bash", **HTMX)
    assert texts(page, ".selection form button")
    assert not elements(page, "html, h1")
    assert browser.get(f"/plans/{run.pk + 1}/select").status_code == 404


def test_hostile_words_are_inert(browser, known_root):
    run = planned(known_root, session("<script>alert(1)</script>\x1b[31m\u202e"), keep=0.6)
    assert_inert(shown(browser, run, "by=pattern&what=<script>"))
    assert_inert(shown(browser, run, "by=tool&what=<b>%1b"))


def start(browser: Client, found: Session, query: str) -> Run:
    """Start a plan from a selection of a session, and let a worker work on it."""
    address = f"{found.get_absolute_url()}/select"
    page: Any = browser.get(f"{address}?{query}")
    answer: Any = browser.post(address, hidden_fields(element(page, ".selection form")))
    assert answer.status_code == 303
    run = Run.objects.latest("pk")
    assert answer["Location"] == f"{run.get_absolute_url()}/log"
    work(run.pk, "w")
    run.refresh_from_db()
    return run


def test_a_plan_from_a_selection_proposes_it_alone_and_keeps_it_when_it_is_planned_again(browser, run):
    made = start(browser, run.session, "by=tool&what=bash")
    assert (made.planner, made.state) == ("hand", RunState.TARGET_MET)
    chosen = list(review_of(made).leads())
    assert {item.target.entry_id for item in chosen} == {f"e{number}" for number in range(3, 22, 2)}
    assert {(item.source, item.standing) for item in chosen} == {("human", ReviewStatus.UNDECIDED)}
    assert {item.origin.reason for item in chosen if item.origin} == {"selected: all results of bash"}
    first, second, *others = [item.target for item in chosen]
    decide(made, Kind.APPROVE, [first], NOW)
    decide(made, Kind.REJECT, [second], NOW)
    again = plan_again(made)
    work(again.pk, "w")
    now = standing(again)
    assert now.pop(first) is ReviewStatus.APPROVED
    assert now.pop(second) is ReviewStatus.REJECTED
    assert now == dict.fromkeys(others, ReviewStatus.UNDECIDED)


def test_a_plan_below_the_target_stays_as_it_was_selected(browser, run):
    made = start(browser, run.session, "by=thinking&what=")
    assert made.state == RunState.BELOW_TARGET
    assert {item.target.block_index for item in review_of(made).leads()} == {0}


def test_a_selection_that_has_changed_starts_nothing(browser, run):
    address = f"{run.session.get_absolute_url()}/select"
    page: Any = browser.get(f"{address}?by=tool&what=bash")
    answer: Any = browser.post(address, {**hidden_fields(element(page, ".selection form")), "addable": "3"})
    assert answer.status_code == 409
    assert "Nothing was planned" in text_of(answer)
    assert Run.objects.count() == 1


def test_a_session_that_cannot_be_written_has_nothing_to_select(browser, known_root):
    found = index_file(place(known_root / "headless.jsonl", session_bytes(session()[1:])))
    answer: Any = browser.get(f"{found.get_absolute_url()}/select")
    assert answer.status_code == 409
    assert "no session header" in text_of(answer)
