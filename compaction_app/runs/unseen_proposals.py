"""What waits for the user, as pages and sockets show it: one number, marks beside sessions, and notifications.

Agents that wait for a review, plans that are ready, summaries that are drafted, and failures wait for the user. A plan
waits until it is confirmed, dismissed, or replaced by a later plan of its session.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

from django.db.models import Exists, OuterRef
from django.db.models.expressions import Combinable
from django.db.models.fields.json import KT
from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone

from compaction_app.core.states import EventKind
from compaction_app.models import Handshake, Run, RunEvent, SummaryDraft
from sessions_app.database.sqlite import UntilWritten, left_out_if_busy
from sessions_app.server.broadcast import SESSIONS, publish
from sessions_app.sessionlog.text import one_line
from sessions_app.web.session_badges import MarkPlace, SessionBadge

TITLE_CHARACTERS: Final = 120


def badge(request: HttpRequest) -> dict[str, Callable[[], int]]:
    """The number of things that wait for the user, for the top of every page; counted only if a page shows it."""
    del request
    return {"proposals_waiting": inbox_count}


def _count() -> int:
    """By one query."""
    rows = [one.order_by().values_list("pk") for one in (Run.objects.waiting(), SummaryDraft.objects.shown().waiting())]
    return Handshake.objects.open().shown().values_list("pk").union(*rows, all=True).count()


inbox_count: Final = UntilWritten(_count)
"""The number of rows of the inbox."""


def badges(sessions: Sequence[int]) -> Mapping[int, SessionBadge]:
    """The sessions of a list with a plan that is ready or failed, each with the address of the page about it."""
    found = Run.objects.waiting().filter(session__in=sessions).annotate(outgrown=outgrown())
    return {run.session_id: _badge(run, is_older=run.outgrown) for run in found}  # type: ignore[attr-defined]


def _badge(run: Run, *, is_older: bool) -> SessionBadge:
    if run.is_broken_off:
        return SessionBadge("plan failed", run.log_address, MarkPlace.FAILED)
    words = "older plan ready" if is_older else "plan ready"
    return SessionBadge(words, run.get_absolute_url(), deleted=run.struck)


def outgrown() -> Combinable:
    """The condition for runs whose session has continued since they were planned."""
    prepared = RunEvent.objects.filter(run=OuterRef("pk"), kind=EventKind.PREPARED).annotate(leaf=KT("data__leafId"))
    return ~Exists(prepared.filter(leaf=OuterRef("session__leaf_id")))


def new_proposals(known: Collection[int] | None) -> tuple[set[int], list[dict[str, Any]]]:
    """The runs that wait for the user, and the messages for open pages: one for each unseen proposal that is not in
    `known`, or one with the present number if only that changed.

    In the first call, with `known` None, nothing is new.
    """
    found = set(Run.objects.waiting().numbers())
    if known is None or found == set(known):
        return found, []
    count = inbox_count()
    runs = Run.objects.unseen().with_session().filter(pk__in=found.difference(known)).order_by("pk")
    return found, [_fact(run, count) for run in runs] or [{"page": {"waiting": count}}]


def _fact(run: Run, count: int) -> dict[str, Any]:
    """A message for the sockets of the list. Its texts are shown as plain text, by a browser and by the operating
    system."""
    percent = (run.stats or {}).get("percentReduction", 0)
    title = one_line(run.session.title or run.session.relative_path, TITLE_CHARACTERS)
    tell = {
        "tag": f"redline-run-{run.pk}",
        "title": "A plan is ready for review",
        "words": f"{title}: {percent}% could be deleted. Nothing is written before you confirm.",
        "address": reverse("compaction:review", args=(run.pk,)),
    }
    return {"sessions": [run.session_id], "page": {"waiting": count, "tell": tell}}


def mark_seen(run: Run) -> None:
    """Record that a user looks at a run's proposals. The review is shown even if that cannot be recorded."""
    if run.is_active or (run.reviewed_at is not None and not run.automatic):
        return
    with left_out_if_busy(f"The visit to run {run.pk}"):
        Run.objects.filter(pk=run.pk).update(reviewed_at=timezone.now())


def dismiss(run: Run) -> None:
    """Take a plan or a failure out of the inbox. Its plan can still be reviewed."""
    now = timezone.now()
    Run.objects.filter(pk=run.pk).update(dismissed_at=now, reviewed_at=run.reviewed_at or now)
    publish(SESSIONS, sessions=[run.session_id], page={"waiting": inbox_count()})
