"""Promises of the review page: each decision works without script, is kept, and can be undone."""

import json
import re
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

import pytest

from compaction_app.core.effects import removed_estimate
from compaction_app.core.groups import Grouping
from compaction_app.core.review_fold import Kind, ReviewStatus
from compaction_app.core.states import RunState
from compaction_app.entries.view import call_words
from compaction_app.models import Decision, Proposal, Run, Snapshot
from compaction_app.pages.review import presenter as review_pages
from compaction_app.pages.review.presenter import ReviewDesk
from compaction_app.review.grouped_review import ReviewFilter
from compaction_app.review.lines import fold_words, ref_of, target_of
from compaction_app.runs.commands import opened_targets, plan_again
from compaction_app.runs.reviews import approved_of, carried_from, decide, review_of, undo
from compaction_app.runs.worker import work
from sessions_app.sessionlog.context import significant
from sessions_app.sessionlog.entries import Target
from tests.compaction_app.review.review_page import (
    HTMX,
    everything,
    extent,
    group_keys,
    leads,
    opened,
    page,
    planned,
    post,
    shown_entries,
)
from tests.factories import (
    assistant,
    call,
    chain,
    result,
    session_bytes,
    text,
    thinking,
    transcript_of,
    user,
    working_session,
)
from tests.html import (
    actions,
    addresses,
    assert_inert,
    element,
    elements,
    field,
    ids,
    links,
    missing,
    text_of,
    texts,
    values,
)

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def many_turns() -> list[Any]:
    """Eight turns of three calls each."""
    turns: list[Any] = []
    for turn in range(8):
        turns += [user(f"turn {turn}")]
        for step in range(3):
            turns += [
                assistant(call(f"c{turn}{step}", path=f"{turn}/{step}")),
                result(f"c{turn}{step}", f"line {turn} {step} " * 60),
            ]
    return chain(*turns, assistant(text("end")))


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("read again later", "Read again later."),
        ("Read again later.", "Read again later."),
        ("It says “done.”\n", "It says “done.”"),
        ("Is it used?", "Is it used?"),
        ("", ""),
    ],
)
def test_a_reason_ends_in_one_stop(browser, run, reason, said):
    Proposal.objects.filter(run=run).update(reason=reason)
    assert set(texts(opened(browser, run, leads(run)[0]), "q")) == ({said} if said else set())


def test_planning_again_with_a_model_says_to_which_host_it_sends_again(browser, run, known_root):
    post(browser, run, approve=ref_of(leads(run)[0]))
    lines = (known_root / "work.jsonl").read_bytes()
    (known_root / "work.jsonl").write_bytes(lines.replace(b"parser", b"lexer!"))
    for base_url, said in (("https://gateway.example:8443/api", True), ("", False)):
        Run.objects.filter(pk=run.pk).update(base_url=base_url)
        for address in (f"/plans/{run.pk}", f"/plans/{run.pk}/confirm"):
            shown = text_of(browser.get(address))
            assert "Plan again from here" in shown
            assert ("sends to gateway.example:8443 again" in shown) is said


def test_a_decision_is_kept_and_leads_back_to_where_it_was_made(browser, run):
    first = leads(run)[0]
    answer = post(browser, run, approve=ref_of(first))
    assert answer.status_code == 303
    address, _, anchor = answer["Location"].partition("#")
    assert anchor in ids(page(browser, run, address.partition("review")[2]))
    assert [(row.kind, row.targets) for row in run.decisions.all()] == [("approve", [first.to_json()])]
    assert review_of(run).items[first].standing is ReviewStatus.APPROVED


@pytest.mark.parametrize("kind", ["approve", "reject"])
def test_a_bulk_decision_is_one_step_that_one_undo_takes_back(browser, run, kind):
    before = review_of(run)
    post(browser, run, **everything(run, kind))
    assert Decision.objects.count() == 1
    assert review_of(run).undecided == 0
    post(browser, run, undo="1")
    assert review_of(run) == before
    post(browser, run, undo="1")
    assert [row.kind for row in run.decisions.order_by("seq")] == [kind, Decision.UNDO]


