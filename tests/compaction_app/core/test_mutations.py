"""Rules broken on purpose: a fact that the other tests rely on must detect each break.

The facts are the conformance vectors and a few that no vector covers. A mutation without a failure is a rule
without a test.
"""

from __future__ import annotations

import gzip
import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from compaction_app.core import (
    airlock,
    budget,
    errors,
    gates,
    pairing,
    parameters,
    patterns,
    review_fold,
    stats,
    store,
    target_shape,
    tools,
    transcript,
    unanswered,
)
from compaction_app.core.airlock import Airlock, validate
from compaction_app.core.decisions import Decided, Kind, Step
from compaction_app.core.errors import Refusal
from compaction_app.core.gates import NO_RESTRAINTS, Judgement, Restraints
from compaction_app.core.pairing import Pairs, TargetPlan, ToolPair
from compaction_app.core.review_fold import BY_HAND, Proposed, Reviewer
from compaction_app.core.store import DeletionStore
from compaction_app.core.tools import ToolCall, Workbench
from compaction_app.core.transcript import Transcript
from compaction_app.core.transcript_entries import Object
from devtools.conformance import case_lines, differences
from sessions_app.agents.atomic import rules as atomic_rules
from sessions_app.agents.atomic.filters import Filters, recorded_filters
from sessions_app.agents.contexts import PlanRules
from sessions_app.agents.pi import rules
from sessions_app.agents.registry import reading_by
from sessions_app.sessionlog.jsjson import parse
from sessions_app.sessionlog.targets import Target
from tests.factories import assistant, bash, block, call, result, text, thinking, transcript_of, user, whole
from tests.paths import PROJECT

Recorded = dict[str, Any]
Mutation = Callable[[pytest.MonkeyPatch], None]

VECTORS = [
    parse(line)
    for line in gzip.decompress((PROJECT / "tests" / "vectors" / "cases.jsonl.gz").read_bytes()).splitlines()
]


# ---- the facts -------------------------------------------------------------------------------------------

TALK = [
    user("go"),
    assistant(thinking("hm"), text("needle"), call("c1"), call("c2")),
    result("c1", "one"),
    result("c2", "two needles"),
    assistant(text("needle"), text("b")),
    assistant(text("so"), call("c3"), call("c3", again=True)),
    result("c3"),
    assistant(text("done")),
]
E3, E5, CALL = Target("e3"), Target("e5"), Target("e2", 2)
TASKLESS = [assistant(text("a"), text("b")), assistant(text("c"))]
FAILED = [user("go"), assistant(thinking("hm"), text("so"), stopReason="error"), assistant(text("done"))]
UNANSWERED = [user("go"), assistant(text("so"), call("c1", n=1), call("c1", n=2)), assistant(text("done"))]
ABORTED = [
    user("go"),
    assistant(thinking("hm"), text("a")),
    assistant(text("b"), stopReason="aborted"),
    user("on"),
]
WITH_COMMAND = [*TALK, bash("make", "done", 0)]
RULES = reading_by("atomic-0.8", "the test says so").rules()
EDITS = reading_by("pi", "the test says so").rules("context-edit")


def judged(
    request: list[Recorded],
    messages: list[Recorded],
    *pins: Target,
    guard: str = "latest",
    rules: PlanRules = RULES,
) -> Any:
    """The refusal's code, or the targets."""
    transcript = transcript_of(*messages, rules=rules)
    answer = validate({"deletions": request}, transcript, Restraints(frozenset(pins), guard))
    return answer.code.value if isinstance(answer, Refusal) else [one.to_json() for one in answer.targets]


def unrepaired(messages: list[Recorded], *chosen: Object, **settings: object) -> str | None:
    """The verdict of the gates on whole plans on an unrepaired plan."""
    judge = Judgement(transcript_of(*messages, **settings), NO_RESTRAINTS, frozenset())
    plan = Airlock(judge.transcript).empty_plan()
    for found in chosen:
        plan.add(found)
    refusals = (gate(judge, plan) for gate in airlock.PLAN_GATES)
    return next((refusal.code.value for refusal in refusals if refusal is not None), None)


