"""The objects of a review that a user opened: the page before a commit names those approved but never opened."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from compaction_app.models import WHOLE_ENTRY, Opening, Run
from sessions_app.sessionlog.targets import Target


def record_opened(run: Run, targets: Iterable[Target], now: datetime) -> None:
    """Record that a user opened these objects; those opened before keep their time."""
    rows = [
        Opening(
            run=run,
            entry_id=target.entry_id,
            block=WHOLE_ENTRY if target.block_index is None else target.block_index,
            at=now,
        )
        for target in dict.fromkeys(targets)
    ]
    Opening.objects.bulk_create(rows, ignore_conflicts=True)


def opened_targets(run: Run) -> frozenset[Target]:
    """The objects that a user opened in the review of a run."""
    return frozenset(opening.target for opening in run.openings.all())
