"""What a plan changes, counted: in objects (entries and their blocks) and in estimated tokens."""

from __future__ import annotations

import math

import msgspec

from .pairing import Plan
from .transcript import Transcript


class Stats(msgspec.Struct, frozen=True, rename="camel"):
    """What a plan changes, in objects (entries and blocks) and in estimated tokens."""

    objects_before: int
    objects_after: int
    objects_deleted: int
    tokens_before: int
    tokens_after: int
    percent_reduction: float

    def to_json(self) -> dict[str, int | float]:
        """The stats as they are recorded; a whole percentage is an integer, as JavaScript prints it."""
        recorded: dict[str, int | float] = msgspec.to_builtins(self)
        if self.percent_reduction.is_integer():
            recorded["percentReduction"] = int(self.percent_reduction)
        return recorded


def percent(part: float, whole: float) -> float:
    """`part` of `whole` in percent, to one decimal, halves up; 0 of nothing."""
    return math.floor(part / whole * 1000 + 0.5) / 10 if whole else 0.0


def measure(transcript: Transcript, plan: Plan) -> Stats:
    """The stats of a plan on a transcript."""
    return Stats(
        objects_before=transcript.objects,
        objects_after=transcript.objects - plan.objects,
        objects_deleted=plan.objects,
        tokens_before=transcript.tokens,
        tokens_after=transcript.tokens - plan.tokens,
        percent_reduction=percent(plan.tokens, transcript.tokens),
    )


def target_met(stats: Stats, compression_ratio: float) -> bool:
    """Whether at most ⌊before · ratio⌋ tokens remain."""
    return stats.tokens_after <= math.floor(stats.tokens_before * compression_ratio)
