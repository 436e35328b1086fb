"""The chips of a review: what it can be filtered by with one press, each with how many proposals that leaves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from compaction_app.core.groups import ONLY_HERE, group_key

from .filters import ProposalFacts, ReviewFilter
from .lines import KINDS

TOOLS: Final = 3
"""Tools that have a chip."""
LARGE: Final = 500
"""A proposal of more tokens is large."""
RISKY: Final = group_key(ONLY_HERE)
UNKNOWN_REASON: Final = "A reason that no proposal has"


@dataclass(frozen=True, slots=True)
class Chip:
    """A filter that is on or off: its words, how many proposals it leaves, and the address that turns it over."""

    words: str
    count: int
    on: bool
    query: str


class FilterChoices(NamedTuple):
    """What the fields of a filter offer, the most frequent first: values and their words."""

    tools: Sequence[tuple[str, str]]
    kinds: Sequence[tuple[str, str]]
    reasons: Sequence[tuple[str, str]]


def chips_of(
    chosen: ReviewFilter, facts: Sequence[ProposalFacts], tools: Sequence[str], reasons: Mapping[str, str]
) -> list[Chip]:
    """The chips for a filter: the usual ones, then one for everything else that is filtered.

    `facts` are those of the proposals that its text leaves, `tools` are the review's, the most frequent first, and
    `reasons` has the titles of its groups by reason.
    """

    def chip(words: str, **on: Any) -> Chip:
        is_on = all(getattr(chosen, name) == value for name, value in on.items())
        count = sum(map(replace(chosen, **on).leaves, facts))
        off = {name: getattr(ReviewFilter(), name) for name in on}
        return Chip(words, count, is_on, chosen.query(**(off if is_on else on)))

    chips = [chip("Undecided", undecided=True), chip(_over(LARGE), over=LARGE)]
    chips += [chip(tool, tool=tool) for tool in tools[:TOOLS]]
    if RISKY in reasons:
        chips.append(chip(ONLY_HERE, reason=RISKY))
    if chosen.over not in (0, LARGE):
        chips.append(chip(_over(chosen.over), over=chosen.over))
    if chosen.tool and chosen.tool not in tools[:TOOLS]:
        chips.append(chip(chosen.tool, tool=chosen.tool))
    if chosen.kind:
        chips.append(chip(KINDS[chosen.kind].capitalize(), kind=chosen.kind))
    if chosen.reason and (chosen.reason != RISKY or RISKY not in reasons):
        chips.append(chip(reasons.get(chosen.reason, UNKNOWN_REASON), reason=chosen.reason))
    if chosen.q:
        chips.append(chip(chosen.q if chosen.is_pattern else f"“{chosen.q}”", q=chosen.q))
    return chips


def choices_of(facts: Sequence[ProposalFacts], reasons: Mapping[str, str]) -> FilterChoices:
    """What all proposals of a review can be filtered by."""
    return FilterChoices(
        [(tool, tool) for tool in by_frequency(one.tool for one in facts)],
        [(kind, KINDS[kind]) for kind in by_frequency(one.kind for one in facts)],
        [(reason, reasons[reason]) for reason in by_frequency(one.reason for one in facts)],
    )


def by_frequency(names: Any) -> list[str]:
    return [name for name, _ in Counter(names).most_common()]


def _over(tokens: int) -> str:
    return f"Over {tokens:,} tokens"
