"""The states of a run, and the table of allowed transitions.

    queued ──▶ running ──▶ target_met | below_target | cancelled ──▶ committed ◀──▶ restored
       │          │                                         ╲
       │          │                                          ╲──▶ superseded, by a run that goes on from here
       ▼          ▼
    cancelled  interrupted | failed ──▶ queued again, or reviewed as it is

A run whose plan can still be reviewed is in one of REVIEWABLE. One that failed holds what was validated by then, and
that may be nothing. Nothing leads out of `superseded`. A run whose line a restore took out of the session is
`restored`; where that is taken back, it is `committed` again.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class State(StrEnum):
    """Where a run stands."""

    QUEUED = "queued"
    RUNNING = "running"
    TARGET_MET = "target_met"
    BELOW_TARGET = "below_target"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"
    FAILED = "failed"
    COMMITTED = "committed"
    RESTORED = "restored"
    SUPERSEDED = "superseded"

    @property
    def sentence(self) -> str:
        """The state in words."""
        return _SENTENCES[self]


_SENTENCES: Final = {
    State.QUEUED: "waiting for a worker",
    State.RUNNING: "running",
    State.TARGET_MET: "planned, the target is met",
    State.BELOW_TARGET: "planned, below the target",
    State.CANCELLED: "stopped",
    State.INTERRUPTED: "interrupted: its worker is gone",
    State.FAILED: "failed",
    State.COMMITTED: "committed",
    State.RESTORED: "committed, then taken back by a restore",
    State.SUPERSEDED: "replaced by a later run",
}

TRANSITIONS: Final[Mapping[State, frozenset[State]]] = {
    State.QUEUED: frozenset({State.RUNNING, State.CANCELLED, State.FAILED}),
    State.RUNNING: frozenset(
        {State.TARGET_MET, State.BELOW_TARGET, State.CANCELLED, State.FAILED, State.INTERRUPTED}
    ),
    State.INTERRUPTED: frozenset({State.QUEUED, State.COMMITTED, State.SUPERSEDED}),
    State.TARGET_MET: frozenset({State.COMMITTED, State.SUPERSEDED}),
    State.BELOW_TARGET: frozenset({State.COMMITTED, State.SUPERSEDED}),
    State.CANCELLED: frozenset({State.COMMITTED, State.SUPERSEDED}),
    State.FAILED: frozenset({State.QUEUED, State.COMMITTED, State.SUPERSEDED}),
    State.COMMITTED: frozenset({State.RESTORED}),
    State.RESTORED: frozenset({State.COMMITTED}),
    State.SUPERSEDED: frozenset(),
}

ACTIVE: Final = frozenset({State.QUEUED, State.RUNNING})
"""Someone works on it, or will."""
REVIEWABLE: Final = frozenset(
    {State.TARGET_MET, State.BELOW_TARGET, State.CANCELLED, State.INTERRUPTED, State.FAILED}
)
"""Its plan can be reviewed, changed and committed."""

WRITTEN: Final = frozenset({State.COMMITTED, State.RESTORED})
"""What was approved of it was written."""


def may_become(state: State, other: State) -> bool:
    """Whether the table allows the change."""
    return other in TRANSITIONS[state]
