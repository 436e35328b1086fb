"""What is told where a request could not be answered: a page to people, JSON to scripts."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.views import csrf, defaults

from ..middleware import failed, is_for_scripts

NOT_SENT_FROM_HERE = (
    "This request was not sent from one of Redline's pages, and brings no token. Nothing was done. A script sends the "
    "one that `redline token` prints, in a header `Authorization: Bearer TOKEN`."
)


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    """400: what Django itself refuses, such as a body that is too long."""
    if is_for_scripts(request):
        return failed("bad_request", f"The request cannot be read ({type(exception).__name__}).", 400)
    return defaults.bad_request(request, exception)


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    """404."""
    if is_for_scripts(request):
        return failed("not_found", f"There is nothing at {request.path}. Nothing was done.", 404)
    return defaults.page_not_found(request, exception)


def server_error(request: HttpRequest) -> HttpResponse:
    """500: a mistake of ours."""
    if is_for_scripts(request):
        return failed("redline_failed", "Redline itself failed. Its log tells where.", 500)
    return defaults.server_error(request)


def no_form_token(request: HttpRequest, reason: str = "") -> HttpResponse:
    """403: a form without its token."""
    if is_for_scripts(request):
        return failed("not_sent_from_here", NOT_SENT_FROM_HERE, 403)
    return csrf.csrf_failure(request, reason)
