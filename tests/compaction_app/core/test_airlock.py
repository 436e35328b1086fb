"""The airlock, gate by gate: what passes, what is refused and how, and that a refusal changes nothing.

Transcripts are written as messages; their entries are e1, e2, … in order. Unless a case says otherwise,
nothing is recent.
"""

import copy
import dataclasses
import itertools
from dataclasses import dataclass, field
from typing import Any

import pytest

from compaction_app.core import gates, stats
from compaction_app.core.airlock import Airlock, ValidatedDeletion, validate
from compaction_app.core.gates import GATES, NO_RESTRAINTS, Code, Judgement, Refusal, Restraints
from compaction_app.core.store import DeletionStore
from compaction_app.core.transcript import Object, Transcript
from sessions_app.agents.pure.formats import PlanRules
from sessions_app.agents.registry import reading_by
from sessions_app.sessionlog.entries import Target, request_of
from tests.factories import (
    assistant,
    bash,
    block,
    branch_summary,
    call,
    custom,
    deletions,
    image,
    result,
    targets,
    text,
    thinking,
    transcript_of,
    user,
    whole,
)

Recorded = dict[str, Any]

TALK: list[Recorded] = [
    user("fix the parser"),
    assistant(text("spare")),
    assistant(text("a look"), call("c1")),
    result("c1", "one"),
    assistant(thinking("hm"), text("so"), text("it is")),
    assistant(text("first"), text("second")),
    assistant(call("c2")),
    result("c2", "two"),
]
"""What most cases are judged on: a store contains e2 already, before a case's request comes."""

GUARDED = [*TALK[:4], assistant(thinking("hm"), call("c3")), result("c3"), assistant(text("done"))]
TWICE = [*TALK[:2], assistant(text("look"), call("c1"), call("c1")), result("c1"), assistant(text("done"))]
LATEST = TALK[:5]
TASKLESS = [assistant(text("a"), text("b")), assistant(text("c"))]
TWO_TEXTS = {"role": "user", "content": [text("a"), text("b")]}
FAILED_CALL = [assistant(call("c9")), result("c9", error=True)]
STOPPED_CALL = [assistant(text("so"), call("c9"), stopReason="error"), result("c9")]
REDACTED = [*TALK[:4], assistant(text("so"), {"type": "redacted_thinking", "data": "…"})]
PICTURE = [assistant(call("c9")), {**result("c9"), "content": [text("see"), image()]}]

RULES = reading_by("atomic-0.8", "the test says so").rules()


@dataclass(frozen=True)
class Case:
    """One request on one transcript, and the answer: the code of a refusal, or the targets.

    A request is written as `targets` are if it is well-formed, and so are pins.
    """

    what: str
    request: object
    code: str = ""
    named: str = ""
    """What the refusal's message must name, if not the first target."""
    accepted: str = ""
    """What goes, if it is not what is requested."""
    messages: list[Recorded] = field(default_factory=lambda: TALK)
    then: list[Recorded] = field(default_factory=list)
    preserve_recent: int = 0
    pins: str = ""
    guard: str = "latest"
    rules: PlanRules = RULES

    @property
    def asked(self) -> Any:
        return deletions(self.request) if isinstance(self.request, str) else self.request

    @property
    def transcript(self) -> Transcript:
        return transcript_of(*self.messages, *self.then, rules=self.rules, preserve_recent=self.preserve_recent)

    @property
    def restraints(self) -> Restraints:
        return Restraints(frozenset(targets(self.pins)), self.guard)

    def __str__(self) -> str:
        return self.what.replace(" ", "-")


def asks(*requested: object) -> dict[str, Any]:
    return {"deletions": list(requested)}


EDITS, FORK = (reading_by("pi", "the test says so").rules(writer) for writer in ("context-edit", "fork"))
PROMOTED = [
    user("go"),
    assistant(thinking("hm"), text("a")),
    assistant(text("b"), text("c"), stopReason="aborted"),
    user("on"),
]
OVERTAKEN = [*PROMOTED[:2], assistant(text("b")), user("on")]
WITH_COMMAND = [*TALK, bash("make", "done", 0)]

