"""Views of the API: their errors are JSON, like all their responses."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec

from django.http import HttpRequest, HttpResponse

from sessions_app.sessionlog.errors import BadInput, Conflict, RedlineError
from sessions_app.web.middleware import failed

P = ParamSpec("P")
View = Callable[Concatenate[HttpRequest, P], HttpResponse]


def json_view(*methods: str) -> Callable[[View[P]], View[P]]:
    """A view that accepts these methods, and whose RedlineErrors become JSON."""

    def decorate(view: View[P]) -> View[P]:
        @wraps(view)
        def json_or_failure(request: HttpRequest, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponse:
            if request.method not in methods:
                allowed = ", ".join(methods)
                answer = failed("bad_method", f"{request.path} takes {allowed}. Nothing was done.", 405)
                answer["Allow"] = allowed
                return answer
            try:
                return view(request, *args, **kwargs)
            except RedlineError as fault:
                return failed(fault.code, fault.message, _status(fault))

        return json_or_failure

    return decorate


def _status(fault: RedlineError) -> int:
    if isinstance(fault, BadInput):
        return 400
    return 409 if isinstance(fault, Conflict) else 503
