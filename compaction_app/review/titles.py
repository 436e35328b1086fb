"""The titles of the groups of a review's proposals, and the reasons of proposals in words."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from compaction_app.core.groups import Grouping, only_here, reason_title, reason_titles
from compaction_app.core.reasons import supersession_in
from compaction_app.core.review_fold import ReviewItem
from compaction_app.models import Proposal
from sessions_app.sessionlog.targets import Target

from .lines import UNKNOWN, ProposalLine
from .outline import Outline

BY_HAND: Final = "Added by hand"
BY_PAIR: Final = "Goes along with another deletion"
BY_HOOK: Final = "Proposed by a hook"
KEPT: Final = "Kept: pinned, not proposed"
NO_FILE: Final = "No file"
BEFORE: Final = "Before the first message"
_VERBS: Final = {"read": "read again", "edit": "edited", "write": "written"}


class GroupTitles:
    """The title of each proposal's group, for each way to group them."""

    def __init__(self, outline: Outline, lines: Mapping[Target, ProposalLine]) -> None:
        self._outline = outline
        self._lines = lines
        self._reasons = reason_titles(outline.review.leads(), _reason_of)

    def by(self, grouping: Grouping) -> Callable[[ReviewItem], str]:
        return {
            Grouping.REASON: self.reason,
            Grouping.TOOL: lambda item: self._line(item).tool,
            Grouping.FILE: lambda item: self._line(item).path or NO_FILE,
            Grouping.TURN: self.turn,
            Grouping.CALL: _call_of,
        }[grouping]

    @property
    def reasons(self) -> Iterable[str]:
        """The titles of the groups by reason."""
        return dict.fromkeys(self._reasons.values())

    def reason(self, item: ReviewItem) -> str:
        return self._reasons[item.target]

    def turn(self, item: ReviewItem) -> str:
        number = self._number(item)
        if not number:
            return BEFORE
        message = self._outline.transcript.entries[self._outline.turn_starts[number - 1]]
        words = self._lines.get(Target(message.entry_id), UNKNOWN).words
        return f"Turn {number}: {words}" if words else f"Turn {number}"

    def why(self, item: ReviewItem, grouping: Grouping) -> str:
        """What distinguishes a proposal from the others of its group."""
        if grouping is not Grouping.REASON:
            return self.reason(item)
        reason = item.origin.reason if item.origin is not None else ""
        later = supersession_in(reason)
        entry = self._outline.transcript.entry(later.entry_id) if later is not None else None
        if later is not None and entry is not None:
            there = self._outline.turn_number(entry.position)
            where = "in this turn" if there == self._number(item) else f"in turn {there}"
            return f"{_VERBS[later.verb]} {where}"
        names = only_here(reason)
        if names is not None:
            return f"{names[0]} of {names[1]} names"
        return f"turn {self._number(item)}" if item.position >= 0 else ""

    def _line(self, item: ReviewItem) -> ProposalLine:
        return self._lines.get(item.target, UNKNOWN)

    def _number(self, item: ReviewItem) -> int:
        return self._outline.turn_number(item.position)


def _reason_of(item: ReviewItem) -> str:
    if item.origin is None:
        return KEPT
    if item.added or item.source == Proposal.Source.HUMAN:
        return BY_HAND
    if item.source == Proposal.Source.REPAIR and not item.origin.reason.strip():
        return BY_PAIR
    if item.source == Proposal.Source.HOOK and not item.origin.reason.strip():
        return BY_HOOK
    return reason_title(item.origin.reason)


def _call_of(item: ReviewItem) -> str:
    if item.origin is None:
        return KEPT
    if item.added:
        return BY_HAND
    return f"Call {item.origin.call}" if item.origin.call else BY_HOOK
