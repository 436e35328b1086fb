"""The pure review: what a human keeps never goes, what is written is what the airlock accepts, and undo is exact.

What each unit of a review removes adds up to the plan, and nothing is counted twice; what a decision would change is
known before it is made.
"""

from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import assume, strategies as st

from compaction_app.core.airlock import validate
from compaction_app.core.effects import (
    STAYING,
    Consequences,
    PlanPart,
    full_effect,
    in_measure,
    plan_parts,
    removed_estimate,
    struck_by_target,
    struck_of,
    sums_by_kind,
    sums_by_tool,
    tokens_back,
    unit_sizes,
)
from compaction_app.core.embedded import EmbeddedPlanner
from compaction_app.core.gates import Code, Restraints
from compaction_app.core.loop import Origin, drive
from compaction_app.core.review_fold import ACCEPTED, Kind, Proposed, Review, Reviewer, ReviewStatus, Step, approvals
from compaction_app.core.store import DeletionStore
from compaction_app.core.tools import Workbench
from compaction_app.core.transcript import Transcript
from sessions_app.sessionlog.context import Basis, ContextSize
from sessions_app.sessionlog.entries import Target, request_of
from tests.compaction_app.core.strategies import AcceptedDeletion, accepted_deletions, given_often, objects
from tests.compaction_app.core.test_pairing import joined_talk
from tests.factories import (
    assistant,
    branch_and_texts,
    call,
    prepare,
    result,
    session_bytes,
    targets,
    text,
    thinking,
    transcript_of,
    user,
    working_session,
)

PLANNER = Origin(call=3, tool="context_delete", reason="old", by_repair=False)


def whole(number: int) -> Target:
    return Target(f"e{number}")


def part(number: int, index: int) -> Target:
    return Target(f"e{number}", index)


def proposed(transcript: Transcript, *chosen: Target) -> Reviewer:
    """A review of what a planner proposed, closed by the store as a planner's plan is."""
    store = DeletionStore(transcript)
    refused = store.delete(request_of(chosen))
    assert refused is None, refused
    sources = ["planner" if target in chosen else "repair" for target in store.targets]
    return Reviewer(transcript, [Proposed(*row, PLANNER) for row in zip(store.targets, sources, strict=True)])


@pytest.fixture
def transcript():
    """e2 says and calls twice, e3 and e4 answer; e5 calls once, e6 answers; e7 says two things; e8, e9 are recent."""
    return transcript_of(
        user("mend it"),
        assistant(text("I look"), call("c1", path="a"), call("c2", path="b")),
        result("c1", "aaa " * 50),
        result("c2", "bbb " * 70),
        assistant(call("c3", path="c")),
        result("c3", "ccc " * 90),
        assistant(text("so it is"), text("and more " * 9)),
        user("go on"),
        assistant(text("done")),
        preserve_recent=2,
    )


@pytest.fixture
def reviewer(transcript):
    return proposed(transcript, whole(3), whole(4), whole(6), whole(7))


def approve(*chosen: Target) -> Step:
    return Step(Kind.APPROVE, chosen)


def reject(*chosen: Target) -> Step:
    return Step(Kind.REJECT, chosen)


def steps(words: str) -> list[Step]:
    """Steps by their names: `approve e3, add e2[0] e7`."""
    named = (one.split(" ", 1) for one in words.split(", ") if one)
    return [Step(Kind(kind), tuple(targets(names))) for kind, names in named]


def gone(review: Review) -> tuple[Target, ...]:
    return review.approved.targets if review.approved is not None else ()


def test_before_the_first_step_all_is_undecided_and_nothing_would_be_written(reviewer):
    review = reviewer.review([])
    assert review.approved is None
    assert review.pins == ()
    assert {item.standing for item in review.items.values()} == {ReviewStatus.UNDECIDED}
    assert (review.total, review.undecided, review.accepted, review.refused) == (4, 4, 0, 0)
    assert review.approved_stats.tokens_after == review.approved_stats.tokens_before
    assert review.planned_stats.tokens_after < review.planned_stats.tokens_before


