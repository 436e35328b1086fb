"""The states of a handshake, in which a running agent requests a review before it compacts, and their transitions.

    asked ──▶ planning ◀──▶ waiting ──▶ approved ──▶ applied
      │          │             │           ╲──▶ failed, declined
      ╰──────────┴─────────────┴──▶ declined, expired, failed

A handshake is open, and the agent waits, until it is approved or has ended. An approved handshake is applied by the
agent, or by Redline once the agent has closed the session; it is *applied* only if the session shows it.
"""

from collections.abc import Mapping
from typing import Final

from .states import WordedEnum


class HandshakeState(WordedEnum):
    """The state of a handshake, in words."""

    ASKED = "asked", "asked"
    PLANNING = "planning", "being planned"
    WAITING = "waiting", "waiting for a review"
    APPROVED = "approved", "approved, not applied yet"
    DECLINED = "declined", "declined"
    EXPIRED = "expired", "nobody decided in time"
    APPLIED = "applied", "applied"
    FAILED = "failed", "failed"


class NextStep(WordedEnum):
    """The next action of an agent that gets an answer, with a sentence that follows the agent's name."""

    WAIT = "wait", "waits"
    COMPACT = "compact", "compacts as usual"
    CONTINUE = "continue", "continues without compacting"
    STOP = "stop", "stops the turn"
    APPLY = "apply", "applies the plan"


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
