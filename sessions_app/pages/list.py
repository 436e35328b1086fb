"""The list of sessions, as a page and over its socket: filtered, sorted and paginated with few queries.

The socket renders the list again when it changes, and passes on notices for open pages as JSON. A page sends the query
of the list that it shows (`{"query": "?show=due&page=2"}`), and again when it changes; it receives the part of the page
that contains the list, for htmx to insert.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple
from urllib.parse import urlencode

import msgspec
from channels.db import database_sync_to_async
from django.core.paginator import Paginator
from django.db import DatabaseError
from django.db.models import Count, Max, Q, Sum
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import render
from django.template.loader import render_to_string
from django.utils import timezone
from django.views.decorators.http import require_safe

from sessions_app import introduction
from sessions_app.agents.base import Agent
from sessions_app.agents.registry import AGENTS, key_of_reader
from sessions_app.index.demo_session import DEMO_FILE
from sessions_app.index.progress import latest
from sessions_app.index.roots import managed_path, shown_roots
from sessions_app.index.session_locks import OpenSessions, open_sessions
from sessions_app.models import DUE, Session, SessionQuerySet, live
from sessions_app.server.broadcast import SESSIONS
from sessions_app.sessionlog.errors import BadInput
from sessions_app.web.page_socket import PageConsumer
from sessions_app.web.pages import number_in, wants_fragment
from sessions_app.web.session_badges import (
    MarkPlace,
    SessionBadge,
    find_badges,
    marks_of,
    needing_you,
    parents_of,
)

PAGE_SIZE: Final = 60
CHOICES: Final = 200
"""The maximum number of projects, or models, to choose from."""
TABS: Final[Mapping[str, str]] = {
    "all": "All",
    "needs": "Needs you",
    "due": "Almost full",
    "live": "Live",
    "compacted": "Compacted",
    "damaged": "Damaged",
    "subagents": "Subagents",
}
"""The filters of the list, and their words."""
MARKS: Final = 2
"""The maximum number of marks in a row; the others are counted."""
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
        page = number_in(query.get("page", ""), 6)
        return cls(
            show=query["show"] if query.get("show") in TABS else "all",
            text=query.get("q", "").strip()[:200],
            project=query.get("project", ""),
            agent=query.get("agent", ""),
            model=query.get("model", ""),
            age=query["age"] if query.get("age") in AGES else "",
            sort=query["sort"] if query.get("sort") in SORTS else "used",
            page=page if page is not None else 1,
        )

    def address(self, **other: object) -> str:
        """The query of a URL with these filters, some of them changed."""
        query = {"q" if name == "text" else name: value for name, value in asdict(self).items()}
        query |= {"page": 1, **other}
        quiet = {"show": "all", "sort": "used", "page": 1}
        return "?" + urlencode({name: value for name, value in query.items() if value and value != quiet.get(name)})


class ListColumn(NamedTuple):
    """A heading of the table, and what the table can be sorted by there."""

    name: str
    headings: list[SortedBy]

    @property
    def sorted(self) -> str:
        """`ascending` or `descending` if the table is sorted by it."""
        return next((heading.sorted for heading in self.headings if heading.sorted), "")


class SortedBy(NamedTuple):
    """A label; with a URL if the table can be sorted by it."""

    label: str
    address: str = ""
    sorted: str = ""


class ListRow(NamedTuple):
    """A session in the list, with its most urgent marks and the others."""

    session: Session
    marks: list[SessionBadge]
    more: list[SessionBadge]

    @property
    def more_words(self) -> str:
        return ", ".join(mark.words for mark in self.more)

    @property
    def needs_you(self) -> bool:
        """Whether it waits for its user, or is about to be compacted by its agent."""
        return bool(self.session.due) or any(mark.needs_you for mark in (*self.marks, *self.more))


class AgentChip(NamedTuple):
    """An agent, the number of its sessions, and the list with or without this filter."""

    agent: Agent
    sessions: int
    is_chosen: bool
    address: str


class DayGroup(NamedTuple):
    """The sessions of a page that were last used at about the same time. Without a name, it is the whole page."""

    name: str
    sessions: int
    """The number of sessions on all pages."""
    form: str
    """The form of their times: see `components.MOMENT_FORMS`."""
    rows: list[ListRow]

    @property
    def waiting(self) -> int:
        """The number of agents that wait, on this page."""
        marks = [mark for row in self.rows for mark in (*row.marks, *row.more)]
        return sum(mark.place == MarkPlace.WAITS for mark in marks)


class _Day(NamedTuple):
    """A group of the list by its name, and when it begins; the last one has no beginning."""

    key: str
    name: str
    form: str
    since: datetime | None


def browse(choice: ListFilters, now: datetime) -> dict[str, Any]:
    """The page of the list for these filters, and the choices for them, by the names that its template uses.

    A page number beyond the last means the last.
    """
    shown = Session.objects.shown()
    roots = shown_roots()
    held = open_sessions((root.path, root.agent) for root in roots)
    filters = _filters(now, held)
    totals, managed = _totals(shown, choice), str(managed_path())
    projects, models = _projects_and_models(shown)
    matching = _matching(shown, choice, now)
    days = _days(now)
    counts = matching.aggregate(
        **{name: Count("pk", filter=found) for name, found in filters.items()},
        **{day: Count("pk", filter=filters[choice.show] & found) for day, found in _conditions(days).items()},
    )
    chosen = matching.filter(filters[choice.show]).for_display().order_by(*SORTS[choice.sort])
    paginator = Paginator(chosen, PAGE_SIZE)
    paginator.count = counts[choice.show]  # known already: it is not counted again
    page = paginator.get_page(choice.page)
    rows = _rows(list(page), held, now)
    listed = [
        {
            "path": root.path,
            # The agent that writes to it, unless that is detected by path.
            "agent": AGENTS.get(root.agent),
            "exists": Path(root.path).exists(),
            "kept": root.path == managed,
            "fault": latest.faults.get(root.path, ""),
            # What its agent has there that Redline cannot read yet.
            "unread": root.unread,
        }
        for root in roots
    ]
    return {
        "choice": choice,
        "groups": _by_day(rows, days, counts) if choice.sort == "used" else _undivided(rows),
        "managed": managed,
        "columns": _columns(choice),
        "tabs": [
            (name == choice.show, words, counts[name], choice.address(show=name))
            for name, words in TABS.items()
            if name != "subagents" or totals["subagents"]
        ],
        "projects": projects,
        "models": models,
        "totals": totals,
        "introduction": introduction.shown(totals["sessions"], totals["own"]),
        "roots": listed,
        # Those that agents write to.
        "searched": [root for root in listed if not root["kept"]],
        "indexing": latest.indexing,
        "texts": latest.texts,
        "page": page,
        "previous": choice.address(page=page.number - 1) if page.has_previous() else "",
        "next": choice.address(page=page.number + 1) if page.has_next() else "",
    }


def _rows(sessions: Sequence[Session], held: OpenSessions, now: datetime) -> list[ListRow]:
    badges, parents = find_badges([session.pk for session in sessions]), parents_of(sessions)
    rows = []
    for session in sessions:
        marks = marks_of(session, _live_reason(session, held, now), badges.get(session.pk, ()), parents)
        rows.append(ListRow(session, marks[:MARKS], marks[MARKS:]))
    return rows


def _days(now: datetime) -> list[_Day]:
    """The groups of the list, the latest first; the last one has the sessions that were never used, too."""
    today = timezone.localtime(now).replace(hour=0, minute=0, second=0, microsecond=0)
    return [
        _Day("today", "Today", "clock", today),
        _Day("yesterday", "Yesterday", "clock", today - timedelta(days=1)),
        _Day("week", "This week", "weekday", today - timedelta(days=6)),
        _Day("older", "Older", "ago", None),
    ]


def _conditions(days: Sequence[_Day]) -> dict[str, Q]:
    """The condition for the sessions of each day: since its beginning, and before the next one's."""
    found, before = {}, Q()
    for day in days:
        found[day.key] = before & (Q() if day.since is None else Q(last_used__gte=day.since))
        before = Q(last_used__lt=day.since) | Q(last_used=None)
    return found