def test_a_group_is_reopened_and_approved_without_what_was_rejected_in_it(browser, run):
    (group,) = group_keys(page(browser, run, "?by=turn"))
    before, kept = review_of(run), leads(run)[1]
    post(browser, run, by="turn", reject_group=group)
    assert review_of(run).undecided == 0
    post(browser, run, by="turn", reopen_group=group)
    assert review_of(run) == before
    post(browser, run, reject=ref_of(kept))
    post(browser, run, by="turn", approve_group=group)
    review = review_of(run)
    assert review.undecided == 0
    assert review.items[kept].standing is ReviewStatus.REJECTED
    assert kept not in review.goes


def test_a_filter_limits_what_a_group_decision_is_about(browser, run):
    last = leads(run)[-1]
    words = ReviewDesk(run).line(review_of(run).items[last]).words
    shown = page(browser, run, f"?{urlencode({'by': 'turn', 'q': words})}")
    assert shown_entries(shown) == [last.entry_id]
    post(browser, run, by="turn", q=words, approve_group=group_keys(shown)[0])
    assert [row.targets for row in run.decisions.all()] == [[last.to_json()]]


def test_an_entry_is_narrowed_by_its_checkboxes(browser, known_root):
    run = planned(known_root, working_session())
    decide(run, Kind.ADD, [Target("e2")], NOW)
    assert "e2:0" in values(opened(browser, run, Target("e2")), "block")
    post(browser, run, narrow="e2", block=["e2:0", "e4:0"])
    review = review_of(run)
    assert Target("e2", 0) in review.goes
    assert Target("e2", 1) in review.pins
    assert Target("e4", 0) not in review.goes


def test_what_stays_is_shown_and_can_be_deleted_by_hand(browser, known_root):
    run = planned(known_root, working_session())
    shown = [fold for one in leads(run) for fold in elements(opened(browser, run, one), '[hx-get*="/stays?"]')]
    folds = [fold.attributes["hx-get"] for fold in shown]
    rows = [browser.get(str(fold), headers=HTMX) for fold in folds]
    assert not missing(" ".join(map(text_of, rows)), "Mend the parser.", "user message")
    offered = [value for row in rows for value in values(row, "add")]
    assert offered
    assert "e1" not in offered
    assert not [heading for row in rows for heading in elements(row, "h1")]
    whole = browser.get(f"/plans/{run.pk}/stays?from=0&to=999")
    assert whole.status_code == 200
    assert texts(whole, "h1") == ["What is kept"]
    post(browser, run, add=offered[0])
    added = target_of(offered[0])
    assert review_of(run).items[added].added
    assert "added by you" in text_of(opened(browser, run, added))
    post(browser, run, withdraw=offered[0])
    assert added not in review_of(run).items


@pytest.mark.parametrize("side", ["call", "result"])
def test_what_goes_with_an_addition_is_not_listed_as_staying(browser, known_root, side):
    run = planned(known_root, working_session(), compression_ratio=0.9)
    proposed = {target.entry_id for target in review_of(run).items}
    step = next(n for n in range(2, 24, 2) if proposed.isdisjoint({f"e{n}", f"e{n + 1}"}))
    added, pair = Target(f"e{step}", 1), Target(f"e{step + 1}")
    if side == "result":
        added, pair = pair, added
    response = post(browser, run, in_place=True, add=ref_of(added), **extent(page(browser, run)))
    assert "is deleted with it, −" in text_of(response)
    after = review_of(run)
    assert pair in after.goes
    assert pair not in after.items
    rows = browser.get(f"/plans/{run.pk}/stays?from=0&to=99")
    assert f"e{step}:0" in values(rows, "add")
    assert ref_of(pair) not in values(rows, "add")
    assert ("deleted with its pair" in text_of(rows)) is (side == "result")


def test_a_refusal_is_shown_with_its_rule_and_what_is_in_the_way(browser, run):
    first = leads(run)[0]
    post(browser, run, reject=ref_of(first))
    post(browser, run, approve=ref_of(review_of(run).followers[first][0]))
    # It is mentioned with the result that it belongs to.
    assert "protected_pair" not in text_of(opened(browser, run, first))
    post(browser, run, add="e1")
    refused = opened(browser, run, Target("e1"))
    assert "Refused, protected" in text_of(element(refused, ".refusal b"))
    assert "it contains what the user said" in text_of(refused)


