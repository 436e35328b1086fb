"""The chips of a review: what it can be filtered by with one press, each with how many proposals that leaves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from compaction_app.core.groups import ONLY_HERE, group_key

from .filters import ReviewFilter

TOOLS: Final = 3
"""Tools that have a chip."""
LARGE: Final = 500
"""A proposal of more tokens is large."""


@dataclass(frozen=True, slots=True)
class Chip:
    """A filter that is on or off: its words, how many proposals it leaves, and the address that turns it over."""

    words: str
    count: int
    on: bool
    query: str


def chips_of(
    chosen: ReviewFilter, *, undecided: int, large: int, only_here: int, tools: Sequence[str]
) -> list[Chip]:
    """The chips for a filter; the counts are those of the whole review, `tools` one name for each proposal."""
    most = Counter(tools).most_common(TOOLS)
    if chosen.tool and chosen.tool not in dict(most):
        most.append((chosen.tool, tools.count(chosen.tool)))
    risky = group_key(ONLY_HERE)
    chips = [
        Chip("Undecided", undecided, chosen.undecided, chosen.query(undecided=not chosen.undecided)),
        Chip(
            f"Over {LARGE} tokens",
            large,
            chosen.over == LARGE,
            chosen.query(over=0 if chosen.over == LARGE else LARGE),
        ),
        *(
            Chip(tool, count, chosen.tool == tool, chosen.query(tool="" if chosen.tool == tool else tool))
            for tool, count in most
        ),
    ]
    if only_here:
        on = chosen.reason == risky
        chips.append(Chip(ONLY_HERE, only_here, on, chosen.query(reason="" if on else risky)))
    return chips
