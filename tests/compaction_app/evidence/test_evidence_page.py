"""Promises of the evidence: what a reason says is shown beside what it is about, as the review is now."""

from typing import Any

import pytest
from django.test import Client

from compaction_app.core.review_fold import Kind
from compaction_app.models import Proposal, Run
from compaction_app.review.lines import LineChecks, checked_reason
from compaction_app.runs.reviews import decide, reviewed
from sessions_app.sessionlog.entries import Target
from tests.clients import page
from tests.compaction_app.review.review_page import HTMX, planned
from tests.compaction_app.review.test_review_page import NOW
from tests.factories import assistant, call, chain, result, text, user
from tests.html import addresses, assert_inert, element, elements, text_of, texts

OLD = [f"def function_{number}() -> None:" for number in range(20)]
NEW = [line if number % 4 else f"def renamed_{number}() -> None:" for number, line in enumerate(OLD)]


def read_twice(*, newer: list[str] = NEW, filler: str = "") -> list[dict[str, Any]]:
    """A file is read in e3 and again, with other lines, in e5; then a command prints the same in e7 and e9."""
    output = "\n".join(f"ok {number} tests/test_part_{number}.py" for number in range(60))
    return chain(
        user("Mend src/a.py"),
        assistant(call("c1", path="src/a.py")),
        result("c1", "\n".join(OLD)),
        assistant(call("c2", path="src/a.py")),
        result("c2", "\n".join(f"{number + 1:6}→{line}" for number, line in enumerate(newer))),
        assistant(call("c3", "bash", command="make test")),
        result("c3", output, name="bash"),
        assistant(call("c4", "bash", command="make test")),
        result("c4", output, name="bash"),
        assistant(call("c5", "grep", pattern="part_7")),
        result("c5", f"tests/test_part_7.py only_there_at_all {filler}", name="grep"),
        assistant(text("It is mended.")),
        user("Now the tests."),
        assistant(text("Fine.")),
    )


@pytest.fixture
def run(known_root):
    return planned(known_root, read_twice(), keep=0.6)


STILL = "Partly superseded by the read of src/a.py in turn 1: 15 of 20 lines are kept later"


def proposed(run: Run, entry_id: str, reason: str = "superseded by the read of src/a.py in e5") -> Target:
    """Give a run a proposal to delete this entry, for this reason."""
    Proposal.objects.filter(run=run).delete()
    return propose(run, entry_id, reason)


def propose(run: Run, entry_id: str, reason: str, order: int = 0) -> Target:
    what = {"run": run, "order": order, "entry_id": entry_id, "reason": reason}
    Proposal.objects.create(source="planner", call=1, tool="t", **what)
    Run.objects.filter(pk=run.pk).update(last_seq=run.last_seq + 1)
    run.refresh_from_db()
    return Target(entry_id)


def shown(browser: Client, run: Run, entry_id: str, query: str = "") -> Any:
    return page(browser, f"/plans/{run.pk}/evidence?of={entry_id}{query}")


def test_lines_that_do_not_stand_are_beside_those_that_replaced_them_and_all_on_request(browser, run):
    proposed(run, "e3")
    answer = shown(browser, run, "e3")
    assert (texts(answer, "q"), texts(answer, ".evidence__found b")) == ([STILL], ["Only 15 of 20 lines"])
    assert texts(answer, ".is-lost .strike") == [line for line in OLD if line not in NEW]
    new = [words.partition("→")[2] for words in texts(answer, ".is-new")]
    assert new == [line for line in NEW if line not in OLD]
    assert f"{run.session.get_absolute_url()}/entries/e5" in addresses(answer)
    every = shown(browser, run, "e3", "&all=1")
    assert len(elements(answer, ".side-by-side")) >= 1
    assert len(elements(every, ".side-by-side__half:first-child .source__line")) == len(OLD)
    assert not [link for link in addresses(every) if "all=1" in link]
    answer: Any = browser.get(f"/plans/{run.pk}/evidence?of=e3", headers=HTMX)
    assert texts(answer, ".evidence__found b") == ["Only 15 of 20 lines"]
    assert not elements(answer, "html, h1")


def test_a_reason_says_superseded_again_as_soon_as_the_lines_stand(browser, run):
    target = proposed(run, "e3", "older than the read of src/a.py in e5: none of its lines stands later")
    decide(run, Kind.ADD, [Target("e5")], NOW)
    answer = shown(browser, run, "e3")
    assert "Every later call on this file is deleted too" in text_of(answer)
    assert texts(answer, ".evidence__found b") == ["None of its 20 lines"]
    decide(run, Kind.WITHDRAW, [Target("e5")], NOW)
    assert str(LineChecks(run, reviewed(run)).of(target)) == "15 of 20"
    assert "15 of 20" in text_of(shown(browser, run, "e3"))