def grep(
    messages: list[Recorded], *pins: Target, guard: str = "latest", rules: PlanRules = RULES, **arguments: Any
) -> Any:
    """The matches and the reasons for what was skipped."""
    restraints = Restraints(frozenset(pins), guard)
    bench = Workbench(DeletionStore(transcript_of(*messages, rules=rules), restraints))
    arguments = {"pattern": "needle", "target": "content_block", **arguments}
    details = bench.call(ToolCall("context_grep_delete", arguments)).details
    found = [(match["entryId"], match.get("blockIndex")) for match in details["matches"]]
    return found, [skip["reason"] for skip in details["skipped"]]


def sought(words: str, **arguments: Any) -> Any:
    bench = Workbench(DeletionStore(transcript_of(user("go"), assistant(text(words)))))
    details = bench.call(ToolCall("context_search_transcript", {"pattern": "needle", **arguments})).details
    return [(match["matchIndex"], match["snippet"]) for match in details["matches"]]


def reviewed(proposed: list[Target], *steps: tuple[Kind, Target]) -> Any:
    """What a commit would write, in its order, and what is pinned."""
    reviewer = Reviewer(transcript_of(*TALK), [Proposed(one, "planner", BY_HAND) for one in proposed])
    found = reviewer.review([Step(kind, (target,)) for kind, target in steps])
    return found.approved.targets if found.approved is not None else (), found.pins


def left_unanswered(plan: list[Target], messages: list[Recorded]) -> dict[str, list[str]]:
    """Under each target of a plan, the blocks that it leaves without an answer."""
    left = unanswered.unanswered(transcript_of(*messages), plan)
    return {named(taker): [named(target) for target in staying] for taker, staying in left.items()}


def named(target: Target) -> str:
    return target.entry_id if target.block_index is None else f"{target.entry_id}[{target.block_index}]"


def reached(deleted: int, ratio: float) -> bool:
    """Whether the target is met if so many of 10,000 tokens are deleted."""
    reduction = stats.percent(deleted, 10_000)
    made = stats.Stats(3, 3 - bool(deleted), int(bool(deleted)), 10_000, 10_000 - deleted, reduction)
    return stats.target_met(made, ratio)


FACTS: list[tuple[Callable[[], Any], Any]] = [
    (lambda: judged([whole("e5")], TALK), [whole("e5")]),
    (lambda: judged([], TASKLESS), "no_task_left"),
    (lambda: judged([], TALK), []),
    (lambda: judged([whole("e1"), whole("e2")], TASKLESS), "no_context_left"),
    (lambda: judged([block("e6", 1)], TALK), [block("e6", 1), whole("e7")]),
    (lambda: judged([block("e6", 1)], TALK, Target("e6", 2)), "protected_pair"),
    (lambda: judged([block("e2", 1)], UNANSWERED, Target("e2", 2)), [block("e2", 1)]),
    (lambda: left_unanswered([Target("e6", 1), Target("e7")], TALK), {"e6[1]": ["e6[2]"], "e7": ["e6[2]"]}),
    (lambda: left_unanswered([Target("e6", 1)], TALK), {}),
    (lambda: left_unanswered([Target("e6"), Target("e7")], TALK), {}),
    (lambda: (reached(4_995, 0.5), reached(4_994, 0.5), reached(0, 0.9999)), (True, False, False)),
    (lambda: judged([whole("e2")], TALK, guard="all"), "thinking"),
    (lambda: judged([whole("e3")], TALK, guard="all"), "thinking"),
    (lambda: judged([block("e2", 9)], FAILED, guard="all"), "thinking"),
    (lambda: judged([whole("e5")], TALK, Target("e5")), "protected"),
    (lambda: judged([whole("e9")], WITH_COMMAND, rules=EDITS), "not_editable"),
    (lambda: judged([block("e2", 0)], ABORTED, rules=EDITS), "latest_thinking"),
    (lambda: judged([whole("e5")], TALK, Target("e5", 0)), "protected"),
    (lambda: judged([block("e5", 9)], TALK, Target("e5")), "protected"),
    (lambda: judged([whole("e2")], TALK, Target("e4")), "protected_pair"),
    (lambda: judged([whole("e4")], TALK, Target("e2", 3)), "protected_pair"),
    (lambda: transcript_of(*TALK, preserve_recent="many").protected_entry_ids, ("e1", "e7", "e8")),
    (lambda: unrepaired(TALK, Object(2)), "dangling_call"),
    (lambda: unrepaired(TALK, Object(1, 2)), "orphaned_result"),
    (lambda: unrepaired(TALK, Object(7), preserve_recent=1), "recent_context"),
    (lambda: grep(TALK), ([("e2", 1), ("e4", None), ("e5", 0)], [])),
    (lambda: grep(ABORTED, rules=EDITS, pattern="hm"), ([], ["protected_block"])),
    (lambda: grep(TALK, guard="all"), ([("e5", 0)], ["protected_block", "protected_entry"])),
    (lambda: grep(UNANSWERED, Target("e2", 1), pattern="toolcall"), ([("e2", 2)], ["protected_block"])),
    (lambda: grep(TALK, maxMatches=1, expectedMatchCount=0)[1], ["expected_match_count_mismatch"]),
    (lambda: reviewed([E5, E3], (Kind.APPROVE, E3), (Kind.APPROVE, E5)), ((E5, E3, CALL), ())),
    (lambda: reviewed([E3], (Kind.REJECT, E3), (Kind.ADD, CALL)), ((), (E3,))),
    (lambda: reviewed([E3], (Kind.REJECT, E3), (Kind.APPROVE, E3)), ((E3, CALL), ())),
    (
        lambda: reviewed([E3], (Kind.NARROW, Target("e2", 1)), (Kind.APPROVE, E3)),
        ((Target("e2", 1),), (Target("e2", 0), CALL, Target("e2", 3))),
    ),
    (lambda: reviewed([E5], (Kind.REJECT, Target("e5", 0)), (Kind.APPROVE, E5)), ((E5,), ())),
    (lambda: sought("🙂 " * 9 + "needle"), [(27, "🙂 " * 9 + "needle")]),
    (lambda: sought("a" * 600 + "needle", contextChars=999), [(600, "…" + "a" * 500 + "needle")]),
]


