"""Reviews of runs: decisions stored as rows, and the resulting proposals.

A decision is a row and never changes; its undo is also a row. The number of the last row is the *version* of the
review. A page sends the version that it shows, so that a decision made meanwhile in another window is not overridden:
a conflict names the different decisions made since. `core.review_fold` computes the review from the rows; the latest
version of the last few reviews is cached.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple

from django.db import transaction
from django.db.models import Max

from compaction_app.core.airlock import ValidatedDeletion
from compaction_app.core.loop import Origin
from compaction_app.core.review_fold import BY_PAIR, Kind, Proposed, Review, Reviewer, ReviewItem, ReviewStatus, Step
from compaction_app.core.states import REVIEWABLE, RunState
from compaction_app.models import Decision, Run, Snapshot
from compaction_app.planning.hook_runner import PINNED_SEQ, pinned_by_hooks
from compaction_app.planning.snapshots import CACHED_ENTRIES, is_prepared, not_prepared, snapshot_of
from sessions_app.sessionlog.entries import Target
from sessions_app.sessionlog.errors import Conflict

DECIDED_ELSEWHERE: Final = "decided_elsewhere"
SEEN_NOW: Final = "The review now shows the current state."
NAMED: Final = 3
"""The maximum number of objects that a conflict message names."""
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
    ReviewStatus.GOES_WITH_PAIR: "is deleted with its pair, which was approved",
    ReviewStatus.KEPT_WITH_PAIR: "is kept with its pair, which was pinned",
    ReviewStatus.REFUSED: "was approved and refused",
    ReviewStatus.NARROWED: "was narrowed to some of its blocks",
}


CACHED: Final = 4
"""The number of runs whose review is cached."""
NOT_DECIDED: Final = "Nothing was decided."


@dataclass(frozen=True, slots=True)
class Carried:
    """The basis from which a run continues: targets with their origins, human pins, and withdrawn pins of hooks."""

    targets: list[tuple[Target, Origin]]
    pins: list[Target]
    unpinned: list[Target]
    """Pins of hooks that a human withdrew: a hook's next answer does not pin them again."""


class DecisionInForce(NamedTuple):
    """A decision that is not undone: its number, its step, and its time."""

    seq: int
    step: Step
    at: datetime


class PlanVersion(NamedTuple):
    """Identifies a state of a run's plan: the mark of its preparation, and the version of its review."""

    mark: str
    version: int


class Reviewed(NamedTuple):
    """The review of a run at one version, the reviewer that computed it, and the mark of the run's preparation."""

    reviewer: Reviewer
    review: Review
    version: int
    last: DecisionInForce | None
    """The last decision of a human."""
    mark: str


_cache: OrderedDict[int, tuple[tuple[object, ...], Reviewed]] = OrderedDict()
"""The latest version of each run's review, with what identifies its plan."""
_lock = threading.Lock()


def approved_of(run: Run) -> tuple[ValidatedDeletion | None, tuple[Target, ...], dict[Target, Origin]]:
    """The plan that a commit of the run would write (None if nothing is approved), its pins, and the origins of its
    targets.

    Raises BadInput `not_prepared`.
    """
    review = review_of(run)
    targets = review.approved.targets if review.approved is not None else ()
    return review.approved, review.pins, {target: _origin(review, target) for target in targets}


def carried_from(run: Run) -> Carried:
    """The decisions on a run for one that continues it: its approvals and pins.

    Targets that were approved but refused come last: they may be valid by then. An unprepared run carries nothing.
    """
    if not is_prepared(run):
        return Carried([], [], [])
    review = review_of(run)
    goes = review.approved.targets if review.approved is not None else ()
    chosen: set[Target] = set()
    """The targets that a human's last decisions delete."""
    for _, step, _ in decisions_in_force(run):
        is_deleted = step.kind in (Kind.APPROVE, Kind.ADD, Kind.NARROW)
        chosen = chosen.union(step.targets) if is_deleted else chosen.difference(step.targets)
    refused = [
        item.target for item in review.items.values() if item.standing is ReviewStatus.REFUSED and item.target in chosen
    ]
    return Carried(
        [(target, _origin(review, target)) for target in (*goes, *refused)],
        *pins_of(run),
    )


