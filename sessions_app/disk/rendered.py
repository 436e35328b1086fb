"""EDGE: sessions that are not files of lines: their lines are rendered from rows or documents, and read like a file's.

A `LineSource` gives the size and the identity of each line, and the line itself on demand. It shows one state of the
session for as long as it is open, so that nothing changes while it is read. A session that is one document is read
whole, and rendered as lines in memory.
"""

import hashlib
import os
import stat
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import accumulate
from pathlib import Path
from typing import Final, NamedTuple, Protocol, Self

from sessions_app.sessionlog.errors import BadInput
from sessions_app.sessionlog.text import plural

from .files import FileState, Fingerprint, Growth, GrowthKind, SessionReader, opened, pread, reported, sha256_of


class RenderedLine(NamedTuple):
    """A line that can be rendered: its size in bytes with the newline, and an identity that changes with the line."""

    size: int
    identity: str


class LineSource(Protocol):
    """The lines of an opened session."""

    @property
    def lines(self) -> Sequence[RenderedLine]: ...

    @property
    def identity(self) -> tuple[int, int]:
        """The device and the inode of the store."""
        ...

    @property
    def changed_ns(self) -> int:
        """When the session was last changed, in nanoseconds."""
        ...

    def render(self, place: int) -> bytes:
        """The line at this index of `lines`, with exactly that size. Raises Conflict `session_rewritten`."""
        ...


OpenSource = Callable[[], AbstractContextManager[LineSource]]


class RenderedReader(SessionReader):
    """A `SessionReader` of rendered lines. A change of any line before the end of a fingerprint is noticed."""

    def __init__(self, path: Path, open_source: OpenSource) -> None:
        super().__init__(path)
        self._opened = open_source()
        self._source: LineSource | None = None
        self._ends: list[int] = []
        self._last = (-1, b"")
        """The line that was read last: a long one is read in several pieces."""

    def __enter__(self) -> Self:
        self._source = self._opened.__enter__()
        self._ends = list(accumulate(line.size for line in self._source.lines))
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.__exit__(None, None, None)
        self._source = None

    def stat(self) -> os.stat_result:
        state = self.state()
        seconds = state.mtime_ns // 10**9
        mode = stat.S_IFREG | 0o400
        found = (mode, state.inode, state.device, 1, 0, 0, state.size, seconds, seconds, seconds)
        return os.stat_result(found, {"st_mtime": state.mtime_ns / 10**9, "st_mtime_ns": state.mtime_ns})

    def state(self) -> FileState:
        source = self._open()
        return FileState(*source.identity, self._ends[-1] if self._ends else 0, source.changed_ns)

    def growth(self, previous: Fingerprint) -> Growth:
        now = self.state()
        if (now.device, now.inode) != (previous.device, previous.inode):
            return Growth(GrowthKind.REWRITTEN, "its store was replaced by another one")
        if now.size < previous.size:
            return Growth(GrowthKind.REWRITTEN, f"it shrank from {previous.size:,} to {plural(now.size, 'byte')}")
        if self._digest(previous.size) != previous.head:
            return Growth(GrowthKind.REWRITTEN, f"a line before byte {previous.size:,} changed")
        return Growth(GrowthKind.GROWN if now.size > previous.size else GrowthKind.UNCHANGED)

    def fingerprint(self, end: int, previous: Fingerprint | None) -> Fingerprint:
        del previous
        digest, state = self._digest(end), self.state()
        if not digest:
            raise ValueError(f"no line ends at byte {end}")
        return Fingerprint(
            state.device, state.inode, end, state.mtime_ns, digest, digest, ((end, digest),) if end else ()
        )

    def _digest(self, end: int) -> str:
        """The digest of the identities of the lines before `end`; empty if no line ends there."""
        count = bisect_right(self._ends, end)
        if end != (self._ends[count - 1] if count else 0):
            return ""
        names = (line.identity for line in self._open().lines[:count])
        return hashlib.sha256("\n".join(names).encode("utf-8", "surrogatepass")).hexdigest()

    def _read(self, offset: int, length: int) -> bytes:
        pieces, end = [], offset + length
        place = bisect_right(self._ends, offset)
        while place < len(self._ends) and offset < end:
            line = self._line(place)
            start = self._ends[place] - len(line)
            pieces.append(line[offset - start : end - start])
            offset = self._ends[place]
            place += 1
        data = b"".join(pieces)
        self.bytes_read += len(data)
        return data

    def _line(self, place: int) -> bytes:
        if self._last[0] != place:
            source = self._open()
            line = source.render(place)
            if len(line) != source.lines[place].size:
                raise self._rewritten(f"line {place + 1} changed while it was read")
            self._last = (place, line)
        return self._last[1]

    def _open(self) -> LineSource:
        if self._source is None:
            raise RuntimeError(f"{self.path} is not open")
        return self._source


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
