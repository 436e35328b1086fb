"""The page of a branch's timeline: a plot of the context's size, and each change with the entries that it removed."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_safe

from compaction_app.changes.entries import fork_session
from compaction_app.core.context_chart import WIDTHS as CHARTS, Limits, SizeChange, draw_context
from compaction_app.core.summary_loss import summary_of
from compaction_app.entries.branches import branch_state
from compaction_app.entries.view import ENTRY_PREVIEW_CHARS, EntryWords
from compaction_app.lookups import known_session
from compaction_app.models import Compaction, written_by_redline
from sessions_app.document.document import indexed_texts
from sessions_app.models import Session
from sessions_app.sessionlog.context import Message
from sessions_app.sessionlog.entries import BoundaryControl, EntryKind
from sessions_app.sessionlog.errors import BadInput, RedlineError
from sessions_app.sessionlog.timeline import TimelinePoint, timeline_of
from sessions_app.web.pages import acts_on_post, redirect, status_of, view_or_fault

REMOVED_SHOWN: Final = 50
ADDED_SHOWN: Final = 5
ADDED_WORDS: Final = 4_000
"""The number of characters of a replacing text that are shown."""
REDLINE: Final = "Redline"
_NAMES: Final = {
    EntryKind.DELETION: "compaction",
    EntryKind.SUMMARY: "summary",
    EntryKind.BOUNDARY: "compaction",
    EntryKind.EDIT: "edits",
    EntryKind.UNDO: "undo",
}


@dataclass(frozen=True, slots=True)
class PointRow:
    """A point of the timeline."""

    number: int
    change: TimelinePoint
    turn: int
    """The turn in which it is; 0 before the first one."""
    by: str
    """Who made it: `Redline`, or the name of the agent."""
    tokens_before: int
    tokens_after: int
    compaction: Compaction | None
    """Redline's record of the compaction, if Redline made it."""
    is_selected: bool

    @property
    def is_own(self) -> bool:
        return self.by == REDLINE

    @property
    def name(self) -> str:
        """What made the change: "Redline, plan 4", "Claude Code’s summary"."""
        if self.compaction is not None and self.compaction.run_id:
            return f"{REDLINE}, plan {self.compaction.run_id}"
        return f"{self.by}’s {'summary' if self.summary else _NAMES[self.change.kind]}"

    @property
    def summary(self) -> str:
        """The entry with the summary that replaced something; empty if there is none."""
        found = summary_of(self.change) if self.change.removed else None
        return found.entry.id if found is not None else ""

    @property
    def at(self) -> str:
        """The id of the last entry of the change."""
        return self.change.last.id

    @property
    def recorded(self) -> BoundaryControl | None:
        """The data that the agent's compaction records about itself, if any."""
        control = self.change.first.control
        return control if self.compaction is None and isinstance(control, BoundaryControl) else None

    @property
    def tokens_removed(self) -> int:
        return self.tokens_before - self.tokens_after

    @property
    def tokens_added(self) -> int:
        return -self.tokens_removed


def view_timeline(session: Session, leaf_id: str, at: str) -> dict[str, Any]:
    """The timeline of a branch, for its page: the point that ends at an entry is selected; empty means the latest one.

    Raises BadInput `unknown_entry`, and the errors of reading the session.
    """
    state = branch_state(session, leaf_id)
    found = timeline_of(state.branch, state.reading.reader)
    written = {row.entry_id: row for row in session.compactions.select_related("run").filter(created="")}
    sizes = [state.size.at(estimate) for estimate in found.sizes]
    places = {entry.id: place for place, entry in enumerate(state.branch)}
    turns = [place for place, _ in state.turns]
    own, agent = written_by_redline(session), session.agent_label or "the agent"
    at = at or (found.points[-1].last.id if found.points else "")
    rows = [
        PointRow(
            number=number,
            change=point,
            turn=bisect_right(turns, places[point.last.id]),
            by=REDLINE if point.last.id in own or point.kind is EntryKind.UNDO else agent,
            tokens_before=state.size.at(point.tokens_before),
            tokens_after=sizes[places[point.last.id]],
            compaction=written.get(point.last.id),
            is_selected=point.last.id == at,
        )
        for number, point in enumerate(found.points, 1)
    ]
    selected = next((row for row in rows if row.is_selected), None)
    if at and selected is None:
        raise BadInput("unknown_entry", f"No change of this branch's context ends at entry {at}.")
    place = rows.index(selected) if selected is not None else 0
    removed, added = (selected.change.removed, selected.change.added) if selected is not None else ((), ())
    return {
        "charts": [
            draw_context(
                width,
                sizes,
                turns,
                [
                    SizeChange(places[row.at], row.tokens_before, row.tokens_after, row.name, row.is_own, row.at)
                    for row in rows
                ],
                Limits(session.window, session.due_at),
            )
            for width in CHARTS
        ],
        "largest": max((*sizes, 1)),
        "size": state.size,
        "points": rows,
        "selected": selected,
        "earlier": rows[place - 1] if place > 0 else None,
        "later": rows[place + 1] if selected is not None and place + 1 < len(rows) else None,
        "removed": _changed(session, removed[:REMOVED_SHOWN], ENTRY_PREVIEW_CHARS),
        "added": _changed(session, added[:ADDED_SHOWN], ADDED_WORDS),
        # Compactions that Redline wrote and that are not on this branch.
        "taken_back": [row for row in written.values() if row.entry_id not in places],
        # A compaction that changes rows is recorded by no entry of a branch.
        "is_in_database": session.agent.store.database(session.path) is not None,
    }


def _changed(session: Session, messages: Sequence[Message], length: int) -> list[EntryWords]:
    """The messages with the beginnings of their texts, of at most `length` characters."""
    texts = indexed_texts(session, [message.source for message in messages])
    return [EntryWords.of_message(message, texts[message.source.id], length) for message in messages]


@require_safe
def timeline(request: HttpRequest, root: int, path: str) -> HttpResponse:
    """The changes of a branch's context, point by point, and the entries that the selected point removed."""
    return _show(request, known_session(root, path), request.GET)


@acts_on_post(lambda root, path: reverse("compaction:timeline", args=(root, path)))
def fork(request: HttpRequest, root: int, path: str) -> HttpResponse:
    """Make a new session that continues from an entry, and go there."""
    found = known_session(root, path)
    try:
        made = fork_session(found.real_path(), request.POST.get("entry", ""), timezone.now(), is_leaf=True)
    except RedlineError as fault:
        return _show(request, found, request.POST, fault)
    return redirect(made)


def _show(request: HttpRequest, found: Session, query: QueryDict, fault: RedlineError | None = None) -> HttpResponse:
    leaf, at = query.get("leaf", ""), query.get("at", "")
    view, fault = view_or_fault(lambda: view_timeline(found, leaf, at), fault, not_found="unknown_entry")
    context = {"session": found, "view": view, "leaf": leaf, "fault": fault, "active_nav": "sessions"}
    return render(request, "timeline/timeline.html", context, status=status_of(fault))
