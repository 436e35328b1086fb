"""Downloads that are made while they are sent."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

from asgiref.sync import sync_to_async
from django.http import StreamingHttpResponse


def _next(pieces: Iterator[bytes]) -> bytes:
    return next(pieces, b"")


def stream(pieces: Iterator[bytes], name: str) -> StreamingHttpResponse:
    """An answer that sends the pieces as they are made; the first is made at once, so that its errors are raised here.

    A later piece that cannot be made cuts the connection off: a browser then says that the download failed.
    """
    first = _next(pieces)

    async def sent() -> AsyncIterator[bytes]:
        yield first
        while piece := await sync_to_async(_next)(pieces):
            yield piece

    answer = StreamingHttpResponse(sent(), content_type="application/x-ndjson")
    answer["Content-Disposition"] = f'attachment; filename="{name}"'
    return answer
