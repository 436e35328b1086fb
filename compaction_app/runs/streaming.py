"""Downloads that are generated while they are sent."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

from asgiref.sync import sync_to_async
from django.http import StreamingHttpResponse


def _next(pieces: Iterator[bytes]) -> bytes:
    return next(pieces, b"")


def stream(pieces: Iterator[bytes], name: str) -> StreamingHttpResponse:
    """A response that generates the pieces while it is sent; the first is made here, to raise its errors.

    If a later piece fails the connection is cut: the browser then reports that the download failed.
    """
    first = _next(pieces)

    async def sent() -> AsyncIterator[bytes]:
        yield first
        while piece := await sync_to_async(_next)(pieces):
            yield piece

    answer = StreamingHttpResponse(sent(), content_type="application/x-ndjson")
    answer["Content-Disposition"] = f'attachment; filename="{name}"'
    return answer
