"""The review of a run: its page, one decision, and the kept entries between its proposals.

A button of the page requests a decision with these fields:

    approve | reject | reopen | withdraw | add = REF        one target, as `lines.ref_of` writes it
    narrow = REF, block = REF …                             the blocks of an entry that are deleted
    approve_group | reject_group | reopen_group = KEY       the undecided objects of a group (decided: `reopen`), as
    by, tool, kind, reason, over, q                         grouped and filtered on the page
    approve_picked | reject_picked | reopen_picked = 1      the same for the selected objects:
    pick = REF …
    undo                                                    the last decision
    seen = NUMBER                                           always: the version of the review that the page shows
    mark                                                    the plan for which the page was made
    rows = ANCHOR,… opened = REF … groups = KEY,… open = KEY …          the part that the page shows

A place on the token map is an entry by name, with the decision about it and a link to it.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from django import forms
from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_safe
from django_htmx.http import trigger_client_event

from compaction_app.core.groups import Grouping
from compaction_app.core.review_fold import Kind, ReviewItem, ReviewStatus, Step
from compaction_app.core.states import REVIEWABLE, RunState
from compaction_app.core.transcript import TranscriptEntry
from compaction_app.entries.branches import map_place
from compaction_app.entries.links import entry_address
from compaction_app.entries.view import beginning_of
from compaction_app.lookups import known_run
from compaction_app.models import Run
from compaction_app.planning.snapshots import known_torn_line, mark_of
from compaction_app.review.grouped_review import DECIDED, decision_report, filter_of, step_words
from compaction_app.review.lines import anchor, line_of, ref_of, target_of
from compaction_app.runs.commands import record_opened
from compaction_app.runs.reviews import DECIDED_ELSEWHERE, decide as record_decision, require_same_plan, undo
from compaction_app.runs.unseen_proposals import mark_seen
from sessions_app.database.sqlite import left_out_if_busy
from sessions_app.sessionlog.context import significant
from sessions_app.sessionlog.entries import Target
from sessions_app.sessionlog.errors import Conflict, RedlineError
from sessions_app.sessionlog.text import plural
from sessions_app.templatetags.formatting import escape_line, in_measure
from sessions_app.web import pages
from sessions_app.web.credentials import is_shown

from .presenter import GroupRow, ReviewDesk, Shown, review_address

UNDO: Final = "undo"
_BULK: Final = (Kind.APPROVE, Kind.REJECT, Kind.REOPEN)
ACTIONS: Final = (UNDO, *Kind, *(f"{kind}_{extent}" for kind in _BULK for extent in ("group", "picked")))
NOT_DECIDED: Final = "Nothing was decided. Load the page again."
_ANYWAY: Final = {
    Kind.APPROVE: "Approve anyway",
    Kind.REJECT: "Reject anyway",
    Kind.REOPEN: "Reopen anyway",
    Kind.NARROW: "Delete only these anyway",
    Kind.ADD: "Delete anyway",
    Kind.WITHDRAW: "Take back anyway",
}
_THE_REST: Final = {
    Kind.APPROVE: "Approve the rest",
    Kind.REJECT: "Reject the rest",
    Kind.REOPEN: "Reopen the rest",
}


class DecisionRequest(NamedTuple):
    """A decision to be stored. `kind` is None for undo. Without targets there is nothing to decide."""

    kind: Kind | None
    targets: tuple[Target, ...] = ()
    scope: tuple[Target, ...] = ()
    """For a bulk decision: every proposal to which it applied, decided or not."""


class WordsField(forms.Field):
    """Words separated by commas, in any number of inputs."""

    widget = forms.MultipleHiddenInput

    def clean(self, value: Any) -> list[str]:
        return [word for text in value for word in str(text).split(",") if word]


class DecisionForm(forms.Form):
    """The pressed button, the version of the review, and the part that the browser shows."""

    seen = forms.IntegerField(
        min_value=0,
        max_value=999_999_999,
        error_messages=dict.fromkeys(
            ("required", "invalid", "min_value", "max_value"),
            "The form named no version of the review that it was made on.",
        ),
    )
    mark = forms.CharField(required=False)
    block = forms.Field(required=False, widget=forms.MultipleHiddenInput)
    pick = forms.Field(required=False, widget=forms.MultipleHiddenInput)
    rows = WordsField()
    opened = forms.Field(required=False, widget=forms.MultipleHiddenInput)
    groups = WordsField()
    open = forms.Field(required=False, widget=forms.MultipleHiddenInput)

    @property
    def shown(self) -> Shown:
        data = self.cleaned_data
        return Shown(
            rows=frozenset(data["rows"]),
            opened=frozenset(data["opened"]),
            groups=frozenset(data["groups"]),
            open_groups=tuple(data["open"]),
        )

    def decision(self, desk: ReviewDesk) -> DecisionRequest:
        """The decision that the button requests. Raises FormInvalid."""
        button = self._button
        value, (kind, _, extent) = self.data.get(button, ""), button.partition("_")
        if not button:
            raise self._invalid("no decision")
        if button == UNDO:
            return DecisionRequest(None)
        if extent == "group":
            group = desk.group(value)
            if group is None:
                raise self._invalid("a group that has no proposals")
            return _bulk(Kind(kind), group.leads)
        if extent == "picked":
            items = map(desk.review.items.get, map(self._target, self.cleaned_data["pick"]))
            return _bulk(Kind(kind), [item for item in items if item is not None])
        target = self._target(value)
        if kind == Kind.NARROW:
            blocks = map(self._target, self.cleaned_data["block"])
            return DecisionRequest(Kind.NARROW, tuple(block for block in blocks if block.entry_id == target.entry_id))
        return DecisionRequest(Kind(kind), (target,))

    def repeated(self, desk: ReviewDesk) -> dict[str, Any] | None:
        """The button that makes the same decision on the present review; None if nothing is left to decide.

        Raises FormInvalid. A bulk decision is repeated only for proposals that are still undecided.
        """
        decision, name = self.decision(desk), self._button
        if decision.kind is None or not decision.targets:
            return None
        words = _THE_REST[decision.kind] if "_" in name else _ANYWAY[decision.kind]
        data = self.cleaned_data
        return {"name": name, "value": self.data[name], "words": words, "blocks": data["block"], "picks": data["pick"]}

    @property
    def is_undo(self) -> bool:
        return self._button == UNDO

    @property
    def _button(self) -> str:
        """The name of the pressed button; empty if none was."""
        return next((name for name in ACTIONS if name in self.data), "")

    def _target(self, key: str) -> Target:
        target = target_of(key)
        if target is None:
            raise self._invalid("no object")
        return target

    def _invalid(self, what: str) -> pages.FormInvalid:
        self.add_error(None, f"The form named {what}.")
        return pages.FormInvalid(self, NOT_DECIDED)


def _bulk(kind: Kind, items: Iterable[ReviewItem]) -> DecisionRequest:
    """A decision about the undecided ones among these proposals; for `reopen`, about the decided ones."""
    leads = [item for item in items if item.leader is None]
    wanted = DECIDED if kind is Kind.REOPEN else (ReviewStatus.UNDECIDED,)
    targets = tuple(item.target for item in leads if item.standing in wanted)
    return DecisionRequest(kind, targets, tuple(item.target for item in leads))


WORDS: Final = 60
"""The maximum length of an entry's text in the name of its place, in characters."""


