"""What an agent's rules join is deleted together, or not at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from compaction_app.core.airlock import Airlock, ValidatedDeletion, validate
from compaction_app.core.errors import Code, Refusal
from compaction_app.core.gates import Restraints
from compaction_app.core.transcript import Transcript
from sessions_app.agents.atomic.agent import ATOMIC
from sessions_app.agents.contexts import PlanRules
from sessions_app.sessionlog.context import ActiveContext, Message
from sessions_app.sessionlog.entries import Entry
from sessions_app.sessionlog.protection import Protection
from sessions_app.sessionlog.targets import Target, request_of
from tests.factories import assistant, call, result, text, transcript_of, user

TALK = [
    user("go"),
    assistant(text("a")),
    assistant(text("b"), text("b2")),
    assistant(call("c1")),
    result("c1"),
    assistant(text("d")),
    user("on"),
]


class Joined:
    """The rules of an agent that joins entries."""

    def __init__(self, companions: Mapping[str, tuple[str, ...]]) -> None:
        self._companions = companions
        self._rules: PlanRules = ATOMIC.generations[-1].rules

    def compactable(self, branch: Sequence[Entry], context: ActiveContext | None = None) -> Sequence[Message]:
        return self._rules.compactable(branch, context)

    def protection(self, entry: Entry) -> Protection | None:
        return self._rules.protection(entry)

    def replays(self, entry: Entry) -> bool:
        return self._rules.replays(entry)

    def companions(self, messages: Sequence[Message]) -> Mapping[str, tuple[str, ...]]:
        del messages
        return self._companions


def transcript(companions: Mapping[str, tuple[str, ...]], **settings: object) -> Transcript:
    return transcript_of(*TALK, rules=Joined(companions), **settings)


def deleted(found: Transcript, *targets: Target, restraints: Restraints | None = None) -> list[str]:
    judged = validate(request_of(targets), found, restraints or Restraints())
    assert isinstance(judged, ValidatedDeletion), judged
    return [str(target) for target in judged.targets]


def refused(found: Transcript, *targets: Target, restraints: Restraints | None = None) -> Code:
    judged = validate(request_of(targets), found, restraints or Restraints())
    assert isinstance(judged, Refusal)
    return judged.code


def test_companions_go_with_an_entry_and_theirs_with_them() -> None:
    found = transcript({"e2": ("e3", "e4"), "e3": ("e6",)})
    assert deleted(found, Target("e2")) == ["entry e2", "entry e3", "entry e4", "entry e6", "entry e5"]


def test_an_entry_stays_if_only_its_companion_goes() -> None:
    assert deleted(transcript({"e2": ("e3",)}), Target("e3")) == ["entry e3"]


def test_entries_joined_in_both_directions_go_together() -> None:
    found = transcript({"e2": ("e3",), "e3": ("e2",)})
    assert sorted(deleted(found, Target("e3"))) == ["entry e2", "entry e3"]


def test_a_companion_takes_the_results_of_its_calls_along() -> None:
    assert deleted(transcript({"e2": ("e4",)}), Target("e2")) == ["entry e2", "entry e4", "entry e5"]


def test_an_entry_that_goes_as_part_of_a_pair_takes_its_companions_along() -> None:
    assert sorted(deleted(transcript({"e4": ("e6",)}), Target("e5"))) == ["entry e4", "entry e5", "entry e6"]


def test_a_block_has_no_companions() -> None:
    assert deleted(transcript({"e3": ("e2",)}), Target("e3", 0)) == ["block 0 of entry e3"]


def test_the_blocks_of_a_companion_are_named_with_it() -> None:
    assert deleted(transcript({"e2": ("e3",)}), Target("e3", 0), Target("e2")) == ["entry e2", "entry e3"]


@pytest.mark.parametrize(
    ("companions", "settings", "restraints", "code"),
    [
        ({"e2": ("e7",)}, {}, Restraints(), Code.PROTECTED_PAIR),
        ({"e2": ("e6",)}, {"preserve_recent": 2}, Restraints(), Code.RECENT_CONTEXT),
        ({"e2": ("e3",)}, {}, Restraints(pins=frozenset({Target("e3")})), Code.PROTECTED_PAIR),
        ({"e2": ("e3",), "e3": ("e1",)}, {}, Restraints(), Code.PROTECTED_PAIR),
    ],
)
def test_nothing_goes_if_a_companion_stays(
    companions: dict[str, tuple[str, ...]], settings: dict[str, object], restraints: Restraints, code: Code
) -> None:
    found = transcript(companions, **settings)
    assert refused(found, Target("e2"), restraints=restraints) == code


def test_the_refusal_names_the_companion() -> None:
    judged = validate(request_of([Target("e2")]), transcript({"e2": ("e7",)}))
    assert isinstance(judged, Refusal)
    assert judged.target == Target("e7")
    assert (
        "entry e7 would have to go as well and stays, because it contains what the user said"
        in judged.message
    )


def test_a_plan_that_is_closed_already_is_the_same_again() -> None:
    found = transcript({"e2": ("e3", "e4"), "e3": ("e6",)})
    plan = Airlock(found).judge_request(request_of([Target("e2")]))
    assert not isinstance(plan, Refusal)
    targets = Airlock(found).targets(plan)
    assert set(deleted(found, *targets)) == {str(target) for target in targets}
