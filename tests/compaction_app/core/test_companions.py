"""What an agent's rules join is deleted together, or not at all."""

from collections.abc import Mapping, Sequence

import pytest

from compaction_app.core.airlock import ValidatedDeletion, validate
from compaction_app.core.errors import Code, Refusal
from compaction_app.core.gates import Restraints
from compaction_app.core.transcript import Transcript
from sessions_app.agents.atomic.agent import ATOMIC
from sessions_app.agents.contexts import PlanRules
from sessions_app.sessionlog.context import ActiveContext, Message
from sessions_app.sessionlog.entries import Entry
from sessions_app.sessionlog.protection import Protection
from sessions_app.sessionlog.targets import Target
from tests.factories import assistant, call, deletions, named, result, targets, text, transcript_of, user

TALK = [
    user("go"),
    assistant(text("a")),
    assistant(text("b"), text("b2")),
    assistant(call("c1")),
    result("c1"),
    assistant(text("d")),
    user("on"),
]


Joins = dict[str, tuple[str, ...]]


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


def deleted(found: Transcript, requested: str) -> str:
    judged = validate(deletions(requested), found)
    assert isinstance(judged, ValidatedDeletion), judged
    return named(*judged.targets)


@pytest.mark.parametrize(
    ("companions", "requested", "gone"),
    [
        ({"e2": ("e3", "e4"), "e3": ("e6",)}, "e2", "e2 e3 e4 e6 e5"),
        ({"e2": ("e3",)}, "e3", "e3"),
        ({"e2": ("e3",), "e3": ("e2",)}, "e3", "e3 e2"),
        ({"e2": ("e4",)}, "e2", "e2 e4 e5"),
        ({"e4": ("e6",)}, "e5", "e5 e4 e6"),
        ({"e3": ("e2",)}, "e3[0]", "e3[0]"),
        ({"e2": ("e3",)}, "e3[0] e2", "e2 e3"),
    ],
    ids=[
        "companions and theirs",
        "the companion alone",
        "joined in both directions",
        "a companion with the results of its calls",
        "companions of the other side of a pair",
        "a block has none",
        "the blocks of a companion are named with it",
    ],
)
def test_companions_go_with_an_entry(companions, requested, gone):
    assert deleted(transcript(companions), requested) == gone


@pytest.mark.parametrize(
    ("companions", "settings", "pins", "code"),
    [
        ({"e2": ("e7",)}, {}, "", Code.PROTECTED_PAIR),
        ({"e2": ("e6",)}, {"preserve_recent": 2}, "", Code.RECENT_CONTEXT),
        ({"e2": ("e3",)}, {}, "e3", Code.PROTECTED_PAIR),
        ({"e2": ("e3",), "e3": ("e1",)}, {}, "", Code.PROTECTED_PAIR),
    ],
)
def test_nothing_goes_if_a_companion_stays(companions, settings, pins, code):
    found = transcript(companions, **settings)
    judged = validate(deletions("e2"), found, Restraints(frozenset(targets(pins))))
    assert isinstance(judged, Refusal)
    assert judged.code == code


def test_the_refusal_names_the_companion():
    judged = validate(deletions("e2"), transcript({"e2": ("e7",)}))
    assert isinstance(judged, Refusal)
    assert judged.target == Target("e7")
    stays = "entry e7 would have to go as well and stays, because it contains what the user said"
    assert stays in judged.message


def test_a_plan_that_is_closed_already_is_the_same_again():
    found = transcript({"e2": ("e3", "e4"), "e3": ("e6",)})
    closed = deleted(found, "e2")
    assert sorted(deleted(found, closed).split()) == sorted(closed.split())