def test_a_call_is_decided_with_its_result(reviewer):
    review = reviewer.review([])
    led = {item.target: item.leader for item in review.items.values() if item.leader is not None}
    assert led == {part(2, 1): whole(3), part(2, 2): whole(4), whole(5): whole(6)}
    assert review.followers[whole(6)] == (whole(5),)


OUTCOMES = {
    "an approval takes its pair": ("approve e3", "e3 e2[1]", "", "e3 approved, e2[1] goes_with_pair, e4 undecided"),
    "a rejection keeps its pair": ("reject e3", "", "e3", "e3 rejected, e2[1] kept_with_pair"),
    "a rejected leader": ("approve e3 e2[1], reject e3", "", "e3", "e3 rejected, e2[1] kept_with_pair"),
    "narrowing replaces the entry": ("approve e6, narrow e7[1]", "e5 e6 e7[1]", "e7[0]", "e7 narrowed"),
    "narrowing to every block": ("narrow e7[0] e7[1]", "e7", "", "e7 approved"),
    "a later rejection of the same content": ("approve e7, reject e7[0]", "", "e7[0]", "e7 kept_with_pair"),
    "a later approval of the same content": ("reject e7[0], approve e7", "e7", "", "e7 approved"),
    "a block of an approved entry": ("add e7[0], approve e7", "e7", "", "e7[0] approved"),
    "an object that is kept by hand": ("reject e2[0]", "", "e2[0]", "e2[0] rejected"),
}
"""Steps; what would be written, what is pinned, and the status of objects after them."""


@pytest.mark.parametrize(("taken", "written", "pinned", "standings"), OUTCOMES.values(), ids=OUTCOMES)
def test_what_steps_lead_to(reviewer, taken, written, pinned, standings):
    review = reviewer.review(steps(taken))
    assert set(gone(review)) == set(targets(written))
    assert review.pins == tuple(targets(pinned))
    assert review.refused == 0
    for target, status in (one.split() for one in standings.split(", ")):
        assert review.items[targets(target)[0]].standing == status


def test_an_approval_is_counted_and_what_a_rejection_keeps_says_why(reviewer):
    approved, rejected = reviewer.review([approve(whole(3))]), reviewer.review([reject(whole(3))])
    assert (approved.undecided, approved.accepted) == (3, 1)
    kept = rejected.items[part(2, 1)]
    assert (kept.refusal.code, kept.refusal.target) == (Code.PROTECTED_PAIR, whole(3))
    assert rejected.would_go.isdisjoint({whole(3), part(2, 1)})


def test_to_approve_everything_gives_the_plan_in_its_own_order():
    transcript = prepare(*branch_and_texts(session_bytes(working_session())), {})
    bench = Workbench(DeletionStore(transcript))
    for loop, _ in drive(EmbeddedPlanner(transcript), bench):
        origins = loop.origins
    rows = [Proposed(target, "planner", origin) for target, origin in origins.items()]
    reviewer = Reviewer(transcript, rows)
    leads = tuple(item.target for item in reviewer.review([]).leads())
    assert len(leads) < len(rows)
    review = reviewer.review([approve(*leads)])
    assert review.approved.targets == bench.store.targets
    assert review.tokens_to_go == 0
    backwards = reviewer.review([approve(target) for target in reversed(leads)])
    assert gone(backwards) == bench.store.targets


def test_to_reject_everything_after_that_leaves_nothing(reviewer):
    leads = tuple(item.target for item in reviewer.review([]).leads())
    review = reviewer.review([approve(*leads), reject(*leads)])
    assert review.approved is None
    assert not review.would_go
    assert set(review.pins) == set(leads)


def test_what_takes_earlier_steps_back_leaves_the_review_without_them(reviewer):
    for taken, left in {
        "approve e3, reopen e3": "",
        "reject e3, reopen e3": "",
        "approve e7, withdraw e7": "",
        "reject e7, withdraw e7": "reject e7",
        "narrow e7[1], reopen e7": "",
        "narrow e7[1], reopen e7[1]": "",
        "narrow e7[1], narrow e7[0]": "narrow e7[0]",
        "add e2[0], withdraw e2[0]": "",
        "add e2[0], reject e2[0], withdraw e2[0]": "",
    }.items():
        assert reviewer.review(steps(taken)) == reviewer.review(steps(left)), taken


