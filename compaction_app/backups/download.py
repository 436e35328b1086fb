"""Downloads of files as they lie on disk: byte for byte, never whole in memory."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final
from urllib.parse import quote

from asgiref.sync import sync_to_async
from django.http import HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase

from sessions_app.sessionlog.errors import Conflict
from sessions_app.storage.files import CHUNK, open_regular, reported

NOT_SENT: Final = "It was not sent."


class SentFile:
    """The bytes that a file has when it is opened, in pieces; what is appended while they are sent is left out.

    A file that shrinks meanwhile ends it with a Conflict: the connection is cut off, and a browser then says that the
    download failed.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        # A file object, so that it is closed even if an answer is thrown away before it is sent.
        self._file = os.fdopen(open_regular(path, os.O_RDONLY, NOT_SENT), "rb", buffering=0)
        with reported(path, NOT_SENT):
            self.size = os.fstat(self._file.fileno()).st_size
        self._sent = 0

    def __aiter__(self) -> SentFile:
        return self

    async def __anext__(self) -> bytes:
        piece = await sync_to_async(self._next)()
        if not piece:
            raise StopAsyncIteration
        return piece

    def _next(self) -> bytes:
        with reported(self.path, "It was sent in part only."):
            piece = os.pread(self._file.fileno(), min(CHUNK, self.size - self._sent), self._sent)
        if not piece and self._sent < self.size:
            raise Conflict(
                "session_rewritten",
                f"{self.path} shrank while it was sent. It was sent in part only. Download it again.",
            )
        self._sent += len(piece)
        return piece

    def close(self) -> None:
        self._file.close()


def download(path: Path, method: str) -> HttpResponseBase:
    """An answer that sends a file to be kept. Raises what opening it raises; a link is not followed."""
    sent = SentFile(path)
    answer: HttpResponseBase
    if method == "HEAD":
        sent.close()
        answer = HttpResponse(content_type="application/x-ndjson")
    else:
        answer = StreamingHttpResponse(sent, content_type="application/x-ndjson")
    answer["Content-Length"] = str(sent.size)
    answer["Content-Disposition"] = disposition(path.name)
    answer["X-Content-Type-Options"] = "nosniff"
    return answer


def disposition(name: str) -> str:
    """The header that names a download: in plain ASCII, and as it is if that is more.

    What could steer a display or a shell is an underscore in both. See RFC 6266.
    """
    plain = re.sub(r"[^A-Za-z0-9._-]", "_", name)
    whole = "".join("_" if not one.isprintable() or one in '/\\:*?"<>|' else one for one in name)
    plain, whole = (re.sub(r"^\.+", "_", given) for given in (plain, whole))
    told = f'attachment; filename="{plain}"'
    return told if whole == plain else f"{told}; filename*=UTF-8''{quote(whole, safe='')}"
