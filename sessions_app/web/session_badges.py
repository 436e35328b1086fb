"""Marks beside a session: a shape, a few words and often a link, in one order on the list and on the session's page.

The list does not know the other apps: they register the sources of their marks, and of the sessions that wait for the
user, when they are ready.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import IntEnum
from typing import Final

from django.db.models import Q
from django.utils.module_loading import import_string

from sessions_app.models import AS_PATH, Session
from sessions_app.sessionlog.text import one_line, plural

PARENT_CHARACTERS: Final = 36


class MarkPlace(IntEnum):
    """The places of marks in a row, from the most urgent one. A member's shape and weight follow from it."""

    WAITS = 0
    BROKEN = 1
    FULL = 2
    PLAN = 3
    LIVE = 4
    COMPACTED = 5
    RELATED = 6
    SUMMARIES = 7
    DAMAGED = 8
    FAILED = 9
    OTHER = 10


SHAPES: Final[Mapping[MarkPlace, str]] = {
    MarkPlace.WAITS: "clock",
    MarkPlace.BROKEN: "broken",
    MarkPlace.PLAN: "plan",
    MarkPlace.COMPACTED: "dele",
    MarkPlace.RELATED: "fork",
    MarkPlace.SUMMARIES: "summary",
    MarkPlace.DAMAGED: "damage",
    MarkPlace.FAILED: "no",
}
"""The icons of marks; those of the other places have none."""


@dataclass(frozen=True, slots=True)
class SessionBadge:
    """One mark."""

    words: str
    address: str = ""
    place: MarkPlace = MarkPlace.PLAN
    deleted: int = 0
    """Tokens that the words are about: −44,700 follows them. 0 for none."""
    quoted: str = ""
    """Words of a session, quoted after the others. They may contain anything."""
    why: str = ""
    """More about it, for whoever points at it. It may contain anything."""
    ends: datetime | None = None
    """When what it says ends; a script counts down to it."""
    written: int = 0
    """The number of compactions of the session that it stands for."""

    @property
    def shape(self) -> str:
        return SHAPES.get(self.place, "")

    @property
    def is_strong(self) -> bool:
        return self.place in (MarkPlace.WAITS, MarkPlace.FULL)

    @property
    def needs_you(self) -> bool:
        """Whether the session waits for its user."""
        return self.place in (MarkPlace.WAITS, MarkPlace.PLAN, MarkPlace.FAILED)


Source = Callable[[Sequence[int]], Mapping[int, SessionBadge]]
"""Returns badges for some of the sessions with these keys, with one query."""


_sources: Final[list[str]] = []
_needs: Final[list[str]] = []


def add_source(source: str) -> None:
    """Add the dotted path of a Source. It is imported when a page needs it: commands show no badges."""
    if source not in _sources:
        _sources.append(source)


def add_needs(needs: str) -> None:
    """Add the dotted path of a function that returns the condition for sessions that wait for their user."""
    if needs not in _needs:
        _needs.append(needs)


def needing_you() -> Q:
    """The condition for sessions that wait for their user, by any app."""
    condition = Q(pk__in=())
    for needs in _needs:
        condition |= import_string(needs)()
    return condition


def find_badges(keys: Sequence[int]) -> dict[int, list[SessionBadge]]:
    """The badges of the sessions with these keys; sessions without any are omitted."""
    found: dict[int, list[SessionBadge]] = {}
    for source in _sources if keys else ():
        badges: Source = import_string(source)
        for key, badge in badges(keys).items():
            found.setdefault(key, []).append(badge)
    return found


def parents_of(sessions: Iterable[Session]) -> dict[str, Session]:
    """The sessions that some of these were forked from, or started by, by the name that each gives for it.

    One query, and none if there are none.
    """
    names = {session.parent for session in sessions if session.parent}
    if not names:
        return {}
    shown = Session.objects.shown().for_display().annotate(at=AS_PATH)
    found = shown.filter(Q(header_id__in=names) | Q(at__in=names))
    return {name: one for one in found for name in (one.header_id, str(one.path)) if name in names}


def marks_of(
    session: Session,
    live: str,
    badges: Sequence[SessionBadge] = (),
    parents: Mapping[str, Session] | None = None,
) -> list[SessionBadge]:
    """All marks of a session, the most urgent one first. `live` is why it is live; empty if it is not."""
    marks = [*badges, *_own_marks(session, live, parents or {}), *_summaries(session, badges)]
    return sorted(marks, key=lambda mark: mark.place)


def _own_marks(session: Session, live: str, parents: Mapping[str, Session]) -> Iterator[SessionBadge]:
    if session.missing:
        yield SessionBadge("file missing", place=MarkPlace.BROKEN)
    if session.broken:
        yield SessionBadge("cannot be continued", place=MarkPlace.BROKEN, why=session.broken)
    if session.has_overflown:
        why = "The last response of its model was that the context is too long"
        yield SessionBadge("context too long", place=MarkPlace.FULL, why=why)
    elif session.due:
        why = f"{session.agent_label or 'Its agent'} compacts it at the next turn"
        yield SessionBadge("almost full", place=MarkPlace.FULL, why=why)
    if live:
        yield SessionBadge("live", place=MarkPlace.LIVE, why=live)
    if session.parent:
        yield _origin(session, parents.get(session.parent))
    yield from _marks_of_file(session)


def _marks_of_file(session: Session) -> Iterator[SessionBadge]:
    if session.fault:
        yield SessionBadge("unreadable", place=MarkPlace.BROKEN, why=session.fault)
    elif session.damage_count:
        yield SessionBadge(plural(session.damage_count, "damaged line"), place=MarkPlace.DAMAGED)
    if session.version and not session.header_id and not session.is_subagent:
        yield SessionBadge("no header", place=MarkPlace.DAMAGED)
    if session.unarchive_command:
        yield SessionBadge("archived", place=MarkPlace.OTHER, why=f"Taken back by {session.unarchive_command}")
    if session.taken_over:
        yield SessionBadge(session.taken_over, place=MarkPlace.OTHER)
    if session.is_old:
        yield SessionBadge(f"version {session.version}, read-only", place=MarkPlace.OTHER)
    if session.fitting_reader:
        words, address = f"{session.fitting_reader} would fit", session.get_absolute_url()
        why = f"The provider reported far fewer tokens than {session.read_as} reads here"
        yield SessionBadge(words, address, MarkPlace.OTHER, why=why)


def _origin(session: Session, parent: Session | None) -> SessionBadge:
    kind = "subagent" if session.is_subagent else "fork"
    if parent is None:
        return SessionBadge(kind, place=MarkPlace.RELATED, why=f"of {session.parent}")
    title = one_line(parent.heading, PARENT_CHARACTERS)
    return SessionBadge(f"{kind} of", parent.get_absolute_url(), MarkPlace.RELATED, quoted=title)


def _summaries(session: Session, badges: Iterable[SessionBadge]) -> Iterator[SessionBadge]:
    """The compactions that the agent wrote itself."""
    by_agent = session.compaction_count - sum(badge.written for badge in badges)
    if by_agent > 0:
        words = "1 summary" if by_agent == 1 else f"{by_agent:,} summaries"
        yield SessionBadge(words, place=MarkPlace.SUMMARIES, why="Written by its agent in place of what came before")