def pins_of(run: Run) -> tuple[list[Target], list[Target]]:
    """The pins of a human in a run, and the pins of hooks that a human withdrew."""
    if not is_prepared(run):
        return [], []
    pins, hooked = review_of(run).pins, pinned_by_hooks(run)
    steps = [row.step for row in decisions_in_force(run) if row.seq > PINNED_SEQ]
    named = {target for step in steps if step.kind is Kind.REJECT for target in step.targets}
    own = [pin for pin in pins if pin not in hooked or pin in named]
    return own, [pin for pin in hooked if pin not in pins]


def review_of(run: Run) -> Review:
    """The current review of a run. Raises BadInput `not_prepared`."""
    return reviewed(run).review


def decide(
    run: Run,
    kind: Kind,
    targets: Iterable[Target],
    now: datetime,
    *,
    seen: int | None = None,
    scope: Iterable[Target] = (),
) -> Review:
    """Store one decision about targets, and return the resulting review. Without targets nothing happens.

    `seen` is the version on which it was made; None means the latest. Targets that got the same decision since then are
    ignored. If a target, or an object in the `scope` of a bulk decision, was decided differently, nothing is stored and
    Conflict `decided_elsewhere` describes the other decision. Raises Conflict `wrong_state` if the run is no longer
    under review.
    """
    wanted = list(dict.fromkeys(targets))
    with transaction.atomic():
        _require_reviewable(run)
        latest = run.decisions.aggregate(last=Max("seq"))["last"] or 0
        if seen is not None and seen != latest:
            was, now_is = reviewed(run, seen).review, reviewed(run).review
            wanted = still_to_decide(was, now_is, kind, wanted, list(scope))
        if wanted:
            _append(run, latest, kind, [target.to_json() for target in wanted], now)
    return review_of(run)


def approve_proposals(run: Run, now: datetime) -> None:
    """Approve all proposals, as if there were no decisions. Raises the errors of `decide`."""
    approve_undecided(run, now, PINNED_SEQ)


def approve_undecided(run: Run, now: datetime, seen: int) -> None:
    """Approve everything that was undecided in the version that was shown, as one decision.

    Raises the errors of `decide`.
    """
    leads = list(reviewed(run, seen).review.leads())
    undecided = [item.target for item in leads if item.standing is ReviewStatus.UNDECIDED]
    decide(run, Kind.APPROVE, undecided, now, seen=seen, scope=[item.target for item in leads])


def require_same_plan(run: Run, shown: str, mark: str) -> None:
    """Raise Conflict `planned_anew` if a page was made for another preparation of the run than the one with this mark.

    `shown` is the mark in the form of the page; empty if it has none.
    """
    if shown not in ("", mark):
        raise Conflict(
            "planned_anew",
            f"Plan {run.pk} was resumed and planned again since this page was loaded. Nothing was decided. Reload it.",
        )


def undo(run: Run, now: datetime, *, seen: int | None = None) -> Step | None:
    """Undo the last decision of a human that is in force; returns it, or None if there is none.

    Pins of hooks are not steps and are kept: they are reopened like any other pin. Raises Conflict, with
    `decided_elsewhere` if the last decision is not the one of the version that was `seen`.
    """
    with transaction.atomic():
        _require_reviewable(run)
        latest = reviewed(run)
        if seen is not None and reviewed(run, seen).last != latest.last:
            raise Conflict(
                DECIDED_ELSEWHERE,
                "Since this page was loaded, something was decided or undone in another window: the last step is not "
                f"the one on this page. Nothing was undone. {SEEN_NOW}",
            )
        if latest.last is None:
            return None
        _append(run, latest.version, Decision.UNDO, [], now)
    return latest.last.step


def _append(run: Run, latest: int, kind: str, targets: list[dict[str, Any]], now: datetime) -> None:
    # The transaction has the only write lock, so the number is free.
    run.decisions.create(seq=latest + 1, kind=kind, targets=targets, at=now)


def plan_version(run: Run) -> PlanVersion:
    """The present version of a run's plan. Raises BadInput `not_prepared`."""
    # Not `first()`, which would order the only row.
    found = next(iter(Snapshot.objects.filter(run=run).values_list("mark", Max("run__decisions__seq"))), None)
    if found is None:
        raise not_prepared(run)
    mark, version = found
    return PlanVersion(mark, version or 0)


def _require_reviewable(run: Run) -> None:
    """Check the row itself: the run may have been committed or planned again meanwhile."""
    row = Run.objects.filter(pk=run.pk).values_list("state", "committing_since").first()
    run.state, since = row if row is not None else (RunState.FAILED, None)
    run.require_state(REVIEWABLE, NOT_DECIDED)
    if since is not None:
        raise Conflict("being_committed", f"Plan {run.pk} is being written right now. {NOT_DECIDED}")


