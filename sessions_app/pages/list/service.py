"""Badges that other apps show beside a session in the list, each with a link.

The list does not know the other apps: they register their badges when they are ready.
"""
# WAS sessions_app/list/service: """The list of sessions: filtered, sorted and paginated, with a constant, small number of queries."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

from django.core.paginator import Page, Paginator
from django.db.models import Count, Max, Q, Sum

from sessions_app.agents.base import Agent
from sessions_app.agents.registry import AGENTS, key_of_reader
from sessions_app.index import progress
from sessions_app.index.progress import Indexing, TextProgress
from sessions_app.index.roots import managed_path, shown_roots
from sessions_app.index.session_locks import OpenSessions, open_sessions
from sessions_app.models import DUE, Root, Session, SessionQuerySet, live
from sessions_app.sessionlog.errors import BadInput
from sessions_app.web.session_badges import SessionBadge, find_badges

# WAS sessions_app/list/listing: """The indexed sessions for scripts, as JSON, with the usage of their context windows."""


PAGE_SIZE: Final = 60
CHOICES: Final = 200
"""The maximum number of projects, or models, to choose from."""
SHOW: Final = ("all", "due", "live", "damaged", "compacted", "subagents")
SORTS: Final[Mapping[str, tuple[str, ...]]] = {
    "used": ("-last_used", "pk"),
    "name": ("title", "pk"),
    "context": ("-context_tokens", "pk"),
    "entries": ("-entry_count", "pk"),
    "size": ("-size", "pk"),
}
AGES: Final[Mapping[str, int]] = {"day": 1, "week": 7, "month": 30, "year": 365}
"""Days since the last use."""


