"""The distance of a plan from its target, in estimated tokens of the transcript."""

from __future__ import annotations

import math

import msgspec

from sessions_app.sessionlog.deletion import Stats

from .stats import round_percent, target_reduction, tokens_to_go


class Budget(msgspec.Struct, frozen=True):
    """Tokens before and after, the target, the tokens still to delete, and the model's window if known."""

    compression_ratio: float
    stats: Stats
    context_window: int | None = None

    @property
    def deleted_tokens(self) -> int:
        return self.stats.tokens_before - self.stats.tokens_after

    @property
    def target_tokens_after(self) -> int:
        """⌊before · ratio⌋: the maximum number of remaining tokens."""
        return math.floor(self.stats.tokens_before * self.compression_ratio)

    @property
    def tokens_to_delete(self) -> int:
        """The missing tokens that the agent's tool reports: the distance of the plan from ⌊before · ratio⌋."""
        return max(0, self.stats.tokens_after - self.target_tokens_after)

    @property
    def tokens_to_go(self) -> int:
        """The tokens missing to the target that decides a run's outcome: see `stats.tokens_to_go`."""
        return tokens_to_go(self.stats, self.compression_ratio)

    def to_json(self) -> dict[str, int | float]:
        """The budget under the names of the agent's tool; percentages have one decimal."""
        answer: dict[str, int | float] = {
            "compression_ratio": self.compression_ratio,
            "tokensBefore": self.stats.tokens_before,
            "currentTokensAfter": self.stats.tokens_after,
            "deletedTokens": self.deleted_tokens,
            "currentReductionPercent": self.stats.percent_reduction,
            "targetReductionPercent": target_reduction(self.compression_ratio),
            "targetTokensAfter": self.target_tokens_after,
            "tokensToDeleteForTarget": self.tokens_to_delete,
        }
        if self.context_window is not None:
            answer["contextWindow"] = self.context_window
            for key, tokens in (("Before", self.stats.tokens_before), ("After", self.stats.tokens_after)):
                fullness = round_percent(tokens / self.context_window * 100)
                answer[f"contextWindow{key}Percent"] = fullness
        return answer