# ---- computed from the rows ------------------------------------------------------------------------------


def reviewed(run: Run, version: int | None = None) -> Reviewed:
    """The review of a run at a version; None means the latest. Raises BadInput `not_prepared`."""
    mark, latest = plan_version(run)
    planned = (run.last_seq, mark, run.thinking_guard)
    version = latest if version is None else min(version, latest)
    with _lock:
        kept_plan, kept = _cache.get(run.pk, (None, None))
        if kept is not None and kept_plan == planned and kept.version == version:
            _cache.move_to_end(run.pk)
            return kept
    reviewer = kept.reviewer if kept is not None and kept_plan == planned else _reviewer(run, mark)
    rows = decisions_in_force(run, version)
    last = rows[-1] if rows and rows[-1].seq > PINNED_SEQ else None
    found = Reviewed(reviewer, reviewer.review(row.step for row in rows), version, last, mark)
    if version == latest:
        _keep(run, planned, found)
    return found


def _keep(run: Run, planned: tuple[object, ...], kept: Reviewed) -> None:
    with _lock:
        _cache[run.pk] = planned, kept
        _cache.move_to_end(run.pk)
        while len(_cache) > 1 and (
            len(_cache) > CACHED or sum(len(one.reviewer.transcript) for _, one in _cache.values()) > CACHED_ENTRIES
        ):
            _cache.popitem(last=False)


def _reviewer(run: Run, mark: str) -> Reviewer:
    proposed = [
        Proposed(proposal.target, proposal.source, proposal.origin)
        for proposal in run.proposals.order_by("order").iterator()
    ]
    return Reviewer(snapshot_of(run, mark).transcript, proposed, run.thinking_guard)


def decisions_in_force(run: Run, version: int | None = None) -> Sequence[DecisionInForce]:
    """The decisions up to a version that are not undone in it, in order."""
    rows = run.decisions.order_by("seq")
    if version is not None:
        rows = rows.filter(seq__lte=version)
    found: list[DecisionInForce] = []
    for seq, kind, targets, at in rows.values_list("seq", "kind", "targets", "at"):
        if kind == Decision.UNDO:
            found.pop()
        else:
            found.append(DecisionInForce(seq, _step(kind, targets), at))
    return found


def _step(kind: str, targets: Iterable[Mapping[str, Any]]) -> Step:
    return Step(Kind(kind), tuple(Target(raw["entryId"], raw.get("blockIndex")) for raw in targets))


def _origin(review: Review, target: Target) -> Origin:
    item = review.items.get(target)
    return item.origin if item is not None and item.origin is not None else BY_PAIR


# ---- conflicts -------------------------------------------------------------------------------------------


def still_to_decide(
    seen: Review, latest: Review, kind: Kind, targets: Sequence[Target], scope: Sequence[Target]
) -> list[Target]:
    """The targets without those that got the same decision since the version that was seen.

    Raises Conflict `decided_elsewhere` if one of them, or of the scope, was decided differently.
    """
    was, now = _standings(seen), _standings(latest)
    changed = [target for target in dict.fromkeys((*targets, *scope)) if was(target) != now(target)]
    alike = {target for target in changed if _stands(latest, target) is _ASKED.get(kind, ...)}
    otherwise = [target for target in changed if target not in alike]
    if otherwise:
        raise Conflict(DECIDED_ELSEWHERE, _sentence(latest, otherwise))
    return [target for target in targets if target not in alike]


def _standings(review: Review) -> Callable[[Target], frozenset[tuple[Target, ReviewStatus]]]:
    """The status of each object of a review, of the objects that share its content, and of those decided with it."""
    of_entry: dict[str, list[ReviewItem]] = {}
    for item in review.items.values():
        of_entry.setdefault(item.target.entry_id, []).append(item)

    def of(target: Target) -> frozenset[tuple[Target, ReviewStatus]]:
        items = of_entry.get(target.entry_id, [])
        if target.block_index is not None:  # then its own, and that of its entry
            items = [item for item in items if item.target.block_index in (None, target.block_index)]
        followers = (review.items[one] for one in review.followers.get(target, ()))
        return frozenset((item.target, item.standing) for item in (*items, *followers))

    return of


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
