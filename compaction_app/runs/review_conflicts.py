"""Conflicts of decisions made on an older version of a review: the different decisions made since."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from compaction_app.core.decisions import Kind
from compaction_app.core.review_fold import Review, ReviewItem, ReviewStatus
from sessions_app.sessionlog.errors import Conflict
from sessions_app.sessionlog.targets import Target

DECIDED_ELSEWHERE: Final = "decided_elsewhere"
SEEN_NOW: Final = "The review now shows the current state."
NAMED: Final = 3
"""Objects that a conflict message names."""
_ASKED: Final = {
    Kind.APPROVE: ReviewStatus.APPROVED,
    Kind.ADD: ReviewStatus.APPROVED,
    Kind.REJECT: ReviewStatus.REJECTED,
}
"""The status of an object, in words."""
_WORDS: Final = {
    ReviewStatus.UNDECIDED: "is undecided again",
    ReviewStatus.APPROVED: "was approved",
    ReviewStatus.REJECTED: "was rejected and pinned",
    ReviewStatus.GOES_WITH_PAIR: "goes with its pair, which was approved",
    ReviewStatus.KEPT_WITH_PAIR: "stays with its pair, which was pinned",
    ReviewStatus.REFUSED: "was approved and refused",
    ReviewStatus.NARROWED: "was narrowed to some of its blocks",
}


def still_to_decide(
    seen: Review, latest: Review, kind: Kind, targets: Sequence[Target], scope: Sequence[Target]
) -> list[Target]:
    """The targets without those that got the same decision since the version that was seen.

    Raises Conflict `decided_elsewhere` if one of them, or of the scope, was decided differently.
    """
    was, now = _Standings(seen), _Standings(latest)
    changed = [target for target in dict.fromkeys((*targets, *scope)) if was.of(target) != now.of(target)]
    alike = {target for target in changed if _stands(latest, target) is _ASKED.get(kind, ...)}
    otherwise = [target for target in changed if target not in alike]
    if otherwise:
        raise Conflict(DECIDED_ELSEWHERE, _sentence(latest, otherwise))
    return [target for target in targets if target not in alike]


class _Standings:
    """The status of each object of a review, the objects that share its content, and the decisions included in its
    own."""

    def __init__(self, review: Review) -> None:
        self._review = review
        self._of_entry: dict[str, list[ReviewItem]] = {}
        for item in review.items.values():
            self._of_entry.setdefault(item.target.entry_id, []).append(item)

    def of(self, target: Target) -> frozenset[tuple[Target, ReviewStatus]]:
        followers = self._review.followers.get(target, ())
        return frozenset(
            (item.target, item.standing)
            for item in (*self._sharing(target), *(self._review.items[one] for one in followers))
        )

    def _sharing(self, target: Target) -> Iterable[ReviewItem]:
        """The items of an entry; for a block, its own and that of its entry."""
        items = self._of_entry.get(target.entry_id, [])
        if target.block_index is None:
            return items
        return [item for item in items if item.target.block_index in (None, target.block_index)]


def _stands(review: Review, target: Target) -> ReviewStatus | None:
    item = review.items.get(target)
    return item.standing if item is not None else None


def _sentence(latest: Review, targets: Sequence[Target]) -> str:
    happened = [f"{target} {_decision_text(latest, target)}" for target in targets[:NAMED]]
    if len(targets) > NAMED:
        happened.append(f"{len(targets) - NAMED:,} more changed")
    listed = " and ".join([", ".join(happened[:-1]), happened[-1]] if len(happened) > 1 else happened)
    return f"Since this page was made, in another window: {listed}. Nothing was decided. {SEEN_NOW}"


def _decision_text(latest: Review, target: Target) -> str:
    standing = _stands(latest, target)
    return _WORDS[standing] if standing is not None else "changed: other parts of it were decided"