def place_at_point(desk: ReviewDesk, x: int, y: int) -> dict[str, Any]:
    """The place at a point of the map."""
    drawn = desk.struck_map
    return place_of(desk, bisect_right(drawn.before, drawn.ground.tokens_at(x, y)))


def place_of(desk: ReviewDesk, number: int) -> dict[str, Any]:
    """The entry of the planned context with this number, or the nearest one; its address is that of its proposal in the
    review, or of the entry in the session if it is kept."""
    total, starts = len(desk.transcript), desk.outline.turn_starts
    number = min(max(number, 1), total)
    entry = desk.transcript.entries[number - 1]
    item, turn = _item_at(desk, entry), desk.outline.turn_number(entry.position)

    def beginning(turn: int, otherwise: int) -> int:
        return starts[turn - 1] + 1 if 1 <= turn <= len(starts) else otherwise

    return {
        **map_place(desk.struck_map.ground, desk.struck_map.before, number, total, turn, beginning),
        "name": _name(desk, entry, item, turn),
        "address": _place_address(desk, entry, item),
    }


def _item_at(desk: ReviewDesk, entry: TranscriptEntry) -> ReviewItem | None:
    """The proposal in which an entry is decided; None if no part of it is proposed."""
    found = next((item for item in desk.review.items.values() if item.position == entry.position), None)
    return desk.review.items[found.leader] if found is not None and found.leader is not None else found