REFUSED = {
    "shape": [
        Case("a request that is no object", [whole("e6")], "request_shape", named="deletions"),
        Case("a request without a list", {"deletions": whole("e6")}, "request_shape", named="deletions"),
        Case("no request at all", None, "request_shape", named="deletions"),
        Case("a target that is text", asks(whole("e6"), "e3"), "request_shape", named="Deletion 2"),
        Case("an unknown kind", asks({"kind": "file", "entryId": "e6"}), "unsupported_kind", named="1"),
        Case("no kind", asks({"entryId": "e6"}), "unsupported_kind", named="Deletion 1"),
        Case("a kind that is a list", asks({"kind": ["entry"]}), "unsupported_kind", named="Deletion 1"),
        Case("text smuggled in", asks({**whole("e6"), "text": "x"}), "not_id_only", named="Deletion 1"),
        Case("an index on an entry", asks({**whole("e6"), "blockIndex": 0}), "not_id_only", named="Deletion 1"),
        Case("an empty id", asks(whole("")), "invalid_entry_id", named="Deletion 1"),
        Case("an id that is a number", asks(block(7, 0)), "invalid_entry_id", named="Deletion 1"),
        Case("an id from nowhere", "e99", "unknown_entry"),
        Case("a negative index", asks(block("e6", -1)), "invalid_block_index", named="e6"),
        Case("half an index", asks(block("e6", 0.5)), "invalid_block_index", named="e6"),
        Case("true as an index", asks(block("e6", True)), "invalid_block_index", named="e6"),
        Case("text as an index", asks(block("e6", "0")), "invalid_block_index", named="e6"),
        Case("a block without an index", asks(block("e6", None)), "invalid_block_index", named="e6"),
    ],
    "writer": [
        Case("a command that an edit cannot leave out", "e9", "not_editable", messages=WITH_COMMAND, rules=EDITS)
    ],
    "recent": [
        Case("an entry among the last", "e6", "recent_context", preserve_recent=3),
        Case("a block among the last", "e6[1]", "recent_context", preserve_recent=3),
    ],
    "thinking": [
        Case("an assistant with thinking under the guard all", "e5", "thinking", guard="all"),
        Case("a plain block beside thinking under the guard all", "e5[1]", "thinking", guard="all"),
    ],
    "protected": [
        Case("a protected entry", "e1", "protected"),
        Case("a block of a protected entry", "e9[0]", "protected", then=[TWO_TEXTS]),
        Case("a pinned entry", "e6", "protected", pins="e6"),
        Case("a block of a pinned entry", "e6[0]", "protected", pins="e6"),
        Case("a pinned block", "e6[0]", "protected", pins="e6[0]"),
        Case("the entry of a pinned block", "e6", "protected", pins="e6[0]"),
    ],
    "block": [
        Case("a block that is not there", "e6[2]", "unknown_block", named="block 2"),
        Case("a block of an entry without blocks", "e9[0]", "unknown_block", then=[bash("ls", "a b")]),
        Case("the only block", "e8[0]", "only_block"),
    ],
    "duplicate": [
        Case("an entry named twice", "e6 e3 e6", "duplicate_target"),
        Case("a block named twice", asks(block("e6", 0), block("e6", 0.0)), "duplicate_target", named="e6[0]"),
    ],
    "pairs": [
        Case("a call whose result is recent", "e7", "recent_context", named="e8", preserve_recent=1),
        Case("a call whose result is an error", "e2 e9", "protected_pair", named="e10", then=FAILED_CALL),
        Case("a result whose call stopped with an error", "e10", "protected_pair", named="e9[1]", then=STOPPED_CALL),
        Case("a call whose result a human keeps", "e3[1]", "protected_pair", named="e4", pins="e4"),
        Case("a call whose result a human keeps in part", "e3[1]", "protected_pair", named="e4", pins="e4[0]"),
        Case("a result whose call a human keeps", "e4", "protected_pair", named="e3[1]", pins="e3[1]"),
        Case("a result whose calling entry a human keeps", "e4", "protected_pair", named="e3[1]", pins="e3"),
        Case("a call whose double is pinned", "e3[1]", "protected_pair", named="e3[2]", messages=TWICE, pins="e3[2]"),
    ],
    "after repair": [
        Case("thinking of the latest that is sent", "e2[0]", "latest_thinking", messages=PROMOTED, rules=EDITS),
        Case("thinking of what becomes the latest", "e2[0] e3", "latest_thinking", messages=OVERTAKEN, rules=EDITS),
        Case("a result of a call beside guarded thinking", "e6", "thinking", named="e5", messages=GUARDED, guard="all"),
        Case("the last assistant with its thinking", "e5", "latest_thinking", messages=LATEST),
        Case("a thinking block of the last assistant", "e5[0]", "latest_thinking", messages=LATEST),
        Case("a redacted thinking block of the last assistant", "e5[1]", "latest_thinking", messages=REDACTED),
        Case("an entry and one of its blocks", "e6 e6[0]", "overlapping_target"),
        Case("every block of an entry", "e6[1] e6[0]", "every_block", named="e6"),
    ],
    "survival": [
        Case("every entry", "e1 e2", "no_context_left", named="kept", messages=TASKLESS),
        Case("what leaves no task", "e2", "no_task_left", named="kept", messages=TASKLESS),
        Case("a mere block if nothing bears the task", "e1[0]", "no_task_left", named="kept", messages=TASKLESS),
        Case("an empty list if nothing bears the task", "", "no_task_left", named="kept", messages=TASKLESS),
    ],
}

