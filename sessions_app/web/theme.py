"""The theme of the pages: light, dark, or that of the system, which the styles themselves follow.

The choice is in a separate cookie, so that a page is rendered with it without a script.
"""

from __future__ import annotations

from typing import Final

from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.http import require_POST

from .redirects import redirect

COOKIE: Final = "redline_theme"
THEMES: Final = {"": "As the system", "light": "Light", "dark": "Dark"}
AGE_SECONDS: Final = 365 * 86_400


def theme(request: HttpRequest) -> dict[str, object]:
    """For all templates: the chosen theme, empty for the system's, and the possible choices."""
    return {"theme": _known(request.COOKIES.get(COOKIE, "")), "themes": THEMES}


@require_POST
def choose_theme(request: HttpRequest) -> HttpResponse:
    """Choose a theme, and go back to the page where it was chosen."""
    chosen, page = _known(request.POST.get("theme", "")), request.POST.get("next", "")
    is_own = page.startswith("/") and url_has_allowed_host_and_scheme(page, allowed_hosts=None)
    response = redirect(page if is_own else reverse("sessions:list"))
    if chosen:
        response.set_cookie(COOKIE, chosen, max_age=AGE_SECONDS, httponly=True, samesite="Strict")
    else:
        response.delete_cookie(COOKIE, samesite="Strict")
    return response


def _known(name: str) -> str:
    return name if name in THEMES else ""
