"""Access to pages: browsers need the cookie from a launch token, scripts their own token, for `/api/` only.

Errors below `/api/` have the form `{"error": {"code", "message"}}`, as in commands. The stylesheet of all pages is
written in many files, which it imports, and served as one: a browser renders nothing before it has the styles, and
thirty requests take longer than one.
"""

import hashlib
import re
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from typing import Final

from django.conf import settings
from django.core.exceptions import DisallowedHost
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect, JsonResponse
from django.shortcuts import render
from django.utils.cache import get_conditional_response
from django.utils.http import escape_leading_slashes
from django.utils.log import log_response
from django.views import defaults
from whitenoise.middleware import WhiteNoiseMiddleware

from sessions_app.server.running_server import SESSION_SECONDS, use_token

from .credentials import API, COOKIE, Credentials, is_for_agents, is_shown, new_launch_cookie

LAUNCH_PATH: Final = "/launch"
STYLESHEET: Final = "/redline/redline.css"
REFUSED_BODY: Final = "redline.refused_body"
"""The key in a request's scope for the reason why its body was not received."""

Handler = Callable[[HttpRequest], HttpResponse]


class StaticMiddleware(WhiteNoiseMiddleware):
    """WhiteNoise, but small files are sent whole: an ASGI server cannot stream from a plain iterator.

    The stylesheet of the pages is one response, including everything it imports.
    """

    def get_static_file(self, path: str, url: str, stat_cache: object = None) -> object:
        if url.endswith(STYLESHEET):
            return Stylesheet(Path(path))
        return super().get_static_file(path, url, stat_cache)

    def serve(self, static_file: object, request: HttpRequest) -> HttpResponse:
        if isinstance(static_file, Stylesheet):
            return static_file.respond(request)
        streamed = super().serve(static_file, request)
        return HttpResponse(b"".join(streamed), status=streamed.status_code, headers=streamed.headers)


class Middleware:
    """A layer around the views. Subclasses handle a request; `get_response` gives the response of the inner layers."""

    def __init__(self, get_response: Handler) -> None:
        self.get_response = get_response


class UncachedMiddleware(Middleware):
    """Pages contain transcripts: they must not be cached, unless the view allows a browser to."""

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response = self.get_response(request)
        response.headers.setdefault("Cache-Control", "private, no-store")
        return response


class HostMiddleware(Middleware):
    """Refuses every request, even one for a stylesheet, under a host that is not ours."""

    def __call__(self, request: HttpRequest) -> HttpResponse:
        credentials = Credentials.of_request(request)
        if credentials.name_our_host():
            return self.get_response(request)
        why = f"Nothing is served at {credentials.host!r}."
        if is_api(request):
            response: HttpResponse = failed("bad_request", why, 400)
        else:
            response = defaults.bad_request(request, DisallowedHost(why))
        # Not raised: Django would log an error, and anybody can send any host.
        log_response(why, response=response, request=request)
        return response


class LaunchMiddleware(Middleware):
    """Admits only requests with the cookie; `/launch?token=…` sets it, once for each token.

    Below `/api/` the API token, in an `Authorization: Bearer` header, replaces the cookie; on the paths for agents,
    only the token of a connected agent counts. Browsers never send one automatically, so other sites cannot forge such
    requests, and no CSRF token is needed.
    """

    def __call__(self, request: HttpRequest) -> HttpResponse:
        credentials = Credentials.of_request(request)
        if credentials.bring_token_to(request.path) or is_for_agents(request.path):
            if not credentials.have_token_for(request.path):
                return unauthorized(
                    "The token is of no connected agent. Nothing was done. `redline connect` connects one."
                    if is_for_agents(request.path)
                    else "The token is not the one that `redline token` prints. Nothing was done."
                )
            # Django's flag for a request that needs no CSRF token.
            request._dont_enforce_csrf_checks = True  # type: ignore[attr-defined]
            return self.get_response(request)
        if request.path == LAUNCH_PATH and credentials.name_browser_host():
            return _launch(request)
        session = credentials.launch_session()
        if session is None:
            return _refusal(request, credentials)
        response = self.get_response(request)
        if session.is_old:
            _let_in(response, session.id)
        return response


