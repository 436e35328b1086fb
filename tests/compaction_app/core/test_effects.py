"""Promises of effects: what each unit of a review removes adds up to the plan, and nothing is counted twice."""

from collections import Counter

import pytest
from hypothesis import given

from compaction_app.core.decisions import Kind, Step
from compaction_app.core.effects import (
    PlanPart,
    full_effect,
    plan_parts,
    removed_estimate,
    struck_by_target,
    struck_of,
    sums_by_kind,
    sums_by_tool,
    tokens_back,
    unit_sizes,
)
from compaction_app.core.review_fold import Review, Reviewer, ReviewStatus
from sessions_app.sessionlog.measure import Basis, ContextSize
from tests.compaction_app.core.strategies import often
from tests.compaction_app.core.test_companions import transcript as transcript_with_companions
from tests.compaction_app.core.test_review_fold import approve, part, reject, reviewer, reviews, transcript, whole
from tests.factories import assistant, text, transcript_of, user

__all__ = ["reviewer", "transcript"]
ACCEPTED = {ReviewStatus.APPROVED, ReviewStatus.GOES_WITH_PAIR, ReviewStatus.NARROWED}


def counted(review: Review) -> tuple[int, int]:
    """The tokens that the approved plan removes, and the planned one, as the agent counts."""
    return (
        review.approved_stats.tokens_before - review.approved_stats.tokens_after,
        review.planned_stats.tokens_before - review.planned_stats.tokens_after,
    )


def of_approved(parts: list[PlanPart]) -> list[PlanPart]:
    return [one for one in parts if one.is_approved]


@often
@given(reviews())
def test_units_add_up_to_the_approved_and_the_planned_plan(given_):
    review = given_.review
    found = given_.reviewer.transcript
    parts = plan_parts(found, review)
    for plan, some, count in zip(
        (review.goes, review.would_go), (of_approved(parts), parts), counted(review), strict=True
    ):
        sizes = unit_sizes(some).values()
        assert sum(size.tokens for size in sizes) == removed_estimate(found, plan)
        assert sum(size.counted for size in sizes) == count


@often
@given(reviews())
def test_every_part_counts_for_a_unit_that_is_decided(given_):
    review = given_.review
    parts = plan_parts(given_.reviewer.transcript, review)
    leads = {item.target for item in review.leads()}
    assert {one.leader for one in parts} <= leads
    assert not [cell for cell, count in Counter(one.cell.target for one in parts).items() if count > 1]


@often
@given(reviews())
def test_kinds_and_tools_add_up_to_the_plan_and_the_transcript(given_):
    found, review = given_.reviewer.transcript, given_.review
    for sums in (sums_by_kind(found, review.goes), sums_by_tool(found, review.goes)):
        assert sum(one.struck for one in sums) == removed_estimate(found, review.goes)
        assert sum(one.before for one in sums) == found.tokens


def test_a_result_counts_with_its_call(reviewer, transcript):
    review = reviewer.review([approve(whole(6))])
    parts = of_approved(plan_parts(transcript, review))
    (size,) = unit_sizes(parts).items()
    assert size == (whole(6), (removed_estimate(transcript, review.goes), counted(review)[0]))
    assert {one.cell.target for one in parts} == {part(5, 0), part(6, 0)}
    assert [one.cell.target for one in parts if one.is_own] == [part(6, 0)]


def test_calls_of_one_reply_count_for_their_own_results(reviewer, transcript):
    parts = plan_parts(transcript, reviewer.review([approve(whole(3), whole(4))]))
    by_leader = {(one.leader, one.cell.target) for one in of_approved(parts)}
    assert {(whole(3), part(2, 1)), (whole(3), part(3, 0))} <= by_leader
    assert {(whole(4), part(2, 2)), (whole(4), part(4, 0))} <= by_leader


def test_what_is_rejected_removes_nothing_but_could(reviewer, transcript):
    review = reviewer.review([reject(whole(6))])
    assert whole(6) not in unit_sizes(plan_parts(transcript, review))
    assert full_effect(transcript, reviewer, whole(6)) == sum(
        entry.tokens for entry in map(transcript.entry, ("e5", "e6")) if entry is not None
    )


def test_a_companion_that_was_not_proposed_counts_for_what_it_goes_with():
    found = transcript_with_companions({"e2": ("e3",)}, preserve_recent=0)
    review = Reviewer(found, []).review([Step(Kind.ADD, (whole(2),))])
    parts = plan_parts(found, review)
    assert {one.leader for one in parts} == {whole(2)}
    assert {one.cell.target.entry_id for one in parts} == {"e2", "e3"}


def test_an_entry_whose_blocks_weigh_nothing_is_still_counted():
    found = transcript_of(user("look"), assistant({"type": "other", "x": "y"}, text("")), user("on"))
    assert sum(row.before for row in sums_by_kind(found, ())) == found.tokens


@pytest.mark.parametrize(("struck", "tools"), [(whole(3), {"read"}), (part(2, 0), {""})])
def test_calls_and_results_belong_to_a_tool(transcript, struck, tools):
    plan = {struck, part(2, 1)} if struck == whole(3) else {struck}
    assert {row.name for row in sums_by_tool(transcript, plan) if row.struck} == tools


def test_the_most_struck_kind_comes_first(transcript):
    kinds = sums_by_kind(transcript, {whole(6), whole(5)})
    assert [row.name for row in kinds if row.struck] == ["read", "call"]
    assert kinds[0].before == kinds[0].struck + kinds[0].stays


@often
@given(reviews())
def test_what_is_approved_counts_for_what_was_approved(given_):
    review = given_.review
    for one in plan_parts(given_.reviewer.transcript, review):
        standing = review.items[one.leader].standing
        assert (standing in ACCEPTED) == one.is_approved


def test_what_is_not_applied_is_not_saved(transcript):
    size = ContextSize(2 * transcript.tokens, Basis.REPORTED, 2.0, transcript.tokens)
    entry = transcript.entry("e5")
    assert entry is not None
    plan = {whole(5), whole(6)}
    assert tokens_back(size, transcript, plan, ()) == 0
    assert tokens_back(size, transcript, plan, {whole(5)}) == 2 * entry.tokens
    assert sum(struck_by_target(size, transcript, plan).values()) == struck_of(size, transcript, plan)
