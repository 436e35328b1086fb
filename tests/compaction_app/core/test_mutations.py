"""Rules broken on purpose: a fact that the other tests rely on must detect each break.

The facts are the conformance vectors and a few that no vector covers. A mutation without a failure is a rule
without a test.
"""

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from compaction_app.core import gates, parameters, patterns, review_fold, stats, tools, transcript
from compaction_app.core.airlock import Airlock, validate
from compaction_app.core.gates import Judgement, Refusal, Restraints
from compaction_app.core.review_fold import MANUAL_ORIGIN, Decided, Kind, Proposed, Reviewer, Step
from compaction_app.core.store import DeletionStore
from compaction_app.core.tools import ToolCall, Workbench
from compaction_app.core.transcript import Object, Pairs, TargetPlan, ToolPair, Transcript, TranscriptEntry
from devtools.pure.conformance import case_lines, differences
from sessions_app.agents.atomic.pure import format as atomic_rules
from sessions_app.agents.atomic.pure.format import Filters, recorded_filters
from sessions_app.agents.pi.pure.format import ContextRules
from sessions_app.agents.pure.formats import PlanRules
from sessions_app.sessionlog.entries import Target
from tests.compaction_app.core.test_airlock import EDITS, RULES, TASKLESS, of_10_000, unrepaired as refused_unrepaired
from tests.compaction_app.core.test_vectors import CASES
from tests.factories import (
    assistant,
    bash,
    call,
    deletions,
    named,
    result,
    targets,
    text,
    thinking,
    transcript_of,
    user,
)

Recorded = dict[str, Any]
Mutation = tuple[Any, str, Any]
"""The name of something in a module or class, and what it is replaced by."""

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
FAILED = [user("go"), assistant(thinking("hm"), text("so"), stopReason="error"), assistant(text("done"))]
UNANSWERED = [user("go"), assistant(text("so"), call("c1", n=1), call("c1", n=2)), assistant(text("done"))]
ABORTED = [user("go"), assistant(thinking("hm"), text("a")), assistant(text("b"), stopReason="aborted"), user("on")]
WITH_COMMAND = [*TALK, bash("make", "done", 0)]


def judged(
    request: str, messages: list[Recorded], pins: str = "", guard: str = "latest", rules: PlanRules = RULES
) -> str:
    """The refusal's code, or the targets as they are written in a request."""
    transcript = transcript_of(*messages, rules=rules)
    answer = validate(deletions(request), transcript, Restraints(frozenset(targets(pins)), guard))
    return answer.code.value if isinstance(answer, Refusal) else named(*answer.targets)


def unrepaired(chosen: Object, **settings: object) -> str | None:
    """The verdict of the gates on whole plans on an unrepaired plan."""
    refusal = refused_unrepaired(transcript_of(*TALK, **settings), chosen)
    return refusal and refusal.code.value


def grep(
    messages: list[Recorded], pins: str = "", guard: str = "latest", rules: PlanRules = RULES, **arguments: Any
) -> Any:
    """The matches and the reasons for what was skipped."""
    restraints = Restraints(frozenset(targets(pins)), guard)
    bench = Workbench(DeletionStore(transcript_of(*messages, rules=rules), restraints))
    arguments = {"pattern": "needle", "target": "content_block", **arguments}
    details = bench.call(ToolCall("context_grep_delete", arguments)).details
    found = [Target(match["entryId"], match.get("blockIndex")) for match in details["matches"]]
    return named(*found), [skip["reason"] for skip in details["skipped"]]


def sought(words: str, **arguments: Any) -> Any:
    bench = Workbench(DeletionStore(transcript_of(user("go"), assistant(text(words)))))
    details = bench.call(ToolCall("context_search_transcript", {"pattern": "needle", **arguments})).details
    return [(match["matchIndex"], match["snippet"]) for match in details["matches"]]


def reviewed(proposed: str, *steps: tuple[Kind, Target]) -> Any:
    """What a commit would write, in its order, and what is pinned."""
    reviewer = Reviewer(transcript_of(*TALK), [Proposed(one, "planner", MANUAL_ORIGIN) for one in targets(proposed)])
    found = reviewer.review([Step(kind, (target,)) for kind, target in steps])
    approved = found.approved.targets if found.approved is not None else ()
    return named(*approved), named(*found.pins)


