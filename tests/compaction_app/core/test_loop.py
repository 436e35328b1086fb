"""The loop: it ends at the target, reports its progress to a planner that stops, and knows each target's origin."""

from collections.abc import Iterable
from typing import Any

import pytest

from compaction_app.core.loop import (
    Called,
    Ended,
    Event,
    Loop,
    Nudged,
    Origin,
    Outcome,
    PlannerTurn,
    Report,
    drive,
)
from compaction_app.core.store import DeletionStore
from compaction_app.core.tools import ToolCall, Workbench
from sessions_app.sessionlog.entries import Target
from tests.factories import assistant, block, call, result, text, transcript_of, user, whole

Recorded = dict[str, Any]
STOP = PlannerTurn()

TALK = [
    user("x" * 40),
    assistant(text("look"), call("c1", path="a" * 80)),
    result("c1", "y" * 80),
    assistant(text("z" * 40)),
    assistant(text("w" * 40), text("v" * 40)),
]


def workbench(*messages: Recorded, ratio: float = 0.5) -> Workbench:
    return Workbench(DeletionStore(transcript_of(*(messages or TALK), compression_ratio=ratio)))


def delete(*targets: Recorded, **reasons: str) -> ToolCall:
    wanted = {Target(entry_id): reason for entry_id, reason in reasons.items()}
    return ToolCall("context_delete", {"deletions": list(targets)}, wanted)


def tool(name: str, **arguments: Any) -> ToolCall:
    return ToolCall(name, arguments)


def run(loop: Loop, *turns: PlannerTurn) -> list[Event]:
    return [event for turn in turns for event in loop.take(turn)]


def ended(*calls: ToolCall) -> Ended:
    """The end of a run that makes these calls in one turn, and then stops."""
    found = run(Loop(workbench()), PlannerTurn(list(calls)), STOP, STOP)[-1]
    assert isinstance(found, Ended)
    return found


def originated(*turns: PlannerTurn) -> dict[Target, Origin]:
    loop = Loop(workbench(ratio=0.01))
    run(loop, *turns)
    return loop.origins


def by(number: int, reason: str = "", tool: str = "context_delete", *, by_repair: bool = False) -> Origin:
    return Origin(number, tool, reason, by_repair=by_repair)


class Script:
    """A planner that takes scripted turns, and keeps the reports that it receives."""

    name = "script"

    def __init__(self, turns: Iterable[PlannerTurn]) -> None:
        self._turns = iter(turns)
        self.reports: list[Report] = []

    def next_turn(self, report: Report) -> PlannerTurn:
        self.reports.append(report)
        return next(self._turns, STOP)


def test_the_loop_ends_at_once_when_the_target_is_met_and_takes_no_turn_after_its_end():
    bench = workbench()
    loop = Loop(bench)
    events = run(loop, PlannerTurn([delete(whole("e2")), delete(whole("e4"))]))
    assert [type(event) for event in events] == [Called, Ended]
    assert events[-1] == Ended(Outcome.TARGET_MET)
    assert loop.outcome is Outcome.TARGET_MET
    assert bench.call_count == 1
    assert bench.store.targets == (Target("e2"), Target("e3"))
    bench = workbench()
    loop = Loop(bench)
    loop.close()
    for turn in (PlannerTurn([delete(whole("e4"))]), STOP):
        with pytest.raises(RuntimeError):
            run(loop, turn)
    assert bench.call_count == 0


def test_neither_a_target_that_is_met_by_nothing_nor_the_result_of_a_tool_ends_a_run():
    loop = Loop(workbench(user(""), assistant()))
    events = run(loop, PlannerTurn([tool("context_compaction_budget")]))
    assert [type(event) for event in events] == [Called]
    assert loop.outcome is None
    loop = Loop(workbench())
    refused = [tool("context_delete", deletions="all"), tool("rm", path="/"), delete(whole("e1"))]
    events = run(loop, PlannerTurn([*refused, tool("context_grep_delete", pattern="("), delete(whole("e4"))]))
    assert [type(event) for event in events] == [Called] * 5
    assert [event.number for event in events] == [1, 2, 3, 4, 5]
    assert loop.outcome is None


def test_a_planner_that_stops_early_gets_its_progress():
    bench = workbench()
    loop = Loop(bench)
    events = run(loop, PlannerTurn([delete(whole("e4"))]), STOP)
    budget = bench.budget
    assert str(budget.stats.percent_reduction) in events[-1].text
    assert f"{budget.tokens_to_delete} tokens" in events[-1].text
    assert budget.tokens_to_delete > 0
    assert loop.report == Report(nudge=events[-1].text)
    assert loop.outcome is None


def test_a_planner_that_stops_again_gets_another_reminder_only_after_progress():
    loop = Loop(workbench())
    events = run(loop, PlannerTurn([delete(whole("e4"))]), STOP, PlannerTurn([tool("context_compaction_budget")]), STOP)
    assert [type(event) for event in events] == [Called, Nudged, Called, Ended]
    assert events[-1] == Ended(Outcome.BELOW_TARGET)
    loop = Loop(workbench())
    events = run(loop, STOP, PlannerTurn([delete(whole("e4"))]), STOP, STOP)
    assert [type(event) for event in events] == [Nudged, Called, Nudged, Ended]
    assert events[0].text != events[2].text


