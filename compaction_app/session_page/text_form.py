"""Whether texts are shown rendered or as recorded: a preference of a browser, and of one request."""

from __future__ import annotations

from typing import Final

from django.http import HttpRequest, HttpResponse

RENDERED: Final = "rendered"
RECORDED: Final = "recorded"
OTHER: Final = {RENDERED: RECORDED, RECORDED: RENDERED}
COOKIE: Final = "redline_texts"
COOKIE_SECONDS: Final = 365 * 86_400


def form_of(request: HttpRequest, parameter: str) -> str:
    """The form that the address names with this parameter, or the one that the browser prefers."""
    for form in (request.GET.get(parameter), request.COOKIES.get(COOKIE)):
        if form in OTHER:
            return str(form)
    return RENDERED


def keep_form(response: HttpResponse, form: str) -> None:
    """Let the browser prefer a form from now on."""
    response.set_cookie(COOKIE, form, max_age=COOKIE_SECONDS, httponly=True, samesite="Strict")