def _name(desk: ReviewDesk, entry: TranscriptEntry, item: ReviewItem | None, turn: int) -> str:
    line = line_of(desk.run, desk.transcript, entry)
    where = f"turn {turn:,}" if turn else "before the first turn"
    what = escape_line(beginning_of(f"{line.tool} {line.words}".strip(), WORDS))
    if item is None:
        return f"{where}, {what}, {in_measure(entry.tokens, desk.context)} tokens, kept"
    row = desk.proposal_rows([item])[0]
    return f"{where}, {what}, {plural(significant(row['tokens']), 'token')}, {row['mark'].words}"


def _place_address(desk: ReviewDesk, entry: TranscriptEntry, item: ReviewItem | None) -> str:
    if item is None:
        return entry_address(desk.run.session.get_absolute_url(), entry.entry_id)
    key = quote(ref_of(item.target), safe="")
    return f"{review_address(desk.run)}{desk.chosen.query()}&at={key}#{anchor(item.position, item.target)}"


KEYS: Final = (
    ("j k ↓ ↑", "next and previous row"),
    ("n N", "next and previous undecided"),
    ("] [", "next and previous group"),
    ("↵ ←", "open, shut"),
    ("a x", "approve; reject: it is kept, and pinned; both apply to the selection if there is one"),
    ("⇧A ⇧X", "approve or reject what is undecided in the group"),
    ("s ⇧↓ ⇧↑", "select, extend the selection"),
    ("e", "delete only some blocks of it"),
    ("m", "others like it"),
    ("+", "add a deletion beside it"),
    ("u", "undo the last step, and go to it"),
    ("/", "search: a text, or a /pattern/"),
    ("f", "filter by tool, kind, reason or size"),
    ("v", "what is around it"),
    ("o", "open it in the session"),
    ("g c", "to Confirm"),
    ("g t", "to the tree"),
    ("g p", "select by a pattern or by meaning"),
    ("esc", "clear the selection, then the filter"),
)
BUTTONS: Final = (
    ("j", "j", "Next", False),
    ("n", "n", "Next undecided", False),
    ("Enter", "↵", "Open", False),
    ("a", "a", "Approve", False),
    ("x", "x", "Reject", False),
    ("s", "s", "Select", True),
    ("A", "⇧A", "Approve group", True),
    ("u", "u", "Undo", False),
)
"""The buttons of the bar: the key of each, the key as displayed, the words, and whether only a wide bar shows it."""


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
        return closed(request, found)
    part = request.GET.get("part", "") if pages.wants_fragment(request) else ""
    try:
        desk = ReviewDesk(found, filter_of(request.GET))
        if part in _PARTS:
            return _PARTS[part](request, desk)
        page = _page(request, desk)
        context = page_context(desk, page)
    except RedlineError as fault:
        return closed(request, found, fault)
    context |= {"map": desk.struck_map, "place": place_of(desk, _first_place(desk, page["groups"]))}
    if is_shown(request):
        mark_seen(found)
    return render(request, "review/review.html", context)


