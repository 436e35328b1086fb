"""The review of a run: its page, one decision, and the kept entries between its proposals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final, NamedTuple
from urllib.parse import quote, urljoin

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_safe
from django_htmx.http import trigger_client_event

from compaction_app.core.decisions import Step
from compaction_app.core.groups import Grouping
from compaction_app.core.review_fold import ReviewItem
from compaction_app.core.states import REVIEWABLE, RunState
from compaction_app.lookups import known_run
from compaction_app.models import Run
from compaction_app.planning.snapshots import known_torn_line, mark_of
from compaction_app.runs.openings import record_opened
from compaction_app.runs.review_conflicts import DECIDED_ELSEWHERE
from compaction_app.runs.reviews import decide as record_decision
from compaction_app.runs.reviews import require_same_plan, undo
from compaction_app.runs.unseen_proposals import mark_seen
from sessions_app.sessionlog.errors import Conflict, RedlineError
from sessions_app.sqlite import left_out_if_busy
from sessions_app.web.error_handlers import status_of
from sessions_app.web.forms import require_valid
from sessions_app.web.prefetching import is_shown
from sessions_app.web.redirects import acts_on_post, redirect, wants_fragment

from .decision_report import decision_report
from .filters import filter_of
from .forms import NOT_DECIDED, DecisionForm, DecisionRequest
from .presenter import Page, ReviewDesk, Shown
from .review_place import place_at_point, place_of
from .target_ref import anchor, ref_of, target_of

KEYS: Final = (
    ("j k ↓ ↑", "next and previous row"),
    ("n N", "next and previous undecided"),
    ("] [", "next and previous group"),
    ("↵ ←", "open, shut"),
    ("a x", "approve; reject: it is kept, and pinned; both apply to the selection if there is one"),
    ("⇧A ⇧X", "approve or reject what is undecided in the group"),
    ("s ⇧↓ ⇧↑", "select, extend the selection"),
    ("e", "delete only some blocks of it"),
    ("+", "add a deletion beside it"),
    ("u", "undo the last step, and go to it"),
    ("/", "search: a text, or a /pattern/"),
    ("f", "filter by tool, kind, reason or size"),
    ("c", "what surrounds it"),
    ("o", "open it in the session"),
    ("g c", "to the last look before the commit"),
    ("g s", "to the session"),
    ("g t", "to the tree"),
    ("g p", "select by a pattern or by meaning"),
    ("esc", "clear the selection, then the filter"),
)
BUTTONS: Final = (
    ("j", "j", "Next", False),
    ("n", "n", "Next undecided", False),
    ("]", "]", "Next group", True),
    ("Enter", "↵", "Open", False),
    ("a", "a", "Approve", False),
    ("x", "x", "Reject", False),
    ("s", "s", "Select", True),
    ("A", "⇧A", "Approve group", True),
    ("u", "u", "Undo", False),
    ("/", "/", "Search", True),
    ("?", "?", "All keys", False),
)
"""The buttons of the bar: the key of each, as it is shown, the words, and whether only a wide bar has it."""


GROUPINGS: Final = {
    Grouping.REASON: "Reason",
    Grouping.TOOL: "Tool",
    Grouping.FILE: "File",
    Grouping.TURN: "Turn",
    Grouping.CALL: "Planner call",
}


@require_safe
def review(request: HttpRequest, run: int) -> HttpResponse:
    """The proposals of a run in groups: as a page, or one part of it."""
    found = known_run(run)
    if not found.is_reviewable:
        return _closed(request, found)
    part = request.GET.get("part", "") if wants_fragment(request) else ""
    try:
        desk = ReviewDesk(found, filter_of(request.GET))
        if part in _PARTS:
            return _PARTS[part](request, desk)
        page = _page(request, desk)
    except RedlineError as fault:
        return _closed(request, found, fault)
    if is_shown(request):
        mark_seen(found)
    context = _context(desk, page) | {
        "torn": known_torn_line(found.session),
        "map": desk.struck_map,
        "place": place_of(desk, _first_place(desk, page)),
        "choices": desk.choices(),
        "keys": KEYS,
        "buttons": BUTTONS,
        "groupings": [(one.value, words, desk.chosen.query(by=one)) for one, words in GROUPINGS.items()],
    }
    return render(request, "review/review.html", context)


def _page(request: HttpRequest, desk: ReviewDesk) -> Page:
    """The page that an address names. If no groups are to be open, the largest with an undecided proposal is opened."""
    opened = _item(desk, request.GET.get("at", ""))
    if opened is not None:
        _remember_opened(request, desk.run, opened)
    shown = opened or _item(desk, request.GET.get("show", ""))
    keys = request.GET.getlist("open")
    if not keys and shown is None:
        keys = [desk.first_group()]
    unfolded = [opened.target] if opened is not None else []
    return desk.page(keys, shown, unfolded=unfolded, more="more" in request.GET)


def _map(request: HttpRequest, desk: ReviewDesk) -> HttpResponse:
    place = place_of(desk, _number(request, "number") or 1)
    context = {"run": desk.run, "map": desk.struck_map, "place": place, "chosen": desk.chosen}
    return render(request, "review/review.html#map", context)


def _first_place(desk: ReviewDesk, page: Page) -> int:
    """The initial number of the map's slider: the entry of the first row that is shown."""
    first = next((row for group in page.groups if group.opened for row in group.opened.rows), None)
    entry = desk.transcript.entry(first.entry_id) if first is not None else None
    return entry.position + 1 if entry is not None else 1