def test_a_refusal_names_every_obstacle(transcript):
    reviewer = proposed(transcript, whole(3), whole(6))
    review = reviewer.review(steps("reject e3, approve e6, add e2 e8 e7"))
    assert set(gone(review)) == {whole(5), whole(6), whole(7)}
    refused = {item.target: item.refusal for item in review.items.values() if item.standing is ReviewStatus.REFUSED}
    assert (refused[whole(2)].code, refused[whole(2)].target) == (Code.PROTECTED_PAIR, whole(3))
    assert refused[whole(8)].code is Code.RECENT_CONTEXT
    assert review.refused == len(refused) == 2


def test_targets_that_cannot_go_together_are_found_one_by_one(transcript):
    reviewer = proposed(transcript, whole(6))
    review = reviewer.review(steps("add e7[0] e7[1], approve e6"))
    assert set(gone(review)) == {part(7, 0), whole(5), whole(6)}
    refused = review.items[part(7, 1)]
    assert (refused.standing, refused.refusal.code) == (ReviewStatus.REFUSED, Code.EVERY_BLOCK)


def test_unknown_targets_are_refused(reviewer):
    for kind in set(Kind) - {Kind.REOPEN, Kind.WITHDRAW}:
        review = reviewer.review([Step(kind, (Target("nowhere"), Target("nowhere", 1))), approve(whole(6))])
        assert set(gone(review)) == {whole(5), whole(6)}
        unknown = [item for item in review.items.values() if item.target.entry_id == "nowhere"]
        expected = {(ReviewStatus.REFUSED, Code.UNKNOWN_ENTRY)}
        assert {(item.standing, item.refusal and item.refusal.code) for item in unknown} == expected
        assert review.pins == ()


def test_the_guard_of_all_thinking_applies_to_additions():
    transcript = transcript_of(user("x"), assistant(thinking("a"), text("b")), assistant(text("c")), user("y"))
    assert Reviewer(transcript, []).review(steps("add e2")).approved is not None
    refused = Reviewer(transcript, [], "all").review(steps("add e2")).items[whole(2)].refusal
    assert refused.code is Code.THINKING


def test_a_narrowed_entry_leads_what_it_was_narrowed_to(reviewer):
    review = reviewer.review(steps("approve e6, narrow e7[1]"))
    assert review.items[part(7, 1)].leader == whole(7)
    assert review.followers[whole(7)] == (part(7, 1),)
    assert review.total == 4
    assert reviewer.review(steps("narrow e7[1], reject e7[1]")).accepted == 0


def test_an_addition_comes_last_and_what_is_kept_by_hand_has_no_origin(reviewer):
    review = reviewer.review(steps("add e2[0], approve e6"))
    assert gone(review)[-1] == part(2, 0)
    assert review.items[part(2, 0)].added
    assert reviewer.review(steps("add e2[0], reject e2[0]")).pins == (part(2, 0),)
    assert reviewer.review(steps("reject e2[0]")).items[part(2, 0)].origin is None


def test_repairs_of_an_object_are_listed_without_its_own_entry(reviewer):
    assert reviewer.goes_with(whole(3)) == (part(2, 1),)
    assert set(reviewer.goes_with(whole(2))) == {whole(3), whole(4)}
    assert reviewer.goes_with(Target("nowhere")) == ()


@dataclass(frozen=True)
class Decided:
    """A transcript, the review of a plan on it, and steps that were taken."""

    found: AcceptedDeletion
    reviewer: Reviewer = field(repr=False)
    steps: list[Step]

    @property
    def review(self) -> Review:
        return self.reviewer.review(self.steps)


