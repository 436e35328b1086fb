"""Reviews of runs: decisions kept as rows, and what they make of the proposals.

A decision is a row and never changed but for its `undone`. The review is worked out from the rows by
`deletion.review`; the last few are kept in memory, known again by how far the rows have come.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from django.db import IntegrityError, transaction
from django.db.models import Count, Max, Q
from django.utils import timezone

from sessions_app.sessionlog.errors import Conflict

from ..deletion.airlock import ValidatedDeletion
from ..deletion.deciding import Kind, Step
from ..deletion.loop import Origin
from ..deletion.review import BY_PAIR, Proposed, Review, Reviewer, Standing
from ..deletion.states import REVIEWABLE, State
from ..deletion.targets import Target
from ..models import Decision, Proposal, Run
from .hooking import PINNED_SEQ, pinned_by_hooks
from .runs import demand
from .snapshots import CACHED_ENTRIES, is_prepared, mark_of, snapshot_of

CACHED: Final = 4
"""Runs whose review is kept in memory."""
COMMIT_LASTS: Final = timedelta(minutes=10)
"""No commit takes longer: one that began before is over, however its process ended."""
NOT_DECIDED: Final = "Nothing was decided."


@dataclass(frozen=True, slots=True)
class Carried:
    """What a run goes on from: targets with their origins, what a human pinned, and which pins of hooks are off."""

    targets: list[tuple[Target, Origin]]
    pins: list[Target]
    unpinned: list[Target]
    """What a human took back of what hooks pinned: their next word does not pin it again."""


@dataclass(slots=True)
class _Kept:
    """The review of one run as it was worked out last."""

    planned: tuple[object, ...]
    reviewer: Reviewer
    decided: tuple[int, int]
    review: Review


_cache: OrderedDict[int, _Kept] = OrderedDict()
_lock = threading.Lock()


def approved_of(run: Run) -> tuple[ValidatedDeletion | None, tuple[Target, ...], dict[Target, Origin]]:
    """What a commit of the run would write (None where nothing is approved), its pins, and who proposed what.

    Raises BadInput `not_prepared`.
    """
    review = review_of(run)
    targets = review.approved.targets if review.approved is not None else ()
    return review.approved, review.pins, {target: _origin(review, target) for target in targets}


def carried_from(run: Run) -> Carried:
    """What was decided on a run, for one that goes on from it: what is approved, and what is kept.

    What was approved and refused comes last: it may hold by then. A run that was never prepared carries nothing.
    """
    if not is_prepared(run):
        return Carried([], [], [])
    review = review_of(run)
    goes = review.approved.targets if review.approved is not None else ()
    asked = _asked_for(run)
    refused = [
        item.target
        for item in review.items.values()
        if item.standing is Standing.REFUSED and item.target in asked
    ]
    return Carried(
        [(target, _origin(review, target)) for target in (*goes, *refused)],
        *pins_of(run),
    )


def pins_of(run: Run) -> tuple[list[Target], list[Target]]:
    """What a human pinned in a run, and what a human took back of what hooks pinned."""
    if not is_prepared(run):
        return [], []
    pins, hooked = review_of(run).pins, pinned_by_hooks(run)
    steps = Decision.objects.filter(run=run, undone=False, kind=Decision.REJECT, seq__gt=PINNED_SEQ)
    named = {
        target for raw in steps.values_list("targets", flat=True) for target in _step("reject", raw).targets
    }
    own = [pin for pin in pins if pin not in hooked or pin in named]
    return own, [pin for pin in hooked if pin not in pins]


def _asked_for(run: Run) -> set[Target]:
    """What a human's last word wants to go."""
    asked: set[Target] = set()
    for row in Decision.objects.filter(run=run, undone=False).order_by("seq"):
        step = _step(row.kind, row.targets)
        if step.kind in (Kind.APPROVE, Kind.ADD, Kind.NARROW):
            asked.update(step.targets)
        else:
            asked.difference_update(step.targets)
    return asked


def review_of(run: Run) -> Review:
    """The review of a run as its rows stand. Raises BadInput `not_prepared`."""
    return _review(run)[1]


def reviewer_of(run: Run) -> tuple[Reviewer, Review]:
    """The same, with what it was worked out by."""
    return _review(run)


def decide(run: Run, kind: Kind, targets: Iterable[Target], now: datetime) -> Review:
    """Keep one decision about targets, and give the review after it. No targets: nothing happens.

    Raises Conflict `wrong_state` where the run is not reviewed any more, and `decided_elsewhere`.
    """
    raw = [target.to_json() for target in dict.fromkeys(targets)]
    if raw:
        _append(run, kind, raw, now)
    return review_of(run)


