"""The states of a run, and the table of allowed transitions.

    queued ──▶ running ──▶ target_met | below_target | cancelled ──▶ committed ◀──▶ restored
       │          │                                         ╲
       │          │                                          ╲──▶ superseded, by a run that continues from here
       ▼          ▼
    cancelled  interrupted | failed ──▶ queued again, or reviewed unchanged

A run whose plan can still be reviewed is in one of REVIEWABLE. A failed run keeps what was validated by then, which
may be nothing. Nothing leads out of `superseded`. A run whose compaction was undone, or whose line a restore removed
from the session, is `restored`; if the restore of another backup reverses that, it is `committed` again.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, Self


class WordedEnum(StrEnum):
    """Values that a user reads as words: each member is its value and its sentence."""

    sentence: str

    def __new__(cls, value: str, sentence: str = "") -> Self:
        member = str.__new__(cls, value)
        member._value_, member.sentence = value, sentence
        return member


class RunState(WordedEnum):
    """The state of a run, with a description."""

    QUEUED = "queued", "waiting for a worker"
    RUNNING = "running", "planning"
    TARGET_MET = "target_met", "planned, the target is met"
    BELOW_TARGET = "below_target", "planned, below the target"
    CANCELLED = "cancelled", "stopped"
    INTERRUPTED = "interrupted", "interrupted: its worker ended"
    FAILED = "failed", "failed"
    COMMITTED = "committed", "confirmed"
    RESTORED = "restored", "confirmed, then taken back"
    SUPERSEDED = "superseded", "replaced by a later plan"


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
"""The states in which a worker is working on the run, or will be."""
REVIEWABLE: Final = frozenset(
    {RunState.TARGET_MET, RunState.BELOW_TARGET, RunState.CANCELLED, RunState.INTERRUPTED, RunState.FAILED}
)
"""The states in which the plan can be reviewed, changed and committed."""
FINISHED: Final = frozenset({RunState.TARGET_MET, RunState.BELOW_TARGET})
"""The states of a run that was planned to its end, without a decision about the plan."""
BROKEN_OFF: Final = frozenset({RunState.FAILED, RunState.INTERRUPTED})
"""The states of a run that failed or lost its worker."""
WRITTEN: Final = frozenset({RunState.COMMITTED, RunState.RESTORED})
"""The states of a run whose approved plan was written."""
