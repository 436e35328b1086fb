"""Answers that several pages give."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django_htmx.middleware import HtmxDetails


def see_other(address: str) -> HttpResponse:
    """After a form was acted on: look there, by GET. Loading that page again acts on nothing."""
    return HttpResponse(status=303, headers={"Location": address})


def wants_fragment(request: HttpRequest) -> bool:
    """Whether htmx puts the answer into a page that it has. Where it restores a page, it needs the whole one."""
    htmx: HtmxDetails = request.htmx  # type: ignore[attr-defined]  # HtmxMiddleware
    return bool(htmx) and not htmx.history_restore_request
