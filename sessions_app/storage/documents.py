"""EDGE: sessions that are one document each: read whole, and rendered as lines in memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from sessions_app.sessionlog.errors import BadInput

from .files import FileState, opened, pread, reported, sha256_of
from .rendered import RenderedLine

DOCUMENT_SUFFIX: Final = ".json"
SIZE_LIMIT: Final = 200_000_000
"""The size of a document, in bytes, above which it is not read."""
_NOT_READ: Final = "It was not read."


class LinesInMemory:
    """The lines of a document."""

    def __init__(self, lines: Sequence[bytes], state: FileState) -> None:
        self._rendered = lines
        self.identity = (state.device, state.inode)
        self.changed_ns = state.mtime_ns
        self.lines = [RenderedLine(len(line), sha256_of(line)) for line in lines]

    def render(self, place: int) -> bytes:
        return self._rendered[place]


@contextmanager
def opened_document(
    path: Path, lines_of: Callable[[bytes], Sequence[bytes] | None], kind: str
) -> Iterator[LinesInMemory]:
    """The lines of a document, each with its newline; `kind` names the expected document, such as "a thread of Amp".

    Raises BadInput `not_a_session` if `lines_of` gives None.
    """
    with opened(path, os.O_RDONLY, _NOT_READ) as fd, reported(path, _NOT_READ):
        state = FileState.of(os.fstat(fd))
        if state.size > SIZE_LIMIT:
            raise BadInput("not_a_session", f"{path} is larger than {SIZE_LIMIT:,} bytes. {_NOT_READ}")
        lines = lines_of(pread(fd, 0, state.size))
    if lines is None:
        raise BadInput("not_a_session", f"{path} is not {kind}. {_NOT_READ}")
    yield LinesInMemory(lines, state)
