"""The proposals that Redline planned by itself and that wait to be looked at."""

from __future__ import annotations

from typing import Final

from django.db.models import Exists, OuterRef, Q, QuerySet
from django.db.models.expressions import Combinable
from django.db.models.fields.json import KT
from django.utils import timezone

from compaction_app.core.states import ACTIVE, RunState
from compaction_app.models import Run, RunEvent
from sessions_app.sqlite import left_out_if_busy
from sessions_app.web.broadcast import SESSIONS, publish

FINISHED: Final = (RunState.TARGET_MET, RunState.BELOW_TARGET)
"""The states in which a run holds a finished proposal that nobody has acted on."""


def is_unseen() -> Q:
    """Of runs: those that wait."""
    return Q(automatic=True, reviewed_at=None, state__in=FINISHED)


def unseen_proposals() -> QuerySet[Run]:
    """The runs that wait, the latest first."""
    found = Run.objects.filter(is_unseen(), session__root__configured=True)
    return found.select_related("session__root").order_by("-pk")


def planned_at(run: Run, leaf_id: str) -> bool:
    """Whether a run was planned on the branch that ends there."""
    # The row of a run does not say where it was prepared, so that it can go on elsewhere.
    return RunEvent.objects.filter(run=run, kind="prepared", data__leafId=leaf_id).exists()


def outgrown() -> Combinable:
    """Of runs: whether their session has gone on since they were planned."""
    prepared = RunEvent.objects.filter(run=OuterRef("pk"), kind="prepared").annotate(leaf=KT("data__leafId"))
    return ~Exists(prepared.filter(leaf=OuterRef("session__leaf_id")))


def mark_seen(run: Run) -> None:
    """Record that somebody looks at what a run proposes. The review is shown also if that cannot be recorded."""
    if not run.automatic or run.state in ACTIVE:
        return
    with left_out_if_busy(f"That run {run.pk} was looked at"):
        Run.objects.filter(pk=run.pk).update(reviewed_at=timezone.now())
        if run.reviewed_at is not None:
            return
        publish(SESSIONS, sessions=[run.session_id], page={"waiting": unseen_proposals().count()})
