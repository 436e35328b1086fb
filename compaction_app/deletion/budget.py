"""How far a plan is from what was asked for, in estimated tokens of the transcript."""

from __future__ import annotations

import math

import msgspec

from .stats import Stats, percent


class Budget(msgspec.Struct, frozen=True):
    """Tokens before and after, the target, what is still to go, and the window where it is known."""

    compression_ratio: float
    stats: Stats
    context_window: int | None = None

    @property
    def deleted_tokens(self) -> int:
        return self.stats.tokens_before - self.stats.tokens_after

    @property
    def target_tokens_after(self) -> int:
        """⌊before · ratio⌋: at most so many tokens may remain."""
        return math.floor(self.stats.tokens_before * self.compression_ratio)

    @property
    def tokens_to_delete(self) -> int:
        """What is still missing; 0 once the target is met."""
        return max(0, self.stats.tokens_after - self.target_tokens_after)

    def to_json(self) -> dict[str, int | float]:
        """The budget under the names that the agent's tool uses; percentages have one decimal."""
        answer: dict[str, int | float] = {
            "compression_ratio": self.compression_ratio,
            "tokensBefore": self.stats.tokens_before,
            "currentTokensAfter": self.stats.tokens_after,
            "deletedTokens": self.deleted_tokens,
            "currentReductionPercent": self.stats.percent_reduction,
            "targetReductionPercent": percent(1 - self.compression_ratio, 1),
            "targetTokensAfter": self.target_tokens_after,
            "tokensToDeleteForTarget": self.tokens_to_delete,
        }
        if self.context_window is not None:
            answer["contextWindow"] = self.context_window
            answer["contextWindowBeforePercent"] = percent(self.stats.tokens_before, self.context_window)
            answer["contextWindowAfterPercent"] = percent(self.stats.tokens_after, self.context_window)
        return answer
