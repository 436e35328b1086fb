"""The list of sessions as a page shows it: filtered, sorted, one page at a time. A handful of queries, at any size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, NamedTuple
from urllib.parse import urlencode

from django.conf import settings
from django.core.paginator import Page, Paginator
from django.db.models import Count, Max, Q, Sum

from sessions_app.index import progress
from sessions_app.index.progress import Indexing
from sessions_app.index.roots import managed_place
from sessions_app.models import Session
from sessions_app.querysets import DUE, SessionQuerySet, live
from sessions_app.storage.files import real_path

from .session_badges import SessionBadge, marks_of

PAGE_SIZE: Final = 60
CHOICES: Final = 200
"""Projects, or models, that can be chosen from a list."""
SHOW: Final = ("all", "due", "live", "damaged", "compacted")
SORTS: Final[Mapping[str, tuple[str, ...]]] = {
    "used": ("-mtime_ns", "pk"),
    "name": ("title", "pk"),
    "context": ("-context_tokens", "pk"),
    "entries": ("-entry_count", "pk"),
    "size": ("-size", "pk"),
}
AGES: Final[Mapping[str, int]] = {"day": 1, "week": 7, "month": 30, "year": 365}
"""Days since the last use."""


@dataclass(frozen=True, slots=True)
class ListFilters:
    """What the reader of the list asked for. Every field has a value that asks for nothing."""

    show: str = "all"
    text: str = ""
    project: str = ""
    agent: str = ""
    model: str = ""
    age: str = ""
    sort: str = "used"
    page: int = 1

    @classmethod
    def of(cls, asked: Mapping[str, str]) -> ListFilters:
        """The choice in an address; what is not known there asks for nothing."""
        page = asked.get("page", "")
        return cls(
            show=asked["show"] if asked.get("show") in SHOW else "all",
            text=asked.get("q", "").strip()[:200],
            project=asked.get("project", ""),
            agent=asked.get("agent", ""),
            model=asked.get("model", ""),
            age=asked["age"] if asked.get("age") in AGES else "",
            sort=asked["sort"] if asked.get("sort") in SORTS else "used",
            page=int(page) if page.isascii() and page.isdigit() and len(page) < 7 else 1,
        )

    def address(self, **other: object) -> str:
        """The query of an address that asks for this, with some of it changed."""
        asked = {
            "show": self.show,
            "q": self.text,
            "project": self.project,
            "agent": self.agent,
            "model": self.model,
            "age": self.age,
            "sort": self.sort,
            "page": 1,
            **other,
        }
        quiet = {"show": "all", "sort": "used", "page": 1}
        return "?" + urlencode(
            {name: value for name, value in asked.items() if value and value != quiet.get(name)}
        )


class SessionRow(NamedTuple):
    """One session in the list."""

    session: Session
    is_live: bool
    badges: Sequence[SessionBadge]
    """What other parts of Redline have to say of it."""


@dataclass(frozen=True, slots=True)
class Tab:
    """One of the lists above the table, with how many sessions it has."""

    name: str
    label: str
    count: int
    address: str
    current: bool


@dataclass(frozen=True, slots=True)
class ListColumn:
    """A heading of the table; with an address where one can sort by it."""

    label: str
    number: bool = False
    address: str = ""
    sorted: str = ""
    """`ascending` or `descending` where the table is sorted by it."""


@dataclass(frozen=True, slots=True)
class Place:
    """A root as the list names it."""

    path: str
    kept: bool
    """Whether it is the managed one."""
    fault: str
    """Why it cannot be looked at, where it cannot."""


@dataclass(frozen=True, slots=True)
class Listing:
    """One page of the list, and what can be chosen beside it."""

    choice: ListFilters
    rows: list[SessionRow]
    managed: str
    """The root of what was imported, and so of what lies with no agent."""
    columns: list[ListColumn]
    tabs: list[Tab]
    projects: list[str]
    agents: list[str]
    models: list[str]
    known: int
    bytes: int
    roots: list[Place]
    indexing: Indexing | None
    """How far the indexing is that goes on; None where none does."""
    indexed_at: datetime | None
    page: Page[Session]
    previous: str
    next: str

    @property
    def searched(self) -> list[str]:
        """The roots in which agents leave sessions."""
        return [root.path for root in self.roots if not root.kept]


def browse(choice: ListFilters, now: datetime) -> Listing:
    """The page of the list that a choice asks for; a page beyond the last is the last."""
    shown = Session.objects.shown()
    filters = _filters(now)
    counts = shown.aggregate(
        **{name: Count("pk", filter=found) for name, found in filters.items()},
        bytes=Sum("size"),
        indexed_at=Max("indexed_at"),
    )
    matching = _matching(shown, choice, filters, now)
    page = Paginator(matching.order_by(*SORTS[choice.sort]), PAGE_SIZE).get_page(choice.page)
    marks = marks_of([session.pk for session in page.object_list])
    labels = {"all": "All", "due": "Due", "live": "Live", "damaged": "Damaged", "compacted": "Compacted"}
    return Listing(
        choice=choice,
        rows=[
            SessionRow(session, session.is_live(now), marks.get(session.pk, ()))
            for session in page.object_list
        ],
        managed=str(managed_place()),
        columns=_columns(choice),
        tabs=[
            Tab(name, labels[name], counts[name], choice.address(show=name), name == choice.show)
            for name in SHOW
        ],
        projects=_values(shown, "cwd"),
        agents=_values(shown, "root__agent"),
        models=_values(shown, "model"),
        known=counts["all"],
        bytes=counts["bytes"] or 0,
        roots=_places(),
        indexing=progress.indexing(),
        indexed_at=counts["indexed_at"],
        page=page,
        previous=choice.address(page=page.number - 1) if page.has_previous() else "",
        next=choice.address(page=page.number + 1) if page.has_next() else "",
    )


def _places() -> list[Place]:
    managed = managed_place()
    places = {real_path(root.path): Place(str(root.path), False, "") for root in settings.REDLINE.roots}
    if managed.is_dir():
        places.setdefault(managed, Place(str(managed), True, ""))
    return [replace(place, fault=progress.fault_of(str(real))) for real, place in places.items()]


def _columns(choice: ListFilters) -> list[ListColumn]:
    def sortable(label: str, sort: str, number: bool = False) -> ListColumn:
        direction = "ascending" if sort == "name" else "descending"
        return ListColumn(label, number, choice.address(sort=sort), direction if sort == choice.sort else "")

    return [
        sortable("Session", "name"),
        ListColumn("Agent and model"),
        sortable("Context tokens", "context"),
        sortable("Entries", "entries", number=True),
        sortable("Size", "size", number=True),
        sortable("Last used", "used", number=True),
    ]


def _filters(now: datetime) -> dict[str, Q]:
    return {
        "all": Q(),
        "due": DUE,
        "live": live(now),
        "damaged": Q(damage_count__gt=0) | ~Q(fault=""),
        "compacted": Q(compaction_count__gt=0),
    }


def _matching(
    shown: SessionQuerySet, choice: ListFilters, filters: Mapping[str, Q], now: datetime
) -> SessionQuerySet:
    found = shown.filter(filters[choice.show])
    if choice.text:
        found = found.containing(choice.text)
    if choice.project:
        found = found.filter(cwd=choice.project)
    if choice.agent:
        found = found.filter(root__agent=choice.agent)
    if choice.model:
        found = found.filter(model=choice.model)
    if choice.age:
        since = now.timestamp() - 86_400 * AGES[choice.age]
        found = found.filter(mtime_ns__gte=int(since * 1e9))
    return found.for_display()


def _values(shown: SessionQuerySet, field: str) -> list[str]:
    """What there is to choose from. What could steer a display cannot be chosen: it is data from a file."""
    values = shown.order_by(field).values_list(field, flat=True).distinct()[:CHOICES]
    return [value for value in values if value and value.isprintable()]
