"""Requests whose response nobody sees, or not yet: they must change nothing, whatever a GET request changes."""

from __future__ import annotations

from typing import Final

from django.http import HttpRequest

PURPOSES: Final = ("Sec-Purpose", "Purpose", "X-Purpose", "X-Moz")
"""The headers in which browsers say that they fetch a page before anybody asked for it, or for a preview."""
EARLY: Final = ("prefetch", "preview")


def is_shown(request: HttpRequest) -> bool:
    """Whether somebody asked to see the response: not for HEAD, and not if a browser fetches it in advance."""
    purposes = (request.headers.get(name, "").lower() for name in PURPOSES)
    return request.method != "HEAD" and not any(early in purpose for purpose in purposes for early in EARLY)
