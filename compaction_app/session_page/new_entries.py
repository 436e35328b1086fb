"""What was added to a branch since a page of it was drawn."""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple
from urllib.parse import urlencode

from django.template.loader import render_to_string

from compaction_app.display.branches import VIEWS, BranchState, branch_state
from sessions_app.models import Session
from sessions_app.sessionlog.entries import Entry

from .live_signs import live_signs


class ShownBranch(NamedTuple):
    """What a page shows of the branch that its session continues: a view, and the last entry of that."""

    view: str
    last: str

    @classmethod
    def of(cls, said: Any) -> ShownBranch | None:
        """What a page says that it shows; None if it says anything else."""
        if not isinstance(said, dict):
            return None
        view, last = said.get("view"), said.get("last")
        return cls(view, last) if view in VIEWS and isinstance(last, str) else None


def new_entries(state: BranchState, shown: ShownBranch) -> list[Entry] | None:
    """The entries of the view after the last one that a page shows; None if that is not in the view any more."""
    listed = state.listed[shown.view]
    if not shown.last:
        return listed
    for place in range(len(listed) - 1, -1, -1):
        if listed[place].id == shown.last:
            return listed[place + 1 :]
    return None


def draw_news(key: int, shown: ShownBranch, now: datetime) -> str:
    """What is new for a page, as the parts of it that change. Raises what reading a session raises."""
    session = Session.objects.shown().select_related("root").get(pk=key)
    state = branch_state(session)
    found = new_entries(state, shown)
    context = {
        "session": session,
        "size": state.size,
        "activity": live_signs(session, now),
        "has_changed": found is None,
        "new": found or (),
        "tokens": sum(state.kept[entry.id].tokens for entry in found or () if entry.id in state.kept),
        "page": f"{session.get_absolute_url()}?{urlencode({'view': shown.view})}",
        "apart": True,
    }
    return render_to_string("session_page/news.html", context)
