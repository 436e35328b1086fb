"""Redirects after a form was processed, and detection of htmx requests for a part of a page."""

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
    """Redirect to a view, an address or the page of a row, like Django's, but with 303: the next request is a GET."""
    response = shortcuts.redirect(to, *args)
    response.status_code = 303
    return response


def acts_on_post(page: Callable[P, str]) -> Callable[[View[P]], View[P]]:
    """A decorator for views without a page. A GET redirects to the page with the form.

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
    """Whether htmx inserts the response into its current page. To restore a page from history it needs a whole one."""
    htmx: HtmxDetails = request.htmx  # type: ignore[attr-defined]  # HtmxMiddleware
    return bool(htmx) and not htmx.history_restore_request