def test_a_repeat_is_beside_the_output_that_it_repeats_and_another_reason_cannot_be_checked(browser, run):
    proposed(run, "e7", "a repeat of the output in e9")
    answer = shown(browser, run, "e7")
    assert texts(answer, ".evidence__found b") == ["All 60 lines"]
    assert f"{run.session.get_absolute_url()}/entries/e9" in addresses(answer)
    decide(run, Kind.ADD, [Target("e9")], NOW)
    assert texts(shown(browser, run, "e7"), ".evidence__found b") == ["None of its 60 lines"]
    target = proposed(run, "e7", "an old output of bash")
    assert LineChecks(run, reviewed(run)).of(target) is None
    assert "This reason cannot be checked" in text_of(shown(browser, run, "e7"))
    assert checked_reason("superseded by the edit of a in b", None) == "superseded by the edit of a in b"


def test_names_are_found_where_they_stay_and_listed_if_they_stay_nowhere(browser, run):
    proposed(run, "e11", "an old output of grep; every name in it occurs elsewhere too")
    answer = shown(browser, run, "e11")
    assert texts(answer, ".names__item.is-lost") == ["part_7", "only_there_at_all"]
    assert "2 of its" in text_of(element(answer, ".names-fold summary"))
    assert "open" not in element(answer, ".names-fold").attributes
    assert f"/plans/{run.pk}/evidence?of=e11&all=1" in addresses(answer)
    answer = shown(browser, run, "e11", "&all=1")
    assert "bash in turn 1" in texts(answer, ".names__item a")
    assert f"{run.session.get_absolute_url()}/entries/e9" in addresses(answer)


def test_an_address_that_names_no_proposal_is_not_found_and_a_rewritten_session_is_named(browser, run):
    proposed(run, "e3", "")
    for of in ("", "e99", "e3:x", "e14"):
        page(browser, f"/plans/{run.pk}/evidence?of={of}", 404)
    path = run.session.real_path()
    path.write_bytes(path.read_bytes().replace(b"function_1", b"function_X"))
    assert "Plan again" in text_of(page(browser, f"/plans/{run.pk}/evidence?of=e3", 409))


def test_hostile_lines_and_names_are_inert(browser, known_root):
    hostile = "<script>alert(1)</script>\x1b[31m\u202e evil_name"
    run = planned(known_root, read_twice(newer=[*NEW, f"{hostile} other"], filler=hostile))
    proposed(run, "e3", f"superseded by the read of {hostile} in e5")
    decide(run, Kind.REJECT, [Target("e3")], NOW)
    assert_inert(shown(browser, run, "e3"))
    proposed(run, "e11", "an old call; every name in it occurs elsewhere too")
    assert_inert(shown(browser, run, "e11"))


def review(browser: Client, run: Run, at: str) -> Any:
    return page(browser, f"/plans/{run.pk}?at={at}")


def test_a_row_of_the_review_says_how_many_lines_still_stand_and_loads_its_evidence(browser, run):
    proposed(run, "e3")
    answer = review(browser, run, "e3")
    assert texts(answer, ".proposal__still > span") == ["15 of 20 lines kept"]
    assert element(answer, ".still__part").attributes["width"] == "15"
    assert texts(answer, ".proposal__open q") == [f"{STILL}."]
    link = element(answer, ".proposal__open .evidence a")
    assert link.attributes["hx-get"] == link.attributes["href"] == f"/plans/{run.pk}/evidence?of=e3"
    proposed(run, "e7", "an old output of bash")
    assert not elements(review(browser, run, "e7"), ".proposal__open .evidence")


def test_a_decision_redraws_the_rows_whose_lines_stand_no_longer(browser, run):
    proposed(run, "e3")
    propose(run, "e5", "old", order=1)
    rows = element(review(browser, run, "e3"), 'input[name="rows"]').attributes["value"]
    sent = {"seen": 0, "reject": "e5", "rows": f"{rows},p-4"}
    answer: Any = browser.post(f"/plans/{run.pk}/decide", sent, headers=HTMX)
    assert "15 of 20 lines kept" in texts(answer, "#p-2 .proposal__still > span")
