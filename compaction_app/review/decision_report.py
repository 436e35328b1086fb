"""The effect of a decision in a sentence: the objects decided, other changes, and the number of tokens.

Approved: src/parser.py, and 2 in “Belongs to another deletion”: −8,450.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from typing import Final

from compaction_app.core.effects import removed_estimate
from compaction_app.core.review_fold import ACCEPTED, Kind, Review, ReviewStatus, Step
from compaction_app.entries.view import beginning_of
from sessions_app.sessionlog.context import significant
from sessions_app.sessionlog.entries import Target
from sessions_app.sessionlog.text import plural
from sessions_app.templatetags.formatting import escape_line, signed

from .grouped_review import GroupedReview
from .lines import line_of

GROUPS_NAMED: Final = 2
NAME: Final = 80
"""The maximum length of an object's line, in characters."""
_DONE: Final = {
    Kind.APPROVE: "approved",
    Kind.REJECT: "rejected",
    Kind.REOPEN: "reopened",
    Kind.NARROW: "narrowed",
    Kind.ADD: "added",
    Kind.WITHDRAW: "took back",
}


def step_words(review: GroupedReview, step: Step) -> str:
    """A decision in words: rejected: src/parse.py:59–209; approved 17 proposals. Raises the errors of reading."""
    if len({target.entry_id for target in step.targets}) > 1:
        return f"{_DONE[step.kind]} {plural(len(step.targets), 'deletion' if step.kind is Kind.ADD else 'proposal')}"
    return f"{_DONE[step.kind]}: {_name(review, step.targets[0])}"


def decision_report(before: GroupedReview, after: GroupedReview, step: Step, *, is_undo: bool = False) -> str:
    """The changes of a decision between two versions of a review; for an undo, those of reverting the decision."""
    words = step_words(before if is_undo else after, step)
    sentence = f"Undone: {words}" if is_undo else words[:1].upper() + words[1:]
    own = _decided_by(after.review, step)
    was, now = _with(before.review, ACCEPTED), _with(after.review, ACCEPTED)
    sentence += _places(before, after, (was ^ now) - own, "and {}")
    held = {ReviewStatus.KEPT_WITH_PAIR}
    sentence += _places(before, after, _with(after.review, held) - _with(before.review, held) - own, "{} kept with it")
    sentence += _numbers(before, after, step.kind)
    refused = own & _with(after.review, {ReviewStatus.REFUSED})
    if refused and not is_undo:
        sentence += f"; {'it' if len(own) == 1 else f'{len(refused):,} of them'} may not go, see why"
    return f"{sentence}."


def _numbers(before: GroupedReview, after: GroupedReview, kind: Kind) -> str:
    """The change of the approved tokens; for a rejection that changed none, the tokens kept."""
    tokens = _estimate(after, after.review.goes) - _estimate(before, before.review.goes)
    if tokens:
        return f": {signed(after.context.of(tokens))}"
    kept = _estimate(before, before.review.would_go) - _estimate(after, after.review.would_go)
    return f": {significant(after.context.of(kept)):,} tokens stay" if kept > 0 and kind is Kind.REJECT else ""


def _estimate(review: GroupedReview, plan: Collection[Target]) -> int:
    return removed_estimate(review.transcript, plan)


def _with(review: Review, statuses: Collection[ReviewStatus]) -> set[Target]:
    return {item.target for item in review.leads() if item.standing in statuses}


def _decided_by(review: Review, step: Step) -> set[Target]:
    """The objects that a step names, and the entry whose blocks it narrowed."""
    items = map(review.items.get, step.targets)
    return {*step.targets, *(item.leader for item in items if item is not None and item.leader is not None)}


def _places(before: GroupedReview, after: GroupedReview, targets: Iterable[Target], words: str) -> str:
    """Proposals by group: “, and 2 in “Holds no names” and 1 in “Empty outputs””."""
    counts: Counter[str] = Counter()
    for target in targets:
        review = after if target in after.review.items else before
        counts[review.titles.by(after.chosen.by)(review.review.items[target])] += 1
    if not counts:
        return ""
    if len(counts) > GROUPS_NAMED:
        where = f"{counts.total():,} in {len(counts):,} groups"
    else:
        named = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
        where = " and ".join(f"{count:,} in “{escape_line(title)}”" for title, count in named)
    return f", {words.format(where)}"


def _name(review: GroupedReview, target: Target) -> str:
    """A proposal by the name in its row, any other object by its line. Raises the errors of reading."""
    entry = review.transcript.entry(target.entry_id)
    if entry is None:
        return escape_line(target.entry_id)
    line = review.lines.get(target) or line_of(review.run, review.transcript, entry)
    return escape_line(beginning_of(line.words or line.tool, NAME))
