"""EDGE: a hook command requests a review from the server, and waits for the decision.

| what happens                                                  | a manual compaction | an automatic one |
|---------------------------------------------------------------|---------------------|------------------|
| the first request is not answered                             | as usual            | as usual         |
| the first answer is an error                                  | as usual            | as usual         |
| the polls were not answered for `grace` seconds               | is cancelled        | as usual         |
| the answer is still `wait` when `seconds` and `grace` are over | is cancelled        | as usual         |
| the agent that called the command has gone, or stops it       | is cancelled        | is cancelled     |
| the command is killed, as Codex does to stop it               | is cancelled        | is cancelled     |

A failed poll is repeated: a restarted server still has the review request. The connection file is read again for each
poll, because the server may have moved to another port.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final, NamedTuple, Protocol

from sessions_app.agents.pure.compaction_hook import MANUAL, HookStep

from .server_requests import WAIT, NoAnswer, RequestRefused, ServerAnswer

FIRST_SECONDS: Final = 60
"""How long the first answer may take: the server first reads what was added to the session."""
POLL_SECONDS: Final = 10
LAST_SECONDS: Final = 3
"""How long the report that the agent no longer waits may take."""
WITHDRAWN: Final[Mapping[str, Any]] = {"outcome": "withdrawn"}


class HookOutcome(NamedTuple):
    """What the agent does next, and why, in one line."""

    step: HookStep
    message: str


class Requests(Protocol):
    """Requests to the server. Both methods raise NoAnswer and RequestRefused."""

    def post(self, path: str, body: Mapping[str, Any], seconds: float) -> ServerAnswer: ...

    def get(self, path: str, seconds: float) -> ServerAnswer: ...


def lost(reason: str, why: str) -> HookOutcome:
    """The outcome if the server answered first and then no longer does."""
    if reason == MANUAL:
        return HookOutcome(
            HookStep.CONTINUE,
            f"{why} Nothing was compacted. If you start the compaction again without Redline, it runs as usual.",
        )
    return HookOutcome(HookStep.COMPACT, f"{why} The compaction runs as usual.")


def request_review(
    requests: Requests,
    fields: Mapping[str, Any],
    still_waits: Callable[[float], bool],
    clock: Callable[[], float] = time.monotonic,
    if_killed: Callable[[Callable[[], object]], AbstractContextManager[object]] = nullcontext,
) -> HookOutcome:
    """Send a review request with the fields of docs/handshake.md, and return the decision.

    `still_waits` waits for some seconds; it returns False immediately if the agent is gone. `if_killed` makes a context
    in which its argument is called if this process is killed.
    """
    try:
        answer = requests.post("", fields, FIRST_SECONDS)
    except RequestRefused as refused:
        return HookOutcome(HookStep.COMPACT, str(refused))
    except NoAnswer as fault:
        return HookOutcome(HookStep.COMPACT, f"Redline was not asked: {fault}. The compaction runs as usual.")
    if answer.do == WAIT:
        with if_killed(lambda: _withdraw(requests, f"/{answer.id}")):
            return _decision(requests, fields["reason"], answer, still_waits, clock)
    return HookOutcome(HookStep(answer.do), answer.message)


def _decision(
    requests: Requests,
    reason: str,
    answer: ServerAnswer,
    still_waits: Callable[[float], bool],
    clock: Callable[[], float],
) -> HookOutcome:
    """Poll for the decision, after a first answer to wait."""
    answered_at = clock()
    ends_at = answered_at + answer.seconds + answer.grace
    place, grace = f"/{answer.id}", answer.grace
    while answer.do == WAIT:
        if not still_waits(answer.poll):
            _withdraw(requests, place)
            return HookOutcome(HookStep.CONTINUE, "The compaction was stopped.")
        try:
            answer = requests.get(place, POLL_SECONDS)
            answered_at = clock()
        except (NoAnswer, RequestRefused) as fault:
            if clock() - answered_at >= grace:
                return lost(reason, f"Redline has not answered for {grace:.0f} seconds ({fault}).")
        if answer.do == WAIT and clock() >= ends_at:
            _withdraw(requests, place)
            return lost(reason, "Redline has not decided in time.")
    return HookOutcome(HookStep(answer.do), answer.message)


def _withdraw(requests: Requests, place: str) -> None:
    """Report that the agent no longer waits. If the report is lost, the review request times out."""
    try:
        requests.post(place, WITHDRAWN, LAST_SECONDS)
    except (NoAnswer, RequestRefused):
        return
