"""PURE: an excerpt of a text, around its matches."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple

from .query import TermPattern

LENGTH: Final = 180
BEFORE: Final = 60
"""Characters before the first mark."""
MARKS_SEEN: Final = 200
"""How many marks of each term are compared to find the best place."""


class SnippetPart(NamedTuple):
    """A piece of text; marked if it matches."""

    text: str
    marked: bool = False


class _Mark(NamedTuple):
    start: int
    end: int
    term: int


def snippet(text: str, patterns: Sequence[TermPattern], length: int = LENGTH) -> list[SnippetPart]:
    """The `length` characters with the most different terms, on one line, and the terms in them marked.

    Without any of the terms, the beginning of the text.
    """
    marks = sorted(_marks(text, patterns))
    best = _best(marks, length - BEFORE)
    start = _word_start(text, max(0, marks[best].start - BEFORE)) if marks else 0
    end = max(start + length, marks[best].end if marks else 0)
    parts = [SnippetPart("…")] if start else []
    at = start
    for mark in marks[best:]:
        if mark.end > end:
            break
        if mark.start >= at:
            parts += [SnippetPart(text[at : mark.start]), SnippetPart(text[mark.start : mark.end], True)]
            at = mark.end
    parts.append(SnippetPart(text[at:end] + ("…" if end < len(text) else "")))
    return [SnippetPart(_one_line(part.text), part.marked) for part in parts if part.text]


def _marks(text: str, patterns: Sequence[TermPattern]) -> Iterator[_Mark]:
    for term, pattern in enumerate(patterns):
        for start, end in islice(pattern.spans(text), MARKS_SEEN):
            yield _Mark(start, end, term)


def _best(marks: Sequence[_Mark], length: int) -> int:
    """The mark from which on the most different terms follow within a length; the first of several."""
    best, most = 0, 0
    for place, mark in enumerate(marks):
        terms = set()
        for other in marks[place:]:
            if other.end > mark.start + length:
                break
            terms.add(other.term)
        if len(terms) > most:
            best, most = place, len(terms)
    return best


def _word_start(text: str, at: int) -> int:
    """The start of the next word after a position that is inside one, if it is near."""
    if at == 0:
        return 0
    found = re.compile(r"\s").search(text, at, at + BEFORE // 2)
    return found.end() if found is not None else at


def _one_line(text: str) -> str:
    """The text with white space collapsed, also at its ends, which may be between two words."""
    return re.sub(r"\s+", " ", text)