def left_unanswered(plan: str, messages: list[Recorded]) -> dict[str, list[str]]:
    """Under each target of a plan, the blocks that it leaves without an answer."""
    left = transcript.unanswered(transcript_of(*messages), targets(plan))
    return {named(taker): [named(target) for target in staying] for taker, staying in left.items()}


def reached(deleted: int, ratio: float) -> bool:
    """Whether the target is met if so many of 10,000 tokens are deleted."""
    return stats.target_met(of_10_000(deleted), ratio)


FACTS: list[tuple[Callable[[], Any], Any]] = [
    (lambda: judged("e5", TALK), "e5"),
    (lambda: judged("", TASKLESS), "no_task_left"),
    (lambda: judged("", TALK), ""),
    (lambda: judged("e1 e2", TASKLESS), "no_context_left"),
    (lambda: judged("e6[1]", TALK), "e6[1] e7"),
    (lambda: judged("e6[1]", TALK, "e6[2]"), "protected_pair"),
    (lambda: judged("e2[1]", UNANSWERED, "e2[2]"), "e2[1]"),
    (lambda: left_unanswered("e6[1] e7", TALK), {"e6[1]": ["e6[2]"], "e7": ["e6[2]"]}),
    (lambda: left_unanswered("e6[1]", TALK), {}),
    (lambda: left_unanswered("e6 e7", TALK), {}),
    (lambda: (reached(4_995, 0.5), reached(4_994, 0.5), reached(0, 0.9999)), (True, False, False)),
    (lambda: judged("e2", TALK, guard="all"), "thinking"),
    (lambda: judged("e3", TALK, guard="all"), "thinking"),
    (lambda: judged("e2[9]", FAILED, guard="all"), "thinking"),
    (lambda: judged("e5", TALK, "e5"), "protected"),
    (lambda: judged("e9", WITH_COMMAND, rules=EDITS), "not_editable"),
    (lambda: judged("e2[0]", ABORTED, rules=EDITS), "latest_thinking"),
    (lambda: judged("e5", TALK, "e5[0]"), "protected"),
    (lambda: judged("e5[9]", TALK, "e5"), "protected"),
    (lambda: judged("e2", TALK, "e4"), "protected_pair"),
    (lambda: judged("e4", TALK, "e2[3]"), "protected_pair"),
    (lambda: transcript_of(*TALK, preserve_recent="many").protected_entry_ids, ("e1", "e7", "e8")),
    (lambda: unrepaired(Object(2)), "dangling_call"),
    (lambda: unrepaired(Object(1, 2)), "orphaned_result"),
    (lambda: unrepaired(Object(7), preserve_recent=1), "recent_context"),
    (lambda: grep(TALK), ("e2[1] e4 e5[0]", [])),
    (lambda: grep(ABORTED, rules=EDITS, pattern="hm"), ("", ["protected_block"])),
    (lambda: grep(TALK, guard="all"), ("e5[0]", ["protected_block", "protected_entry"])),
    (lambda: grep(UNANSWERED, "e2[1]", pattern="toolcall"), ("e2[2]", ["protected_block"])),
    (lambda: grep(TALK, maxMatches=1, expectedMatchCount=0)[1], ["expected_match_count_mismatch"]),
    (lambda: reviewed("e5 e3", (Kind.APPROVE, E3), (Kind.APPROVE, E5)), ("e5 e3 e2[2]", "")),
    (lambda: reviewed("e3", (Kind.REJECT, E3), (Kind.ADD, CALL)), ("", "e3")),
    (lambda: reviewed("e3", (Kind.REJECT, E3), (Kind.APPROVE, E3)), ("e3 e2[2]", "")),
    (lambda: reviewed("e3", (Kind.NARROW, Target("e2", 1)), (Kind.APPROVE, E3)), ("e2[1]", "e2[0] e2[2] e2[3]")),
    (lambda: reviewed("e5", (Kind.REJECT, Target("e5", 0)), (Kind.APPROVE, E5)), ("e5", "")),
    (lambda: sought("🙂 " * 9 + "needle"), [(27, "🙂 " * 9 + "needle")]),
    (lambda: sought("a" * 600 + "needle", contextChars=999), [(600, "…" + "a" * 500 + "needle")]),
]