ACCEPTED = {
    "shape": [
        Case("an empty list", ""),
        Case("an index as JavaScript writes it", asks(block("e6", 1.0)), accepted="e6[1]"),
        Case("more of a request than is needed", {**asks(whole("e6")), "why": "x"}, accepted="e6"),
    ],
    "writer": [Case("a command that a fork can leave out", "e9", messages=WITH_COMMAND, rules=FORK)],
    "recent": [Case("the last entry before the recent ones", "e6", preserve_recent=2)],
    "thinking": [
        Case("earlier thinking", "e5[0]"),
        Case("an assistant without thinking under the guard all", "e6", guard="all"),
    ],
    "protected": [
        Case("a command that succeeded", "e9", then=[bash("ls", "a b", 0)]),
        Case("an assistant that was aborted", "e9", then=[assistant(text("so"), stopReason="aborted")]),
        Case("a block beside a pinned one", "e6[1]", pins="e6[0]"),
        Case("anything beside a pin on what is not there", "e6", pins="e99 e6[9]"),
    ],
    "block": [Case("one of two blocks", "e6[1]"), Case("an image among texts", "e10[1]", then=PICTURE)],
    "duplicate": [Case("two blocks of one entry", "e5[2] e5[1]")],
    "pairs": [
        Case("one of two blocks with the same call id", "e5 e3[1]", accepted="e5 e3[1] e4", messages=TWICE),
        Case("the result of a call with two blocks", "e4", accepted="e4 e3[1] e3[2]", messages=TWICE),
        Case("a call that nobody answered, its double pinned", "e3[1]", messages=[*TWICE[:3], TWICE[4]], pins="e3[2]"),
        Case("a call with its result", "e3[1]", accepted="e3[1] e4"),
        Case("a result with its call", "e4", accepted="e4 e3[1]"),
        Case("a result with the entry that is nothing but its call", "e8", accepted="e8 e7"),
    ],
    "after repair": [
        Case("earlier thinking, while the latest assistant stays", "e2[0]", messages=OVERTAKEN, rules=EDITS),
        Case("thinking before an aborted message, where the agent itself keeps it", "e2[0]", messages=PROMOTED),
        Case("text of the last assistant, beside its thinking", "e5[1]", messages=LATEST),
        Case("a result that was an orphan before", "e9", then=[result("nowhere")]),
        Case("anything beside what was broken before", "e6", then=[result("nowhere"), assistant(call("unanswered"))]),
        Case("a call that was never answered", "e9[0]", then=[assistant(call("unanswered"), text("so"))]),
        Case("an entry with every block of the same call id", "e3[1] e3[2]", accepted="e3[1] e3[2] e4", messages=TWICE),
    ],
    "survival": [
        Case("all but what bears the task", "e2 e3 e5 e6 e7", accepted="e2 e3 e5 e6 e7 e4 e8"),
        Case("all but a custom message", "e2", messages=[custom("do it"), assistant(text("done"))]),
        Case("all but a branch summary", "e2", messages=[branch_summary("it was done"), assistant(text("done"))]),
    ],
}