def page_context(desk: ReviewDesk, page: Mapping[str, Any]) -> dict[str, Any]:
    """The context of a page of the review, except for its rail. Raises the errors of reading."""
    return _context(desk) | {
        "page": page,
        "last": step_words(desk, desk.last.step) if desk.last is not None else "",
        "last_at": desk.last.at if desk.last is not None else None,
        "torn": known_torn_line(desk.run.session),
        "choices": desk.choices(),
        "keys": KEYS,
        "buttons": BUTTONS,
        "groupings": [(one.value, words, desk.chosen.query(by=one)) for one, words in GROUPINGS.items()],
    }


def _page(request: HttpRequest, desk: ReviewDesk) -> dict[str, Any]:
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
    context = {"run": desk.run, "here": review_address(desk.run), "map": desk.struck_map, "place": place}
    context["chosen"] = desk.chosen
    return render(request, "review/review.html#map", context)


def _first_place(desk: ReviewDesk, groups: Sequence[GroupRow]) -> int:
    """The initial number of the map's slider: the entry of the first row that is shown."""
    first = next((row for group in groups if group.opened for row in group.opened["rows"]), None)
    entry = desk.transcript.entry(first["entry_id"]) if first is not None else None
    return entry.position + 1 if entry is not None else 1


@require_safe
def place(request: HttpRequest, run: int) -> HttpResponse:
    """Go to a place on the token map: an entry by its number, or the one at a point.

    A script gets the place as JSON.
    """
    found = known_run(run)
    x, y = _coordinate(request, "x"), _coordinate(request, "y")
    if not found.is_reviewable:
        return closed(request, found)
    try:
        desk = ReviewDesk(found, filter_of(request.GET))
        if x is not None and y is not None:
            named = place_at_point(desk, x, y)
        else:
            named = place_of(desk, _number(request, "number") or 1)
    except RedlineError as fault:
        return closed(request, found, fault)
    if not request.accepts("text/html"):
        return JsonResponse(named)
    return pages.redirect(named["address"])


def _group(request: HttpRequest, desk: ReviewDesk) -> HttpResponse:
    group = desk.group(request.GET.get("group", ""))
    if group is None:
        raise Http404("The address names no group of the review.")
    rows = desk.group_rows(group, _number(request, "from") or 0)
    context = {"run": desk.run, "here": review_address(desk.run), "chosen": desk.chosen, "key": group.key}
    context["opened"] = rows
    return render(request, "review/group.html#rows", context)


def _open(request: HttpRequest, desk: ReviewDesk) -> HttpResponse:
    item = _item(desk, request.GET.get("at", ""))
    if item is None:
        raise Http404("The address names no proposal of the review.")
    _remember_opened(request, desk.run, item)
    group = desk.group_of(item.target)
    context = {
        "run": desk.run,
        "item": desk.opened([item])[0],
        "summary": desk.summary,
        "opened_count": desk.opened_count,
        "group": desk.group_row(group) if group is not None else None,
        "anchor": anchor(item.position, item.target),
        "chips": desk.chips(),
    }
    return render(request, "review/opened.html", context)


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


def _context(desk: ReviewDesk) -> dict[str, Any]:
    """Everything around the groups of a review."""
    return {
        "run": desk.run,
        "here": review_address(desk.run),
        "tab": "review",
        "summary": desk.summary,
        "proposal_count": desk.summary.total,
        "opened_count": desk.opened_count,
        "moved": desk.moved,
        "overlap": desk.overlap,
        "chosen": desk.chosen,
        "chips": desk.chips(),
        "found": desk.found_sum(),
        "version": desk.version,
        "mark": desk.mark,
        "active_nav": "inbox",
    }


