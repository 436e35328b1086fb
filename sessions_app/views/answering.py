"""Answers that several pages give."""

from __future__ import annotations

from django.http import HttpResponse


def see_other(address: str) -> HttpResponse:
    """After a form was acted on: look there, by GET. Loading that page again acts on nothing."""
    return HttpResponse(status=303, headers={"Location": address})
