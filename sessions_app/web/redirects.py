"""Answers that several pages give."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec

from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_http_methods
from django_htmx.middleware import HtmxDetails

P = ParamSpec("P")
View = Callable[Concatenate[HttpRequest, P], HttpResponse]


def see_other(address: str) -> HttpResponse:
    """After a form was acted on: look there, by GET. Loading that page again acts on nothing."""
    return HttpResponse(status=303, headers={"Location": address})


def acts_on_post(page: Callable[P, str]) -> Callable[[View[P]], View[P]]:
    """A view that has no page of its own, only acts. Asked by GET, it leads to the page that its form is on.

    A browser does so when its user goes back to a form that was refused.
    """

    def decorate(view: View[P]) -> View[P]:
        @wraps(view)
        def acting(request: HttpRequest, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponse:
            if request.method == "POST":
                return view(request, *args, **kwargs)
            return see_other(page(*args, **kwargs))

        return require_http_methods(["GET", "HEAD", "POST"])(acting)

    return decorate


def wants_fragment(request: HttpRequest) -> bool:
    """Whether htmx puts the answer into a page that it has. Where it restores a page, it needs the whole one."""
    htmx: HtmxDetails = request.htmx  # type: ignore[attr-defined]  # HtmxMiddleware
    return bool(htmx) and not htmx.history_restore_request
