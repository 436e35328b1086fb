"""The bytes of values inside recorded JSON, so that what is kept of a line stays exactly as it was recorded.

Only for JSON that a parser has accepted; positions are bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from .jsjson import parse

_TOKEN: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[{}\[\]:,]', re.DOTALL)
"""Strings and marks. Possessive: an image of 10 MB is one string, and to remember each of its bytes takes 1 GB."""
_BLANKS: Final = b" \t\r\n"


class Span(NamedTuple):
    """The position of a value: from `start` up to, but without, `end`."""

    start: int
    end: int

    def of(self, raw: bytes) -> bytes:
        return raw[self.start : self.end]


def members(raw: bytes, start: int = 0) -> dict[str, Span]:
    """The values of the object that begins at or after `start`, by key; of a repeated key the last one counts."""
    found: dict[str, Span] = {}
    for key, span in _parts(raw, start):
        name = parse(key)
        if isinstance(name, str):
            found[name] = span
    return found


def items(raw: bytes, start: int = 0) -> list[Span]:
    """The items of the array that begins at or after `start`."""
    return [span for _, span in _parts(raw, start)]


def first_object(raw: bytes) -> Span:
    """The position of the object or array with which bytes begin; empty if they begin with anything else or it does not
    end."""
    depth, start = 0, len(raw) - len(raw.lstrip(_BLANKS))
    if raw[start : start + 1] in (b"{", b"["):
        for token in _TOKEN.finditer(raw, start):
            mark = token.group()
            depth += (mark in (b"{", b"[")) - (mark in (b"}", b"]"))
            if not depth:
                return Span(start, token.end())
    return Span(start, start)


def splice(raw: bytes, changes: Iterable[tuple[Span, bytes]]) -> bytes:
    """The bytes with other bytes in place of these spans, which do not overlap."""
    pieces, at = [], 0
    for span, instead in sorted(changes):
        pieces += [raw[at : span.start], instead]
        at = span.end
    return b"".join([*pieces, raw[at:]])


def _parts(raw: bytes, start: int) -> Iterator[tuple[bytes, Span]]:
    """Each value of an object or array, with its key as recorded (empty in an array)."""
    depth, begin, key, text = 0, start, b"", b""
    for token in _TOKEN.finditer(raw, start):
        mark = token.group()
        if mark in (b"{", b"["):
            depth += 1
            if depth == 1:
                begin = token.end()
        elif mark in (b"}", b"]"):
            depth -= 1
            if depth == 0:
                last = _trimmed(raw, begin, token.start())
                if last.start < last.end:
                    yield key, last
                return
        elif depth != 1:
            continue
        elif mark == b":":
            key, begin = text, token.end()
        elif mark == b",":
            yield key, _trimmed(raw, begin, token.start())
            begin = token.end()
        else:
            text = mark


def _trimmed(raw: bytes, start: int, end: int) -> Span:
    """The span without the blanks around its value."""
    value = raw[start:end]
    return Span(start + len(value) - len(value.lstrip(_BLANKS)), start + len(value.rstrip(_BLANKS)))
