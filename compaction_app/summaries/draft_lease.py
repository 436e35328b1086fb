"""The states of drafts, and the lease of the worker on one. Each change is one conditional update."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Any, Final

from django.db import transaction
from django.db.models import F
from django.utils import timezone

from compaction_app.models import SummaryDraft
from compaction_app.navigation.entry_change import NOT_APPENDED
from compaction_app.runs.lease import LeasedRows

State = SummaryDraft.State


def change_draft(draft_id: int, states: Collection[str], to: str, *, held_by: str | None = None, **fields: Any) -> bool:
    """Change a draft that is in one of these states; returns whether it was.

    With `held_by`, only while that worker has the lease.
    """
    rows = SummaryDraft.objects.filter(pk=draft_id, state__in=states)
    if held_by is not None:
        rows = rows.filter(worker=held_by)
    return rows.update(state=to, **fields) == 1


def claim_draft(draft_id: int, worker: str) -> SummaryDraft | None:
    """Claim a queued draft; None if another worker has it, or it is no longer queued."""
    if not change_draft(draft_id, {State.QUEUED}, State.ASKING, worker=worker):
        return None
    return SummaryDraft.objects.with_session().get(pk=draft_id)


def renew_draft(draft_id: int, worker: str, **fields: Any) -> bool | None:
    """Renew the lease, and set `fields` of the row; returns whether a stop was requested, None if the lease is lost."""
    with transaction.atomic():
        mine = SummaryDraft.objects.asking().filter(pk=draft_id, worker=worker)
        if not mine.update(beats=F("beats") + 1, **fields):
            return None
        return bool(mine.values_list("stop_requested", flat=True).first())


def fail_draft(
    draft_id: int, states: Collection[str], failure: str, now: datetime, *, held_by: str | None = None
) -> bool:
    """End a draft that failed; returns whether it was in one of these states."""
    return change_draft(draft_id, states, State.FAILED, held_by=held_by, failure=failure, ended_at=now)


def fail_unstarted_draft(draft_id: int, why: str) -> bool:
    """End a queued draft because no worker can be started for it; returns whether it was queued."""
    failure = f"Its worker could not be started ({why}); the log says why. Nothing was sent."
    return fail_draft(draft_id, {State.QUEUED}, failure, timezone.now())


def _give_up(draft_id: int, worker: str) -> bool:
    failure = f"Its worker is gone. {NOT_APPENDED}"
    return fail_draft(draft_id, {State.ASKING}, failure, timezone.now(), held_by=worker)


DRAFTS: Final = LeasedRows(SummaryDraft.objects.asking, _give_up)