@st.composite
def reviews(draw: st.DrawFn) -> Decided:
    found = draw(accepted_deletions())
    assume(len(found.deletion.targets) > 0)
    rows = [Proposed(target, "planner", PLANNER) for target in found.deletion.targets]
    anything = st.sampled_from([*found.deletion.targets, *objects(found.transcript), Target("nowhere", 2)])
    some = st.lists(anything, min_size=1, max_size=4).map(tuple)
    steps = draw(st.lists(st.builds(Step, st.sampled_from(list(Kind)), some), max_size=6))
    return Decided(found, Reviewer(found.transcript, rows, found.restraints.thinking_guard), steps)


def _overlap(one: Target, other: Target) -> bool:
    return one.entry_id == other.entry_id and (one.block_index is None or other.block_index is None or one == other)


@given_often(reviews())
def test_the_plans_of_any_review_are_accepted_by_the_airlock_and_agree_with_each_status(given_):
    found, review = given_.found, given_.review
    restraints = Restraints(frozenset(review.pins), found.restraints.thinking_guard)
    if review.approved is not None:
        again = validate(request_of(review.approved.targets), found.transcript, restraints)
        assert (again.targets, again.stats) == (review.approved.targets, review.approved.stats)
        assert review.approved.stats == review.approved_stats
        assert set(review.approved.targets) == review.goes
    judged = validate(request_of(sorted(review.would_go, key=str)), found.transcript, restraints)
    assert set(judged.targets) == review.would_go
    for pin in review.pins:
        assert not any(_overlap(pin, target) for target in review.would_go | review.goes)
    for target, item in review.items.items():
        taken = target in review.goes or Target(target.entry_id) in review.goes
        assert taken == (item.standing in (ReviewStatus.APPROVED, ReviewStatus.GOES_WITH_PAIR))
        if item.standing is ReviewStatus.REFUSED:
            assert item.refusal is not None
    assert set(given_.reviewer.proposed) <= set(review.items)
    assert review.undecided + review.accepted <= review.total
    for one in plan_parts(found.transcript, review):
        assert (review.items[one.leader].standing in ACCEPTED) == one.is_approved


@given_often(reviews(), st.randoms(use_true_random=False))
def test_a_review_follows_from_its_steps_alone(given_, chance):
    reviewer, steps, whole_review = given_.reviewer, given_.steps, given_.review
    before = reviewer.review(steps[:-1])
    reviewer.review(steps)
    assert reviewer.review(steps[:-1]) == before, "the last step is undone"
    items = tuple(whole_review.items)
    assert reviewer.review([*steps, Step(Kind.REOPEN, items), Step(Kind.WITHDRAW, items)]) == reviewer.review([])
    parts: list[Step] = []
    for step in steps:
        bulk = step.kind is not Kind.NARROW
        parts += [Step(step.kind, (target,)) for target in step.targets] if bulk else [step]
    assert reviewer.review(parts) == whole_review, "a bulk decision is the same as its parts"
    leads = [item.target for item in reviewer.review([]).leads()]
    independent: list[Target] = []
    for target in leads:
        if not any(_overlap(target, other) for other in independent):
            independent.append(target)
    decided = [chance.choice([approve, reject])(target) for target in independent]
    mixed = chance.sample(decided, len(decided))
    one, other = map(reviewer.review, (decided, mixed))
    assert replace(one, pins=sorted(one.pins, key=str)) == replace(other, pins=sorted(other.pins, key=str))


DOUBLE = [
    user("mend it"),
    assistant(text("I look"), call("c1", path="a"), call("c1", path="b")),
    result("c1", "aaa " * 50),
    assistant(text("done")),
]


def test_a_review_approves_what_was_proposed_of_a_call_and_names_what_is_left_without_an_answer():
    reviewer = proposed(transcript_of(*DOUBLE), part(2, 1))
    assert reviewer.review([]).unanswered == {part(2, 1): (part(2, 2),), whole(3): (part(2, 2),)}
    found = reviewer.review([approve(whole(3))])
    assert set(gone(found)) == {part(2, 1), whole(3)}
    assert found.items[part(2, 1)].standing is ReviewStatus.GOES_WITH_PAIR
    assert found.unanswered[whole(3)] == (part(2, 2),)


