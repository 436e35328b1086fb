"""The states of a run, and the table of allowed transitions.

    queued ──▶ running ──▶ target_met | below_target | cancelled ──▶ committed ◀──▶ restored
       │          │                                         ╲
       │          │                                          ╲──▶ superseded, by a run that continues from here
       ▼          ▼
    cancelled  interrupted | failed ──▶ queued again, or reviewed as it is

A run whose plan can still be reviewed is in one of REVIEWABLE. A failed run keeps what was validated by then, which
may be nothing. Nothing leads out of `superseded`. A run whose compaction was undone, or whose line a restore removed
from the session, is `restored`; if the restore of another backup reverses that, it is `committed` again.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class RunState(StrEnum):
    """The state of a run."""

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


class EventKind(StrEnum):
    """The kinds of events of a run."""

    PREPARED = "prepared"
    CARRIED = "carried"
    HOOKED = "hooked"
    ASKED = "asked"
    STREAMED = "streamed"
    RETRIED = "retried"
    TRIMMED = "trimmed"
    ANSWERED = "answered"
    CALLED = "called"
    NUDGED = "nudged"
    ENDED = "ended"


_SENTENCES: Final = {
    RunState.QUEUED: "waiting for a worker",
    RunState.RUNNING: "running",
    RunState.TARGET_MET: "planned, the target is met",
    RunState.BELOW_TARGET: "planned, below the target",
    RunState.CANCELLED: "stopped",
    RunState.INTERRUPTED: "interrupted: its worker is gone",
    RunState.FAILED: "failed",
    RunState.COMMITTED: "committed",
    RunState.RESTORED: "committed, then taken back",
    RunState.SUPERSEDED: "replaced by a later run",
}

TRANSITIONS: Final[Mapping[RunState, frozenset[RunState]]] = {
    RunState.QUEUED: frozenset({RunState.RUNNING, RunState.CANCELLED, RunState.FAILED}),
    RunState.RUNNING: frozenset(
        {
            RunState.TARGET_MET,
            RunState.BELOW_TARGET,
            RunState.CANCELLED,
            RunState.FAILED,
            RunState.INTERRUPTED,
        }
    ),
    RunState.INTERRUPTED: frozenset({RunState.QUEUED, RunState.COMMITTED, RunState.SUPERSEDED}),
    RunState.TARGET_MET: frozenset({RunState.COMMITTED, RunState.SUPERSEDED}),
    RunState.BELOW_TARGET: frozenset({RunState.COMMITTED, RunState.SUPERSEDED}),
    RunState.CANCELLED: frozenset({RunState.COMMITTED, RunState.SUPERSEDED}),
    RunState.FAILED: frozenset({RunState.QUEUED, RunState.COMMITTED, RunState.SUPERSEDED}),
    RunState.COMMITTED: frozenset({RunState.RESTORED}),
    RunState.RESTORED: frozenset({RunState.COMMITTED}),
    RunState.SUPERSEDED: frozenset(),
}

ACTIVE: Final = frozenset({RunState.QUEUED, RunState.RUNNING})
"""A worker works on it, or will."""
REVIEWABLE: Final = frozenset(
    {RunState.TARGET_MET, RunState.BELOW_TARGET, RunState.CANCELLED, RunState.INTERRUPTED, RunState.FAILED}
)
"""Its plan can be reviewed, changed and committed."""
FINISHED: Final = frozenset({RunState.TARGET_MET, RunState.BELOW_TARGET})
"""It was planned to its end, and no decision about the plan was made."""
WRITTEN: Final = frozenset({RunState.COMMITTED, RunState.RESTORED})
"""Its approved plan was written."""
