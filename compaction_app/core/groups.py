"""PURE: the proposals of a review in groups, and the contribution of each group to the target.

Reasons that differ only in names, paths and numbers are one group: the planner's wording is a pattern, and the patterns
of planners without a model have separate titles.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from hashlib import blake2s
from typing import Final

from sessions_app.sessionlog.entries import Target

from . import reasons
from .mentions import references
from .review_fold import ReviewItem, ReviewStatus

KEY_BYTES: Final = 5
SINGLES: Final = 8
"""If more reasons than this occur only once, they form one group."""
REASONS: Final = 4_096
"""The number of reasons whose titles are cached."""
SUPERSEDED: Final = "Superseded by a later read or edit"
_SUPERSEDED: Final = (
    ("partly", "Partly superseded by a later read or edit"),
    ("older", "Older than a later read or edit"),
)
REPEATED: Final = "The same output again"
SWAPPED: Final = "Deleted so that others can be kept"
PRUNED: Final = "Older than the newest {} tokens of tool results"
ONLY_HERE: Final = "Has names that are mentioned nowhere else"
NO_REASON: Final = "Without a reason"
OTHERS: Final = "Other reasons, each given once"
_TITLES: Final = (
    (r"an output that is empty", "Empty outputs"),
    (r"a part of an output that has to stay with its call", "Parts of outputs that are kept with their calls"),
    (rf".*; {reasons.NOT_MENTIONED}", "Nothing later mentions it"),
    (rf".*; {reasons.NO_NAMES}", "Holds no names"),
    (rf"(?:a long|an) old output( of .+)?; {reasons.ELSEWHERE}", "Old outputs{}, names found elsewhere"),
    (rf"an old call( of .+)?; {reasons.ELSEWHERE}", "Old calls{}, names found elsewhere"),
    (rf"old reasoning; {reasons.ELSEWHERE}", "Old reasoning, names found elsewhere"),
    (rf"an old message.*; {reasons.ELSEWHERE}", "Old messages, names found elsewhere"),
)
_PATTERNS: Final = tuple((re.compile(pattern, re.DOTALL), title) for pattern, title in _TITLES)
_ONLY_HERE: Final = re.compile(rf".*; (\d+) of the (\d+) {reasons.ONLY_THERE}", re.DOTALL)
_QUOTED: Final = re.compile(r"`[^`\n]*`|\"[^\"\n]*\"|“[^”\n]*”")
_WORD: Final = re.compile(r"[^\s,;()]+")
_NUMBER: Final = re.compile(r"\d+")


class Grouping(StrEnum):
    """The common property of a group's proposals."""

    REASON = "reason"
    TOOL = "tool"
    FILE = "file"
    TURN = "turn"
    CALL = "call"
    """The call of the planner that proposed them."""


@dataclass(frozen=True, slots=True)
class Group:
    """Proposals with a common property, the largest first."""

    key: str
    """Short, and constant for a given title."""
    title: str
    leads: Sequence[ReviewItem]

    def with_status(self, *wanted: ReviewStatus) -> list[ReviewItem]:
        return [item for item in self.leads if item.standing in wanted]


@dataclass(frozen=True, slots=True)
class Bar:
    """A group drawn as a bar, in percent of its length: its approved part, then the part that its button adds."""

    approved: float
    end: float
    goal: float
    """The position of the target."""


@lru_cache(maxsize=REASONS)
def reason_title(reason: str) -> str:
    """The pattern of a reason, as a title: without its names, paths and numbers."""
    reason = reason.strip()
    if not reason:
        return NO_REASON
    if reasons.supersession_in(reason) is not None:
        return next((title for start, title in _SUPERSEDED if reason.startswith(start)), SUPERSEDED)
    if reasons.repeat_in(reason) is not None:
        return REPEATED
    if reasons.swap_in(reason) is not None:
        return SWAPPED
    safe = reasons.pruned_in(reason)
    if safe is not None:
        return PRUNED.format(safe)
    if only_here(reason) is not None:
        return ONLY_HERE
    for pattern, title in _PATTERNS:
        found = pattern.fullmatch(reason)
        if found is not None:
            return title.format(*(part or "" for part in found.groups()))
    words = _QUOTED.sub("…", reason)
    words = _WORD.sub(lambda found: "…" if references(found[0]) else found[0], words)
    words = _NUMBER.sub("…", " ".join(words.split())).rstrip(".")
    return words[:1].upper() + words[1:]


def only_here(reason: str) -> tuple[int, int] | None:
    """The counts that a reason states: its names that occur nowhere else, and all its names; None if it states none."""
    found = _ONLY_HERE.fullmatch(reason.strip())
    return (int(found[1]), int(found[2])) if found is not None else None


@lru_cache(maxsize=REASONS)
def group_key(title: str) -> str:
    return blake2s(title.encode("utf-8", "surrogatepass"), digest_size=KEY_BYTES).hexdigest()


def grouped(
    leads: Iterable[ReviewItem], title: Callable[[ReviewItem], str], size: Callable[[ReviewItem], int]
) -> list[Group]:
    """The groups of proposals with the same title, by title, and in each the largest proposal first."""
    found: dict[str, list[ReviewItem]] = {}
    for item in leads:
        found.setdefault(title(item), []).append(item)
    groups = [
        Group(group_key(name), name, sorted(items, key=lambda item: (-size(item), item.position)))
        for name, items in found.items()
    ]
    return sorted(groups, key=lambda group: group.title)


def reason_titles(leads: Iterable[ReviewItem], title: Callable[[ReviewItem], str]) -> Mapping[Target, str]:
    """The title of each proposal's group by reason: if many reasons occur only once, they form one group."""
    titles = {item.target: title(item) for item in leads}
    singles = {name for name, count in Counter(titles.values()).items() if count == 1}
    if len(singles) <= SINGLES:
        return titles
    return {target: OTHERS if name in singles else name for target, name in titles.items()}


def bars(sizes: Sequence[tuple[int, int]], goal: int) -> list[Bar]:
    """A bar for each group, given its approved tokens and those that its button adds.

    All start at zero and share one scale, which ends at the longest bar or at the goal.
    """
    length = max(1, goal, *(approved + added for approved, added in sizes))
    return [
        Bar(*(round(100 * place / length, 1) for place in (approved, approved + added, goal)))
        for approved, added in sizes
    ]
