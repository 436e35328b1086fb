"""The head that the pages of a session share: its relatives, its marks, its tabs, and what can be done with it."""

from dataclasses import dataclass
from typing import ClassVar, Final

from compaction_app.changes.backups import list_backups
from compaction_app.entries.branch_export import FORMS, note_of
from compaction_app.entries.branches import VIEWS
from sessions_app.agents.reading import Reading
from sessions_app.agents.registry import readers_of
from sessions_app.document.document import Document
from sessions_app.models import Session
from sessions_app.sessionlog.errors import RedlineError
from sessions_app.sessionlog.tree_rows import TreeRows
from sessions_app.web.session_badges import SessionBadge, find_badges

RELATIVES_SHOWN: Final = 100
NOTHING_WRITTEN: Final = "Nothing can be written for this session."
TABS: Final = {
    "session": "conversation",
    "entry": "conversation",
    "compact": "conversation",
    "tree": "tree",
    "compare_branches": "tree",
    "move": "tree",
    "label": "tree",
    "fork_from": "tree",
    "timeline": "timeline",
    "fork": "timeline",
    "lost": "timeline",
    "session_hindsight": "timeline",
    "backups": "backups",
    "doctor": "health",
}
"""The tab of each page of a session, by the name of its route; other pages are on no tab."""


@dataclass(frozen=True, slots=True)
class SessionHead:
    """What the head of a session's pages shows beside the row of the session."""

    tab: str
    """One of the values of TABS; empty if the page is on no tab."""
    parent: Session | None
    """The session that it was forked from, or that started it."""
    subagents: list[Session]
    forks: list[Session]
    badges: list[SessionBadge]
    backups: int | None
    branches: int | None
    """None if the file cannot be read now."""
    reading: Reading | None
    """How it is opened; None if the file cannot be read now."""
    readers: list[str]
    """The ways in which it can be opened."""
    why_no_plan: str
    """Why no plan can be made for it, as a sentence; empty if one can."""
    why_no_summary: str
    """Why no summary can be drafted for it, as a sentence; empty if one can."""
    export_note: str
    """What an export of everything has besides the conversation, as a sentence."""
    views: ClassVar = VIEWS
    export_forms: ClassVar = FORMS

    @classmethod
    def of(cls, session: Session, route: str = "") -> "SessionHead":
        """The head of a session, on the page of the route with this name."""
        shown = Session.objects.shown().for_display()
        children = list(shown.children_of(session).order_by("mtime_ns", "pk")[: 2 * RELATIVES_SHOWN])
        branches, reading = _opened(session)
        why_no_plan = _why_no_plan(session)
        return cls(
            tab=TABS.get(route, ""),
            parent=shown.parent_of(session),
            subagents=[one for one in children if one.is_subagent][:RELATIVES_SHOWN],
            forks=[one for one in children if not one.is_subagent][:RELATIVES_SHOWN],
            badges=find_badges([session.pk]).get(session.pk, []),
            backups=_backups(session),
            branches=branches,
            reading=reading,
            readers=readers_of(session.agent),
            why_no_plan=why_no_plan,
            why_no_summary=why_no_plan or _why_no_summary(session, reading),
            export_note=_export_note(session),
        )


def _backups(session: Session) -> int | None:
    """The number of its backups; None if they cannot be listed."""
    try:
        return len(list_backups(session.path))
    except RedlineError:
        return None


def _opened(session: Session) -> tuple[int | None, Reading | None]:
    """The number of its branches, and how it is opened; None if the file cannot be read now."""
    try:
        document = Document.of_index(session)
        branches = document.derived("branches", lambda: TreeRows(document.tree).branches)
    except RedlineError:
        return None, None
    return branches, document.reading


def _export_note(session: Session) -> str:
    """The use of its recorded lines; empty if the file cannot be read now."""
    try:
        return note_of(session.agent, session.path, "all")
    except RedlineError:
        return ""


def _why_no_plan(session: Session) -> str:
    if not session.has_header:
        return "This file has no session header. Make a copy with one first."
    if session.is_old:
        return f"Version {session.version} has no permanent entry ids. Make a version 3 copy first."
    return NOTHING_WRITTEN if session.read_only and not session.can_hand_off else ""


def _why_no_summary(session: Session, reading: Reading | None) -> str:
    if session.read_only:
        return NOTHING_WRITTEN
    form = reading.agent.format.summary_format if reading is not None else None
    if form is None or not form.honours_compactions:
        return f"{session.agent_label or 'Its agent'} has no summaries that Redline can write."
    return ""