def noticed() -> str:
    """The first fact that is false; empty if all are true."""
    for number, (fact, expected) in enumerate(FACTS):
        if fact() != expected:
            return f"fact {number}"
    parted = itertools.chain.from_iterable(differences(case, case_lines(case)) for case in CASES)
    try:
        return next(map(str, parted), "")
    except AssertionError as fault:
        # Something that the airlock considers impossible has happened.
        return str(fault)


def test_every_fact_is_true_without_a_mutation_of_which_there_are_enough():
    assert noticed() == ""
    assert len(MUTATIONS) >= 50


def always(answer: Any) -> Callable[..., Any]:
    return lambda *_: answer


def without(table: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in table.items() if name != key}


ANY_KEY = {"kind", "entryId", "blockIndex", "text", "reason"}
RECENT, THINKING, NOT_EDITABLE, PROTECTED, UNFIT = gates.TARGET_GATES

MUTATIONS: dict[str, Mutation] = {
    "protected is judged before recent": (gates, "TARGET_GATES", [PROTECTED, RECENT, THINKING, NOT_EDITABLE, UNFIT]),
    "an unfit block is judged before protection": (gates, "TARGET_GATES", gates.TARGET_GATES[::-1]),
    "the plan is judged backwards": (gates, "PLAN_GATES", gates.PLAN_GATES[::-1]),
    "text may be sent with a target": (gates, "_KEYS", dict.fromkeys(gates._KEYS, ANY_KEY)),
    "repair brings nothing": (TargetPlan, "_repair_call", always(None)),
    "an entry leaves its blocks in the plan": (TargetPlan, "add_entry", lambda plan, at: plan.add(Object(at))),
    "no entry is ever complete": (TargetPlan, "is_complete", always(False)),
    "one block completes an entry": (TargetPlan, "is_complete", lambda plan, at: plan.blocks_chosen(at) > 0),
    "repair stops after one pass": (TargetPlan, "repair", lambda plan, may_go: plan._repair_calls(may_go)),
    "repair may take anything": (Judgement, "may_go", always(True)),
    "pins hold nothing": (Judgement, "is_pinned", always(False)),
    "a pinned block does not hold its entry": (
        Judgement,
        "is_pinned",
        lambda judge, found: found in judge.pins or Object(found.position) in judge.pins,
    ),
    "a pinned block loses its answer to its double": (TargetPlan, "_pinned_block", always(None)),
    "a pinned block keeps its double though nobody answered": (
        TargetPlan,
        "_pinned_block",
        lambda plan, call_, may_go: next((o for o in call_.blocks if o not in plan and not may_go(o)), None),
    ),
    "no call is left unanswered": (transcript, "unanswered", always({})),
    "the target is met by tokens": (
        stats,
        "target_met",
        lambda made, ratio: made.objects_deleted and made.tokens_after <= made.tokens_before * ratio // 1,
    ),
    "the target is met by nothing": (
        stats,
        "target_met",
        lambda made, ratio: made.percent_reduction >= stats.target_reduction(ratio),
    ),
    "the target is not rounded": (stats, "target_reduction", lambda ratio: math.ceil((1 - ratio) * 1_000 + 0.5) / 10),
    "a bulk deletion passes over nothing": (Airlock, "passes_over", always((False, 0))),
    "a bulk deletion takes what a human pinned": (Airlock, "may_go", always(True)),
    "all candidates share one verdict": (DeletionStore, "_shared_verdict", always((True, 0))),
    "what is deleted already is found again": (DeletionStore, "__contains__", always(False)),
    "a percentage is cut": (stats, "percent", lambda part, of: math.floor(part / of * 1000) / 10 if of else 0.0),
    "a percentage of the budget is cut": (stats, "round_percent", lambda value: math.floor(value * 10) / 10),
    "deleted blocks count as one object with their entry": (TranscriptEntry, "objects", property(always(1))),
    "the budget rounds its target up": (
        stats.Budget,
        "target_tokens_after",
        property(lambda one: math.ceil(one.stats.tokens_before * one.compression_ratio)),
    ),
    "a single entry is enough to compact": (transcript, "MINIMUM_ENTRIES", 1),
    "earlier compactions are forgotten": (atomic_rules, "effective_filters", always(Filters())),
    "replay safety is left out of the transcript": (atomic_rules, "effective_filters", recorded_filters),
    "three entries are recent by default": (parameters, "DEFAULT_PRESERVE_RECENT", 3),
    "any ratio is used": (parameters, "compression_ratio", lambda one: one if isinstance(one, int | float) else 0.5),
    "a query is longer": (parameters, "QUERY_LENGTH", 999),
    "a pattern may be longer": (patterns, "PATTERN_LENGTH", 5_000),
    "lengths count code points": (patterns, "utf16_length", len),
    "nothing is clamped": (tools, "_clamp", lambda value, *_: value),
    "a pin of the review does not reach the airlock": (review_fold, "Restraints", lambda *_, **kw: Restraints(**kw)),
    "a narrowing forgets to pin the rest": (Decided, "_pin", always(None)),
    "the later word leaves the blocks of its entry alone": (Decided, "_overlapping", lambda _, target: [target]),
}
for table in ("TARGET_GATES", "PLAN_GATES", "SKIPPING_GATES"):
    for left_out in getattr(gates, table):
        rest = [gate for gate in getattr(gates, table) if gate is not left_out]
        MUTATIONS[f"{table} without {left_out.__name__}"] = (gates, table, rest)