def _by_day(rows: Sequence[ListRow], days: Sequence[_Day], counts: Mapping[str, int]) -> list[DayGroup]:
    """The rows of a page in groups; days without a row are omitted."""
    groups = [DayGroup(day.name, counts[day.key], day.form, []) for day in days]
    for row in rows:
        used = row.session.last_used
        of_row = (day.since is None or (used is not None and used >= day.since) for day in days)
        groups[list(of_row).index(True)].rows.append(row)
    return [group for group in groups if group.rows]


def _undivided(rows: list[ListRow]) -> list[DayGroup]:
    return [DayGroup("", len(rows), "ago", rows)] if rows else []


def _columns(choice: ListFilters) -> list[ListColumn]:
    def by(label: str, sort: str) -> SortedBy:
        direction = "ascending" if sort == "name" else "descending"
        return SortedBy(label, choice.address(sort=sort), direction if sort == choice.sort else "")

    return [
        ListColumn("session", [by("Session", "name")]),
        ListColumn("agent", [SortedBy("Agent, model")]),
        ListColumn("context", [by("Context", "context")]),
        ListColumn("size", [by("Entries", "entries"), by("size", "size")]),
        ListColumn("used", [by("Last used", "used")]),
    ]


def _live_reason(session: Session, held: OpenSessions, now: datetime) -> str:
    agent = held.agent_of(session)
    if agent:
        return f"Open in {agent}"
    return "Just written to" if session.is_live(now) else ""