@pytest.mark.parametrize(
    ("last", "code"),
    [
        (tool("context_delete", everything=True), "invalid_arguments"),
        (tool("context_grep_delete", pattern="x", maxMatches=0), "invalid_arguments"),
        (tool("context_grep_delete", pattern="("), None),
        (tool("context_grep_delete", pattern="(", regex=True), "invalid_pattern"),
        (tool("context_remove"), "unknown_tool"),
    ],
)
def test_a_run_of_calls_that_cannot_run_fails_with_their_refusal(last, code):
    end = ended(last)
    assert end.outcome is Outcome.FAILED
    assert (end.refusal.code if end.refusal is not None else None) == code


@pytest.mark.parametrize(
    "looking",
    [
        [],
        [tool("context_search_transcript", pattern="(", regex=True)],
        [tool("context_read_entry", entryId="e99")],
        [tool("context_compaction_budget", of="all")],
        [tool("context_remove")],
    ],
    ids=["nothing", "search", "read", "budget", "unknown"],
)
def test_a_failed_run_reports_the_last_refused_deletion_not_a_later_look(looking):
    end = ended(delete(whole("e99")), delete(whole("e1")), *looking)
    assert end.outcome is Outcome.FAILED
    assert (end.refusal.code, end.refusal.target) == ("protected", Target("e1"))


def test_a_run_that_only_looked_fails_without_a_refusal():
    looking = tool("context_search_transcript", pattern="(", regex=True)
    assert ended(looking, tool("context_read_entry", entryId="e99")) == Ended(Outcome.FAILED, None)


def test_what_was_validated_stays_when_a_run_ends_below_the_target_or_is_closed():
    bench = workbench()
    end = run(Loop(bench), PlannerTurn([delete(whole("e4")), delete(whole("e1"))]), STOP, STOP)[-1]
    assert end == Ended(Outcome.BELOW_TARGET, None)
    assert bench.store.validated().targets == (Target("e4"),)
    empty, begun = Loop(workbench()), Loop(workbench())
    run(begun, PlannerTurn([delete(whole("e4"))]))
    assert empty.close() == Ended(Outcome.FAILED, None)
    assert begun.close() == Ended(Outcome.BELOW_TARGET)
    assert begun.outcome is Outcome.BELOW_TARGET


def test_a_planner_gets_the_results_of_its_last_turn_and_nothing_older():
    looking = PlannerTurn([tool("context_compaction_budget"), tool("context_search_transcript", pattern="y")])
    first, second = (PlannerTurn([delete(whole(entry_id))]) for entry_id in ("e1", "e2"))
    planner = Script([looking, first, STOP, second])
    events = [event for _, event in drive(planner, workbench())]
    answered = [[answer.name for answer in report.results] for report in planner.reports]
    assert answered == [[], ["context_compaction_budget", "context_search_transcript"], ["context_delete"], []]
    assert [bool(report.nudge) for report in planner.reports] == [False, False, False, True]
    assert events[-1] == Ended(Outcome.TARGET_MET)


def test_a_silent_planner_is_prompted_twice():
    planner = Script([])
    assert [type(event) for _, event in drive(planner, workbench())] == [Nudged, Ended]
    assert len(planner.reports) == 2


def test_requested_targets_are_distinguished_from_repairs():
    origins = originated(PlannerTurn([tool("context_read_entry", entryId="e3"), delete(whole("e3"))]))
    assert origins == {Target("e3"): by(2), Target("e2", 1): by(2, by_repair=True)}
    origins = originated(PlannerTurn([tool("context_grep_delete", pattern="yyy")]))
    repaired = {target: origin.by_repair for target, origin in origins.items()}
    assert repaired == {Target("e3"): False, Target("e2", 1): True}
    origins = originated(PlannerTurn([delete(block("e2", 0)), delete(whole("e3"))]))
    assert origins == {Target("e3"): by(2), Target("e2"): by(2, by_repair=True)}


def test_a_reason_belongs_to_the_first_proposal_of_the_target_it_was_given_for():
    origins = originated(PlannerTurn([delete(whole("e2"), e2="read later"), delete(block("e5", 1.0))]))
    assert origins == {Target("e2"): by(1, "read later"), Target("e3"): by(1, by_repair=True), Target("e5", 1): by(2)}
    turns = [PlannerTurn([delete(whole("e4"), e4=reason)]) for reason in ("old", "new")]
    assert originated(*turns) == {Target("e4"): by(1, "old")}


def test_a_refused_call_adds_nothing():
    loop = Loop(workbench(ratio=0.01))
    called = run(loop, PlannerTurn([delete(whole("e4"), whole("e1"))]))[0]
    assert (called.added, loop.origins) == ((), {})
    assert called.result.refusal is not None
