"""The page of the full-text search, and the palette of every page. htmx requests the same URLs and receives only the
results."""

from typing import Final, NamedTuple

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import NoReverseMatch, reverse
from django.views.decorators.http import require_safe

from sessions_app.models import Session
from sessions_app.search.filters import SORTS, SearchFilters
from sessions_app.search.pure.query import FILTERS
from sessions_app.search.results import PLACES_OF_SESSION, SearchResults, search
from sessions_app.sessionlog.text import plural
from sessions_app.web.pages import number_in, redirect, wants_fragment

PLACES_OF_ONE: Final = 100
"""The number of places shown if the search is narrowed to one session."""
LONGEST_WORDS: Final = 400
"""The maximum length of typed words, in characters."""


@require_safe
def results(request: HttpRequest) -> HttpResponse:
    """The places that a query finds, by session."""
    session = _session(request.GET.get("session", ""))
    filters = SearchFilters.of(
        request.GET.get("q", ""),
        [(name, value) for name in FILTERS for value in request.GET.getlist(name)],
        sort=request.GET["sort"] if request.GET.get("sort") in SORTS else "best",
        page=number_in(request.GET.get("page", ""), 6) or 1,
        session=session.pk if session is not None else None,
    )
    found = search(filters, places=PLACES_OF_ONE if session is not None else PLACES_OF_SESSION)
    template = "search/search.html#results" if wants_fragment(request) else "search/search.html"
    context = {
        "results": found,
        "filters": filters,
        "session": session,
        "sorts": SORTS,
        "title": _title(found),
        "typed": filters.text,
        "active_nav": "search",
    }
    return render(request, template, context)


def _title(found: SearchResults) -> str:
    if not found.filters.query.finds:
        return "Search"
    return f"{plural(found.places, 'place')}: {found.filters.text[:60]}"


def _session(key: str) -> Session | None:
    """The session that the search is narrowed to; None for all."""
    number = number_in(key, 18)
    return Session.objects.shown().for_display().filter(pk=number).first() if number else None


# ---- the palette -------------------------------------------------------------------------------------------

PALETTE_SESSIONS: Final = 6
PAGES: Final = (
    ("Sessions", "sessions:list", "g s"),
    ("Inbox", "compaction:runs", "g i"),
    ("What compactions cost", "lab:hindsight", ""),
    ("Benchmark", "lab:experiments", ""),
    ("History", "compaction:audit", "g h"),
    ("Backups of all sessions", "compaction:all_backups", ""),
    ("Settings", "sessions:settings", ""),
    ("Settings: agents", "sessions:agents", ""),
    ("Settings: models", "compaction:models", ""),
    ("Import a session", "sessions:import", ""),
    ("Search", "sessions:search", ""),
)
"""The pages that the palette leads to, by name, route and keys. An app that is not installed has no route."""


class PageLink(NamedTuple):
    """A page in the palette."""

    name: str
    address: str
    keys: str


@require_safe
def palette(request: HttpRequest) -> HttpResponse:
    """What the palette offers for the typed words: sessions by their titles, pages, and the search in texts.

    Without a script there is no palette: its address then leads to the search.
    """
    typed = request.GET.get("q", "").strip()[:LONGEST_WORDS]
    if not wants_fragment(request):
        return redirect(reverse("sessions:search", query={"q": typed} if typed else None))
    sessions = Session.objects.shown().present().filter(is_subagent=False).for_display()
    found = sessions.containing(typed).latest_first()[:PALETTE_SESSIONS]
    context = {"sessions": list(found), "pages": _pages(typed), "typed": typed}
    return render(request, "search/found.html", context)


def _pages(typed: str) -> list[PageLink]:
    """The pages whose names have all typed words."""
    words = typed.lower().split()
    matching = [page for page in PAGES if all(word in page[0].lower() for word in words)]
    return [PageLink(name, address, keys) for name, route, keys in matching if (address := _address(route))]


def _address(route: str) -> str:
    try:
        return reverse(route)
    except NoReverseMatch:
        return ""