def _filters(now: datetime, held: OpenSessions) -> dict[str, Q]:
    return {
        "all": Q(is_subagent=False),
        "needs": needing_you() & Q(is_subagent=False),
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


def _totals(shown: SessionQuerySet, choice: ListFilters) -> dict[str, Any]:
    """The totals of all sessions, whatever the filters, by one query that groups them by the few values that determine
    their agents. Sessions are the user's `own` unless they are the demo."""
    is_demo = Q(root__path=str(managed_path()), relative_path=DEMO_FILE)
    owned = list(
        shown.values("read_as", "root__agent").annotate(
            sessions=Count("pk"),
            subagents=Count("pk", filter=Q(is_subagent=True)),
            own=Count("pk", filter=~is_demo),
            bytes=Sum("size"),
            last_indexed=Max("indexed_at"),
        )
    )
    of_agents: Counter[str] = Counter()
    for row in owned:
        of_agents[key_of_reader(row["read_as"]) or row["root__agent"]] += row["sessions"] - row["subagents"]
    indexed = [row["last_indexed"] for row in owned if row["last_indexed"] is not None]
    return {
        **{name: sum(row[name] for row in owned) for name in ("sessions", "subagents", "own", "bytes")},
        "indexed_at": max(indexed, default=None),
        "agents": [_chip(agent, of_agents[key], choice) for key, agent in AGENTS.items() if key in of_agents],
    }


def _chip(agent: Agent, sessions: int, choice: ListFilters) -> AgentChip:
    is_chosen = agent.key == choice.agent
    return AgentChip(agent, sessions, is_chosen, choice.address(agent="" if is_chosen else agent.key))


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


DRAW_SECONDS: Final = 1
"""Seconds between two renderings: while an agent writes continuously, the list is updated once a second."""
IDLE_SECONDS: Final = 30
"""Seconds after which the list is rendered without any event, because sessions stop being live as time passes."""

_log = logging.getLogger("redline")


class Hello(msgspec.Struct):
    """A message from a page: the query of its URL, and a counter of such messages."""

    query: str
    asked: Annotated[int, msgspec.Meta(ge=0, lt=2**31)] = 0


class ListSubscription(NamedTuple):
    """The list that a page shows, and the number of the message that requested it."""

    choice: ListFilters
    number: int


class SessionsConsumer(PageConsumer):
    """Renders the list for the URL of its page."""

    idle_seconds = IDLE_SECONDS
    _subscription: ListSubscription
    _sent = ""

    def group(self) -> str:
        return SESSIONS

    def take(self, message: str) -> bool:
        subscription = subscription_in(message)
        if subscription is not None:
            self._subscription = subscription
        return subscription is not None

    async def is_news(self, fact: dict[str, Any]) -> bool:
        """Always True: every fact causes a new rendering of the list. Notices are also passed on unchanged."""
        notice = fact.get("page")
        if notice is not None:
            await self.send(text_data=json.dumps(notice))
        return True

    async def update(self) -> bool:
        """Render the list, then pause; an unchanged list is not sent."""
        drawn = await self._drawn()
        if drawn is not None and drawn != self._sent:
            await self.send(text_data=drawn)
            self._sent = drawn
        await asyncio.sleep(DRAW_SECONDS)
        return True

    async def _drawn(self) -> str | None:
        """The rendered list; None if the database could not be read, in which case it is rendered again soon."""
        try:
            drawn: str = await database_sync_to_async(draw)(self._subscription)
        except DatabaseError as fault:
            _log.warning("The list could not be drawn: %s", type(fault).__name__)
            self.news.set()
            return None
        return drawn


def subscription_in(message: str) -> ListSubscription | None:
    """The subscription in a page's message; None if it is not valid."""
    try:
        hello = msgspec.json.decode(message, type=Hello)
        return ListSubscription(ListFilters.of(QueryDict(hello.query.removeprefix("?"))), hello.asked)
    except (ValueError, RecursionError):
        return None


def draw(subscription: ListSubscription) -> str:
    """The list as its page renders it, and the line above it, with ids by which htmx inserts them."""
    context = {"listing": browse(subscription.choice, timezone.now()), "asked": subscription.number}
    return render_to_string("list/list.html#listing", context)


@require_safe
def sessions(request: HttpRequest) -> HttpResponse:
    """The list of sessions. htmx requests the same URL and receives only the list."""
    listing = browse(ListFilters.of(request.GET), timezone.now())
    template = "list/list.html#listing" if wants_fragment(request) else "list/list.html"
    return render(request, template, {"listing": listing, "active_nav": "sessions"})