def test_a_proposal_that_leaves_a_call_without_its_answer_says_so(browser, known_root):
    twice = assistant(text("I look"), call("c1", path="a"), call("c1", path="b"))
    ends = (assistant(text("so")), assistant(text("end")))
    made = planned(known_root, chain(user("mend it"), twice, result("c1", "aaa " * 50), *ends))
    note = "which would be left without a result"
    assert note not in text_of(opened(browser, made, leads(made)[0])), "the embedded planner takes both calls"
    Proposal.objects.filter(run=made, entry_id="e2", block_index=2).delete()
    Snapshot.objects.filter(run=made).update(mark="another")
    shown = opened(browser, made, leads(made)[0])
    assert text_of(shown).count(note) == 1
    assert texts(shown, '[role="note"]') == [f"The same call id is in a call in turn 1 , {note}."]


NOTHING = (
    *({}, {"approve": ""}, {"approve": "e2:x"}, {"approve": "e2:99999999999"}, {"approve_group": "77"}),
    *({"reject_group": ""}, {"approve_all": "1"}, {"reject_picked": "1", "pick": ":"}, {"narrow": ":"}),
    {"explode": "1"},
)


def test_a_form_that_names_nothing_decides_nothing(browser, run):
    for sent in NOTHING:
        assert post(browser, run, **sent).status_code == 422, sent
        assert "Nothing was decided" in text_of(post(browser, run, in_place=True, **sent)), sent
    assert not Decision.objects.exists()


def test_an_object_that_is_not_there_is_refused_and_shown(browser, run):
    for number in range(2):
        assert post(browser, run, add=f"no<b>where:{number}").status_code == 303
    shown = opened(browser, run, Target("no<b>where", 0))
    assert "unknown_entry" in text_of(shown)
    assert "<b>where" not in shown.content.decode()
    assert review_of(run).refused == 2


def test_in_place_only_what_changed_and_is_shown_is_answered(browser, run):
    first, shown = leads(run)[0], page(browser, run, "?by=turn")
    (group,) = group_keys(shown)
    answer = post(browser, run, in_place=True, by="turn", approve=ref_of(first), **extent(shown))
    assert answer.status_code == 200
    assert shown_entries(answer) == [first.entry_id]
    assert {"bar", f"r-{group}", "message"} <= set(ids(answer))
    words = element(answer, ".proposal__what").attributes["title"]
    assert text_of(answer).endswith(f"Approved: {words}: −1,480.")
    assert json.loads(answer["HX-Trigger-After-Settle"]) == {"decided": {}}
    again = post(browser, run, in_place=True, reopen=ref_of(first), **extent(opened(browser, run, first)))
    assert len(elements(again, ".proposal__open")) == 1, "an open proposal stays open"
    assert "approve" in {str(button.attributes["name"]) for button in elements(again, "li button")}
    unseen = post(browser, run, in_place=True, approve=ref_of(first), rows="p-999")
    assert shown_entries(unseen) == elements(unseen, ".group__row") == []
    assert "bar" in ids(unseen)


def test_in_place_every_part_of_an_answer_has_its_place_on_the_page(browser, known_root):
    run = planned(known_root, many_turns(), compression_ratio=0.05)
    shown = page(browser, run, "?by=turn")
    response = post(browser, run, in_place=True, by="turn", **everything(run), **extent(shown))
    swapped = {str(one.id) for one in elements(response, "[hx-swap-oob]")}
    assert {"bar", "message", "sums", "chips", *(f"r-{key}" for key in group_keys(shown))} <= swapped
    assert swapped <= set(ids(shown))
    assert len(group_keys(shown)) > 3


def test_an_open_proposal_shows_source_reason_and_pair_and_is_remembered_as_opened(browser, run):
    lead = next(iter(review_of(run).leads()))
    page(browser, run)
    address = f"/plans/{run.pk}?part=open&at={ref_of(lead.target)}"
    for method, early in (("HEAD", {}), ("GET", {"Sec-Purpose": "prefetch;prerender"})):
        assert browser.generic(method, address, headers={**HTMX, **early}).status_code == 200
        assert browser.generic(method, f"/plans/{run.pk}?at={ref_of(lead.target)}", headers=early).status_code == 200
    assert opened_targets(run) == frozenset()
    shown = opened(browser, run, lead.target)
    assert opened_targets(run) == {lead.target}
    assert (f"step {lead.origin.call}", f"/plans/{run.pk}/log#ev-{lead.origin.call}") in links(shown)
    assert not missing(
        text_of(element(shown, ".proposal__open")), "embedded planner", "Its call", "is deleted with it, −"
    )
    part = browser.get(f"/plans/{run.pk}?part=open&at={ref_of(lead.target)}", headers=HTMX)
    assert text_of(element(part, ".proposal__open")) == text_of(element(shown, ".proposal__open"))


