"""The filter and the grouping of a review: an address's query, the same fields of a form, and chips.

by = reason | tool | file | turn | call                 the groups
undecided = 1, tool = NAME, kind = KIND, over = TOKENS  only these proposals
reason = KEY                                            only those of one group by reason
q = TEXT or /PATTERN/                                   only those that contain it, as the planner's search finds it

A chip is one of these filters, turned on or off with one press.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

import msgspec

from compaction_app.core.errors import Refusal
from compaction_app.core.groups import ONLY_HERE, Grouping, group_key
from compaction_app.core.patterns import Pattern, compile_pattern

from .lines import KINDS

LENGTH: Final = 512
"""The maximum length of a field, in characters."""
FIELDS: Final = ("by", "undecided", "tool", "kind", "reason", "over", "q")
TOOLS: Final = 3
"""The number of tools that have a chip."""
LARGE: Final = 500
"""A proposal with more tokens is large."""
RISKY: Final = group_key(ONLY_HERE)
UNKNOWN_REASON: Final = "A reason that no proposal has"


class ProposalFacts(msgspec.Struct, frozen=True):
    """The facts about a proposal that a filter compares, besides its texts."""

    is_undecided: bool
    tool: str
    kind: str
    reason: str
    """The key of its group by reason."""
    size: int


@dataclass(frozen=True, slots=True)
class ReviewFilter:
    """The proposals that are shown, and their groups."""

    by: Grouping = Grouping.REASON
    undecided: bool = False
    tool: str = ""
    kind: str = ""
    reason: str = ""
    over: int = 0
    q: str = ""

    @property
    def narrows(self) -> bool:
        """Whether it hides any proposal."""
        return replace(self, by=Grouping.REASON) != ReviewFilter()

    @property
    def values(self) -> dict[str, str]:
        """The fields that differ from those without a filter."""
        given = {
            "by": "" if self.by is Grouping.REASON else self.by.value,
            "undecided": "1" if self.undecided else "",
            "tool": self.tool,
            "kind": self.kind,
            "reason": self.reason,
            "over": str(self.over) if self.over else "",
            "q": self.q,
        }
        return {name: value for name, value in given.items() if value}

    def query(self, **changes: Any) -> str:
        """The query of an address with this filter and these changes."""
        return f"?{urlencode(replace(self, **changes).values, errors='replace')}"

    def leaves(self, facts: ProposalFacts) -> bool:
        """Whether it shows a proposal in which its text or pattern is found."""
        return (
            (not self.undecided or facts.is_undecided)
            and self.tool in ("", facts.tool)
            and self.kind in ("", facts.kind)
            and self.reason in ("", facts.reason)
            and (not self.over or facts.size > self.over)
        )

    @property
    def is_pattern(self) -> bool:
        return len(self.q) > 2 and self.q.startswith("/") and self.q.endswith("/")

    def pattern(self) -> Pattern | Refusal | None:
        """The pattern to search for: a regular expression between slashes, otherwise a text; None if there is none."""
        if not self.q:
            return None
        words = self.q[1:-1] if self.is_pattern else self.q
        return compile_pattern(words, regex=self.is_pattern, case_sensitive=False)


def filter_of(fields: Mapping[str, Any]) -> ReviewFilter:
    """The filter of a query or a form. Fields with values unknown to the page are ignored."""
    given = {name: str(fields.get(name, ""))[:LENGTH].strip() for name in FIELDS}
    over = given["over"]
    return ReviewFilter(
        by=Grouping(given["by"]) if given["by"] in set(Grouping) else Grouping.REASON,
        undecided=given["undecided"] == "1",
        tool=given["tool"],
        kind=given["kind"] if given["kind"] in KINDS else "",
        reason=given["reason"],
        over=int(over) if over.isascii() and over.isdigit() and len(over) < 10 else 0,
        q=given["q"],
    )


# ---- the choices of a filter -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Chip:
    """A filter that is on or off: its words, the number of proposals that it shows, and the address that toggles it."""

    words: str
    count: int
    on: bool
    query: str


class FilterChoices(NamedTuple):
    """The options of a filter's fields, the most frequent first: values and their words."""

    tools: Sequence[tuple[str, str]]
    kinds: Sequence[tuple[str, str]]
    reasons: Sequence[tuple[str, str]]


def chips_of(
    chosen: ReviewFilter, facts: Sequence[ProposalFacts], tools: Sequence[str], reasons: Mapping[str, str]
) -> list[Chip]:
    """The chips for a filter: the usual ones, then one for each other active filter.

    `facts` are those of the proposals that match its text, `tools` are the review's, the most frequent first, and
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
    """The possible filters for all proposals of a review."""
    return FilterChoices(
        [(tool, tool) for tool in by_frequency(one.tool for one in facts)],
        [(kind, KINDS[kind]) for kind in by_frequency(one.kind for one in facts)],
        [(reason, reasons[reason]) for reason in by_frequency(one.reason for one in facts)],
    )


def by_frequency(names: Any) -> list[str]:
    return [name for name, _ in Counter(names).most_common()]


def _over(tokens: int) -> str:
    return f"Over {tokens:,} tokens"