@dataclass(frozen=True, slots=True)
class ListFilters:
    """The filters and order of the list. The default of every field means no restriction."""

    show: str = "all"
    text: str = ""
    project: str = ""
    agent: str = ""
    model: str = ""
    age: str = ""
    sort: str = "used"
    page: int = 1

    @classmethod
    def of(cls, query: Mapping[str, str]) -> ListFilters:
        """The filters in a URL's query; unknown values are ignored."""
        page = query.get("page", "")
        return cls(
            show=query["show"] if query.get("show") in SHOW else "all",
            text=query.get("q", "").strip()[:200],
            project=query.get("project", ""),
            agent=query.get("agent", ""),
            model=query.get("model", ""),
            age=query["age"] if query.get("age") in AGES else "",
            sort=query["sort"] if query.get("sort") in SORTS else "used",
            page=int(page) if page.isascii() and page.isdigit() and len(page) < 7 else 1,
        )

    def address(self, **other: object) -> str:
        """The query of a URL with these filters, some of them changed."""
        query = {
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
        return "?" + urlencode({name: value for name, value in query.items() if value and value != quiet.get(name)})


class SessionRow(NamedTuple):
    """One session in the list."""

    session: Session
    live: str
    """Why it is live, such as `just written to`; empty if it is not."""
    badges: Sequence[SessionBadge]
    """Badges from other parts of Redline."""


@dataclass(frozen=True, slots=True)
class Tab:
    """One of the filters above the table, with the number of its sessions."""

    name: str
    label: str
    count: int
    address: str
    current: bool


@dataclass(frozen=True, slots=True)
class ListColumn:
    """A heading of the table; with a URL if the table can be sorted by it."""

    label: str
    number: bool = False
    address: str = ""
    sorted: str = ""
    """`ascending` or `descending` if the table is sorted by it."""


@dataclass(frozen=True, slots=True)
class ListedRoot:
    """A root in the list."""

    path: str
    agent: str
    """The name of the agent that writes to it; empty if that is detected by path."""
    exists: bool
    kept: bool
    """Whether it is the managed root."""
    fault: str
    """Why it cannot be read; empty if it can."""
    unread: str
    """What its agent has there that Redline cannot read yet; empty if there is nothing."""


class ListTotals(NamedTuple):
    """Figures of all sessions, whatever the filters."""

    sessions: int
    subagents: int
    bytes: int
    indexed_at: datetime | None
    """When one of them was indexed last."""
    agents: list[Agent]
    """The agents that own some of them."""


@dataclass(frozen=True, slots=True)
class Listing:
    """One page of the list, and the choices for its filters."""

    choice: ListFilters
    rows: list[SessionRow]
    managed: str
    """The path of the managed root."""
    columns: list[ListColumn]
    tabs: list[Tab]
    projects: list[str]
    agents: list[Agent]
    models: list[str]
    known: int
    bytes: int
    roots: list[ListedRoot]
    indexing: Indexing | None
    """The progress of the current indexing, or None."""
    texts: TextProgress | None
    """The progress of the full-text index, or None."""
    indexed_at: datetime | None
    page: Page[Session]
    previous: str
    next: str

    @property
    def searched(self) -> list[ListedRoot]:
        """The roots that agents write to."""
        return [root for root in self.roots if not root.kept]


def browse(choice: ListFilters, now: datetime) -> Listing:
    """The page of the list for these filters; a page number beyond the last means the last."""
    shown = Session.objects.shown()
    roots = shown_roots()
    held = open_sessions((root.path, root.agent) for root in roots)
    filters = _filters(now, held)
    totals = _totals(shown)
    projects, models = _projects_and_models(shown)
    matching = _matching(shown, choice, now)
    counts = matching.aggregate(**{name: Count("pk", filter=found) for name, found in filters.items()})
    chosen = matching.filter(filters[choice.show]).for_display().order_by(*SORTS[choice.sort])
    paginator = Paginator(chosen, PAGE_SIZE)
    paginator.count = counts[choice.show]  # known already: it is not counted again
    page = paginator.get_page(choice.page)
    badges = find_badges([session.pk for session in page.object_list])
    labels = {
        "all": "All",
        "due": "Due",
        "live": "Live",
        "damaged": "Damaged",
        "compacted": "Compacted",
        "subagents": "Subagents",
    }
    return Listing(
        choice=choice,
        rows=[
            SessionRow(session, _live_reason(session, held, now), badges.get(session.pk, ()))
            for session in page.object_list
        ],
        managed=str(managed_path()),
        columns=_columns(choice),
        tabs=[
            Tab(name, labels[name], counts[name], choice.address(show=name), name == choice.show)
            for name in SHOW
            if name != "subagents" or totals.subagents
        ],
        projects=projects,
        agents=totals.agents,
        models=models,
        known=totals.sessions,
        bytes=totals.bytes,
        roots=_listed_roots(roots),
        indexing=progress.indexing(),
        texts=progress.texts(),
        indexed_at=totals.indexed_at,
        page=page,
        previous=choice.address(page=page.number - 1) if page.has_previous() else "",
        next=choice.address(page=page.number + 1) if page.has_next() else "",
    )


def _listed_roots(roots: Iterable[Root]) -> list[ListedRoot]:
    managed = str(managed_path())
    return [
        ListedRoot(
            root.path,
            AGENTS[root.agent].label if root.agent in AGENTS else "",
            Path(root.path).exists(),
            root.path == managed,
            progress.fault_of(root.path),
            root.unread,
        )
        for root in roots
    ]


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


def _live_reason(session: Session, held: OpenSessions, now: datetime) -> str:
    agent = held.agent_of(session)
    if agent:
        return f"open in {agent}"
    return "just written to" if session.is_live(now) else ""


def _filters(now: datetime, held: OpenSessions) -> dict[str, Q]:
    return {
        "all": Q(is_subagent=False),
        "due": DUE & Q(is_subagent=False),
        "live": live(now) | held.query,
        "damaged": Q(damage_count__gt=0) | ~Q(broken="") | ~Q(fault=""),
        "compacted": Q(compaction_count__gt=0),
        "subagents": Q(is_subagent=True),
    }


def _matching(found: SessionQuerySet, choice: ListFilters, now: datetime) -> SessionQuerySet:
    """The sessions in all tabs of the list for these filters."""
    if choice.text:
        found = found.containing(choice.text)
    if choice.project:
        found = found.filter(cwd=choice.project)
    if choice.agent:
        found = found.of_agent(choice.agent)
    if choice.model:
        found = found.filter(model=choice.model)
    if choice.age:
        found = found.filter(last_used__gte=now - timedelta(days=AGES[choice.age]))
    return found


def _totals(shown: SessionQuerySet) -> ListTotals:
    """The totals of all sessions, by one query that groups them by the few values that determine their agents."""
    owned = list(
        shown.values("read_as", "root__agent").annotate(
            sessions=Count("pk"),
            subagents=Count("pk", filter=Q(is_subagent=True)),
            bytes=Sum("size"),
            last_indexed=Max("indexed_at"),
        )
    )
    keys = {key_of_reader(row["read_as"]) or row["root__agent"] for row in owned}
    indexed = [row["last_indexed"] for row in owned if row["last_indexed"] is not None]
    return ListTotals(
        sum(row["sessions"] for row in owned),
        sum(row["subagents"] for row in owned),
        sum(row["bytes"] for row in owned),
        max(indexed, default=None),
        [agent for key, agent in AGENTS.items() if key in keys],
    )


def _projects_and_models(shown: SessionQuerySet) -> tuple[list[str], list[str]]:
    """The projects and the models to choose from, by one query. Unprintable ones are omitted: they come from files."""
    pairs = shown.order_by().values_list("cwd", "model").distinct()
    projects, models = (sorted(set(values)) for values in zip(*pairs, strict=True)) if pairs else ([], [])
    return _choices(projects), _choices(models)


def _choices(values: Iterable[str]) -> list[str]:
    return [value for value in values if value and value.isprintable()][:CHOICES]


class SessionPage(NamedTuple):
    """Part of a longer list of sessions, and whether more follow."""

    sessions: list[Session]
    more: bool


def list_page(text: str, limit: int, after: int | None = None) -> SessionPage:
    """At most `limit` sessions of configured roots, most recently used first, with `text` in title or project.

    `after` is the id of the last session of the previous page. Raises BadInput `no_such_session`.
    """
    found = Session.objects.shown().containing(text).for_display().latest_first()
    if after is not None:
        found = found.filter(_used_before(after))
    sessions = list(found[: limit + 1])
    return SessionPage(sessions[:limit], len(sessions) > limit)


def _used_before(key: int) -> Q:
    """The sessions that follow this one, most recently used first. Raises BadInput `no_such_session`."""
    last = Session.objects.filter(pk=key).values_list("last_used").first()
    if last is None:
        raise BadInput("no_such_session", f"There is no session {key}. Nothing was listed. Start from the beginning.")
    (used,) = last
    if used is None:
        return Q(last_used__isnull=True, pk__gt=key)
    return Q(last_used__lt=used) | Q(last_used=used, pk__gt=key) | Q(last_used__isnull=True)


def session_json(session: Session) -> dict[str, Any]:
    """A session in the format for scripts. Sizes in bytes, context and window in tokens; times are UTC.

    Only sessions in configured roots have a page, and so URLs.
    """
    url = session.get_absolute_url() if session.has_page else None
    return {
        "id": session.pk,
        "shortId": session.short_id,
        "url": url,
        "api": f"/api{url}" if url else None,
        "path": str(session.path),
        "title": session.title,
        "project": session.cwd,
        "agent": session.agent_key,
        "model": session.model,
        "entries": session.entry_count,
        "size": session.size,
        "contextTokens": session.context_tokens,
        "contextBasis": session.context_basis,
        "contextWindow": session.window,
        "windowSource": session.window_source,
        "due": bool(session.due),
        "dueReason": session.due,
        "lastUsed": session.last_used.isoformat() if session.last_used else None,
        "damaged": session.damage_count,
        "forkOf": (not session.is_subagent and session.parent) or None,
        "subagentOf": (session.is_subagent and session.parent) or None,
        "broken": {"entry": session.broken_at, "reason": session.broken} if session.broken else None,
        "missing": session.missing,
        "takenOver": session.taken_over or None,
        "fault": session.fault,
    }
