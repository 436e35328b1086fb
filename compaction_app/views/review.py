"""The review of a run: its page, one decision on it, and what stays between its proposals."""

from __future__ import annotations

from typing import Final

from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_POST, require_safe

from sessions_app.sessionlog.errors import Conflict, RedlineError

from ..deletion.deciding import Step
from ..deletion.states import REVIEWABLE, State
from ..deletion.targets import Target
from ..models import Run
from ..pages.review import ReviewDesk
from ..pages.review_keys import anchor, key
from ..pages.review_map import struck_map
from ..pages.review_request import Asked, asked_of, shown_of
from ..pages.review_words import said
from ..pages.run import host_asked
from ..services.reviewing import decide as keep
from ..services.reviewing import undo
from ..services.snapshots import mark_of
from ..services.waiting import look_at
from .finding import known_run

KEYS: Final = (
    ("j k", "next and previous proposal"),
    ("n", "next undecided"),
    ("a", "approve"),
    ("x", "reject: it is kept, and pinned"),
    ("⇧A", "approve what is undecided in this turn"),
    ("u", "undo the last step"),
    ("o", "open or close what stays above"),
    ("?", "this list"),
)


@require_safe
def review(request: HttpRequest, run: int) -> HttpResponse:
    """The proposals of a run in place; one window of them, from a turn or an entry on."""
    found = known_run(run)
    failed_for_nothing = found.state == State.FAILED and not found.proposals.exists()
    if State(found.state) not in REVIEWABLE or failed_for_nothing:
        return _closed(request, found)
    try:
        desk = ReviewDesk(found)
        if request.GET.get("part") == "map":
            drawn = struck_map(desk.transcript, desk.review)
            return render(request, "runs/review.html#map", {"run": found, "map": drawn})
        page = desk.page(_position(request, desk))
    except RedlineError as fault:
        return _closed(request, found, fault)
    look_at(found)
    context = {
        "run": found,
        "page": page,
        "summary": page.summary,
        "mark": mark_of(found),
        "here": "runs",
    }
    if request.GET.get("part") == "more":
        return render(request, "runs/review.html#window", context)
    context |= {"map": struck_map(desk.transcript, desk.review), "help": KEYS}
    return render(request, "runs/review.html", context)


@require_POST
def decide(request: HttpRequest, run: int) -> HttpResponse:
    """One decision. With htmx the answer is what changed; without, the page again, at the object it was about."""
    found = known_run(run)
    in_place = "HX-Request" in request.headers
    try:
        _demand_same_plan(request, found)
        before = ReviewDesk(found)
        asked = asked_of(request.POST, before)
        step = _keep(found, asked)
        look_at(found)
        after = ReviewDesk(found)
        at = _address(after, step)
        if not in_place:
            return _see(found, at)
        words = _words(asked, step)
        changes = after.changes(before, shown_of(request.POST), words)
    except RedlineError as fault:
        if in_place:
            return render(request, "runs/review.html#fault", {"fault": fault})
        return _closed(request, found, fault)
    if changes is None:
        answer = HttpResponse()
        answer["HX-Refresh"] = "true"
        return answer
    context = {"run": found, "changes": changes, "summary": changes.summary}
    answer = render(request, "runs/review.html#changes", context)
    answer["HX-Trigger-After-Settle"] = "decided"
    return answer


@require_safe
def stays(request: HttpRequest, run: int) -> HttpResponse:
    """The entries that stay between two positions of the transcript, each with what adds a deletion of it."""
    found = known_run(run)
    start, end = _number(request, "from"), _number(request, "to")
    if start is None or end is None:
        raise Http404("The address names no stretch of the transcript.")
    try:
        rows, more = ReviewDesk(found).stays(start, end)
    except RedlineError as fault:
        return _closed(request, found, fault)
    context = {
        "run": found,
        "rows": rows,
        "more": more,
        "start": start,
        "mark": mark_of(found),
        "here": "runs",
    }
    part = "runs/stays.html#rows" if "HX-Request" in request.headers else "runs/stays.html"
    return render(request, part, context)


def _demand_same_plan(request: HttpRequest, run: Run) -> None:
    """Raise Conflict `planned_anew` where the page that asks was made on another preparation of the run."""
    if request.POST.get("mark", "") not in ("", mark_of(run)):
        raise Conflict(
            "planned_anew",
            f"Run {run.pk} was resumed and planned anew since this page was made. Nothing was decided. Load it again.",
        )


def _keep(run: Run, asked: Asked) -> Step | None:
    if asked.kind is None:
        return undo(run)
    keep(run, asked.kind, asked.targets, timezone.now())
    return Step(asked.kind, asked.targets)


def _words(asked: Asked, step: Step | None) -> str:
    if step is None:
        return "There is nothing to undo"
    if not step.targets:
        return "Nothing was undecided there"
    return f"Undone: {said(step)}" if asked.kind is None else said(step).capitalize()


def _address(desk: ReviewDesk, step: Step | None) -> str:
    """Where the first object of a decision is on the page."""
    target: Target | None = step.targets[0] if step is not None and step.targets else None
    if target is None:
        return ""
    position = desk.position(target.entry_id)
    item = desk.review.items.get(target)
    leader = item.leader if item is not None and item.leader is not None else target
    at = desk.position(leader.entry_id)
    if position is None or at is None:
        return ""
    return f"?at={key(Target(leader.entry_id))}#{anchor(at, leader)}"


def _see(run: Run, at: str) -> HttpResponse:
    answer = HttpResponseRedirect(reverse("compaction:review", args=[run.pk]) + at)
    answer.status_code = 303
    return answer


def _position(request: HttpRequest, desk: ReviewDesk) -> int:
    """The position in the transcript that an address asks for; the beginning, where it asks for none."""
    turn = _number(request, "turn")
    if turn is not None and turn in desk.outline.turns:
        return desk.outline.turns[turn].leads[0].position
    return desk.position(request.GET.get("at", "")) or 0


def _number(request: HttpRequest, name: str) -> int | None:
    text = request.GET.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


def _closed(request: HttpRequest, run: Run, fault: RedlineError | None = None) -> HttpResponse:
    """Why there is nothing to review, and where to go on from here."""
    run.refresh_from_db()
    reviewable = State(run.state) in REVIEWABLE
    context = {
        "run": run,
        "state": State(run.state),
        "fault": fault,
        "changed": reviewable and fault is not None and fault.code in ("session_rewritten", "no_such_file"),
        "again": reviewable and isinstance(fault, Conflict) and fault.code == "session_rewritten",
        "sends_to": host_asked(run),
        "later": run.replaced_by.order_by("-pk").first(),
        "here": "runs",
    }
    return render(request, "runs/review_closed.html", context, status=200 if fault is None else 409)