# These two can only be met if nothing bears the task, and then a store must be empty.
WITHOUT_TASK = {"no_context_left", "no_task_left"}


def judge(request: object, transcript: Transcript, restraints: Restraints = NO_RESTRAINTS) -> Refusal:
    judged = validate(request, transcript, restraints)
    assert isinstance(judged, Refusal)
    return judged


@pytest.mark.parametrize("case", list(itertools.chain(*REFUSED.values())), ids=str)
def test_an_invalid_request_is_refused_with_its_object_and_what_to_do_and_changes_nothing(case):
    refusal = judge(case.asked, case.transcript, case.restraints)
    assert refusal.code == case.code
    named = case.named or str(case.request)
    assert (str(targets(named)[0]) if named.startswith("e") else named) in refusal.message
    assert refusal.target is None or str(refusal.target) in refusal.message
    assert refusal.message.count(". ") >= 1, "an instruction follows what is wrong"
    asked, before = case.asked, copy.deepcopy(case.asked)
    store = DeletionStore(case.transcript, case.restraints)
    if case.code not in WITHOUT_TASK:
        assert store.delete(deletions("e2")) is None
        assert store.targets == (Target("e2"),)
    before_it = store.targets, store.stats
    assert store.delete(asked).code == case.code
    assert (store.targets, store.stats) == before_it
    assert asked == before
    assert case.code in WITHOUT_TASK or store.validated().targets == before_it[0]


def accepted(request: object, transcript: Transcript, restraints: Restraints = NO_RESTRAINTS) -> ValidatedDeletion:
    judged = validate(request, transcript, restraints)
    assert isinstance(judged, ValidatedDeletion), judged
    return judged


@pytest.mark.parametrize("case", list(itertools.chain(*ACCEPTED.values())), ids=str)
def test_valid_requests_are_accepted(case):
    made = accepted(case.asked, case.transcript, case.restraints)
    assert list(made.targets) == targets(case.accepted or str(case.request))


def unrepaired(transcript: Transcript, *chosen: Object) -> Refusal | None:
    """The first refusal of a plan that was not repaired, by the gates on whole plans."""
    plan = Airlock(transcript).empty_plan()
    for found in chosen:
        plan.add(found)
    judge = Judgement(transcript, NO_RESTRAINTS)
    return next(filter(None, (gate(judge, plan) for gate in gates.PLAN_GATES)), None)


ONLY_UNREPAIRED = [("after repair", code) for code in (Code.ORPHANED_RESULT, Code.DANGLING_CALL, Code.RECENT_CONTEXT)]


@pytest.mark.parametrize(
    ("chosen", "recent", "code", "named"),
    [
        ([Object(2)], 0, Code.ORPHANED_RESULT, "e4"),
        ([Object(2, 1)], 0, Code.ORPHANED_RESULT, "e4"),
        ([Object(3)], 0, Code.DANGLING_CALL, "e3"),
        ([Object(5), Object(7)], 1, Code.RECENT_CONTEXT, "e8"),
    ],
    ids=["a call alone", "the block of a call alone", "a result alone", "a recent object"],
)
def test_an_unrepaired_plan_is_refused(chosen, recent, code, named):
    refusal = unrepaired(transcript_of(*TALK, preserve_recent=recent), *chosen)
    assert refusal.code is code
    assert named in refusal.message