@pages.acts_on_post(lambda run: reverse("compaction:review", args=[run]))
def decide(request: HttpRequest, run: int) -> HttpResponse:
    """One decision. With htmx the response has the changes since the page's version; without, the whole page.

    A decision made on an older version is refused if a different decision was made since.
    """
    found, form, chosen = known_run(run), DecisionForm(request.POST), filter_of(request.POST)
    try:
        pages.require_valid(form, NOT_DECIDED)
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
        if pages.wants_fragment(request):
            return _changed(request, before, desk, form, fault=fault)
        return closed(request, found, fault, _again(desk, form))
    mark_seen(found)
    desk = ReviewDesk(found, chosen)
    try:
        message = _words(latest, desk, decision, step)
    except RedlineError as unreadable:
        # The decision is stored; the texts that would name it no longer exist.
        return _not_decided(request, found, unreadable)
    if pages.wants_fragment(request):
        return _changed(request, before, desk, form, step=step, message=message)
    messages.success(request, message)
    return pages.redirect(review_address(found) + _address(desk, step))


def _not_decided(request: HttpRequest, run: Run, fault: RedlineError) -> HttpResponse:
    if pages.wants_fragment(request):
        return render(request, "review/changes.html#fault", {"fault": fault}, status=pages.status_of(fault))
    return closed(request, run, fault)


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
        context = _context(desk)
    except RedlineError as unreadable:
        return _not_decided(request, run, unreadable)
    context |= {"fault": fault, "message": message, "went": _place(desk, step) if form.is_undo else None}
    if fault is not None:
        context |= _again(desk, form)
    context |= {"changes": changes} if page is None else {"page": page}
    part = "review/changes.html#changes" if page is None else "review/changes.html#reload"
    answer = render(request, part, context, status=pages.status_of(fault))
    return trigger_client_event(answer, "decided", after="settle")


def _again(desk: ReviewDesk, form: DecisionForm) -> dict[str, Any]:
    """The fields of a button that repeats a refused decision on the present review."""
    return {
        "repeated": form.repeated(desk),
        "version": desk.version,
        "mark": desk.mark,
        "chosen": desk.chosen,
    }


def _reload(desk: ReviewDesk, shown: Shown, step: Step | None) -> dict[str, Any]:
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
        return closed(request, found, fault)
    context = {
        "run": found,
        "rows": rows,
        "more": more,
        "start": start,
        "version": desk.version,
        "mark": mark_of(found),
        "active_nav": "inbox",
    }
    part = "review/stays.html#rows" if pages.wants_fragment(request) else "review/stays.html"
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


def _place(desk: ReviewDesk, step: Step | None) -> dict[str, str] | None:
    """The place of a decision: the key of its group, and the id of its row if it was about one proposal."""
    group = desk.group_of(step.targets[0]) if step is not None and step.targets else None
    if group is None:
        return None
    return {"group": group.key, "anchor": _anchor(desk, step) if _only_item(desk, step) is not None else ""}


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
    return pages.number_in(request.GET.get(name, ""))


def _coordinate(request: HttpRequest, name: str) -> int | None:
    """A coordinate on the map; values left of it or above it are moved to its edge."""
    return 0 if request.GET.get(name, "").startswith("-") else _number(request, name)


def closed(
    request: HttpRequest, run: Run, fault: RedlineError | None = None, again: Mapping[str, Any] | None = None
) -> HttpResponse:
    """Why there is nothing to review, and what to do next; `again` is the result of `_again` for a refused decision."""
    run.refresh_from_db()
    reviewable = RunState(run.state) in REVIEWABLE
    context = {
        "run": run,
        "tab": "review",
        "state": RunState(run.state),
        "fault": fault,
        "changed": reviewable and fault is not None and fault.code in ("session_rewritten", "no_such_file"),
        "again": reviewable and isinstance(fault, Conflict) and fault.code == "session_rewritten",
        "later": run.replaced_by.order_by("-pk").first(),
        "active_nav": "inbox",
        **(again or {}),
    }
    return render(request, "review/review_closed.html", context, status=pages.status_of(fault))
