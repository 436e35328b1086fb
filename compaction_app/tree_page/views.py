"""The pages of a session's tree: its branches, and two of them side by side."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import urlencode

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_safe

from compaction_app.lookups import known_session
from compaction_app.navigation.presenter import words_again
from sessions_app.models import Session
from sessions_app.sessionlog.errors import BadInput, RedlineError
from sessions_app.web.error_handlers import status_of
from sessions_app.web.redirects import wants_fragment

from .comparison import view_comparison
from .presenter import view_tree

QUERY_LENGTH: Final = 200
PAGE: Final = "tree_page/tree.html"
COMPARISON: Final = "tree_page/comparison.html"


@require_safe
def tree(request: HttpRequest, root: int, path: str) -> HttpResponse:
    """The branches of a session, and the entry that is selected in them."""
    found = known_session(root, path)
    at, opened = request.GET.get("at", ""), request.GET.getlist("open")
    start = request.GET.get("from", "")
    query = _query(request.GET.get("q", ""))
    context = {
        "session": found,
        "at": at,
        "query": query,
        "active_nav": "sessions",
        "page": _address(found, "tree", at=at, open=opened),
        "comparing": _address(found, "compare_branches"),
        "selecting": _address(found, "tree", **{"from": start}, open=opened),
        "opening": _address(found, "tree", at=at, **{"from": start}, open=opened),
    }
    again = request.GET.get("again", "")
    try:
        view = view_tree(found, at=at, start=start, opened=opened, query=query)
        context["again"] = words_again(found, again) if again else ""
    except RedlineError as fault:
        return _not_shown(request, PAGE, context, fault)
    part = f"{PAGE}#graph" if wants_fragment(request) else PAGE
    return render(request, part, {**context, "view": view})


@require_safe
def comparison(request: HttpRequest, root: int, path: str) -> HttpResponse:
    """Two branches side by side, which end with the entries `a` and `b`."""
    found = known_session(root, path)
    a, b, start = (request.GET.get(name, "") for name in ("a", "b", "from"))
    context = {
        "session": found,
        "active_nav": "sessions",
        "page": _address(found, "compare_branches", a=a, b=b),
        "exchanged": _address(found, "compare_branches", a=b, b=a)[:-1],
    }
    try:
        place = int(start) if start.isascii() and start.isdigit() and len(start) < 10 else 0
        view = view_comparison(found, a, b, place)
    except RedlineError as fault:
        return _not_shown(request, COMPARISON, context, fault)
    return render(request, COMPARISON, {**context, "view": view})


def _query(text: str) -> str:
    """The words of a search, without unprintable characters."""
    return "".join(filter(str.isprintable, " ".join(text.split())))[:QUERY_LENGTH]


def _not_shown(request: HttpRequest, template: str, context: dict[str, Any], fault: RedlineError) -> HttpResponse:
    code = fault.code if isinstance(fault, BadInput) else ""
    if code == "unknown_entry":
        raise Http404(fault.message) from fault
    status = 200 if code == "no_entries" else status_of(fault)
    return render(request, template, {**context, "fault": fault}, status=status)


def _address(session: Session, name: str, **parameters: str | list[str]) -> str:
    """The address of a page with these parameters; another one can follow."""
    address = reverse(f"compaction:{name}", args=(session.root_id, session.relative_path))
    query = urlencode({name: value for name, value in parameters.items() if value}, doseq=True)
    return f"{address}?{query}{'&' if query else ''}"
