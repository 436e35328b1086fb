"""The changes of a plan, counted in objects (entries and their blocks) and in estimated tokens."""

from __future__ import annotations

import math

from sessions_app.sessionlog.deletion import Stats

from .pairing import TargetPlan
from .transcript import Transcript


def percent(part: float, whole: float) -> float:
    """`part` of `whole` in percent, to one decimal, halves up; 0 of nothing."""
    return math.floor(part / whole * 1000 + 0.5) / 10 if whole else 0.0


def round_percent(value: float) -> float:
    """A percentage to one decimal, halves up."""
    return math.floor(value * 10 + 0.5) / 10


def measure(transcript: Transcript, plan: TargetPlan) -> Stats:
    """The stats of a plan on a transcript."""
    return Stats(
        objects_before=transcript.objects,
        objects_after=transcript.objects - plan.objects,
        objects_deleted=plan.objects,
        tokens_before=transcript.tokens,
        tokens_after=transcript.tokens - plan.tokens,
        percent_reduction=percent(plan.tokens, transcript.tokens),
    )


def target_reduction(compression_ratio: float) -> float:
    """The reduction that a ratio requires, in percent, rounded like the stats."""
    return round_percent((1 - compression_ratio) * 100)


def tokens_to_delete(tokens: int, compression_ratio: float) -> int:
    """The number of tokens out of a total that a ratio requires to be deleted."""
    return tokens - math.floor(tokens * compression_ratio)


def target_met(stats: Stats, compression_ratio: float) -> bool:
    """Whether something is deleted, and the reduction reaches the target; both percentages to one decimal."""
    return stats.objects_deleted > 0 and stats.percent_reduction >= target_reduction(compression_ratio)


def tokens_to_go(stats: Stats, compression_ratio: float) -> int:
    """The tokens missing to the target; 0 once it is met, and at least 1 before."""
    if target_met(stats, compression_ratio):
        return 0
    deleted = stats.tokens_before - stats.tokens_after
    return max(1, tokens_to_delete(stats.tokens_before, compression_ratio) - deleted)