# A recent candidate is skipped before any gate, and a recent partner by the repair: this is never reached.
del MUTATIONS["SKIPPING_GATES without refuse_recent_in_plan"]
for role in ("user", "custom", "branchSummary"):
    MUTATIONS[f"{role} is not protected"] = (
        ContextRules,
        "protected_roles",
        without(ContextRules.protected_roles, role),
    )
for role in ("assistant", "toolResult", "bashExecution"):
    rest = without(ContextRules.protected_failures, role)
    MUTATIONS[f"a failed {role} is not protected"] = (ContextRules, "protected_failures", rest)


def broken(owner: object, name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The decorated function replaces one of the product, which it gets as its first argument."""
    original = getattr(owner, name)

    def register(mutated: Callable[..., Any]) -> Callable[..., Any]:
        def replacement(*arguments: Any, **named_: Any) -> Any:
            return mutated(original, *arguments, **named_)

        MUTATIONS[mutated.__name__.replace("_", " ")] = (owner, name, replacement)
        return mutated

    return register


@broken(TargetPlan, "_repair_call")
def a_result_goes_without_its_call(repair: Any, plan: TargetPlan, made: ToolPair, may_go: Any) -> Any:
    goes = made.owner in plan or any(found in plan for found in made.blocks)
    return repair(plan, made, may_go) if goes else None


@broken(TargetPlan, "_repair_call")
def a_call_goes_without_its_results(repair: Any, plan: TargetPlan, made: ToolPair, may_go: Any) -> Any:
    goes = made.owner in plan or any(found in plan for found in made.blocks)
    return None if goes else repair(plan, made, may_go)


@broken(TargetPlan, "copy")
def a_plan_in_a_copy_forgets_its_tokens(copied: Any, plan: TargetPlan) -> TargetPlan:
    made = copied(plan)
    made.tokens = 0
    return made


@broken(transcript, "Pairs")
def the_first_maker_owns_a_call(pairs: Any, entries: Any) -> Pairs:
    seen: set[str] = set()
    once = []
    for entry in entries:
        blocks = tuple(
            msgspec.structs.replace(found, call_id=None) if found.call_id in seen else found for found in entry.blocks
        )
        call_ids = tuple(one for one in entry.call_ids if one not in seen)
        once.append(msgspec.structs.replace(entry, call_ids=call_ids, blocks=blocks))
        seen.update(entry.call_ids)
    return pairs(once)


@broken(Airlock, "_close")
def an_empty_plan_is_not_judged(close: Any, airlock_: Airlock, plan: TargetPlan, gates_: Any) -> Any:
    return close(airlock_, plan, gates_) if plan.chosen else None


def refuse_a_block_that_stays(judge: Judgement, plan: TargetPlan) -> Refusal | None:
    for call_ in plan.touched_calls.values():
        left = next((block_ for block_ in call_.blocks if block_ not in plan), None)
        if left is not None and call_.owner not in plan and all(one in plan for one in call_.results):
            return gates.refuse(gates.Code.DANGLING_CALL, judge.target(left), "it stays", "Delete it.")
    return None


MUTATIONS["a call goes only with all of its blocks"] = (
    gates,
    "PLAN_GATES",
    [*gates.PLAN_GATES, refuse_a_block_that_stays],
)


@broken(transcript, "unanswered")
def a_call_is_left_unanswered_by_what_keeps_its_answer(_: Any, transcript_: Transcript, plan: Any) -> Any:
    gone = set(plan)
    left: dict[Target, tuple[Target, ...]] = {}
    for shared in transcript_.pairs.shared:
        takers = {found: transcript._taken_by(transcript_, found, gone) for found in shared.objects}
        staying = tuple(transcript_.target(found) for found in takers if takers[found] is None)
        left.update({taker: staying for taker in takers.values() if taker is not None and staying})
    return left


@broken(Airlock, "merge")
def a_merged_plan_is_not_judged(_: Any, airlock_: Airlock, chosen: TargetPlan, incoming: Any) -> TargetPlan:
    merged = chosen.copy()
    for found in incoming:
        merged.add(found)
    return merged


@broken(Workbench, "_bulk_objects")
def a_lone_block_of_a_protected_entry_stands_for_it(_: Any, bench: Workbench, target: Any) -> Iterator[Any]:
    for match in bench._objects(target):
        lone = match.block_index is not None and len(match.entry.blocks) == 1
        yield match._replace(found=Object(match.entry.position), block_index=None) if lone else match


@broken(tools, "_count_mismatch")
def no_matches_are_expected_of_zero(counted: Any, arguments: Any, count: int) -> str | None:
    if not arguments.expected_match_count:
        arguments = arguments.model_copy(update={"expected_match_count": None})
    return counted(arguments, count)


@broken(TargetPlan, "_count")
def a_block_weighs_what_its_entry_weighs(counted: Any, plan: TargetPlan, found: Object, sign: int) -> None:
    counted(plan, found, sign)
    if found.slot >= 0:
        entry = plan._entries[found.position]
        plan.tokens += sign * (entry.tokens - entry.blocks[found.slot].tokens)


@broken(Transcript, "__init__")
def the_latest_thinking_is_that_of_any_assistant(made: Any, one: Transcript, *arguments: Any) -> None:
    made(one, *arguments)
    one.latest_thinking = tuple(Object(entry.position) for entry in one.entries if entry.bears_thinking)


@broken(Workbench, "call")
def a_failed_call_does_not_count(called: Any, bench: Workbench, asked: ToolCall) -> tools.ToolResult:
    answer = called(bench, asked)
    bench.call_count -= answer.refusal is not None
    return answer


@broken(DeletionStore, "delete_objects")
def a_refused_step_is_kept_all_the_same(_: Any, store: DeletionStore, objects: Any) -> Refusal | None:
    chosen = list(objects)
    merged = store.airlock.merge(store._plan, chosen)
    if isinstance(merged, Refusal):
        for found in chosen:
            store._plan.add(found)
        return merged
    store._plan = merged
    return None


@broken(Decided, "_decide")
def a_rejection_pins_nothing(decide: Any, word: Decided, kind: Kind, target: Target) -> None:
    decide(word, Kind.REOPEN if kind is Kind.REJECT else kind, target)


@broken(Reviewer, "_order")
def targets_are_written_in_the_order_of_the_transcript(ordered: Any, *arguments: Any) -> Any:
    return sorted(ordered(*arguments))


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_broken_rule_is_noticed(name, monkeypatch):
    monkeypatch.setattr(*MUTATIONS[name])
    assert noticed(), f"nothing notices that {name}"
