"""The one-line rows of a review, and the rows of their groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from compaction_app.core.groups import Bar
from compaction_app.core.review_fold import ReviewItem, ReviewStatus
from compaction_app.core.standing_lines import Standing

from .articles import OpenProposal

SIGNED: Final = frozenset(
    {ReviewStatus.UNDECIDED, ReviewStatus.APPROVED, ReviewStatus.GOES_WITH_PAIR, ReviewStatus.NARROWED}
)
"""The statuses with which a proposal would go."""
_MARKS: Final = {
    ReviewStatus.UNDECIDED: ("open", "open", "undecided"),
    ReviewStatus.APPROVED: ("approved", "ok", "approved"),
    ReviewStatus.REJECTED: ("kept", "stet", "rejected"),
    ReviewStatus.GOES_WITH_PAIR: ("pair", "pair", "with its pair"),
    ReviewStatus.KEPT_WITH_PAIR: ("kept", "stet", "kept, pair stays"),
    ReviewStatus.REFUSED: ("refused", "no", "refused"),
    ReviewStatus.NARROWED: ("approved", "ok", "narrowed"),
}


@dataclass(frozen=True, slots=True)
class Mark:
    """The status of a proposal as it is drawn: a style, an icon, and words."""

    style: str
    icon: str
    words: str


class Others(NamedTuple):
    """Other proposals that a decision decides too, and their part of its tokens."""

    proposals: int = 0
    tokens: int = 0


NO_OTHERS: Final = Others()


@dataclass(frozen=True, slots=True)
class ProposalRow:
    """One proposal in one line; folded open, with everything else."""

    anchor: str
    key: str
    entry_id: str
    tool: str
    words: str
    why: str
    still: Standing | None
    """How many of its lines stand later in what stays; None if it has no lines to compare."""
    tokens: int
    """What its first decision adds to the approved tokens, or takes from them; if neither, what it would delete."""
    others: Others
    signed: bool
    """Whether that counts: of what is rejected, nothing does."""
    mark: Mark
    undecided: bool
    acts: str
    """The names of the buttons that decide it."""
    opened: OpenProposal | None = None


@dataclass(frozen=True, slots=True)
class GroupRows:
    """Some of a group's rows, and what is left after them."""

    rows: Sequence[ProposalRow]
    upto: int
    """How many of the group's rows are shown with these."""
    left: int
    left_tokens: int


@dataclass(frozen=True, slots=True)
class GroupRow:
    """A group in one line; open, with its rows."""

    key: str
    title: str
    examples: str
    count: int
    tokens: int
    """What its first button adds to the approved tokens, or takes from them."""
    others: Others
    percent: float
    """Of the target, as the agent counts."""
    bar: Bar
    approved: int
    rejected: int
    undecided: int
    risky: bool
    """Whether its proposals hold names that occur nowhere else."""
    opened: GroupRows | None = None

    @property
    def approve_words(self) -> str:
        """The words of its button: how many it approves, and how many others with them."""
        return f"Approve {self.undecided:,}" + (f" + {self.others.proposals:,}" if self.others.proposals else "")


def mark_of_item(item: ReviewItem, blocks: tuple[int, int], hooked: bool) -> Mark:
    """How the status of a proposal is drawn; `blocks` are how many of its entry's blocks go, and how many there are."""
    style, icon, words = _MARKS[item.standing]
    if item.standing is ReviewStatus.APPROVED and item.added:
        words = "added by you"
    if item.standing is ReviewStatus.REJECTED and item.origin is None:
        words = "pinned by a hook" if hooked else "kept by you"
    if item.standing is ReviewStatus.NARROWED:
        words = f"{blocks[0]} of {blocks[1]} blocks"
    return Mark(style, icon, words)
