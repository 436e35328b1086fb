"""The list of sessions, as a page and over its socket: filtered, sorted and paginated with few queries.

The socket renders the list again when it changes, and passes on notices for open pages as JSON. A page sends the query
of the list that it shows (`{"query": "?show=due&page=2"}`), and again when it changes; it receives the part of the page
that contains the list, for htmx to insert.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterable, Mapping
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

from sessions_app.agents.registry import AGENTS, key_of_reader
from sessions_app.index.progress import latest
from sessions_app.index.roots import managed_path, shown_roots
from sessions_app.index.session_locks import OpenSessions, open_sessions
from sessions_app.models import DUE, Session, SessionQuerySet, live
from sessions_app.server.broadcast import SESSIONS
from sessions_app.sessionlog.errors import BadInput
from sessions_app.web.page_socket import PageConsumer
from sessions_app.web.pages import number_in, wants_fragment
from sessions_app.web.session_badges import find_badges

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
        page = number_in(query.get("page", ""), 6)
        return cls(
            show=query["show"] if query.get("show") in SHOW else "all",
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
    """A heading of the table; with a URL if the table can be sorted by it."""

    label: str
    number: bool = False
    address: str = ""
    sorted: str = ""
    """`ascending` or `descending` if the table is sorted by it."""


def browse(choice: ListFilters, now: datetime) -> dict[str, Any]:
    """The page of the list for these filters, and the choices for them, by the names that its template uses.

    A page number beyond the last means the last.
    """
    shown = Session.objects.shown()
    roots = shown_roots()
    held = open_sessions((root.path, root.agent) for root in roots)
    filters = _filters(now, held)
    totals, managed = _totals(shown), str(managed_path())
    projects, models = _projects_and_models(shown)
    matching = _matching(shown, choice, now)
    counts = matching.aggregate(**{name: Count("pk", filter=found) for name, found in filters.items()})
    chosen = matching.filter(filters[choice.show]).for_display().order_by(*SORTS[choice.sort])
    paginator = Paginator(chosen, PAGE_SIZE)
    paginator.count = counts[choice.show]  # known already: it is not counted again
    page = paginator.get_page(choice.page)
    badges = find_badges([session.pk for session in page.object_list])
    listed = [
        {
            "path": root.path,
            # The agent that writes to it, unless that is detected by path.
            "agent": AGENTS[root.agent].label if root.agent in AGENTS else "",
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
        # Each session with why it is live, if it is, and badges from other parts of Redline.
        "rows": [
            (session, _live_reason(session, held, now), badges.get(session.pk, ())) for session in page.object_list
        ],
        "managed": managed,
        "columns": _columns(choice),
        "tabs": [
            (name == choice.show, name.capitalize(), counts[name], choice.address(show=name))
            for name in SHOW
            if name != "subagents" or totals["subagents"]
        ],
        "projects": projects,
        "models": models,
        "totals": totals,
        "roots": listed,
        # Those that agents write to.
        "searched": [root for root in listed if not root["kept"]],
        "indexing": latest.indexing,
        "texts": latest.texts,
        "page": page,
        "previous": choice.address(page=page.number - 1) if page.has_previous() else "",
        "next": choice.address(page=page.number + 1) if page.has_next() else "",
    }


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


def _totals(shown: SessionQuerySet) -> dict[str, Any]:
    """The totals of all sessions, whatever the filters, by one query that groups them by the few values that determine
    their agents."""
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
    return {
        **{name: sum(row[name] for row in owned) for name in ("sessions", "subagents", "bytes")},
        "indexed_at": max(indexed, default=None),
        "agents": [agent for key, agent in AGENTS.items() if key in keys],
    }


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
