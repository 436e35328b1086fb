"""What the list and the pages of a session show of what Redline did to it, and which sessions wait for their user."""

from collections.abc import Mapping, Sequence
from typing import Final

from django.db.models import OuterRef, Q, Subquery
from django.urls import reverse

from compaction_app.core.states import RunState
from compaction_app.models import Handshake, Run, SummaryDraft
from sessions_app.database.sqlite import UntilWritten
from sessions_app.models import AS_PATH, Session
from sessions_app.web.session_badges import MarkPlace, SessionBadge


def compacted(sessions: Sequence[int]) -> Mapping[int, SessionBadge]:
    """The sessions that Redline compacted, or made by compacting another one; not those that were taken back."""
    copies = Session.objects.filter(pk__in=sessions).exclude(made_from="").annotate(at=AS_PATH)
    copy = copies.filter(at=OuterRef("compaction__created")).values("pk")[:1]
    in_place = Q(session__in=sessions, compaction__created="")
    made = Q(compaction__created__in=copies.values("at"))
    committed = Run.objects.filter(in_place | made, state=RunState.COMMITTED)
    found = committed.only("session", "stats", "context", "struck_estimate").order_by("pk")
    runs: dict[int, list[Run]] = {}
    copied: set[int] = set()
    for run in found.annotate(made=Subquery(copy)):
        key: int | None = vars(run)["made"]
        if key is not None:
            copied.add(key)
        runs.setdefault(key or run.session_id, []).append(run)
    return {key: _mark(of_session, is_copy=key in copied) for key, of_session in runs.items()}


def _mark(runs: Sequence[Run], *, is_copy: bool) -> SessionBadge:
    return SessionBadge(
        "compacted",
        reverse("compaction:result", args=(runs[-1].pk,)),
        MarkPlace.COMPACTED,
        deleted=sum(run.struck for run in runs),
        written=0 if is_copy else len(runs),
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