def test_what_was_opened_is_marked_in_its_row_its_group_and_the_head_and_can_be_filtered(browser, run):
    before = page(browser, run, "?by=tool")
    first, others = Target(shown_entries(before)[0]), leads(run)[1:]
    assert texts(before, ".group__opened") == [f"0 of {len(others) + 1} opened"]
    assert not elements(before, "li .seen.is-opened")
    link = str(elements(before, ".proposal__what")[0].attributes["href"])
    part = browser.get(f"{link.partition('#')[0]}&part=open", headers=HTMX)
    swapped = {str(one.id): text_of(one) for one in elements(part, "[hx-swap-oob]")}
    assert swapped.keys() <= set(ids(before))
    assert f"1 of {len(others) + 1} opened" in swapped.values()
    assert f"Opened 1 of {len(others) + 1}" in swapped.values()
    after = page(browser, run, "?by=tool")
    assert len(elements(after, "li .seen.is-opened")) == 1
    assert f"Opened 1 of {len(others) + 1}" in text_of(element(after, "#bar"))
    assert f"Not opened {len(others)}" in texts(after, "#chips a")
    left = page(browser, run, "?by=tool&unopened=1")
    assert shown_entries(left)
    assert first.entry_id not in shown_entries(left)
    assert len(shown_entries(left)) == len(others)


def test_one_button_approves_everything_that_it_counts_and_leads_to_confirm(browser, run):
    shown = page(browser, run)
    (button,) = elements(shown, "button[formaction]")
    assert text_of(button) == f"Approve all {len(leads(run))} and confirm"
    assert button.attributes["form"] == "review"
    sent = {name: values(shown, name)[0] for name in ("seen", "mark")}
    answer = browser.post(str(button.attributes["formaction"]), sent)
    assert (answer.status_code, answer["Location"]) == (303, f"/plans/{run.pk}/confirm")
    assert review_of(run).undecided == 0
    assert not elements(page(browser, run), "button[formaction]")
    post(browser, run, undo="1")
    decide(run, Kind.REJECT, leads(run)[:1], NOW)
    decide(run, Kind.APPROVE, leads(run)[1:2], NOW)
    (rest,) = elements(page(browser, run), "#sums button[formaction]")
    assert text_of(rest) == f"Approve the other {len(leads(run)) - 2} and confirm"
    assert browser.post(str(rest.attributes["formaction"]), sent).status_code == 409, "an older version is refused"


def test_the_bar_says_what_is_approved_and_how_far_that_goes(browser, run):
    assert "nothing approved yet" in text_of(page(browser, run))
    post(browser, run, approve=ref_of(leads(run)[0]))
    shown, size = page(browser, run), run.context_size
    after = size.without(removed_estimate(ReviewDesk(run).transcript, review_of(run).goes))
    bar = text_of(element(shown, "#bar"))
    assert not missing(bar, f"−{significant(size.tokens - after.tokens):,} approved", "Confirm 1 · −")
    assert f"/plans/{run.pk}/confirm" in addresses(shown)
    assert ", met" not in bar
    post(browser, run, **everything(run))
    assert ", met" in text_of(element(page(browser, run), "#bar"))


@pytest.mark.parametrize("by", list(Grouping))
def test_rows_groups_and_headline_add_up_if_nothing_goes_along_with_anything(known_root, by):
    run = planned(known_root, many_turns(), compression_ratio=0.3)
    first, second, third = leads(run)[:3]
    decide(run, Kind.APPROVE, [first, second], NOW)
    decide(run, Kind.REJECT, [third], NOW)
    desk = ReviewDesk(run, ReviewFilter(by=by))
    groups = desk.page([group.key for group in desk.groups])["groups"]
    for group in groups:
        assert group.opened["left"] == 0
        undecided = sum(row["tokens"] for row in group.opened["rows"] if row["undecided"])
        approved = sum(row["tokens"] for row in group.opened["rows"] if row["signed"])
        assert group.tokens == pytest.approx(undecided or approved, abs=group.count)
    planned_tokens = desk.summary.tokens.planned
    after = desk.context.without(removed_estimate(desk.transcript, desk.review.would_go))
    still_open = sum(group.tokens for group in groups if group.undecided)
    assert planned_tokens == desk.context.tokens - after.tokens
    assert still_open + desk.summary.tokens.approved == pytest.approx(planned_tokens, abs=len(groups))
    assert desk.overlap == 0


