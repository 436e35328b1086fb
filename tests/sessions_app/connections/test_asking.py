"""What a hook command decides in each case: every row of the table in docs/handshake.md."""

from collections import deque
from collections.abc import Mapping
from typing import Any

import pytest

from sessions_app.agents.compaction_hook import HookStep
from sessions_app.connections.answers import ServerAnswer
from sessions_app.connections.asking import ask
from sessions_app.connections.server_requests import NoAnswer, RequestRefused

Reply = ServerAnswer | NoAnswer | RequestRefused
GONE = NoAnswer("the connection was refused")
REFUSED = RequestRefused("The session is not listed. The agent compacts as usual.")
AUTOMATIC = ["threshold", "overflow"]
SLOW_SECONDS = 10.0
lost = pytest.mark.parametrize(
    ("reason", "step"), [("manual", HookStep.CONTINUE), *((one, HookStep.COMPACT) for one in AUTOMATIC)]
)


def wait(seconds: float = 600, grace: float = 30) -> ServerAnswer:
    return ServerAnswer("wait", "Redline waits.", 12, seconds, 0.5, grace)


def decided(do: Any, message: str = "Words.") -> ServerAnswer:
    return ServerAnswer(do, message, 12)


class Played:
    """A server that plays replies, the last one for ever, and a clock that only waiting and time-outs move."""

    def __init__(self, *replies: Reply, stopped_at: float = float("inf"), slow: bool = False) -> None:
        self._replies = deque(replies)
        self._stopped_at, self._slow = stopped_at, slow
        self.now = 0.0
        self.sent: list[tuple[str, Any]] = []

    def post(self, path: str, body: Mapping[str, Any], seconds: float) -> ServerAnswer:
        self.sent.append((path, body))
        return self._next(seconds)

    def get(self, path: str, seconds: float) -> ServerAnswer:
        assert path == "/12"
        return self._next(seconds)

    def still_waits(self, seconds: float) -> bool:
        self.now += seconds
        return self.now < self._stopped_at

    def _next(self, seconds: float) -> ServerAnswer:
        reply = self._replies.popleft() if len(self._replies) > 1 else self._replies[0]
        if isinstance(reply, ServerAnswer):
            return reply
        if self._slow:
            self.now += seconds
        raise reply


def asked(reason: str, played: Played) -> tuple[HookStep, str]:
    question = {"session": "/s.jsonl", "reason": reason}
    decision = ask(played, question, played.still_waits, lambda: played.now)
    assert played.sent[0] == ("", question)
    return decision


@pytest.mark.parametrize("reason", ["manual", *AUTOMATIC])
@pytest.mark.parametrize("do", HookStep)
def test_what_the_server_decides_is_done(reason, do):
    assert asked(reason, Played(decided(do))) == (do, "Words.")
    played = Played(wait(), wait(), GONE, wait(), decided(do))
    assert asked(reason, played) == (do, "Words.")
    assert len(played.sent) == 1


@pytest.mark.parametrize("reason", ["manual", *AUTOMATIC])
def test_without_a_first_answer_the_agent_compacts(reason):
    step, message = asked(reason, Played(GONE))
    assert step is HookStep.COMPACT
    assert message == "Redline was not asked: the connection was refused. The compaction runs as usual."


@pytest.mark.parametrize("reason", ["manual", *AUTOMATIC])
def test_with_an_error_at_first_the_agent_compacts_and_shows_it(reason):
    assert asked(reason, Played(REFUSED)) == (HookStep.COMPACT, str(REFUSED))


@pytest.mark.parametrize("fault", [GONE, REFUSED])
@lost
def test_a_server_that_was_reached_and_is_gone(reason, step, fault):
    played = Played(wait(grace=30), wait(grace=30), fault)
    found, message = asked(reason, played)
    assert found is step
    assert message.startswith("Redline has not answered for 30 seconds")
    assert 30 <= played.now <= 32
    assert ("Nothing was compacted." in message) is (reason == "manual")


def test_polls_that_fail_for_less_than_the_grace_are_repeated():
    failing = [GONE] * 50
    played = Played(wait(), *failing, wait(), *failing, decided("continue"))
    assert asked("manual", played) == (HookStep.CONTINUE, "Words.")
    assert played.now > 50


def test_polls_that_are_not_answered_at_all_are_not_waited_for_longer():
    played = Played(wait(grace=30), GONE, slow=True)
    asked("manual", played)
    assert played.now < 30 + SLOW_SECONDS + 2


@lost
def test_a_server_that_never_decides_is_lost_after_its_own_time_and_the_grace(reason, step):
    played = Played(wait(seconds=100, grace=30), wait(seconds=100, grace=30))
    assert asked(reason, played)[0] is step
    assert 130 <= played.now < 132
    assert played.sent[1:] == [("/12", {"outcome": "withdrawn"})]


@pytest.mark.parametrize("reason", ["manual", *AUTOMATIC])
@pytest.mark.parametrize("last", [decided("continue"), GONE, REFUSED])
def test_an_agent_that_has_gone_is_reported_once(reason, last):
    played = Played(wait(), wait(), wait(), last, stopped_at=1.4)
    step, message = asked(reason, played)
    assert (step, message) == (HookStep.CONTINUE, "The compaction was stopped.")
    assert played.sent[1:] == [("/12", {"outcome": "withdrawn"})]
