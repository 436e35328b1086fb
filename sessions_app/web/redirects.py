"""Redirects after a form was acted on, and which requests of htmx get a part of a page."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec

from django import shortcuts
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_http_methods
from django_htmx.middleware import HtmxDetails

P = ParamSpec("P")
View = Callable[Concatenate[HttpRequest, P], HttpResponse]


def redirect(to: Any, *args: Any) -> HttpResponse:
    """To a view, an address or the page of a row, like Django's, but with 303: the next request is a GET."""
    response = shortcuts.redirect(to, *args)
    response.status_code = 303
    return response


def acts_on_post(page: Callable[P, str]) -> Callable[[View[P]], View[P]]:
    """A view that has no page of its own, only acts. A GET leads to the page that its form is on.

    A browser sends one if its user goes back to a form that was refused.
    """

    def decorate(view: View[P]) -> View[P]:
        @wraps(view)
        def acting(request: HttpRequest, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponse:
            if request.method == "POST":
                return view(request, *args, **kwargs)
            return redirect(page(*args, **kwargs))

        return require_http_methods(["GET", "HEAD", "POST"])(acting)

    return decorate


def wants_fragment(request: HttpRequest) -> bool:
    """Whether htmx puts the response into the page that it has. To restore a page from its history, it needs a whole
    one."""
    htmx: HtmxDetails = request.htmx  # type: ignore[attr-defined]  # HtmxMiddleware
    return bool(htmx) and not htmx.history_restore_request
