"""The page of the full-text search. htmx requests the same URL and receives only the results."""

from typing import Final

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from sessions_app.models import Session
from sessions_app.search.filters import SORTS, SearchFilters
from sessions_app.search.pure.query import FILTERS
from sessions_app.search.results import PLACES_OF_SESSION, SearchResults, search
from sessions_app.sessionlog.text import plural
from sessions_app.web.pages import number_in, wants_fragment

PLACES_OF_ONE: Final = 100
"""The number of places shown if the search is narrowed to one session."""


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
