"""What the list and the pages of a session show of what Redline did to it, and which sessions wait for their user."""

from collections.abc import Mapping, Sequence
from typing import Final

from django.db.models import F, OuterRef, Q, Subquery
from django.urls import reverse

from compaction_app.core.states import RunState
from compaction_app.models import Handshake, Run, SummaryDraft
from sessions_app.database.sqlite import UntilWritten
from sessions_app.models import Session
from sessions_app.web.session_badges import MarkPlace, SessionBadge


def compacted(sessions: Sequence[int]) -> Mapping[int, SessionBadge]:
    """The sessions that Redline compacted, or made by compacting another one; not those that were taken back."""
    copies = Session.objects.filter(pk__in=sessions).exclude(made_from="").with_path()
    copy = copies.filter(at=OuterRef("compaction__created")).values("pk")[:1]
    committed = Run.objects.filter(state=RunState.COMMITTED, compaction__isnull=False)
    in_place = Q(session__in=sessions, compaction__created="")
    made = Q(compaction__created__in=copies.values("at"))
    found = committed.filter(in_place | made).annotate(made=Subquery(copy), created=F("compaction__created"))
    runs: dict[int, list[Run]] = {}
    for run in found.only("session", "stats", "context", "struck_estimate").order_by("pk"):
        key = run.made if run.created else run.session_id
        runs.setdefault(key, []).append(run)
    return {key: _mark(of_session) for key, of_session in runs.items() if key is not None}


def _mark(runs: Sequence[Run]) -> SessionBadge:
    return SessionBadge(
        "compacted",
        reverse("compaction:result", args=(runs[-1].pk,)),
        MarkPlace.COMPACTED,
        deleted=sum(run.struck for run in runs),
        written=sum(not run.created for run in runs),
    )


def _waiting_drafts() -> dict[int, SessionBadge]:
    found = SummaryDraft.objects.shown().waiting().order_by("pk")
    return {one.session_id: SessionBadge("summary drafted", one.get_absolute_url()) for one in found}


_drafts: Final = UntilWritten(_waiting_drafts)


def drafted(sessions: Sequence[int]) -> Mapping[int, SessionBadge]:
    """The sessions with the draft of a summary that is not appended; there are few of them."""
    return {key: badge for key, badge in _drafts().items() if key in sessions}


def needs_you() -> Q:
    """The sessions of the inbox: an agent waits, a plan is ready or failed, or a summary is drafted."""
    waiting = (Run.objects.waiting(), Handshake.objects.open(), SummaryDraft.objects.waiting())
    condition = Q(pk__in=())
    for rows in waiting:
        condition |= Q(pk__in=rows.values("session"))
    return condition
