"""The stylesheet of all pages: written in many files, which it imports, and served as one.

A browser renders nothing before it has the styles, and thirty requests take longer than one.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Final

from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.utils.cache import get_conditional_response

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