def test_a_rejected_proposal_counts_nothing_in_its_group(run):
    before = ReviewDesk(run).page()["groups"]
    decide(run, Kind.REJECT, [leads(run)[0]], NOW)
    after = ReviewDesk(run).page()["groups"]
    assert {group.key for group in after} == {group.key for group in before}
    assert sum(group.tokens for group in after) < sum(group.tokens for group in before)
    assert sum(group.rejected for group in after) == 1


def test_what_goes_along_is_in_the_number_on_the_button_and_in_the_status(browser, known_root):
    """e2 says something and calls: with all of it go both answers, which are proposals of their own."""
    said = assistant(text("I look at both of them"), call("c1", "grep"), call("c2", "read", path="b.py"))
    answers = result("c1", "aaa " * 300, name="grep"), result("c2", "bbb " * 200, name="read")
    run = planned(known_root, chain(user("mend it"), said, *answers, user("go on"), assistant(text("done"))))
    run.proposals.all().delete()
    for order, entry_id in enumerate(("e3", "e4", "e2")):
        run.proposals.create(order=order, entry_id=entry_id, reason=f"old {entry_id}", source="planner", call=1)
    Snapshot.objects.filter(run=run).update(mark="with others")
    shown = page(browser, run, "?by=tool&open=none")
    sizes = {
        text_of(element(one, "h2")): text_of(element(one, ".group__tokens")) for one in elements(shown, "header[id]")
    }
    assert list(sizes) == ["assistant", "grep", "read"]
    assert not missing(sizes["assistant"], "−724", "incl. 717 of others")
    assert re.findall("overlap by [^ ]+", text_of(element(shown, "#sums"))) == ["overlap by −715"]
    assert "Approve 1 + 2" in texts(shown, "button")
    row = text_of(element(opened(browser, run, Target("e2")), "#p-1 .proposal__line"))
    assert not missing(row, "−724", "incl. 717 of 2 others")
    keys = dict(zip(sizes, group_keys(shown), strict=True))
    answer = post(browser, run, True, by="tool", approve_group=keys["assistant"], **extent(shown))
    status = text_of(element(answer, "#message"))
    assert status.startswith("Approved: I look at both of them")
    assert status.endswith(", and 1 in “grep” and 1 in “read”: −724.")
    assert {f"r-{key}" for key in keys.values()} <= set(ids(answer))
    status = text_of(element(post(browser, run, True, by="tool", reject="e3", **extent(shown)), "#message"))
    assert status == "Rejected: {}, and 1 in “assistant” and 1 in “read”: +724."
    assert (review_of(run).accepted, review_of(run).undecided) == (0, 1)


def test_the_page_has_one_title_and_the_tabs_of_its_plan(browser, run):
    shown = page(browser, run)
    assert texts(shown, "h1") == [f"Review of plan {run.pk}"]
    assert not elements(shown, "button[name=approve_all], button[name=reject_all]")
    assert text_of(element(shown, ".page-tabs [aria-current]")) == f"Review {len(leads(run))}"
    assert f"/plans/{run.pk}/log" in addresses(shown)


def test_the_rest_of_a_group_is_loaded_in_parts(browser, known_root, monkeypatch):
    monkeypatch.setattr(review_pages, "ROWS", 4)
    run = planned(known_root, many_turns(), compression_ratio=0.05)
    expected = {target.entry_id for target in leads(run)}
    found: list[str] = []
    part = page(browser, run, "?by=tool&open=none")
    assert shown_entries(part) == []
    for key in group_keys(part):
        part = browser.get(f"/plans/{run.pk}?by=tool&part=group&group={key}", headers=HTMX)
        while True:
            assert not elements(part, "h1")
            found += shown_entries(part)
            later = [str(one.attributes["hx-get"]) for one in elements(part, ".group__more a")]
            if not later:
                break
            part = browser.get(later[0], headers=HTMX)
    assert sorted(found) == sorted(expected)
    assert len(found) > 8
    last = max(leads(run))
    assert last.entry_id in shown_entries(opened(browser, run, last))