def test_a_block_that_a_human_keeps_keeps_its_answer():
    reviewer = proposed(transcript_of(*DOUBLE), whole(3))
    found = reviewer.review(steps("reject e2[2], approve e2[1]"))
    assert found.approved is None
    assert found.items[part(2, 1)].standing is ReviewStatus.REFUSED
    assert found.unanswered == {}


def test_a_follower_with_another_fate_leads_itself():
    """A call that is there twice: e3 answers it, and one of the calls is approved alone."""
    found = transcript_of(*DOUBLE)
    reviewer = Reviewer(found, [Proposed(one, "planner", PLANNER) for one in targets("e3 e2[1] e2[2]")])
    review = reviewer.review(steps("approve e2[1]"))
    assert {item.target: item.standing for item in review.leads()} == {
        whole(3): ReviewStatus.GOES_WITH_PAIR,
        part(2, 2): ReviewStatus.UNDECIDED,
    }
    assert (review.total, review.accepted, review.undecided) == (2, 1, 1)
    units = {(one.leader, one.is_approved) for one in plan_parts(found, review)}
    assert units == {(whole(3), True), (part(2, 2), False)}
    both = reviewer.review(steps("approve e2[1], approve e3"))
    assert [item.target for item in both.leads()] == [whole(3)]


def test_a_narrowed_follower_leads_itself():
    """e2 and e3 answer e4's call; of e3 one text goes."""
    answer = {**result("c1"), "content": [text("one " * 9), text("two " * 9)]}
    found = transcript_of(user("mend it"), result("c1", "aaa " * 50), answer, assistant(call("c1", path="a")))
    reviewer = Reviewer(found, [Proposed(one, "planner", PLANNER) for one in targets("e2 e4 e3")])
    assert [item.target for item in reviewer.review([]).leads()] == [whole(2)]
    review = reviewer.review(steps("narrow e3[0]"))
    assert {one.leader for one in plan_parts(found, review)} == {whole(3)} <= {item.target for item in review.leads()}
    assert review.items[part(3, 0)].leader == whole(3)


@pytest.mark.parametrize(
    ("before", "kind", "bulk"),
    [("narrow e7[0]", "reject", "e7[0] e7"), ("narrow e2[1]", "approve", "e3 e2[1]")],
    ids=["its block and then the narrowed entry", "a leader and then the block to which its follower was narrowed"],
)
def test_a_bulk_decision_ends_a_narrowing_as_its_parts_do(reviewer, before, kind, bulk):
    review = reviewer.review(steps(", ".join([before, *(f"{kind} {one}" for one in bulk.split())])))
    assert reviewer.review(steps(f"{before}, {kind} {bulk}")) == review
    assert not review.decided.narrowed


@pytest.fixture
def calls_of_one_entry():
    """e2 calls twice, e3 and e4 answer. Both answers are proposed, so e2 goes as a whole."""
    called = assistant(call("c1", path="a"), call("c2", path="b"))
    answers = result("c1", "aaa " * 50), result("c2", "bbb " * 70)
    found = transcript_of(user("mend it"), called, *answers, user("go on"), assistant(text("done")), preserve_recent=2)
    return proposed(found, whole(3), whole(4), whole(2))


@pytest.mark.parametrize(
    ("taken", "goes", "undecided"),
    [("approve e3", "e3 e2[0]", 1), ("approve e4", "e4 e2[1]", 1), ("approve e3, approve e4", "e2 e3 e4", 0)],
    ids=["the first answer with its own call", "the second one", "with the last call the entry"],
)
def test_an_approved_answer_takes_its_own_call_and_no_other(calls_of_one_entry, taken, goes, undecided):
    review = calls_of_one_entry.review(steps(taken))
    assert (review.goes, review.undecided) == (set(targets(goes)), undecided)


def test_a_rejected_answer_keeps_its_entry_and_refuses_nothing(calls_of_one_entry):
    review = calls_of_one_entry.review(steps("approve e3, reject e4"))
    assert review.goes == review.would_go == {whole(3), part(2, 0)}
    assert (review.accepted, review.undecided, review.refused) == (1, 0, 0)


def of_approved(parts: list[PlanPart]) -> list[PlanPart]:
    return [one for one in parts if one.is_approved]


