"""The totals of a review: approved and undecided tokens, progress towards the target, and their gauge."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from compaction_app.core.review_fold import Review, ReviewItem, ReviewStatus
from sessions_app.sessionlog.measure import ContextSize

KEPT: Final = (ReviewStatus.REJECTED, ReviewStatus.KEPT_WITH_PAIR)
DECIDED: Final = tuple(set(ReviewStatus) - {ReviewStatus.UNDECIDED, ReviewStatus.KEPT_WITH_PAIR})
"""The statuses of proposals that can be reopened."""


@dataclass(frozen=True, slots=True)
class SummaryGauge:
    """The context and its deleted part, in percent of the window, or of the context if the window is unknown."""

    body: float
    undecided: float
    """Where the strike begins: first the undecided part, then the approved part, up to the end of the body."""
    approved: float
    goal: float


class PlanTokens(NamedTuple):
    """The context and its deleted part, all in the measure of the context."""

    context: ContextSize
    approved: int
    planned: int
    """With all undecided proposals."""
    goal: int
    """The tokens that the agent's target deletes."""


@dataclass(frozen=True, slots=True)
class Summary:
    """The plan as the airlock computes it."""

    tokens: PlanTokens
    window: int | None
    percent: float
    """The approved share of the target, as the agent counts."""
    met: bool
    total: int
    undecided: int
    accepted: int
    rejected: int
    refused: int
    gauge: SummaryGauge

    @property
    def sums(self) -> tuple[int, int, int, bool]:
        """The sentences below the groups."""
        return self.total, self.tokens.planned, self.rejected, self.undecided > 0


def summary_of(
    review: Review, leads: Sequence[ReviewItem], tokens: PlanTokens, window: int | None, share: float
) -> Summary:
    """The totals of a review, which are also the sums of the proposals' numbers; `share` is that of the target."""
    size, is_met = tokens.context.tokens, review.tokens_to_go == 0
    length = max(1, window or 0, size)
    body, struck, all_struck, tick = (
        round(100 * place / length, 2)
        for place in (size, size - tokens.approved, size - tokens.planned, size - tokens.goal)
    )
    return Summary(
        tokens=tokens,
        window=window if window is not None and window >= size else None,
        percent=max(100.0, share) if is_met else share,
        met=is_met,
        total=review.total,
        undecided=review.undecided,
        accepted=review.accepted,
        rejected=sum(item.standing in KEPT for item in leads),
        refused=review.refused,
        gauge=SummaryGauge(body, all_struck, struck, tick),
    )