def _launch(request: HttpRequest) -> HttpResponse:
    """Exchange the token of an address for a cookie, once a browser shows the page: a program that checks or previews
    links must not use the token up."""
    if request.method not in ("GET", "HEAD"):
        return HttpResponseNotAllowed(["GET", "HEAD"])
    if not is_shown(request):
        return HttpResponse(status=HTTPStatus.NO_CONTENT)
    if not use_token(settings.REDLINE_DATA_DIR, request.GET.get("token", "")):
        return render(request, "web/launch.html", {"why": "used"}, status=403)
    response = HttpResponseRedirect("/")
    _let_in(response)
    return response


def _let_in(response: HttpResponse, session: str = "") -> None:
    """Set the browser's cookie, for this host only; without a given session, it starts a new one."""
    response.set_cookie(COOKIE, new_launch_cookie(session), max_age=SESSION_SECONDS, httponly=True, samesite="Strict")


def _refusal(request: HttpRequest, credentials: Credentials) -> HttpResponse:
    """The response to an unknown client."""
    if is_api(request):
        return unauthorized(
            "The request has no API token. Nothing was done. Send the token that `redline token` prints, in a header "
            "`Authorization: Bearer TOKEN`."
        )
    if not credentials.name_browser_host():
        return render(request, "web/launch.html", {"why": "plain"}, status=403)
    # A link from another site does not send a strict cookie; a click on this page does.
    known = "sec-fetch-site" in request.headers and request.headers["sec-fetch-site"] == "cross-site"
    return render(
        request,
        "web/launch.html",
        {"again": escape_leading_slashes(request.get_full_path()) if known else ""},
        status=403,
    )


class BodyMiddleware(Middleware):
    """Refuses a request whose body the gate did not receive completely."""

    def __call__(self, request: HttpRequest) -> HttpResponse:
        why = request.scope.get(REFUSED_BODY) if isinstance(request, ASGIRequest) else None
        if why is None:
            return self.get_response(request)
        if is_api(request):
            return failed("body_too_long", why, 413)
        return render(request, "413.html", {"why": why}, status=413)


def is_api(request: HttpRequest) -> bool:
    """Whether it is a request to the API, which is answered with JSON, including errors."""
    return request.path.startswith(API)


def failed(code: str, message: str, status: int) -> JsonResponse:
    """An error response of the API."""
    return JsonResponse({"error": {"code": code, "message": message}}, status=status)


def unauthorized(message: str) -> JsonResponse:
    answer = failed("unauthorized", message, 401)
    answer["WWW-Authenticate"] = "Bearer"
    return answer


# ---- the stylesheet --------------------------------------------------------------------------------------

MAX_AGE_SECONDS: Final = 60
_IMPORT: Final = re.compile(r'^@import "([^"]+)";$', re.MULTILINE)


class Stylesheet:
    """A file of styles, in which each import is replaced by the imported text."""

    def __init__(self, path: Path) -> None:
        def imported(found: re.Match[str]) -> str:
            return (path.parent / found[1]).read_text(encoding="utf-8")

        self.text: Final = _IMPORT.sub(imported, path.read_text(encoding="utf-8"))
        self.etag: Final = f'"{hashlib.sha256(self.text.encode()).hexdigest()}"'

    def respond(self, request: HttpRequest) -> HttpResponse:
        """The whole text, or a statement that the browser's copy is still valid."""
        if request.method not in ("GET", "HEAD"):
            return HttpResponseNotAllowed(["GET", "HEAD"])
        headers = {"ETag": self.etag, "Cache-Control": f"max-age={MAX_AGE_SECONDS}, public"}
        response = HttpResponse(self.text, content_type="text/css; charset=utf-8", headers=headers)
        return get_conditional_response(request, etag=self.etag, response=response) or response