def test_nothing_in_a_transcript_can_act(browser, known_root):
    evil = "<script>alert(1)</script>\"'{{ 7|add:7 }}\u202e\x1b[31m"
    worked = [
        one
        for step in range(6)
        for one in (
            assistant(thinking(evil), call(f"c{step}", evil, **{evil: evil})),
            result(f"c{step}", f"{evil} {step} " * 40, name=evil),
        )
    ]
    run = planned(known_root, chain(user(evil), *worked, user("x"), assistant(text("y"))))
    post(browser, run, approve=ref_of(leads(run)[0]))
    for shown in (opened(browser, run, leads(run)[0]), browser.get(f"/plans/{run.pk}/stays?from=0&to=99")):
        assert_inert(shown)
        assert "<script>alert(1)</script>\"'{{ 7|add:7 }}" in text_of(shown)


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (RunState.QUEUED, "still being made"),
        (RunState.RUNNING, "still being made"),
        (RunState.COMMITTED, "This plan is confirmed"),
        (RunState.SUPERSEDED, "A later plan continues this one"),
    ],
)
def test_a_run_that_cannot_be_reviewed_says_why_and_decides_nothing(browser, run, state, words):
    first = ref_of(leads(run)[0])
    Run.objects.filter(pk=run.pk).update(state=state)
    shown = page(browser, run)
    assert words in text_of(shown)
    assert len(elements(shown, "h1")) == 1
    assert post(browser, run, approve=first).status_code == 409
    assert post(browser, run, undo="1").status_code == 409
    assert not Decision.objects.exists()


def test_what_a_failed_run_had_validated_is_reviewed_like_any_plan(browser, run):
    first = ref_of(leads(run)[0])
    Run.objects.filter(pk=run.pk).update(state=RunState.FAILED, failure="The model was overloaded.")
    assert post(browser, run, approve=first).status_code == 303
    assert Decision.objects.get().kind == Kind.APPROVE


ENDED = {
    RunState.FAILED: "The plan failed",
    RunState.CANCELLED: "This plan was stopped",
    RunState.INTERRUPTED: "This plan was interrupted",
}


@pytest.mark.parametrize(("state", "words"), ENDED.items())
def test_a_run_that_ended_without_a_proposal_offers_no_review(browser, run, state, words):
    run.proposals.all().delete()
    Run.objects.filter(pk=run.pk).update(state=state, stats=None, failure="The model was overloaded.")
    shown, review = page(browser, run), f"/plans/{run.pk}"
    assert not missing(text_of(shown), words, "proposed nothing")
    assert not elements(shown, "main form")
    for address in ("/inbox", f"/plans/{run.pk}/log"):
        response = browser.get(address)
        assert review not in addresses(response), address
        assert "can be reviewed" not in text_of(response)
    assert browser.get(f"/api/runs/{run.pk}").json()["reviewUrl"] is None
    Run.objects.filter(pk=run.pk).update(stats=run.stats)
    assert review in addresses(browser.get("/inbox"))


@pytest.mark.parametrize("gone", [True, False])
def test_a_session_that_is_another_one_now_keeps_the_decisions(browser, run, known_root, gone):
    post(browser, run, approve=ref_of(leads(run)[0]))
    path = known_root / "work.jsonl"
    if gone:
        path.unlink()
    else:
        path.write_bytes(session_bytes(working_session(steps=3)))
    answer = browser.get(f"/plans/{run.pk}")
    assert answer.status_code == 409
    assert "decisions are kept" in text_of(answer)
    # Planned again without its file, the run would end with nothing to show.
    assert (f"/plans/{run.pk}/again" in actions(answer)) is not gone
    assert Decision.objects.count() == 1


def test_without_proposals_deletions_can_be_added_by_hand(browser, run):
    run.proposals.all().delete()
    Run.objects.filter(pk=run.pk).update(last_seq=run.last_seq + 1, state=RunState.BELOW_TARGET)
    shown = page(browser, run)
    assert "Nothing is proposed" in text_of(shown)
    assert [address for address in addresses(shown) if address.startswith(f"/plans/{run.pk}/stays?from=0")]


def test_a_run_of_another_root_is_not_found(browser, run):
    run.session.root.configured = False
    run.session.root.save()
    for address in ("review", "stays?from=0&to=2"):
        assert browser.get(f"/plans/{run.pk}/{address}").status_code == 404
    assert post(browser, run, undo="1").status_code == 404


