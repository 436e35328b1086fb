"""The inbox: what needs the user, what is being planned, and what is done."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from django.contrib import messages
from django.core.paginator import Paginator
from django.db.models import Count, Exists, OuterRef
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_safe

from compaction_app.core.review_fold import ReviewStatus
from compaction_app.core.states import RunState
from compaction_app.handshakes.waiting import waiting_agent
from compaction_app.lookups import known_run
from compaction_app.models import Decision, Handshake, Run, RunQuerySet, SummaryDraft
from compaction_app.planning.hook_runner import PINNED_SEQ
from compaction_app.planning.plan import MANUAL_PLANNER
from compaction_app.runs.forms import repeated_fields
from compaction_app.runs.presenter import automatic_planning
from compaction_app.runs.reviews import review_of
from compaction_app.runs.unseen_proposals import dismiss, outgrown
from sessions_app.sessionlog.errors import RedlineError
from sessions_app.sessionlog.text import plural
from sessions_app.web.pages import acts_on_post, redirect

PAGE_SIZE: Final = 60
COUNTED: Final = 4
"""The number of begun reviews whose decisions are counted; the others are only said to be begun."""
TABS: Final = ("", "running", "done")


@dataclass(frozen=True, slots=True)
class InboxPlan:
    """A plan in the inbox, with its state in a few words."""

    run: Run
    words: str
    is_begun: bool = False

    @property
    def made_by(self) -> str:
        """The model that made it, and what that cost, in words; empty for a planner without a model."""
        sent, words = self.run.traffic, f" by {self.run.planner}" if self.run.is_by_llm else ""
        if sent is None:
            return words
        if sent.cost_text or sent.is_reported:
            return f"{words}, {sent.cost_text or 'cost not known'}"
        return f"{words}, cost not reported{' yet' if self.run.is_active else ''}"

    @property
    def fields(self) -> dict[str, str]:
        """What a form sends to plan it again, besides the planner."""
        return repeated_fields(self.run)


@require_safe
def inbox(request: HttpRequest) -> HttpResponse:
    """What needs the user; or the plans that are being made, or that need nothing."""
    chosen = request.GET.get("show", "")
    tab = chosen if chosen in TABS else ""
    waiting = list(_with_steps(Run.objects.waiting()).order_by("-pk"))
    active = Run.objects.shown().active()
    asked = Handshake.objects.unfinished().shown().with_session().order_by("ends_at")
    agents = [waiting_agent(one) for one in asked if one.is_open]
    needing = [run.pk for run in waiting] + [one.handshake.run_id for one in agents if one.handshake.run_id]
    done = Run.objects.shown().exclude(pk__in=needing).exclude(pk__in=active)
    drafts = SummaryDraft.objects.shown().unfinished().with_session().order_by("-pk")
    drafted = [draft for draft in drafts if draft.state in (SummaryDraft.State.READY, SummaryDraft.State.FAILED)]
    context: dict[str, Any] = {
        "tab": tab,
        "running": [InboxPlan(run, _progress(run)) for run in active.with_session().order_by("-pk")],
        "writing": [draft for draft in drafts if draft not in drafted],
        "approved": [one for one in asked if not one.is_open],
        "done_count": done.count(),
        "active_nav": "inbox",
    }
    context["running_count"] = sum(len(context[name]) for name in ("running", "writing", "approved"))
    ready, failed = (list(_plans(run for run in waiting if run.is_broken_off is broken)) for broken in (False, True))
    context |= {"agents": agents, "ready": ready, "failed": failed, "drafts": drafted}
    context["needed"] = len(agents) + len(ready) + len(failed) + len(drafted)
    if tab == "done":
        page = Paginator(done.with_session().order_by("-pk"), PAGE_SIZE).get_page(request.GET.get("page"))
        context["page"] = page
        context["plans"] = [InboxPlan(run, _outcome(run)) for run in list(page)]
    elif tab == "":
        last: Iterable[Run] = done.with_session().order_by("-pk")[:3] if not context["needed"] else []
        context["plans"] = [InboxPlan(run, _outcome(run)) for run in last]
        context["automatic"] = automatic_planning(timezone.now(), Path.home())
    return render(request, "runs/inbox.html", context)


def _with_steps(runs: RunQuerySet) -> RunQuerySet:
    """Runs, each with whether its review was begun, how many objects were opened, and whether its session continued."""
    decisions = Decision.objects.filter(run=OuterRef("pk"), seq__gt=PINNED_SEQ)
    return runs.with_session().annotate(begun=Exists(decisions), opened=Count("openings"), outgrown=outgrown())


def _plans(runs: Iterable[Any]) -> Iterator[InboxPlan]:
    counted = 0
    for run in runs:
        if run.begun:
            counted += 1
            yield InboxPlan(run, _begun(run) if counted <= COUNTED else "you began its review", is_begun=True)
        elif run.is_broken_off:
            yield InboxPlan(run, run.failure or run.sentence)
        else:
            opened = plural(run.opened, "text") if run.opened else "none"
            later = "; the session has continued since" if run.outgrown else ""
            yield InboxPlan(run, f"{_origin(run)}, {opened} opened{later}")


def _begun(run: Run) -> str:
    """How far its review is, in words."""
    try:
        leads: Sequence[Any] = review_of(run).leads()
    except RedlineError:
        return "you began its review"
    approved = sum(one.standing in (ReviewStatus.APPROVED, ReviewStatus.NARROWED) for one in leads)
    undecided = sum(one.standing is ReviewStatus.UNDECIDED for one in leads)
    return f"you began: {approved:,} approved, {undecided:,} undecided"


def _origin(run: Run) -> str:
    """Who started it, in words."""
    if run.automatic and run.reason == Run.Reason.OVERFLOW:
        return "made by itself because the context had become too long"
    if run.automatic:
        return "made by itself because the session is almost full"
    if run.state == RunState.CANCELLED:
        return "you stopped it"
    return "you selected it" if run.planner == MANUAL_PLANNER else "you started it"


def _progress(run: Run) -> str:
    if run.state == RunState.QUEUED:
        return "waits for a worker"
    return f"{run.percent}% proposed of {run.target_percent}%"


def _outcome(run: Run) -> str:
    """What became of it, in words."""
    if run.dismissed_at is not None and not run.is_written:
        return "dismissed"
    return run.sentence


def _page(run: int) -> str:
    del run
    return "/inbox"


@acts_on_post(_page)
def dismiss_plan(request: HttpRequest, run: int) -> HttpResponse:
    """Take a plan or a failure out of the inbox."""
    found = known_run(run)
    dismiss(found)
    words = "Its plan can still be reviewed" if found.is_reviewable else "Its log can still be read"
    messages.success(request, f"Plan {run} is dismissed. {words} under Done.")
    return redirect("compaction:runs")
