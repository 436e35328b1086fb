"""The API for scripts: list sessions, start a run, query its state, stop it. JSON, failures included.

Requests carry the token of `redline token` (see `sessions_app.web.middleware`). Nothing here commits: only people who
have seen the plan do that.
"""

from __future__ import annotations

from functools import partial
from typing import Final
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.http.multipartparser import MultiPartParserError

from compaction_app.json_views import json_view
from compaction_app.lookups import known_run, known_session
from compaction_app.planning.planners import level_asked_for
from compaction_app.runs.commands import start_run, stop_run
from sessions_app.list.listing import list_page, session_json
from sessions_app.sessionlog.errors import BadInput
from sessions_app.web.credentials import page_address

from .presenter import Addresses, Wanted, require_entry, run_as_json, started_run, wanted_in, wanted_of

SESSIONS, MOST_SESSIONS = 100, 1_000
"""The default and the maximum number of sessions on a page of the list."""
FORMS: Final = ("application/x-www-form-urlencoded", "multipart/form-data")


@json_view("GET", "HEAD")
def sessions(request: HttpRequest) -> HttpResponse:
    """The sessions of configured roots, a page at a time, the most recently used first."""
    query = request.GET
    limit = _number(query.get("limit", str(SESSIONS)), "limit", most=MOST_SESSIONS)
    after = _number(query["after"], "after", most=2**63 - 1) if query.get("after") else None
    text = query.get("q", "").strip()
    page = list_page(text, limit, after)
    following = {"q": text, "limit": limit, "after": page.sessions[-1].pk} if page.more else None
    return JsonResponse(
        {
            "sessions": list(map(session_json, page.sessions)),
            "next": f"{request.path}?{urlencode(following)}" if following else None,
        }
    )


def _number(given: str, name: str, *, most: int) -> int:
    if given.isascii() and given.isdigit() and len(given) < 20 and 1 <= int(given) <= most:
        return int(given)
    raise BadInput("bad_query", f"{name} is a number from 1 to {most}. Nothing was listed.")


@json_view("GET", "HEAD")
def session(request: HttpRequest, root: int, path: str) -> HttpResponse:
    """One session, as in the list."""
    del request
    return JsonResponse(session_json(known_session(root, path)))


@json_view("POST")
def compact(request: HttpRequest, root: int, path: str) -> HttpResponse:
    """Start a run of a session, by JSON or by a form."""
    found = known_session(root, path)
    wanted = _wanted(request)
    require_entry(found, wanted.leaf)
    run = start_run(
        found,
        planner=wanted.planner,
        thinking=level_asked_for(wanted.thinking),
        writer=wanted.writer,
        requested_parameters=wanted.requested_parameters,
        leaf_id=wanted.leaf,
    )
    return JsonResponse(started_run(run, _addresses(request)), status=202)


def _wanted(request: HttpRequest) -> Wanted:
    if request.content_type not in FORMS:
        return wanted_in(request.body)
    try:
        form = request.POST.dict()
    except MultiPartParserError as fault:
        raise BadInput("bad_body", "The body is not a form. Nothing was planned.") from fault
    return wanted_of({name: str(value) for name, value in form.items() if name != "csrfmiddlewaretoken"})


@json_view("GET", "HEAD")
def run(request: HttpRequest, run: int) -> HttpResponse:
    """The current state of a run."""
    return JsonResponse(run_as_json(known_run(run), _addresses(request)))


@json_view("POST")
def stop(request: HttpRequest, run: int) -> HttpResponse:
    """Request that a run stops; validated targets are kept."""
    found = known_run(run)
    stop_run(found)
    found.refresh_from_db()
    return JsonResponse(run_as_json(found, _addresses(request)), status=202)


def _addresses(request: HttpRequest) -> Addresses:
    return Addresses(partial(page_address, request), request.build_absolute_uri)
