"""How long agents may wait for a review, and what happens then: as chosen, or by default."""

from __future__ import annotations

from typing import Final

from compaction_app.core.handshake_states import NextStep
from compaction_app.models import Run, WaitRule
from compaction_app.planning.planners import EMBEDDED

LONGEST_SECONDS: Final = 3600
"""Hook commands are ended after this time and a minute more."""
DEFAULTS: Final = {
    Run.Reason.MANUAL: (1800, NextStep.CONTINUE),
    Run.Reason.THRESHOLD: (900, NextStep.COMPACT),
    Run.Reason.OVERFLOW: (120, NextStep.COMPACT),
}
"""Seconds, and what happens then. An overflow stands in the way of the next reply."""


def wait_for(agent: str, reason: str) -> WaitRule:
    """The rule for an agent and a reason."""
    chosen = WaitRule.objects.filter(agent=agent, reason=reason).first()
    if chosen is not None:
        return chosen
    seconds, then = DEFAULTS[Run.Reason(reason)]
    return WaitRule(agent=agent, reason=reason, seconds=seconds, then=then, planner=EMBEDDED)