@pytest.mark.parametrize("chosen", [[], [Object(5)], [Object(2), Object(3)], [Object(2, 1), Object(3)]])
def test_a_plan_that_needs_no_repair_passes_its_gates(chosen):
    assert unrepaired(transcript_of(*TALK, preserve_recent=1), *chosen) is None


TOOL_CODES = {Code.PATTERN_TOO_LONG, Code.INVALID_PATTERN, Code.INVALID_ARGUMENTS, Code.UNKNOWN_TOOL}
"""What the tools refuse before anything reaches the airlock."""


def test_each_gate_is_tested_by_what_passes_and_each_of_its_refusals():
    assert set(ACCEPTED) == {gate.name for gate in GATES if gate.kind != "measures"}
    tested = {(gate, Code(case.code)) for gate, cases in REFUSED.items() for case in cases}
    assert tested.union(ONLY_UNREPAIRED) == {(gate.name, code) for gate in GATES for code in gate.codes}
    assert {code for _, code in tested.union(ONLY_UNREPAIRED)} == set(Code) - TOOL_CODES


TANGLED = [
    user("fix it"),
    assistant(thinking("hm"), text("so"), stopReason="error"),
    assistant(text("look"), call("c1"), call("c1")),
    result("c1"),
    assistant(text("a"), text("b")),
    assistant(call("c2")),
    result("c2", error=True),
    assistant(text("x"), text("y")),
    assistant(thinking("well"), text("z")),
    user("thanks"),
]
"""e10 is recent if one is. e2 is protected and bears thinking; e6 cannot go, because e7 is an error."""


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (asks({"kind": "file", "entryId": 5, "text": "x"}), "unsupported_kind"),
        (asks({"kind": "entry", "entryId": 5, "text": "x"}), "not_id_only"),
        (asks(block("", -1)), "invalid_entry_id"),
        (asks(block("e99", -1)), "unknown_entry"),
        (asks(block("e10", -1)), "invalid_block_index"),
        (deletions("e10[7]"), "recent_context"),
        (deletions("e10"), "recent_context"),
        (deletions("e2[7]"), "thinking"),
        (deletions("e1[7]"), "protected"),
        (deletions("e7[0]"), "protected"),
        (deletions("e6[7]"), "unknown_block"),
        (deletions("e6[0] e6[0]"), "only_block"),
        (deletions("e5 e5"), "duplicate_target"),
    ],
)
def test_the_first_fault_of_a_target_is_reported(request_, code):
    transcript = transcript_of(*TANGLED, preserve_recent=1)
    assert judge(request_, transcript, Restraints(thinking_guard="all")).code == code


PLAN_FAULTS = {
    "protected_pair": "e6",
    "latest_thinking": "e9[0]",
    "overlapping_target": "e5 e5[0]",
    "every_block": "e8[0] e8[1]",
}
"""In the order in which they are judged."""


@pytest.mark.parametrize("first", PLAN_FAULTS)
def test_the_first_fault_of_a_plan_is_reported(first):
    """Each fault with all those that are judged after it, the later ones named first."""
    from_it = list(itertools.dropwhile(lambda code: code != first, PLAN_FAULTS))
    request = deletions(" ".join(PLAN_FAULTS[code] for code in reversed(from_it)))
    assert judge(request, transcript_of(*TANGLED)).code == first


def test_a_fault_of_a_target_comes_before_those_of_the_plan_and_the_first_one_counts():
    faulty = deletions(" ".join(PLAN_FAULTS.values()) + " e99")
    assert judge(faulty, transcript_of(*TANGLED)).code is Code.UNKNOWN_ENTRY
    refusal = judge(asks(whole("e5"), whole("e1"), "nothing"), transcript_of(*TANGLED))
    assert (refusal.code, refusal.target) == (Code.PROTECTED, Target("e1"))


