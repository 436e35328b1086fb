"""The changes of a plan, counted in objects (entries and their blocks) and in estimated tokens.

`Budget` is the distance of a plan from its target. `InputCost` is what a compaction saves with each request, and its
one-time cost: the prompt cache is written again. Providers cache the beginning of a request. What precedes the first
deletion stays cached; everything that follows it is written to the cache again by the next request, at the price of
writing, and is read from it afterwards:

    unchanged  requests x before x read
    struck     rewritten x (write - read) + requests x after x read
"""

import math
from typing import Final, NamedTuple

import msgspec

from sessions_app.sessionlog.entries import Stats

from .transcript import TargetPlan, Transcript


def percent(part: float, whole: float) -> float:
    """`part` of `whole` in percent, rounded half up to one decimal; 0 if `whole` is 0."""
    return math.floor(part / whole * 1000 + 0.5) / 10 if whole else 0.0


def round_percent(value: float) -> float:
    """A percentage rounded half up to one decimal."""
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


MILLION: Final = 1_000_000
NOTHING: Final = 1e-9
"""In US dollars: a smaller saving per request counts as none."""


class InputCost(NamedTuple):
    """The cost of a session's input in US dollars, without and with the deletion."""

    before: float
    """The cost of one request without the deletion, read from the cache."""
    after: float
    """The cost of one request after the deletion."""
    once: float
    """The additional cost of the first request, because the cache is written again."""

    @property
    def saved(self) -> float:
        """The saving for each request."""
        return self.before - self.after

    @property
    def pays_after(self) -> int | None:
        """The number of requests after which the compaction has saved more than it cost; None if never."""
        if self.saved < NOTHING:
            return None
        return max(1, math.ceil(self.once / self.saved - 1e-9))

    def as_is(self, requests: float) -> float:
        return self.before * requests

    def struck(self, requests: float) -> float:
        return self.once + self.after * requests


def input_cost(before: int, after: int, rewritten: int, read: float, write: float) -> InputCost:
    """The cost of requests with these tokens; `read` and `write` are US dollars per million tokens."""
    return InputCost(before * read / MILLION, after * read / MILLION, rewritten * max(0.0, write - read) / MILLION)


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
        """The tokens still to delete as the agent's tool reports them: the excess of the plan over ⌊before · ratio⌋."""
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
