"""The common parts of all pages: forms, redirects, the response to a failure, the theme, and logging out.

A failed request is answered with a page for people, and with JSON for scripts. The theme is chosen in a separate
cookie, so that a page is rendered with it without a script; the default follows the system.
"""

import errno
import logging
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

from django import forms, shortcuts
from django.conf import settings
from django.db import DatabaseError
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme
from django.views import csrf, defaults
from django.views.decorators.http import require_http_methods, require_POST
from django_htmx.middleware import HtmxDetails

from sessions_app.cli import printable
from sessions_app.database.sqlite import BUSY, DAMAGED, GONE, UNKNOWN, failure_of
from sessions_app.server.running_server import end_session
from sessions_app.sessionlog.errors import BadInput, ConfirmationNeeded, RedlineError, SystemFailure, TargetNotMet

from .credentials import COOKIE, Credentials
from .middleware import Middleware, failed, is_api


class FormInvalid(BadInput):
    """A form with errors, and the action that was not done. The message is for commands, and for pages that do not show
    the fields."""

    def __init__(self, form: forms.BaseForm, not_done: str = "Nothing was changed.") -> None:
        errors = [str(message) for messages in form.errors.values() for message in messages]
        super().__init__("misfilled", f"{' '.join(errors)} {not_done}")
        self.form, self.not_done = form, not_done


def require_valid(form: forms.BaseForm, not_done: str = "Nothing was changed.") -> None:
    """Raise FormInvalid if the form has errors."""
    if not form.is_valid():
        raise FormInvalid(form, not_done)


class InlineField(forms.BoundField):
    """A field for the tag `field`: its id is its name, and control characters in its value are visible."""

    @property
    def auto_id(self) -> str:
        return self.html_name

    @property
    def aria_describedby(self) -> str:
        return f"{self.auto_id}-of"

    def value(self) -> Any:
        value = super().value()
        return printable(value) if isinstance(value, str) else value


class CheckedField(forms.CharField):
    """Text that a function checks and converts. Empty text is checked only if the field is required."""

    def __init__(self, check: Callable[[str], Any], **options: Any) -> None:
        super().__init__(**options)
        self.check = check

    def to_python(self, value: Any) -> Any:
        text = super().to_python(value) or ""
        try:
            return self.check(text) if text or self.required else ""
        except BadInput as refused:
            raise forms.ValidationError(refused.message) from refused


def named_directory(text: str, code: str) -> Path:
    """The directory that a text names, such as `~/work`. Raises BadInput with this code if it is not a whole path."""
    try:
        path = Path(text).expanduser()
    except RuntimeError as unknown:
        raise BadInput(code, f"{text}: {unknown}") from unknown
    if "\0" in text or not path.is_absolute():
        raise BadInput(code, "Give the whole path of a directory, beginning with / or ~.")
    return path


# ---- redirects and parts of pages ------------------------------------------------------------------------

P = ParamSpec("P")
T = TypeVar("T")
View = Callable[Concatenate[HttpRequest, P], HttpResponse]


def redirect(to: Any, *args: Any) -> HttpResponse:
    """Redirect to a view, an address or the page of a row, like Django's, but with 303: the next request is a GET."""
    response = shortcuts.redirect(to, *args)
    response.status_code = 303
    return response


def acts_on_post(page: Callable[P, str]) -> Callable[[View[P]], View[P]]:
    """A decorator for views without a page. A GET redirects to the page with the form.

    A browser sends a GET if its user goes back to a form that was refused.
    """

    def decorate(view: View[P]) -> View[P]:
        @wraps(view)
        def acting(request: HttpRequest, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponse:
            if request.method == "POST":
                return view(request, *args, **kwargs)
            return redirect(page(*args, **kwargs))

        return require_http_methods(["GET", "HEAD", "POST"])(acting)

    return decorate


def view_or_fault(
    view: Callable[[], T], fault: RedlineError | None = None, *, not_found: str = ""
) -> tuple[T | None, RedlineError | None]:
    """What a page shows, and the failure that it states: the given one, otherwise why there is nothing to show.

    Raises Http404 for a failure with the code `not_found`: the address names something that does not exist.
    """
    try:
        return view(), fault
    except RedlineError as unshown:
        if not_found and unshown.code == not_found:
            raise Http404(unshown.message) from unshown
        return None, fault or unshown


def number_in(text: str, digits: int = 9) -> int | None:
    """The number that an address gives, of at most so many digits; None for any other text."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= digits else None


def wants_fragment(request: HttpRequest) -> bool:
    """Whether htmx inserts the response into its current page. To restore a page from history it needs a whole one."""
    htmx: HtmxDetails = request.htmx  # type: ignore[attr-defined]  # HtmxMiddleware
    return bool(htmx) and not htmx.history_restore_request


# ---- failures --------------------------------------------------------------------------------------------

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


class FailureMiddleware(Middleware):
    """Answers 503 to failures that are not bugs of Redline: a busy database, a full disk, a refused file."""

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
    """404: nothing exists at this address."""
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


# ---- theme and log-out -----------------------------------------------------------------------------------

THEME_COOKIE: Final = "redline_theme"
THEMES: Final = {"": "As the system", "light": "Light", "dark": "Dark"}
AGE_SECONDS: Final = 365 * 86_400


def theme(request: HttpRequest) -> dict[str, object]:
    """For all templates: the chosen theme, empty for the system's, and the possible choices."""
    return {"theme": _known(request.COOKIES.get(THEME_COOKIE, "")), "themes": THEMES}


@require_POST
def choose_theme(request: HttpRequest) -> HttpResponse:
    """Choose a theme, and go back to the page where it was chosen."""
    chosen, page = _known(request.POST.get("theme", "")), request.POST.get("next", "")
    is_own = page.startswith("/") and url_has_allowed_host_and_scheme(page, allowed_hosts=None)
    response = redirect(page if is_own else reverse("sessions:list"))
    if chosen:
        response.set_cookie(THEME_COOKIE, chosen, max_age=AGE_SECONDS, httponly=True, samesite="Strict")
    else:
        response.delete_cookie(THEME_COOKIE, samesite="Strict")
    return response


def _known(name: str) -> str:
    return name if name in THEMES else ""


@require_POST
def log_out(request: HttpRequest) -> HttpResponse:
    """Log this browser out, including copies of its cookie."""
    session = Credentials.of_request(request).launch_session()
    if session is not None:
        end_session(settings.REDLINE_DATA_DIR, session.id)
    response = render(request, "web/launch.html", {"why": "ended"})
    response.delete_cookie(COOKIE, samesite="Strict")
    return response
