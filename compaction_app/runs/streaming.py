"""Downloads that are generated while they are sent."""

import re
from collections.abc import AsyncIterator, Iterator
from urllib.parse import quote

from asgiref.sync import sync_to_async
from django.http import StreamingHttpResponse


def _next(pieces: Iterator[bytes]) -> bytes:
    return next(pieces, b"")


def stream(pieces: Iterator[bytes], name: str, content_type: str = "application/x-ndjson") -> StreamingHttpResponse:
    """A response that generates the pieces while it is sent; the first is made here, to raise its errors.

    If a later piece fails the connection is cut: the browser then reports that the download failed.
    """
    first = _next(pieces)

    async def sent() -> AsyncIterator[bytes]:
        yield first
        while piece := await sync_to_async(_next)(pieces):
            yield piece

    answer = StreamingHttpResponse(sent(), content_type=content_type)
    answer["Content-Disposition"] = disposition(name)
    answer["X-Content-Type-Options"] = "nosniff"
    return answer


def disposition(name: str) -> str:
    """The header that names a download: in ASCII, and also in full if the name has other characters.

    Characters that could control a terminal or a shell become underscores in both. See RFC 6266.
    """
    plain = re.sub(r"[^A-Za-z0-9._-]", "_", name)
    whole = "".join("_" if not one.isprintable() or one in '/\\:*?"<>|' else one for one in name)
    plain, whole = (re.sub(r"^\.+", "_", given) for given in (plain, whole))
    header = f'attachment; filename="{plain}"'
    return header if whole == plain else f"{header}; filename*=UTF-8''{quote(whole, safe='')}"
