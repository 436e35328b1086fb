"""Splitting bytes into lines, with byte offsets. Only a newline ends a line.

The last line of a file may lack its newline, because an agent may be writing it at this moment. It is returned with
`complete` False, and the next reading starts at its offset again.
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
        """The offset of the byte after the line, including its newline."""
        return self.offset + len(self.raw) + self.complete


def split_lines(chunks: Iterable[bytes], *, offset: int = 0, number: int = 1) -> Iterator[Line]:
    """The lines of a file that is read in chunks, starting at a line's start at `offset`.

    Keeps one chunk and one line in memory, whatever the length of the file.
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