def undo(run: Run) -> Step | None:
    """Undo the last decision of a human that is not undone; gives it, or None where there is none.

    What hooks pinned is no step, and stays: it is reopened like any other pin. Raises Conflict.
    """
    with transaction.atomic():
        _demand_reviewable(run)
        last = _last(run)
        if last is None:
            return None
        if not Decision.objects.filter(pk=last.pk, undone=False).update(undone=True):
            raise _elsewhere(run)
    return _step(last.kind, last.targets)


def last_step(run: Run) -> tuple[Step, datetime] | None:
    """The last decision of a human that is not undone, and when it was made."""
    last = _last(run)
    return None if last is None else (_step(last.kind, last.targets), last.at)


def _last(run: Run) -> Decision | None:
    steps = Decision.objects.filter(run=run, undone=False, seq__gt=PINNED_SEQ)
    return steps.order_by("-seq").first()


def _append(run: Run, kind: Kind, raw: list[dict[str, Any]], now: datetime) -> None:
    # Two windows may decide at once: the number that both would take is free for one of them.
    for _ in range(2):
        try:
            with transaction.atomic():
                _demand_reviewable(run)
                last = Decision.objects.filter(run=run).aggregate(last=Max("seq"))["last"] or 0
                Decision.objects.create(run=run, seq=last + 1, kind=kind.value, targets=raw, at=now)
        except IntegrityError:
            continue
        return
    raise _elsewhere(run)


def _elsewhere(run: Run) -> Conflict:
    return Conflict(
        "decided_elsewhere",
        f"Run {run.pk} is being reviewed in another window at the same moment. {NOT_DECIDED} Try again.",
    )


def _demand_reviewable(run: Run) -> None:
    """Look at the row itself: the run may have been committed or planned again meanwhile."""
    row = Run.objects.filter(pk=run.pk).values_list("state", "committing_since").first()
    run.state, since = row if row is not None else (State.FAILED, None)
    demand(run, REVIEWABLE, NOT_DECIDED)
    if since is not None and timezone.now() - since < COMMIT_LASTS:
        raise Conflict(
            "being_committed", f"What is approved of run {run.pk} is being written right now. {NOT_DECIDED}"
        )


# ---- worked out from the rows ----------------------------------------------------------------------------


def _review(run: Run) -> tuple[Reviewer, Review]:
    planned = (run.last_seq, mark_of(run), run.thinking_guard)
    row = Decision.objects.filter(run=run).aggregate(
        last=Max("seq"), undone=Count("pk", filter=Q(undone=True))
    )
    # Rows are only added and only ever undone, so these two numbers tell how far they have come.
    decided = (row["last"] or 0, row["undone"])
    with _lock:
        kept = _cache.get(run.pk)
        if kept is not None and kept.planned == planned and kept.decided == decided:
            _cache.move_to_end(run.pk)
            return kept.reviewer, kept.review
    reviewer = kept.reviewer if kept is not None and kept.planned == planned else _reviewer(run)
    review = reviewer.review(_steps(run, decided[0]))
    with _lock:
        _cache[run.pk] = _Kept(planned, reviewer, decided, review)
        _cache.move_to_end(run.pk)
        while len(_cache) > 1 and (
            len(_cache) > CACHED
            or sum(len(one.reviewer.transcript) for one in _cache.values()) > CACHED_ENTRIES
        ):
            _cache.popitem(last=False)
    return reviewer, review


def _reviewer(run: Run) -> Reviewer:
    rows = Proposal.objects.filter(run=run).order_by("order")
    proposed = [
        Proposed(
            Target(entry_id, block_index),
            source,
            Origin(call, tool, reason, by_repair=source == Proposal.REPAIR),
        )
        for entry_id, block_index, source, call, tool, reason in rows.values_list(
            "entry_id", "block_index", "source", "call", "tool", "reason"
        ).iterator()
    ]
    return Reviewer(snapshot_of(run).transcript, proposed, run.thinking_guard)


def _steps(run: Run, last: int) -> list[Step]:
    rows = Decision.objects.filter(run=run, undone=False, seq__lte=last).order_by("seq")
    return [_step(kind, targets) for kind, targets in rows.values_list("kind", "targets")]


def _step(kind: str, targets: Iterable[Mapping[str, Any]]) -> Step:
    return Step(Kind(kind), tuple(Target(raw["entryId"], raw.get("blockIndex")) for raw in targets))


def _origin(review: Review, target: Target) -> Origin:
    item = review.items.get(target)
    return item.origin if item is not None and item.origin is not None else BY_PAIR
