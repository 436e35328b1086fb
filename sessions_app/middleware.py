"""Who may see a page: whoever brings the cookie that a launch token became. A script brings its own token, to `/api/`.

A failure below `/api/` is `{"error": {"code", "message"}}`, as commands tell it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from django.conf import settings
from django.core import signing
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.shortcuts import render
from django.utils.crypto import salted_hmac
from whitenoise.middleware import WhiteNoiseMiddleware

from .launching import is_api_token, use_token

SALT: Final = "redline.launch"
# To a browser all ports of a machine are one site, so each installation has a name of its own for its cookie.
COOKIE: Final = f"redline_launch_{salted_hmac(SALT, 'cookie', algorithm='sha256').hexdigest()[:8]}"
COOKIE_SECONDS: Final = 30 * 24 * 3600
LAUNCH_PATH: Final = "/launch"
API: Final = "/api/"

Handler = Callable[[HttpRequest], HttpResponse]


class StaticMiddleware(WhiteNoiseMiddleware):
    """WhiteNoise, with its small files handed over whole: an ASGI server cannot stream from a plain iterator."""

    def serve(self, static_file: object, request: HttpRequest) -> HttpResponse:
        streamed = super().serve(static_file, request)
        return HttpResponse(b"".join(streamed), status=streamed.status_code, headers=streamed.headers)


class UncachedMiddleware:
    """Pages hold transcripts: nothing keeps a copy of one, unless its view says for how long a browser may."""

    def __init__(self, get_response: Handler) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response = self.get_response(request)
        response.headers.setdefault("Cache-Control", "private, no-store")
        return response


class LaunchMiddleware:
    """Lets nobody past without the cookie; `/launch?token=…` gives it, once for each token.

    Below `/api/` the token for scripts stands in for the cookie, in an `Authorization: Bearer` header. No browser
    sends one by itself, so nothing that another site could do goes with it, and no form's token is asked for.
    """

    def __init__(self, get_response: Handler) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        if request.path == LAUNCH_PATH:
            return self._launch(request)
        if is_for_scripts(request) and "authorization" in request.headers:
            if not brings_api_token(request):
                return unauthorized("The token is not the one that `redline token` prints. Nothing was done.")
            # How Django is told that a request needs no form's token.
            request._dont_enforce_csrf_checks = True  # type: ignore[attr-defined]
            return self.get_response(request)
        if is_launched(request):
            return self.get_response(request)
        if is_for_scripts(request):
            return unauthorized(
                "The request brings no token. Nothing was done. Send the one that `redline token` prints, in a header "
                "`Authorization: Bearer TOKEN`."
            )
        # A link from another site brings no strict cookie: then a click on this page does.
        known = "sec-fetch-site" in request.headers and request.headers["sec-fetch-site"] == "cross-site"
        return render(request, "launch.html", {"again": request.get_full_path() if known else ""}, status=403)

    def _launch(self, request: HttpRequest) -> HttpResponse:
        if not use_token(settings.REDLINE_DATA_DIR, request.GET.get("token", "")):
            return render(request, "launch.html", {"used": True}, status=403)
        response = HttpResponseRedirect("/")
        response.set_cookie(
            COOKIE,
            signing.dumps(1, salt=SALT),
            max_age=COOKIE_SECONDS,
            httponly=True,
            samesite="Strict",
        )
        return response


def is_for_scripts(request: HttpRequest) -> bool:
    """Whether it asks for something that is told as JSON, failures too."""
    return request.path.startswith(API)


def brings_api_token(request: HttpRequest) -> bool:
    """Whether its Authorization is `Bearer` and the token for scripts."""
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    return scheme.lower() == "bearer" and is_api_token(settings.REDLINE_DATA_DIR, token.strip())


def failed(code: str, message: str, status: int) -> JsonResponse:
    """A failure as scripts are told it."""
    return JsonResponse({"error": {"code": code, "message": message}}, status=status)


def unauthorized(message: str) -> JsonResponse:
    answer = failed("unauthorized", message, 401)
    answer["WWW-Authenticate"] = "Bearer"
    return answer


def is_launched(request: HttpRequest) -> bool:
    """Whether the request brings a cookie that this installation has given."""
    return is_launch_cookie(request.COOKIES.get(COOKIE, ""))


def is_launch_cookie(value: str) -> bool:
    """Whether this installation has signed the cookie, not too long ago."""
    try:
        signing.loads(value, salt=SALT, max_age=COOKIE_SECONDS)
    except signing.BadSignature:
        return False
    return True