def test_the_first_of_two_refused_partners_is_reported():
    calls = assistant(call("c1"), call("c2"), text("so"))
    messages = [user("go"), calls, result("c2", error=True), result("c1")]
    refusal = judge(deletions("e2"), transcript_of(*messages, preserve_recent=1))
    assert (refusal.code, refusal.target) == (Code.RECENT_CONTEXT, Target("e4"))


@pytest.mark.parametrize(
    ("requested", "code"),
    [("e1 e1[0] e2", "overlapping_target"), ("e1[0] e1[1] e2", "every_block"), ("e2 e1", "no_context_left")],
)
def test_survival_is_judged_last(requested, code):
    assert judge(deletions(requested), transcript_of(*TASKLESS)).code == code


def test_only_the_airlock_makes_a_validated_deletion_and_nobody_changes_one():
    made = accepted(deletions("e6"), transcript_of(*TALK))
    facts = (made.targets, made.stats, made.protected_entry_ids, made.parameters)
    for seal in (None, object(), True):
        with pytest.raises(TypeError):
            ValidatedDeletion(seal, *facts)
    with pytest.raises(AttributeError):
        made.targets = (Target("e1"),)
    with pytest.raises((TypeError, ValueError)):
        dataclasses.replace(made, targets=(Target("e1"),))
    assert made.targets == (Target("e6"),)


def test_it_carries_what_is_written_with_it_and_pins_are_not_among_the_protected_ids():
    made = accepted(deletions("e3"), transcript_of(*TALK, preserve_recent=2, compression_ratio=0.9))
    assert made.protected_entry_ids == ("e1", "e7", "e8")
    assert made.parameters.compression_ratio == 0.9
    assert made.parameters.preserve_recent == 2
    assert request_of(made.targets) == deletions("e3 e4")
    made = accepted(deletions("e6"), transcript_of(*TALK), Restraints(frozenset({Target("e3")})))
    assert made.protected_entry_ids == ("e1",)


@pytest.mark.parametrize(
    ("part", "whole_", "expected"),
    [(5, 0, 0), (1, 3, 33.3), (2, 3, 66.7), (1, 2000, 0.1), (1, 2001, 0), (3, 2000, 0.2), (1, 1, 100), (1, 16, 6.3)],
)
def test_percentages_have_one_decimal_and_round_halves_up(part, whole_, expected):
    assert stats.percent(part, whole_) == expected


def test_a_whole_percentage_is_an_integer_and_deleting_empty_entries_no_reduction():
    transcript = transcript_of(user("x" * 40), assistant(text("y" * 40)))
    recorded = accepted(deletions("e2"), transcript).stats.to_json()["percentReduction"]
    assert recorded == 50
    assert isinstance(recorded, int)
    transcript = transcript_of(user(""), assistant())
    made = accepted(deletions("e2"), transcript)
    assert made.stats.to_json()["percentReduction"] == 0
    assert not made.target_met


def of_10_000(deleted: int) -> stats.Stats:
    """The stats of a plan that deletes so many of 10,000 tokens."""
    objects = int(bool(deleted))
    return stats.Stats(3, 3 - objects, objects, 10_000, 10_000 - deleted, stats.percent(deleted, 10_000))


@pytest.mark.parametrize(
    ("ratio", "enough", "too_little"),
    [(0.5, 4_995, 4_994), (0.6667, 3_333, 3_324), (0.9999, 1, 0), (0.0001, 9_995, 9_990)],
)
def test_the_target_is_met_to_one_decimal(ratio, enough, too_little):
    for deleted in (enough, too_little):
        assert stats.target_met(of_10_000(deleted), ratio) is (deleted == enough)
        assert (stats.tokens_to_go(of_10_000(deleted), ratio) == 0) is (deleted == enough)
