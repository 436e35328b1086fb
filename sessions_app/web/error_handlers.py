"""Responses to requests that failed: a page for people, JSON for scripts."""

from __future__ import annotations

import errno
import logging
import sys
from collections.abc import Callable
from typing import Final

from django.db import DatabaseError
from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.views import csrf, defaults

from sessions_app.sessionlog.errors import ConfirmationNeeded, RedlineError, SystemFailure, TargetNotMet
from sessions_app.sqlite import BUSY, DAMAGED, GONE, UNKNOWN, failure_of

from .forms import FormInvalid
from .middleware import failed, is_api

NOT_SENT_FROM_HERE = (
    "This request was not sent from one of Redline's pages and has no API token. Nothing was done. Scripts must send "
    "the token that `redline token` prints, in a header `Authorization: Bearer TOKEN`."
)


AGAIN_SECONDS: Final = {BUSY: 5}
"""Seconds after which a browser or a script may try again, by error code."""
LATER_SECONDS: Final = 60
HEADINGS: Final = {
    BUSY: "Redline is busy",
    "disk_full": "The disk is full",
    "read_only": "Redline's database is read-only",
    DAMAGED: "Redline's database is damaged",
    GONE: "Redline's database is gone",
}
_log = logging.getLogger("redline")


class FailureMiddleware:
    """503 for failures that are not bugs of Redline: a busy database, a full disk, a refused file."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self.get_response(request)

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        failure = _failure(exception)
        return None if failure is None else unavailable(request, failure)


def _failure(exception: BaseException | None) -> SystemFailure | None:
    """The system failure behind an exception; None for a bug, which `server_error` answers."""
    if isinstance(exception, DatabaseError):
        failure = failure_of(exception)
        return None if failure.code == UNKNOWN else failure
    if isinstance(exception, OSError) and exception.errno in (errno.ENOSPC, errno.EDQUOT):
        return SystemFailure("disk_full", "The disk is full. Free some space on it, then try again.")
    return exception if isinstance(exception, SystemFailure) else None


def unavailable(request: HttpRequest, failure: SystemFailure) -> HttpResponse:
    """503: the system refused an operation, and the same request may work later."""
    _log.warning("A request was not answered: %s", failure.code)
    if is_api(request):
        answer: HttpResponse = failed(failure.code, failure.message, 503)
    else:
        heading = HEADINGS.get(failure.code, "The system refused an operation")
        # Without the request: the data that every page shows is read from the database.
        page = render_to_string("503.html", {"heading": heading, "failure": failure})
        answer = HttpResponse(page, status=503)
    answer["Retry-After"] = str(AGAIN_SECONDS.get(failure.code, LATER_SECONDS))
    return answer


def status_of(fault: RedlineError | None) -> int:
    """The status of a page that shows a failure; 200 for none.

    422: the input is invalid or lacks a confirmation. 409: it conflicts with the current state. 503: the system
    refused an operation.
    """
    if fault is None:
        return 200
    if isinstance(fault, FormInvalid | ConfirmationNeeded | TargetNotMet):
        return 422
    return 503 if isinstance(fault, SystemFailure) else 409


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    """400: requests that Django itself refuses, for example because the body is too long."""
    if is_api(request):
        return failed("bad_request", f"The request cannot be read ({type(exception).__name__}).", 400)
    return defaults.bad_request(request, exception)


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    """404."""
    if is_api(request):
        return failed("not_found", f"Nothing exists at {request.path}. Nothing was done.", 404)
    return defaults.page_not_found(request, exception)


def server_error(request: HttpRequest) -> HttpResponse:
    """500: a bug in Redline; 503 for another failure outside of a view, as on the page for an unknown address."""
    failure = _failure(sys.exc_info()[1])
    if failure is not None:
        return unavailable(request, failure)
    if is_api(request):
        return failed("redline_failed", "Something went wrong. This is a bug in Redline; its log shows where.", 500)
    return defaults.server_error(request)


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:
    """403: a form without its token."""
    if is_api(request):
        return failed("not_sent_from_here", NOT_SENT_FROM_HERE, 403)
    return csrf.csrf_failure(request, reason)