@require_safe
def place(request: HttpRequest, run: int) -> HttpResponse:
    """Go to a place on the token map: an entry by its number, or the one at a point.

    A script gets the place as JSON.
    """
    found = known_run(run)
    x, y = _coordinate(request, "x"), _coordinate(request, "y")
    if not found.is_reviewable:
        return _closed(request, found)
    try:
        desk = ReviewDesk(found, filter_of(request.GET))
        if x is not None and y is not None:
            named = place_at_point(desk, x, y)
        else:
            named = place_of(desk, _number(request, "number") or 1)
    except RedlineError as fault:
        return _closed(request, found, fault)
    if not request.accepts("text/html"):
        return JsonResponse(asdict(named))
    return redirect(urljoin(reverse("compaction:review", args=[found.pk]), named.address))


def _group(request: HttpRequest, desk: ReviewDesk) -> HttpResponse:
    group = desk.group(request.GET.get("group", ""))
    if group is None:
        raise Http404("The address names no group of the review.")
    rows = desk.group_rows(group, _number(request, "from") or 0)
    context = {"run": desk.run, "chosen": desk.chosen, "key": group.key, "opened": rows}
    return render(request, "review/group.html#rows", context)


def _open(request: HttpRequest, desk: ReviewDesk) -> HttpResponse:
    item = _item(desk, request.GET.get("at", ""))
    if item is None:
        raise Http404("The address names no proposal of the review.")
    context = {"run": desk.run, "item": desk.opened([item])[0], "chosen": desk.chosen}
    _remember_opened(request, desk.run, item)
    return render(request, "review/open.html", context)


def _picked(request: HttpRequest, desk: ReviewDesk) -> HttpResponse:
    """The tokens that approving the selected proposals would move: less than the sum if some include others."""
    picked = {item.target: item for ref in request.GET.getlist("pick") if (item := _item(desk, ref)) is not None}
    return render(request, "review/review.html#picked", {"picked": desk.sum_of(list(picked.values()))})


_PARTS: Final = {"map": _map, "group": _group, "open": _open, "picked": _picked}
"""The parts of the page that are requested separately: the token map, rows of a group, one unfolded proposal, and the
number of a selection."""


def _remember_opened(request: HttpRequest, run: Run, item: ReviewItem) -> None:
    """Record that a user looked at a proposal. The proposal is shown even if that cannot be recorded."""
    if not is_shown(request):
        return
    with left_out_if_busy(f"The opening of {item.target} in run {run.pk}"):
        record_opened(run, [item.target], timezone.now())


