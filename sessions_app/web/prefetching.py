"""Requests whose response is not shown, or not yet: they must change nothing, not even what another GET request
does."""

from __future__ import annotations

from typing import Final

from django.http import HttpRequest

PURPOSES: Final = ("Sec-Purpose", "Purpose", "X-Purpose", "X-Moz")
"""The headers by which browsers indicate that they fetch a page in advance, or for a preview."""
EARLY: Final = ("prefetch", "preview")


def is_shown(request: HttpRequest) -> bool:
    """Whether the user requested the response: not for HEAD, and not if a browser fetches it in advance."""
    purposes = (request.headers.get(name, "").lower() for name in PURPOSES)
    return request.method != "HEAD" and not any(early in purpose for purpose in purposes for early in EARLY)