def noticed() -> str:
    """The first fact that is false; empty if all are true."""
    for number, (fact, expected) in enumerate(FACTS):
        if fact() != expected:
            return f"fact {number}"
    parted = itertools.chain.from_iterable(differences(case, case_lines(case)) for case in VECTORS)
    try:
        return next(map(str, parted), "")
    except AssertionError as fault:
        # Something that the airlock considers impossible has happened.
        return str(fault)


def test_every_fact_is_true() -> None:
    assert noticed() == ""


# ---- the mutations ---------------------------------------------------------------------------------------

MUTATIONS: dict[str, Mutation] = {}


def mutation(mutate: Mutation) -> Mutation:
    MUTATIONS[mutate.__name__] = mutate
    return mutate


def always(answer: Any) -> Callable[..., Any]:
    return lambda *_: answer


def without_gate(name: str, gate: Any) -> Mutation:
    """One gate is left out of a table."""

    def mutate(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(airlock, name, [one for one in getattr(airlock, name) if one is not gate])

    return mutate


for table in ("TARGET_GATES", "PLAN_GATES", "SKIPPING_GATES"):
    for left_out in getattr(gates, table):
        MUTATIONS[f"{table} without {left_out.__name__}"] = without_gate(table, left_out)
# A recent candidate is skipped before any gate, and a recent partner by the repair: this is never reached.
del MUTATIONS["SKIPPING_GATES without refuse_recent_in_plan"]


@mutation
def protected_is_judged_before_recent(patch: pytest.MonkeyPatch) -> None:
    recent, thinking_, not_editable, protected, unfit = gates.TARGET_GATES
    patch.setattr(airlock, "TARGET_GATES", [protected, recent, thinking_, not_editable, unfit])


@mutation
def an_unfit_block_is_judged_before_protection(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(airlock, "TARGET_GATES", list(reversed(gates.TARGET_GATES)))


@mutation
def the_plan_is_judged_backwards(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(airlock, "PLAN_GATES", list(reversed(gates.PLAN_GATES)))


@mutation
def text_may_be_sent_with_a_target(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(target_shape, "_KEYS", {kind: {*keys, "text"} for kind, keys in target_shape._KEYS.items()})
    patch.setitem(
        target_shape._KEYS, "content_block", {*target_shape._KEYS["content_block"], "text", "reason"}
    )
    patch.setitem(target_shape._KEYS, "entry", {*target_shape._KEYS["entry"], "text", "reason", "blockIndex"})


@mutation
def repair_brings_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TargetPlan, "_repair_call", always(None))


@mutation
def a_result_goes_without_its_call(patch: pytest.MonkeyPatch) -> None:
    repair = TargetPlan._repair_call

    def one_way(plan: TargetPlan, made: ToolPair, may_go: pairing.MayGo) -> Object | None:
        goes = made.owner in plan or any(found in plan for found in made.blocks)
        return repair(plan, made, may_go) if goes else None

    patch.setattr(TargetPlan, "_repair_call", one_way)


@mutation
def a_call_goes_without_its_results(patch: pytest.MonkeyPatch) -> None:
    repair = TargetPlan._repair_call

    def one_way(plan: TargetPlan, made: ToolPair, may_go: pairing.MayGo) -> Object | None:
        goes = made.owner in plan or any(found in plan for found in made.blocks)
        return None if goes else repair(plan, made, may_go)

    patch.setattr(TargetPlan, "_repair_call", one_way)


@mutation
def an_entry_leaves_its_blocks_in_the_plan(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TargetPlan, "add_entry", lambda plan, position: plan.add(Object(position)))


@mutation
def no_entry_is_ever_complete(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TargetPlan, "is_complete", always(False))


@mutation
def one_block_completes_an_entry(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TargetPlan, "is_complete", lambda plan, position: plan.blocks_chosen(position) > 0)


@mutation
def repair_stops_after_one_pass(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TargetPlan, "repair", lambda plan, may_go: plan._repair_calls(may_go))


@mutation
def a_plan_in_a_copy_forgets_its_tokens(patch: pytest.MonkeyPatch) -> None:
    copied = TargetPlan.copy

    def forgetful(plan: TargetPlan) -> TargetPlan:
        made = copied(plan)
        made.tokens = 0
        return made

    patch.setattr(TargetPlan, "copy", forgetful)


@mutation
def the_first_maker_owns_a_call(patch: pytest.MonkeyPatch) -> None:
    class FirstOwns(Pairs):
        def __init__(self, entries: Any) -> None:
            seen: set[str] = set()
            once = []
            for entry in entries:
                once.append(
                    msgspec.structs.replace(
                        entry,
                        call_ids=tuple(one for one in entry.call_ids if one not in seen),
                        blocks=tuple(
                            msgspec.structs.replace(found, call_id=None) if found.call_id in seen else found
                            for found in entry.blocks
                        ),
                    )
                )
                seen.update(entry.call_ids)
            super().__init__(once)

    patch.setattr(transcript, "Pairs", FirstOwns)


@mutation
def repair_may_take_anything(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Judgement, "may_go", always(True))


@mutation
def pins_hold_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Judgement, "is_pinned", always(False))


@mutation
def a_pinned_block_does_not_hold_its_entry(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        Judgement,
        "is_pinned",
        lambda judge, found: found in judge.pins or Object(found.position) in judge.pins,
    )


@mutation
def an_empty_plan_is_not_judged(patch: pytest.MonkeyPatch) -> None:
    close = Airlock._close

    def lenient(airlock_: Airlock, plan: TargetPlan, table: Any) -> Refusal | None:
        return close(airlock_, plan, table) if plan.chosen else None

    patch.setattr(Airlock, "_close", lenient)


@mutation
def a_call_goes_only_with_all_of_its_blocks(patch: pytest.MonkeyPatch) -> None:
    def dangling(judge: Judgement, plan: TargetPlan) -> Refusal | None:
        for call_ in plan.touched_calls.values():
            left = next((block_ for block_ in call_.blocks if block_ not in plan), None)
            if left is not None and call_.owner not in plan and all(one in plan for one in call_.results):
                return gates.refuse(errors.Code.DANGLING_CALL, judge.target(left), "it stays", "Delete it.")
        return None

    patch.setattr(airlock, "PLAN_GATES", [*airlock.PLAN_GATES, dangling])


@mutation
def a_pinned_block_loses_its_answer_to_its_double(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TargetPlan, "_pinned_block", always(None))


@mutation
def a_pinned_block_keeps_its_double_though_nobody_answered(patch: pytest.MonkeyPatch) -> None:
    def pinned_block(plan: TargetPlan, call_: ToolPair, may_go: Any) -> Object | None:
        return next((one for one in call_.blocks if one not in plan and not may_go(one)), None)

    patch.setattr(TargetPlan, "_pinned_block", pinned_block)


@mutation
def no_call_is_left_unanswered(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(unanswered, "unanswered", always({}))


@mutation
def a_call_is_left_unanswered_by_what_keeps_its_answer(patch: pytest.MonkeyPatch) -> None:
    def loose(transcript_: Transcript, plan: Any) -> Any:
        gone = set(plan)
        taken = unanswered._taken_by
        left: dict[Target, tuple[Target, ...]] = {}
        for shared in transcript_.pairs.shared:
            takers = {found: taken(transcript_, found, gone) for found in shared.objects}
            staying = tuple(
                unanswered._target(transcript_, found) for found in takers if takers[found] is None
            )
            left.update({taker: staying for taker in takers.values() if taker is not None and staying})
        return left

    patch.setattr(unanswered, "unanswered", loose)


@mutation
def the_target_is_met_by_tokens(patch: pytest.MonkeyPatch) -> None:
    def by_tokens(made: stats.Stats, ratio: float) -> bool:
        return made.objects_deleted > 0 and made.tokens_after <= math.floor(made.tokens_before * ratio)

    patch.setattr(stats, "target_met", by_tokens)


@mutation
def the_target_is_met_by_nothing(patch: pytest.MonkeyPatch) -> None:
    def by_nothing(made: stats.Stats, ratio: float) -> bool:
        return made.percent_reduction >= stats.target_reduction(ratio)

    patch.setattr(stats, "target_met", by_nothing)


@mutation
def the_target_is_not_rounded(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(stats, "target_reduction", lambda ratio: math.ceil((1 - ratio) * 1_000 + 0.5) / 10)


@mutation
def a_merged_plan_is_not_judged(patch: pytest.MonkeyPatch) -> None:
    def merge(airlock_: Airlock, chosen: TargetPlan, incoming: Any) -> TargetPlan:
        merged = chosen.copy()
        for found in incoming:
            merged.add(found)
        return merged

    patch.setattr(Airlock, "merge", merge)


@mutation
def a_bulk_deletion_passes_over_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Airlock, "passes_over", always((False, 0)))


@mutation
def a_bulk_deletion_takes_what_a_human_pinned(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Airlock, "may_go", always(True))


@mutation
def all_candidates_share_one_verdict(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(DeletionStore, "_shared_verdict", always((True, 0)))


@mutation
def a_lone_block_of_a_protected_entry_stands_for_it(patch: pytest.MonkeyPatch) -> None:
    def bulk_objects(bench: Workbench, target: Any) -> Iterator[Any]:
        for match in bench._objects(target):
            lone = match.block_index is not None and len(match.entry.blocks) == 1
            yield match._replace(found=Object(match.entry.position), block_index=None) if lone else match

    patch.setattr(Workbench, "_bulk_objects", bulk_objects)


@mutation
def what_is_deleted_already_is_found_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(DeletionStore, "__contains__", always(False))


@mutation
def no_matches_are_expected_of_zero(patch: pytest.MonkeyPatch) -> None:
    counted = tools._count_mismatch

    def mismatch(arguments: Any, count: int) -> str | None:
        if not arguments.expected_match_count:
            arguments = arguments.model_copy(update={"expected_match_count": None})
        return counted(arguments, count)

    patch.setattr(tools, "_count_mismatch", mismatch)


@mutation
def a_percentage_is_cut(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(stats, "percent", lambda part, all_: math.floor(part / all_ * 1000) / 10 if all_ else 0.0)


@mutation
def a_percentage_of_the_budget_is_cut(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(budget, "round_percent", lambda value: math.floor(value * 10) / 10)


@mutation
def deleted_blocks_count_as_one_object_with_their_entry(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(transcript.TranscriptEntry, "objects", property(always(1)))


@mutation
def a_block_weighs_what_its_entry_weighs(patch: pytest.MonkeyPatch) -> None:
    counted = TargetPlan._count

    def count(plan: TargetPlan, found: Object, sign: int) -> None:
        counted(plan, found, sign)
        if found.slot >= 0:
            entry = plan._entries[found.position]
            plan.tokens += sign * (entry.tokens - entry.blocks[found.slot].tokens)

    patch.setattr(TargetPlan, "_count", count)


@mutation
def the_budget_rounds_its_target_up(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        budget.Budget,
        "target_tokens_after",
        property(lambda one: math.ceil(one.stats.tokens_before * one.compression_ratio)),
    )


def unprotected(role: str, table_: str) -> Mutation:
    def mutate(patch: pytest.MonkeyPatch) -> None:
        patch.delitem(getattr(rules, table_), role)

    return mutate


for role in ("user", "custom", "branchSummary"):
    MUTATIONS[f"{role} is not protected"] = unprotected(role, "_BY_ROLE")
for role in ("assistant", "toolResult", "bashExecution"):
    MUTATIONS[f"a failed {role} is not protected"] = unprotected(role, "_BY_FAILURE")


@mutation
def a_single_entry_is_enough_to_compact(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(transcript, "MINIMUM_ENTRIES", 1)


@mutation
def earlier_compactions_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(atomic_rules, "effective_filters", always(Filters()))


@mutation
def replay_safety_is_left_out_of_the_transcript(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(atomic_rules, "effective_filters", recorded_filters)


@mutation
def the_latest_thinking_is_that_of_any_assistant(patch: pytest.MonkeyPatch) -> None:
    made = Transcript.__init__

    def init(one: Transcript, *arguments: Any) -> None:
        made(one, *arguments)
        bearing = [entry for entry in one.entries if entry.bears_thinking]
        one.latest_thinking = tuple(Object(entry.position) for entry in bearing)

    patch.setattr(Transcript, "__init__", init)


@mutation
def three_entries_are_recent_by_default(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(parameters, "DEFAULT_PRESERVE_RECENT", 3)


@mutation
def any_ratio_is_used(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        parameters, "compression_ratio", lambda value: value if isinstance(value, int | float) else 0.5
    )


@mutation
def a_query_is_longer(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(parameters, "QUERY_LENGTH", 999)


@mutation
def a_pattern_may_be_longer(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(patterns, "PATTERN_LENGTH", 5_000)


@mutation
def lengths_count_code_points(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(patterns, "utf16_length", len)


@mutation
def nothing_is_clamped(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(tools, "_clamp", lambda value, *_: value)


@mutation
def a_failed_call_does_not_count(patch: pytest.MonkeyPatch) -> None:
    called = Workbench.call

    def run(bench: Workbench, asked: ToolCall) -> tools.ToolResult:
        answer = called(bench, asked)
        bench.call_count -= answer.refusal is not None
        return answer

    patch.setattr(Workbench, "call", run)


@mutation
def a_refused_step_is_kept_all_the_same(patch: pytest.MonkeyPatch) -> None:
    def delete_objects(store_: DeletionStore, objects: Any) -> Refusal | None:
        chosen = list(objects)
        merged = store_.airlock.merge(store_._plan, chosen)
        if isinstance(merged, Refusal):
            for found in chosen:
                store_._plan.add(found)
            return merged
        store_._plan = merged
        return None

    patch.setattr(store.DeletionStore, "delete_objects", delete_objects)


@mutation
def a_rejection_pins_nothing(patch: pytest.MonkeyPatch) -> None:
    decide = Decided._decide

    def decided(word: Decided, kind: Kind, target: Target) -> None:
        decide(word, Kind.REOPEN if kind is Kind.REJECT else kind, target)

    patch.setattr(Decided, "_decide", decided)


@mutation
def a_pin_of_the_review_does_not_reach_the_airlock(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(review_fold, "Restraints", lambda *_, **guard: Restraints(**guard))


@mutation
def a_narrowing_forgets_to_pin_the_rest(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Decided, "_pin", always(None))


@mutation
def the_later_word_leaves_the_blocks_of_its_entry_alone(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Decided, "_overlapping", lambda _, target: [target])


@mutation
def targets_are_written_in_the_order_of_the_transcript(patch: pytest.MonkeyPatch) -> None:
    ordered = Reviewer._order
    patch.setattr(Reviewer, "_order", lambda reviewer, word: sorted(ordered(reviewer, word)))


def test_there_are_enough_mutations() -> None:
    assert len(MUTATIONS) >= 50


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_broken_rule_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    MUTATIONS[name](monkeypatch)
    assert noticed(), f"nothing notices that {name}"