def _item(desk: ReviewDesk, ref: str) -> ReviewItem | None:
    """The proposal that an address names, or the one in which it is decided; None if it names none."""
    target = target_of(ref)
    if target is None:
        return None
    item = desk.review.items.get(target)
    return desk.review.items[item.leader] if item is not None and item.leader is not None else item


def _context(desk: ReviewDesk, page: Page) -> dict[str, Any]:
    return {
        "run": desk.run,
        "page": page,
        "summary": page.summary,
        "moved": desk.moved,
        "overlap": desk.overlap,
        "chosen": page.chosen,
        "version": page.version,
        "mark": desk.mark,
        "active_nav": "runs",
    }


@acts_on_post(lambda run: reverse("compaction:review", args=[run]))
def decide(request: HttpRequest, run: int) -> HttpResponse:
    """One decision. With htmx the response has the changes since the page's version; without, the whole page.

    A decision made on an older version is refused if a different decision was made since.
    """
    found, form, chosen = known_run(run), DecisionForm(request.POST), filter_of(request.POST)
    try:
        require_valid(form, NOT_DECIDED)
        latest, seen = ReviewDesk(found, chosen), form.cleaned_data["seen"]
        require_same_plan(found, form.cleaned_data["mark"], latest.mark)
        decision = form.decision(latest)
        # Computed before the decision: usually the page shows the version that is still cached.
        before = latest if latest.version == seen else ReviewDesk(found, chosen, seen)
    except RedlineError as fault:
        return _not_decided(request, found, fault)
    try:
        step = _decide(found, decision, seen)
    except RedlineError as fault:
        if fault.code != DECIDED_ELSEWHERE:
            return _not_decided(request, found, fault)
        desk = ReviewDesk(found, chosen)
        if wants_fragment(request):
            return _changed(request, before, desk, form, fault=fault)
        return _closed(request, found, fault, _again(desk, form))
    mark_seen(found)
    desk = ReviewDesk(found, chosen)
    try:
        message = _words(latest, desk, decision, step)
    except RedlineError as unreadable:
        # The decision is stored; the texts that would name it no longer exist.
        return _not_decided(request, found, unreadable)
    if wants_fragment(request):
        return _changed(request, before, desk, form, step=step, message=message)
    messages.success(request, message)
    return redirect(reverse("compaction:review", args=[found.pk]) + _address(desk, step))


def _not_decided(request: HttpRequest, run: Run, fault: RedlineError) -> HttpResponse:
    if wants_fragment(request):
        return render(request, "review/changes.html#fault", {"fault": fault}, status=status_of(fault))
    return _closed(request, run, fault)


def _changed(
    request: HttpRequest,
    before: ReviewDesk,
    desk: ReviewDesk,
    form: DecisionForm,
    *,
    step: Step | None = None,
    message: str = "",
    fault: RedlineError | None = None,
) -> HttpResponse:
    """The differences from the displayed page; all groups, if proposals were added or withdrawn."""
    run, shown = before.run, form.shown
    try:
        changes = desk.changes(before, shown)
        page = _reload(desk, shown, step) if changes is None else None
        moved = desk.moved
    except RedlineError as unreadable:
        return _not_decided(request, run, unreadable)
    context: dict[str, Any] = {"run": run, "version": desk.version, "summary": desk.summary, "fault": fault}
    context |= {
        "moved": moved,
        "overlap": desk.overlap,
        "chips": desk.chips(),
        "found": desk.found_sum(),
        "chosen": desk.chosen,
        "message": message,
        "went": _place(desk, step) if form.is_undo else None,
    }
    if fault is not None:
        context |= _again(desk, form)
    context |= {"changes": changes} if page is None else {"page": page}
    part = "review/changes.html#changes" if page is None else "review/changes.html#reload"
    answer = render(request, part, context, status=status_of(fault))
    return trigger_client_event(answer, "decided", after="settle")


def _again(desk: ReviewDesk, form: DecisionForm) -> dict[str, Any]:
    """The fields of a button that repeats a refused decision on the present review."""
    return {
        "repeated": form.repeated(desk),
        "version": desk.version,
        "mark": desk.mark,
        "chosen": desk.chosen,
    }


