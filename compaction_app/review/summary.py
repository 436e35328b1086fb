"""The totals of a review: what is approved and undecided, how far that goes towards the target, and the gauge of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from compaction_app.core.review_fold import Review, ReviewItem, ReviewStatus
from compaction_app.core.stats import percent

ACCEPTED: Final = (ReviewStatus.APPROVED, ReviewStatus.GOES_WITH_PAIR, ReviewStatus.NARROWED)
KEPT: Final = (ReviewStatus.REJECTED, ReviewStatus.KEPT_WITH_PAIR)


@dataclass(frozen=True, slots=True)
class SummaryGauge:
    """The context, and what goes of it, in percent of the window, or of the context if the window is unknown."""

    body: float
    undecided: float
    """Where the strike begins: what is undecided first, and then what is approved, up to the end of the body."""
    approved: float
    goal: float


@dataclass(frozen=True, slots=True)
class Summary:
    """The plan as the airlock computes it."""

    tokens: int
    """Of everything that could be deleted or not."""
    window: int | None
    approved_tokens: int
    planned_tokens: int
    """With everything that is undecided."""
    goal: int
    """The tokens that the target deletes."""
    percent: float
    """How much of the goal is approved."""
    met: bool
    total: int
    undecided: int
    accepted: int
    rejected: int
    refused: int
    gauge: SummaryGauge


def summary_of(
    review: Review, leads: Sequence[ReviewItem], compression_ratio: float, window: int | None
) -> Summary:
    """The totals of a review. They are also the sums of the proposals' own numbers."""
    tokens = review.approved_stats.tokens_before
    approved = tokens - review.approved_stats.tokens_after
    planned = tokens - review.planned_stats.tokens_after
    goal = tokens - math.floor(tokens * compression_ratio)
    length = max(1, window or 0, tokens)
    body, struck, all_struck, tick = (
        round(100 * place / length, 2)
        for place in (tokens, tokens - approved, tokens - planned, tokens - goal)
    )
    return Summary(
        tokens=tokens,
        window=window if window is not None and window >= tokens else None,
        approved_tokens=approved,
        planned_tokens=planned,
        goal=goal,
        percent=percent(approved, goal),
        met=review.tokens_to_go == 0,
        total=review.total,
        undecided=review.undecided,
        accepted=review.accepted,
        rejected=sum(item.standing in KEPT for item in leads),
        refused=review.refused,
        gauge=SummaryGauge(body, all_struck, struck, tick),
    )
