"""Downloads of files as stored on disk: byte for byte, never whole in memory."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import BinaryIO, Final

from asgiref.sync import sync_to_async
from django.http import HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase

from compaction_app.runs.streaming import disposition
from sessions_app.agents.registry import agent_at
from sessions_app.sessionlog.errors import Conflict
from sessions_app.storage.documents import DOCUMENT_SUFFIX
from sessions_app.storage.files import CHUNK, open_regular, reported

NOT_SENT: Final = "It was not sent."


class SentFile:
    """The bytes of a file at the time of opening, in pieces, without bytes appended during the download.

    If the file shrinks meanwhile a Conflict is raised: the connection is cut off, and a browser then reports that the
    download failed.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = path.name
        # A file object, so that it is closed even if a response is discarded before it is sent.
        self._file = self._open()
        with reported(path, NOT_SENT):
            self.size = os.fstat(self._file.fileno()).st_size
        self._sent = 0

    def _open(self) -> BinaryIO:
        export = agent_at(self.path).store.export(self.path)
        if export is None:
            return os.fdopen(open_regular(self.path, os.O_RDONLY, NOT_SENT), "rb", buffering=0)
        self.name = f"{self.path.stem}{DOCUMENT_SUFFIX}"
        copy = tempfile.TemporaryFile()  # noqa: SIM115  # a transaction would last as long as the download
        copy.writelines(export)
        copy.flush()
        return copy

    def __aiter__(self) -> SentFile:
        return self

    async def __anext__(self) -> bytes:
        piece = await sync_to_async(self._next)()
        if not piece:
            raise StopAsyncIteration
        return piece

    def _next(self) -> bytes:
        with reported(self.path, "It was sent only in part."):
            piece = os.pread(self._file.fileno(), min(CHUNK, self.size - self._sent), self._sent)
        if not piece and self._sent < self.size:
            raise Conflict(
                "session_rewritten",
                f"{self.path} shrank while it was sent. It was sent only in part. Download it again.",
            )
        self._sent += len(piece)
        return piece

    def close(self) -> None:
        self._file.close()


def download(path: Path, method: str) -> HttpResponseBase:
    """A response that sends a file as a download. Raises the errors of opening it; a link is not followed."""
    sent = SentFile(path)
    answer: HttpResponseBase
    if method == "HEAD":
        sent.close()
        answer = HttpResponse()
    else:
        answer = StreamingHttpResponse(sent)
    is_document = sent.name.endswith(DOCUMENT_SUFFIX)
    answer["Content-Type"] = "application/json" if is_document else "application/x-ndjson"
    answer["Content-Length"] = str(sent.size)
    answer["Content-Disposition"] = disposition(sent.name)
    answer["X-Content-Type-Options"] = "nosniff"
    return answer
