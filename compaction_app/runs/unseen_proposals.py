"""Proposals that the user has not seen yet, as pages and sockets show them."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

from django.db.models import Exists, OuterRef
from django.db.models.expressions import Combinable
from django.db.models.fields.json import KT
from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone

from compaction_app.core.states import EventKind
from compaction_app.models import Run, RunEvent
from sessions_app.database.sqlite import UntilWritten, left_out_if_busy
from sessions_app.server.broadcast import SESSIONS, publish
from sessions_app.sessionlog.text import one_line
from sessions_app.web.session_badges import SessionBadge

TITLE_CHARACTERS: Final = 120


def badge(request: HttpRequest) -> dict[str, Callable[[], int]]:
    """The number of unseen proposals, for the top of every page; counted only if a page shows it."""
    del request
    return {"proposals_waiting": _count}


_count: Final = UntilWritten(lambda: Run.objects.unseen().count())


def badges(sessions: Sequence[int]) -> Mapping[int, SessionBadge]:
    """The sessions of a list that have an unseen proposal, each with the address of its review."""
    found = Run.objects.unseen().filter(session__in=sessions).order_by("pk").annotate(outgrown=outgrown())
    return {
        session: SessionBadge(
            "older proposal waits" if old else "proposal waits", reverse("compaction:review", args=(run,))
        )
        for session, run, old in found.values_list("session_id", "pk", "outgrown")
    }


def outgrown() -> Combinable:
    """The condition for runs whose session has continued since they were planned."""
    prepared = RunEvent.objects.filter(run=OuterRef("pk"), kind=EventKind.PREPARED).annotate(leaf=KT("data__leafId"))
    return ~Exists(prepared.filter(leaf=OuterRef("session__leaf_id")))


def new_proposals(known: Collection[int] | None) -> tuple[set[int], list[dict[str, Any]]]:
    """The runs with an unseen proposal, and for each one not in `known` the message for open pages.

    In the first call, with `known` None, nothing is new.
    """
    found = set(Run.objects.unseen().numbers())
    fresh = found - set(found if known is None else known)
    runs = Run.objects.with_session().filter(pk__in=fresh).order_by("pk")
    return found, [_fact(run, len(found)) for run in runs]


def _fact(run: Run, count: int) -> dict[str, Any]:
    """A message for the sockets of the list. Its texts are shown as plain text, by a browser and by the operating
    system."""
    percent = (run.stats or {}).get("percentReduction", 0)
    title = one_line(run.session.title or run.session.relative_path, TITLE_CHARACTERS)
    tell = {
        "tag": f"redline-run-{run.pk}",
        "title": "A proposal is ready for review",
        "words": f"{title}: {percent}% could be removed. Nothing is written until you have reviewed it.",
        "address": reverse("compaction:review", args=(run.pk,)),
    }
    return {"sessions": [run.session_id], "page": {"waiting": count, "tell": tell}}


def mark_seen(run: Run) -> None:
    """Record that a user looks at a run's proposals. The review is shown even if that cannot be recorded."""
    if run.is_active or (run.reviewed_at is not None and not run.automatic):
        return
    with left_out_if_busy(f"The visit to run {run.pk}"):
        Run.objects.filter(pk=run.pk).update(reviewed_at=timezone.now())
        if run.reviewed_at is not None:
            return
        publish(SESSIONS, sessions=[run.session_id], page={"waiting": Run.objects.unseen().count()})
