"""Bytes into lines, with the byte offset of each. A line ends at a newline and at nothing else.

The last line of a file may have no newline: an agent may be writing it at this moment. It is handed out
with `complete` False, and the next reading starts at its offset again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple


class Line(NamedTuple):
    """One line of a session file: its number from 1, its byte offset, and its bytes without the newline."""

    number: int
    offset: int
    raw: bytes
    complete: bool = True

    @property
    def end(self) -> int:
        """The offset of the byte after the line, its newline included."""
        return self.offset + len(self.raw) + self.complete


def split_lines(chunks: Iterable[bytes], *, offset: int = 0, number: int = 1) -> Iterator[Line]:
    """The lines of a file that is read in chunks, from a line's start at `offset`.

    Holds one chunk and one line in memory, however long the file is.
    """
    pieces: list[bytes] = []
    for chunk in chunks:
        *ended, rest = chunk.split(b"\n")
        if ended and pieces:
            pieces.append(ended[0])
            ended[0] = b"".join(pieces)
            pieces.clear()
        for raw in ended:
            yield Line(number, offset, raw)
            offset += len(raw) + 1
            number += 1
        if rest:
            pieces.append(rest)
    if pieces:
        yield Line(number, offset, b"".join(pieces), complete=False)