@given_often(reviews())
def test_every_part_counts_once_and_units_kinds_and_tools_add_up_to_the_plans_and_the_transcript(given_):
    found, review = given_.reviewer.transcript, given_.review
    parts = plan_parts(found, review)
    assert {one.leader for one in parts} <= {item.target for item in review.leads()}
    assert max(Counter(one.cell.target for one in parts).values(), default=1) == 1
    plans = (review.goes, of_approved(parts), review.approved_stats), (review.would_go, parts, review.planned_stats)
    for plan, some, stats in plans:
        sizes = unit_sizes(some).values()
        assert sum(size.tokens for size in sizes) == removed_estimate(found, plan)
        assert sum(size.counted for size in sizes) == stats.tokens_before - stats.tokens_after
    for sums in (sums_by_kind(found, review.goes), sums_by_tool(found, review.goes)):
        assert sum(one.struck for one in sums) == removed_estimate(found, review.goes)
        assert sum(one.before for one in sums) == found.tokens


@pytest.mark.parametrize("ratio", [0.3, 0.7, 1.0, 1.1, 1.37])
def test_in_the_measure_of_the_context_units_add_up_to_the_plans(reviewer, transcript, ratio):
    review = reviewer.review([approve(whole(3)), reject(part(7, 0))])
    size = ContextSize(round(ratio * transcript.tokens), Basis.REPORTED, ratio, transcript.tokens)
    estimates = {target: unit.tokens for target, unit in unit_sizes(plan_parts(transcript, review)).items()}
    shares = in_measure(size, review, estimates)
    assert shares.keys() == {item.target for item in review.leads()}
    sums: Counter[bool | None] = Counter()
    for target, share in shares.items():
        standing = review.items[target].standing
        sums[None if standing in STAYING else standing is ReviewStatus.APPROVED] += share
    assert (review.accepted, review.undecided > 0, None in sums) == (1, True, True)
    assert sums[True] == struck_of(size, transcript, review.goes)
    assert sums[True] + sums[False] == struck_of(size, transcript, review.would_go)


def test_a_result_counts_with_its_call(reviewer, transcript):
    review = reviewer.review([approve(whole(6))])
    parts = of_approved(plan_parts(transcript, review))
    counted = review.approved_stats.tokens_before - review.approved_stats.tokens_after
    assert unit_sizes(parts) == {whole(6): (removed_estimate(transcript, review.goes), counted)}
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
    pair = map(transcript.entry, ("e5", "e6"))
    assert full_effect(transcript, reviewer, whole(6)) == sum(entry.tokens for entry in pair)


def test_a_companion_that_was_not_proposed_counts_for_what_it_goes_with():
    found = joined_talk({"e2": ("e3",)}, preserve_recent=0)
    review = Reviewer(found, []).review([Step(Kind.ADD, (whole(2),))])
    parts = plan_parts(found, review)
    assert {one.leader for one in parts} == {whole(2)}
    assert {one.cell.target.entry_id for one in parts} == {"e2", "e3"}


def test_an_entry_whose_blocks_weigh_nothing_is_still_counted():
    found = transcript_of(user("look"), assistant({"type": "other", "x": "y"}, text("")), user("on"))
    assert sum(row.before for row in sums_by_kind(found, ())) == found.tokens


def test_calls_and_results_belong_to_a_tool(transcript):
    for plan, tool in (({whole(3), part(2, 1)}, "read"), ({part(2, 0)}, "")):
        assert {row.name for row in sums_by_tool(transcript, plan) if row.struck} == {tool}


def test_the_most_struck_kind_comes_first(transcript):
    kinds = sums_by_kind(transcript, {whole(6), whole(5)})
    assert [row.name for row in kinds if row.struck] == ["read", "call"]
    assert kinds[0].before == kinds[0].struck + kinds[0].stays


