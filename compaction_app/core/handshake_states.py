"""The states of a handshake, in which a running agent requests a review before it compacts, and their transitions.

    asked ──▶ planning ◀──▶ waiting ──▶ approved ──▶ applied
      │          │             │           ╲──▶ failed, declined
      ╰──────────┴─────────────┴──▶ declined, expired, failed

It is open, and the agent waits, until it is approved or ended. An approved handshake is applied by the agent, or by
Redline once the agent has closed the session; it is *applied* only if the session shows it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class HandshakeState(StrEnum):
    """The state of a handshake."""

    ASKED = "asked"
    PLANNING = "planning"
    WAITING = "waiting"
    APPROVED = "approved"
    DECLINED = "declined"
    EXPIRED = "expired"
    APPLIED = "applied"
    FAILED = "failed"

    @property
    def sentence(self) -> str:
        """The state in words."""
        return _SENTENCES[self]


class NextStep(StrEnum):
    """The next action of an agent that gets an answer."""

    WAIT = "wait"
    COMPACT = "compact"
    CONTINUE = "continue"
    STOP = "stop"
    APPLY = "apply"

    @property
    def sentence(self) -> str:
        """The agent's next action, without its name."""
        return _STEPS[self]


_SENTENCES: Final = {
    HandshakeState.ASKED: "asked",
    HandshakeState.PLANNING: "being planned",
    HandshakeState.WAITING: "waiting for a review",
    HandshakeState.APPROVED: "approved, not applied yet",
    HandshakeState.DECLINED: "declined",
    HandshakeState.EXPIRED: "nobody decided in time",
    HandshakeState.APPLIED: "applied",
    HandshakeState.FAILED: "failed",
}
_STEPS: Final = {
    NextStep.WAIT: "waits",
    NextStep.COMPACT: "compacts as usual",
    NextStep.CONTINUE: "continues without compacting",
    NextStep.STOP: "stops the turn",
    NextStep.APPLY: "applies the plan",
}
OUTCOMES: Final = (NextStep.COMPACT, NextStep.CONTINUE, NextStep.STOP)
"""The possible actions of an agent without an approved plan."""

_ENDED: Final = frozenset({HandshakeState.DECLINED, HandshakeState.EXPIRED, HandshakeState.FAILED})
TRANSITIONS: Final[Mapping[HandshakeState, frozenset[HandshakeState]]] = {
    HandshakeState.ASKED: frozenset({HandshakeState.PLANNING}) | _ENDED,
    HandshakeState.PLANNING: frozenset({HandshakeState.WAITING}) | _ENDED,
    HandshakeState.WAITING: frozenset({HandshakeState.PLANNING, HandshakeState.APPROVED}) | _ENDED,
    HandshakeState.APPROVED: frozenset({HandshakeState.APPLIED, HandshakeState.FAILED, HandshakeState.DECLINED}),
    HandshakeState.APPLIED: frozenset(),
    HandshakeState.DECLINED: frozenset(),
    HandshakeState.EXPIRED: frozenset(),
    HandshakeState.FAILED: frozenset(),
}
OPEN: Final = frozenset({HandshakeState.ASKED, HandshakeState.PLANNING, HandshakeState.WAITING})
"""The states in which an agent waits for a decision."""
