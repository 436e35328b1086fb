"""How large a context is: one number, in one measure, with its basis.

| basis    | the number                                                                                  |
|----------|---------------------------------------------------------------------------------------------|
| reported | what the provider reported of exactly this context                                          |
| about    | what was reported or counted, more or less what has come and gone since, in the same measure |
| counted  | what a tokenizer counts in exactly this context, because the provider reported nothing of it  |

Estimates are characters / 4, as the agents make them. A measure is the ratio of what was reported of a context to its
estimate. Between LEAST and MOST it converts the estimates of what comes and goes. If it is larger, most of what was
reported is not in the session (instructions, tools): what comes and goes is then converted by a count. If it is
smaller, the report is not of the context that this reader rebuilds, and the context is counted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import StrEnum
from typing import Final

import msgspec

from .printable import plural

LEAST: Final = 0.4
MOST: Final = 2.5


class Basis(StrEnum):
    """Where a number of tokens comes from."""

    REPORTED = "reported"
    ABOUT = "about"
    COUNTED = "counted"


def significant(tokens: int) -> int:
    """A number that is not exact, to three significant digits, halves up."""
    unit = int(10 ** max(0, len(str(abs(tokens))) - 3))
    return (2 * tokens + unit) // (2 * unit) * unit


def apportion(total: int, weights: Sequence[int]) -> list[int]:
    """Whole parts of a total in proportion to weights, which together are the total: the largest remainders go up."""
    whole = sum(weights)
    if not whole:
        return [0] * len(weights)
    found = [total * weight // whole for weight in weights]
    by_remainder = sorted(range(len(weights)), key=lambda place: -(total * weights[place] % whole))
    for place in by_remainder[: total - sum(found)]:
        found[place] += 1
    return found


def steady_shares(total: int, estimates: Sequence[int], ratio: float) -> list[int]:
    """Whole parts that together are a total that is about `ratio` times the estimates: the largest fractions go up.

    When an estimate is added or taken away, almost all other parts stay what they were; `apportion` moves any of them.
    """
    found = [math.floor(ratio * estimate) for estimate in estimates]
    by_fraction = sorted(
        (place for place, estimate in enumerate(estimates) if estimate),
        key=lambda place: found[place] - ratio * estimates[place],
    )
    if by_fraction:
        each, ups = divmod(total - sum(found), len(by_fraction))
        for rank, place in enumerate(by_fraction):
            found[place] += each + (rank < ups)
    return found


class Measured(msgspec.Struct, frozen=True):
    """The tokens of some content, as reported or counted, and the estimate of the same content."""

    tokens: int
    estimate: int

    @property
    def ratio(self) -> float:
        return self.tokens / self.estimate if self.estimate else math.inf


class ContextSize(msgspec.Struct, frozen=True):
    """The size of a context in tokens. `ratio` converts estimates of its parts to the same measure."""

    tokens: int
    basis: Basis
    ratio: float = 1.0
    estimate: int = 0
    """What the agents estimate of it."""

    def __str__(self) -> str:
        """Such as `about 178,000 tokens` or `177,657 tokens, reported`."""
        if self.is_rounded:
            return f"about {plural(self.shown, 'token')}"
        return f"{plural(self.shown, 'token')}, {self.basis}"

    @property
    def is_rounded(self) -> bool:
        return self.basis is Basis.ABOUT

    @property
    def shown(self) -> int:
        """The number for people: to three significant digits unless it is exact."""
        return significant(self.tokens) if self.is_rounded else self.tokens

    def of(self, estimate: int) -> int:
        """A part of the context in this measure, to a whole token."""
        return round(self.ratio * estimate)

    def at(self, estimate: int) -> int:
        """The tokens of this context when its estimate was another."""
        return max(0, self.tokens + self.of(estimate) - self.of(self.estimate))

    def without(self, part: int) -> ContextSize:
        """The size when a part with this estimate is gone: never larger."""
        if not part:
            return self
        left = self.estimate - part
        return ContextSize(self.at(left), Basis.ABOUT, self.ratio, left)

    def shares(self, estimates: Sequence[int]) -> list[int]:
        """Parts in this measure that together are exactly the whole of them."""
        return apportion(self.of(sum(estimates)), estimates)

    def contents(self, weights: Sequence[int]) -> tuple[list[int], int]:
        """What parts with these weights have of the context, and what is in none of them: together they are its size.

        The provider also counts what is not in the session: instructions and tools.
        """
        inside = min(self.tokens, self.of(self.estimate))
        if abs(self.tokens - inside) <= 1 and any(weights):
            inside = self.tokens
        return apportion(inside, weights), self.tokens - inside


class Measure(msgspec.Struct, frozen=True):
    """What is known of a branch's measure."""

    report: Measured | None = None
    """The last report of the provider, with the estimate of the context then, even if it was compacted since."""
    sample: Measured | None = None
    """What a tokenizer counts in the beginning of the branch; None if nothing was counted."""

    @property
    def is_of_another_context(self) -> bool:
        """Whether the report is too small to be of the context that was estimated."""
        return self.report is not None and self.report.ratio < LEAST

    @property
    def needs_sample(self) -> bool:
        """Whether the report does not suffice to convert estimates."""
        return self.report is None or not LEAST <= self.report.ratio <= MOST

    def size_of(self, estimate: int, *, is_compacted: bool = False) -> ContextSize:
        """The size of a context with this estimate; `is_compacted` if a part of it was replaced or deleted since."""
        report, sample = self.report, self.sample
        by_count = sample.ratio if sample is not None and sample.estimate else 1.0
        if report is None or self.is_of_another_context:
            is_exact = sample is not None and sample.estimate == estimate and not is_compacted
            basis = Basis.COUNTED if is_exact else Basis.ABOUT
            return ContextSize(round(by_count * estimate), basis, by_count, estimate)
        ratio = report.ratio if report.ratio <= MOST else by_count
        tokens = max(0, report.tokens + round(ratio * estimate) - round(ratio * report.estimate))
        is_current = estimate == report.estimate and not is_compacted
        return ContextSize(tokens, Basis.REPORTED if is_current else Basis.ABOUT, ratio, estimate)


NOTHING_MEASURED: Final = Measure()
UNKNOWN_SIZE: Final = ContextSize(0, Basis.ABOUT)


class InheritedMeasure(msgspec.Struct, frozen=True):
    """The measure of a context of which Redline then deleted a part.

    What the session has of reports up to `size`, in bytes, is of contexts with more in them than the session now has.
    """

    size: int
    measure: Measure