def test_what_is_approved_is_what_a_commit_gets(run):
    assert approved_of(run) == (None, (), {})
    first, second, third = leads(run)[:3]
    decide(run, Kind.APPROVE, [first, second], NOW)
    decide(run, Kind.REJECT, [third], NOW)
    validated, pins, origins = approved_of(run)
    assert {first, second} < set(validated.targets)
    assert third not in validated.targets
    assert pins == (third,)
    assert set(origins) == set(validated.targets)
    assert origins[first].tool == "context_delete"
    # The text next to the call that stays: with one that goes, the whole entry would go.
    added = Target(f"e{int(third.entry_id[1:]) - 1}", 0)
    decide(run, Kind.ADD, [added], NOW)
    _, _, origins = approved_of(run)
    assert (origins[added].tool, origins[added].call, origins[added].reason) == ("human", 0, "added by hand")


def test_a_run_that_continues_another_keeps_its_decisions(run):
    first, second = leads(run)[:2]
    decide(run, Kind.APPROVE, [first], NOW)
    decide(run, Kind.REJECT, [second], NOW)
    carried = carried_from(run)
    assert next(target for target, _ in carried.targets) == first
    assert carried.pins == [second]
    later = plan_again(run)
    work(later.pk, "worker")
    later.refresh_from_db()
    review = review_of(later)
    assert review.items[first].standing is ReviewStatus.APPROVED
    assert review.items[second].standing is ReviewStatus.REJECTED


def test_the_review_in_memory_follows_the_rows(run):
    first, second = leads(run)[:2]
    states = []
    for step in (first, second):
        decide(run, Kind.APPROVE, [step], NOW)
        states.append(review_of(run))
    undo(run, NOW)
    assert review_of(run) == states[0]
    decide(run, Kind.REJECT, [second], NOW)
    assert review_of(run).items[second].standing is ReviewStatus.REJECTED
    assert review_of(run) is review_of(run)


def test_what_stays_is_counted_in_words():
    transcript = transcript_of(
        user("x"),
        assistant(call("c1", "write"), call("c2", "write"), call("c3", "bash"), call("c4", "my_tool")),
        result("c1", name="write"),
        result("c2", name="write"),
        result("c3", name="bash"),
        result("c4", name="my_tool"),
    )
    assert fold_words(transcript.entries) == "6 entries are kept (2 writes, 1 bash, 1 my_tool)"
    assert fold_words(transcript.entries[:1]) == "1 entry is kept"


CALLS = {
    'toolCall c1 read {"path":"a/b.ts","offset":10,"limit":5}': ("read", "a/b.ts :10–15"),
    'toolCall c1 bash {"command":"make all"}': ("bash", "make all"),
    "toolCall c1 odd not json": ("odd", "not json"),
    "toolCall c1 odd [1]": ("odd", "[1]"),
    'toolCall c1 odd {"a":1,"b":{"c":2}}': ("odd", '1 b: {"c": 2}'),
}


def test_a_call_is_shown_as_one_writes_it_and_a_key_names_one_target():
    assert {recorded: call_words(recorded, "c1") for recorded in CALLS} == CALLS
    for target in (Target("1a2b3c4d"), Target("1a2b3c4d", 2), Target("a:b/ü%", 0), Target("a b?#&")):
        assert target_of(ref_of(target)) == target


def test_a_decision_from_a_page_on_another_plan_is_a_conflict(browser, run):
    mark = field(page(browser, run), "mark")
    Snapshot.objects.filter(run=run).update(mark="planned again")
    answer = post(browser, run, **everything(run), mark=mark)
    assert answer.status_code == 409
    assert "planned again" in text_of(answer)
    assert not run.decisions.exists()
    assert post(browser, run, **everything(run), mark="planned again").status_code == 303


def test_an_entry_of_thousands_of_blocks_is_not_drawn_whole(browser, known_root):
    blocks = [text(f"part {number} of a long answer that nobody needs any more") for number in range(1_500)]
    run = planned(known_root, chain(user("Begin."), assistant(*blocks), user("Go on."), user("And on.")))
    for shown in (page(browser, run), opened(browser, run, leads(run)[0])):
        assert len(shown.content) < 1_000_000
    assert post(browser, run, **everything(run)).status_code == 303
    assert len(browser.get(f"/plans/{run.pk}/stays?from=0&to=9").content) < 1_000_000
