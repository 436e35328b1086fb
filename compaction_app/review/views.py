"""The review of a run: its page, one decision, and what stays between its proposals."""

from __future__ import annotations

from typing import Any, Final

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_safe
from django_htmx.http import trigger_client_event

from compaction_app.core.decisions import Step
from compaction_app.core.states import REVIEWABLE, RunState
from compaction_app.lookups import known_run
from compaction_app.models import Run
from compaction_app.planning.snapshots import known_torn_line, mark_of
from compaction_app.runs.review_conflicts import DECIDED_ELSEWHERE
from compaction_app.runs.reviews import decide as record_decision
from compaction_app.runs.reviews import undo
from compaction_app.runs.unseen_proposals import mark_seen
from sessions_app.sessionlog.errors import Conflict, RedlineError
from sessions_app.sessionlog.targets import Target
from sessions_app.web.error_handlers import status_of
from sessions_app.web.forms import require_valid
from sessions_app.web.redirects import acts_on_post, redirect, wants_fragment

from .forms import NOT_DECIDED, DecisionForm, DecisionRequest
from .presenter import Page, ReviewDesk, ShownRanges
from .review_map import struck_map
from .review_text import step_text
from .target_ref import anchor, ref_of

PARTS: Final = ("window", "reload")
"""The parts of the page that are requested separately: a later page, and everything that changes with it."""
SHORTCUTS: Final = (
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
    """The proposals of a run in place; one page of them, from a turn, an entry, or the first undecided one on."""
    found = known_run(run)
    if not found.is_reviewable:
        return _closed(request, found)
    part = request.GET.get("part", "") if wants_fragment(request) else ""
    try:
        desk = ReviewDesk(found)
        if part == "map":
            drawn = struck_map(desk.transcript, desk.review)
            return render(request, "review/review.html#map", {"run": found, "map": drawn})
        page = desk.page(_position(request, desk))
    except RedlineError as fault:
        return _closed(request, found, fault)
    mark_seen(found)
    context = _context(found, page)
    if part in PARTS:
        return render(request, f"review/review.html#{part}", context)
    context |= {
        "torn": known_torn_line(found.session),
        "map": struck_map(desk.transcript, desk.review),
        "help": SHORTCUTS,
    }
    return render(request, "review/review.html", context)


def _context(run: Run, page: Page) -> dict[str, Any]:
    return {
        "run": run,
        "page": page,
        "summary": page.summary,
        "version": page.version,
        "mark": mark_of(run),
        "here": "runs",
    }


@acts_on_post(lambda run: reverse("compaction:review", args=[run]))
def decide(request: HttpRequest, run: int) -> HttpResponse:
    """One decision. With htmx the response is what changed since the page's version; without, the page again.

    A decision made on an older version is refused if a different decision was made since.
    """
    found, form = known_run(run), DecisionForm(request.POST)
    try:
        require_valid(form, NOT_DECIDED)
        _require_same_plan(found, form.cleaned_data["mark"])
        latest, seen = ReviewDesk(found), form.cleaned_data["seen"]
        decision = form.decision(latest)
        # Computed before the decision: mostly the page shows the version that is still cached.
        before = latest if latest.version == seen else ReviewDesk(found, seen)
    except RedlineError as fault:
        return _not_decided(request, found, fault)
    try:
        step = _decide(found, decision, seen)
    except RedlineError as fault:
        if fault.code != DECIDED_ELSEWHERE or not wants_fragment(request):
            return _not_decided(request, found, fault)
        return _changed(request, before, form.shown_ranges, fault=fault)
    mark_seen(found)
    if wants_fragment(request):
        return _changed(request, before, form.shown_ranges, decision, step)
    return redirect(reverse("compaction:review", args=[found.pk]) + _address(ReviewDesk(found), step))


def _not_decided(request: HttpRequest, run: Run, fault: RedlineError) -> HttpResponse:
    if wants_fragment(request):
        return render(request, "review/review.html#fault", {"fault": fault}, status=status_of(fault))
    return _closed(request, run, fault)


def _changed(
    request: HttpRequest,
    before: ReviewDesk,
    shown: ShownRanges,
    decision: DecisionRequest | None = None,
    step: Step | None = None,
    fault: RedlineError | None = None,
) -> HttpResponse:
    """What differs from the page that was seen; if that is most of it, one page as a whole."""
    run = before.run
    desk = ReviewDesk(run)
    try:
        changes = desk.changes(before, shown)
        page = desk.page(_place(desk, step, shown)) if changes is None else None
    except RedlineError as unreadable:
        return _not_decided(request, run, unreadable)
    summary = desk.summary()
    context: dict[str, Any] = {"run": run, "version": desk.version, "summary": summary, "fault": fault}
    if decision is not None:
        context["message"] = f"{_words(decision, step)}. {summary.approved}% approved."
    context |= {"changes": changes} if page is None else _context(run, page)
    part = "changes" if page is None else "reload"
    answer = render(request, f"review/review.html#{part}", context, status=status_of(fault))
    return trigger_client_event(answer, "decided", after="settle")


@require_safe
def stays(request: HttpRequest, run: int) -> HttpResponse:
    """The entries that stay between two positions of the transcript, each with the button that adds its deletion."""
    found = known_run(run)
    start, end = _number(request, "from"), _number(request, "to")
    if start is None or end is None:
        raise Http404("The address names no stretch of the transcript.")
    try:
        desk = ReviewDesk(found)
        rows, more = desk.stays(start, end)
    except RedlineError as fault:
        return _closed(request, found, fault)
    context = {
        "run": found,
        "rows": rows,
        "more": more,
        "start": start,
        "version": desk.version,
        "mark": mark_of(found),
        "here": "runs",
    }
    part = "review/stays.html#rows" if wants_fragment(request) else "review/stays.html"
    return render(request, part, context)


def _require_same_plan(run: Run, mark: str) -> None:
    """Raise Conflict `planned_anew` if the form's page was made on another preparation of the run."""
    if mark not in ("", mark_of(run)):
        raise Conflict(
            "planned_anew",
            f"Run {run.pk} was resumed and planned again since this page was loaded. Nothing was decided. Reload it.",
        )


def _decide(run: Run, decision: DecisionRequest, seen: int) -> Step | None:
    now = timezone.now()
    if decision.kind is None:
        return undo(run, now, seen=seen)
    record_decision(run, decision.kind, decision.targets, now, seen=seen, scope=decision.scope)
    return Step(decision.kind, decision.targets)


def _words(decision: DecisionRequest, step: Step | None) -> str:
    if step is None:
        return "There is nothing to undo"
    if not step.targets:
        return "Nothing was undecided there"
    return f"Undone: {step_text(step)}" if decision.kind is None else step_text(step).capitalize()


def _address(desk: ReviewDesk, step: Step | None) -> str:
    """The address of the first object of a decision on the page."""
    target: Target | None = step.targets[0] if step is not None and step.targets else None
    if target is None:
        return ""
    position = desk.position(target.entry_id)
    item = desk.review.items.get(target)
    leader = item.leader if item is not None and item.leader is not None else target
    at = desk.position(leader.entry_id)
    if position is None or at is None:
        return ""
    return f"?at={ref_of(Target(leader.entry_id))}#{anchor(at, leader)}"


def _place(desk: ReviewDesk, step: Step | None, shown: ShownRanges) -> int:
    """The position to show after a decision: that of its first object, else where the page began."""
    at = desk.position(step.targets[0].entry_id) if step is not None and len(step.targets) == 1 else None
    return at if at is not None else min((start for start, _ in shown.stretches), default=0)


def _position(request: HttpRequest, desk: ReviewDesk) -> int:
    """The position in the transcript that an address names; 0 if it names none."""
    if "undecided" in request.GET:
        return desk.first_undecided() or 0
    turn = _number(request, "turn")
    if turn is not None and turn in desk.outline.turns:
        return desk.outline.turns[turn].leads[0].position
    return desk.position(request.GET.get("at", "")) or 0


def _number(request: HttpRequest, name: str) -> int | None:
    text = request.GET.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


def _closed(request: HttpRequest, run: Run, fault: RedlineError | None = None) -> HttpResponse:
    """Why there is nothing to review, and what to do next."""
    run.refresh_from_db()
    reviewable = RunState(run.state) in REVIEWABLE
    context = {
        "run": run,
        "state": RunState(run.state),
        "fault": fault,
        "changed": reviewable and fault is not None and fault.code in ("session_rewritten", "no_such_file"),
        "again": reviewable and isinstance(fault, Conflict) and fault.code == "session_rewritten",
        "later": run.replaced_by.order_by("-pk").first(),
        "here": "runs",
    }
    return render(request, "review/review_closed.html", context, status=status_of(fault))