def _reload(desk: ReviewDesk, shown: Shown, step: Step | None) -> Page:
    """All groups, with the same ones open, and the proposal of a decision."""
    item = _only_item(desk, step)
    opened = {target for ref in shown.opened if (target := target_of(ref)) is not None}
    return desk.page(shown.open_groups, item, unfolded=opened | ({item.target} if item is not None else set()))


@require_safe
def stays(request: HttpRequest, run: int) -> HttpResponse:
    """The kept entries between two positions of the transcript, each with the button that adds its deletion."""
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
        "active_nav": "runs",
    }
    part = "review/stays.html#rows" if wants_fragment(request) else "review/stays.html"
    return render(request, part, context)


def _decide(run: Run, decision: DecisionRequest, seen: int) -> Step | None:
    now = timezone.now()
    if decision.kind is None:
        return undo(run, now, seen=seen)
    record_decision(run, decision.kind, decision.targets, now, seen=seen, scope=decision.scope)
    return Step(decision.kind, decision.targets)


def _words(before: ReviewDesk, desk: ReviewDesk, decision: DecisionRequest, step: Step | None) -> str:
    """The effect of a decision on one version of the review, which led to the next one."""
    if step is None:
        return "There is nothing to undo."
    if not step.targets:
        return "Nothing was undecided there."
    if before.version < desk.version - 1:
        # Another window made another decision just before.
        before = ReviewDesk(desk.run, desk.chosen, desk.version - 1)
    return decision_report(before, desk, step, is_undo=decision.kind is None)


def _only_item(desk: ReviewDesk, step: Step | None) -> ReviewItem | None:
    """The proposal of a decision about a single object; None if it is not, or no longer, a proposal."""
    if step is None or not step.targets or len({target.entry_id for target in step.targets}) > 1:
        return None
    return _item(desk, ref_of(step.targets[0]))


class StepPlace(NamedTuple):
    """The place of a decision: the key of its group, and the id of its row if it was about one proposal."""

    group: str
    anchor: str


def _place(desk: ReviewDesk, step: Step | None) -> StepPlace | None:
    group = desk.group_of(step.targets[0]) if step is not None and step.targets else None
    if group is None:
        return None
    return StepPlace(group.key, _anchor(desk, step) if _only_item(desk, step) is not None else "")


def _anchor(desk: ReviewDesk, step: Step | None) -> str:
    """The id of the row of the first object of a decision; empty if it has no row."""
    item = desk.review.items.get(step.targets[0]) if step is not None and step.targets else None
    if item is None:
        return ""
    lead = desk.review.items[item.leader] if item.leader is not None else item
    return anchor(lead.position, lead.target)


def _address(desk: ReviewDesk, step: Step | None) -> str:
    """The query that shows the first object of a decision on the page, in its group."""
    query = desk.chosen.query()
    if step is None or not step.targets:
        return query
    return f"{query}&show={quote(ref_of(step.targets[0]), safe='')}#{_anchor(desk, step)}"


def _number(request: HttpRequest, name: str) -> int | None:
    text = request.GET.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


def _coordinate(request: HttpRequest, name: str) -> int | None:
    """A coordinate on the map; values left of it or above it are moved to its edge."""
    return 0 if request.GET.get(name, "").startswith("-") else _number(request, name)


def _closed(
    request: HttpRequest, run: Run, fault: RedlineError | None = None, again: Mapping[str, Any] | None = None
) -> HttpResponse:
    """Why there is nothing to review, and what to do next; `again` is the result of `_again` for a refused decision."""
    run.refresh_from_db()
    reviewable = RunState(run.state) in REVIEWABLE
    context = {
        "run": run,
        "state": RunState(run.state),
        "fault": fault,
        "changed": reviewable and fault is not None and fault.code in ("session_rewritten", "no_such_file"),
        "again": reviewable and isinstance(fault, Conflict) and fault.code == "session_rewritten",
        "later": run.replaced_by.order_by("-pk").first(),
        "active_nav": "runs",
        **(again or {}),
    }
    return render(request, "review/review_closed.html", context, status=status_of(fault))