@st.composite
def joined_reviews(draw: st.DrawFn) -> tuple[Decided, Step]:
    """A review and a step, on a transcript in which an agent's rules join entries and some are parts of a reply."""
    given_ = draw(reviews())
    found = given_.reviewer.transcript
    places = st.integers(0, len(found) - 1)
    joined = draw(st.dictionaries(places, st.frozensets(places, min_size=1, max_size=2), max_size=4))
    replayed = draw(st.sets(places, max_size=4))
    entries = [
        msgspec.structs.replace(
            entry,
            companions=tuple(sorted(joined.get(entry.position, frozenset()) - {entry.position})),
            replayed=entry.replayed or entry.position in replayed,
            reply=draw(st.sampled_from(["", "m1", "m2"])),
        )
        for entry in found.entries
    ]
    proposed_too = [Proposed(target, "planner", PLANNER) for target in given_.reviewer.proposed]
    guard = given_.found.restraints.thinking_guard
    reviewer = Reviewer(Transcript(entries, {}, found.parameters), proposed_too, guard)
    anything = st.sampled_from([*given_.reviewer.proposed, *objects(found), Target("nowhere", 2)])
    step = Step(draw(st.sampled_from(list(Kind))), tuple(draw(st.lists(anything, min_size=1, max_size=4))))
    return replace(given_, reviewer=reviewer), step


@given_often(joined_reviews())
def test_the_consequence_of_a_decision_is_what_it_changes(drawn):
    given_, step = drawn
    reviewer, before = given_.reviewer, given_.review
    after = reviewer.review([*given_.steps, step])
    was, now = ({item.target for item in one.leads() if item.standing in ACCEPTED} for one in (before, after))
    own = {*step.targets, *(Target(target.entry_id) for target in step.targets if step.kind is Kind.NARROW)}
    assert Consequences(reviewer, before).of(step.kind, step.targets) == (
        removed_estimate(reviewer.transcript, after.goes) - removed_estimate(reviewer.transcript, before.goes),
        before.approved_stats.tokens_after - after.approved_stats.tokens_after,
        now - was - own,
        was - now - own,
    )


def test_what_is_not_applied_is_not_saved(transcript):
    size = ContextSize(2 * transcript.tokens, Basis.REPORTED, 2.0, transcript.tokens)
    plan = {whole(5), whole(6)}
    assert tokens_back(size, transcript, plan, ()) == 0
    assert tokens_back(size, transcript, plan, {whole(5)}) == 2 * transcript.entry("e5").tokens
    assert sum(struck_by_target(size, transcript, plan).values()) == struck_of(size, transcript, plan)


ONE, OTHER = Target("e1"), Target("e2")
START = datetime(2026, 3, 2, 10, 0, tzinfo=UTC)


def after(*steps: tuple[Kind, tuple[Target, ...]]) -> dict[Target, tuple[int, int]]:
    """For each approved object: the minute of its approval, and how many were approved at once."""
    timed = [(Step(*step), START + timedelta(minutes=minute)) for minute, step in enumerate(steps)]
    found = approvals(timed)
    return {target: ((one.at - START).seconds // 60, one.together) for target, one in found.items()}


@pytest.mark.parametrize("kind", [Kind.APPROVE, Kind.ADD])
def test_a_decision_on_several_objects_is_in_bulk(kind):
    assert after((kind, (ONE, OTHER))) == {ONE: (0, 2), OTHER: (0, 2)}
    assert approvals([(Step(kind, (ONE, OTHER)), START)])[ONE].is_bulk
    assert not approvals([(Step(kind, (ONE,)), START)])[ONE].is_bulk


def test_the_last_approval_counts():
    assert after((Kind.APPROVE, (ONE, OTHER)), (Kind.APPROVE, (ONE,))) == {ONE: (1, 1), OTHER: (0, 2)}


@pytest.mark.parametrize("kind", [Kind.REJECT, Kind.REOPEN, Kind.WITHDRAW])
def test_what_is_taken_back_was_not_approved(kind):
    assert after((Kind.APPROVE, (ONE, OTHER)), (kind, (OTHER,))) == {ONE: (0, 2)}


def test_narrowing_to_several_blocks_approves_one_entry():
    assert after((Kind.NARROW, (Target("e1", 0), Target("e1", 2)))) == {ONE: (0, 1)}
