"""PURE: a typed search query, as an expression of the full-text index and as marks in a text; and the excerpt of a text
around its matches.

    race condition        both words, in any order; a word of three letters or more also finds longer ones
    "race condition"      exactly these words in a row
    -flaky                without this word
    tool:bash is:deleted  only results of a tool, only what the model no longer sees

Everything else is a word, including what only looks like a filter: no input causes an error of the index.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from itertools import islice
from typing import Any, Final, NamedTuple, Protocol

from sessions_app.sessionlog.jsjson import well_formed
from sessions_app.sessionlog.passages import CJK

MAX_LENGTH: Final = 400
"""The maximum length of a query in characters; the rest is ignored."""
MAX_TERMS: Final = 16
PREFIX_LENGTH: Final = 3
"""The minimum length of words that also find longer ones."""
FILTERS: Final = ("agent", "project", "in", "tool", "is", "since", "until", "after", "before")
_ALSO: Final = {"role": "in"}
"""Other names of filters."""
_PART: Final = re.compile(r'(-?)(?:([a-z]+):)?(?:"([^"]*)"?|(\S+))')
_WORD: Final = re.compile(r"[^\W_]+")
_DATE: Final = re.compile(r"(\d{4})(?:-(\d\d?))?(?:-(\d\d?))?")


@dataclass(frozen=True, slots=True)
class TermPattern:
    """Finds a term in texts as they were recorded, in upper and lower case."""

    as_typed: str
    """A regular expression."""
    folded: str
    """The regular expression for case-folded texts."""

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        """The start and end of each occurrence of the term in a text."""
        folded = text.casefold()
        # Ignoring the case of a text is ten times as slow. If folding changes the length, as with a ß, the positions
        # differ.
        if len(folded) == len(text):
            found = re.compile(self.folded).finditer(folded)
        else:
            found = re.compile(self.as_typed, re.IGNORECASE).finditer(text)
        return (one.span() for one in found)

    def is_in(self, text: str) -> bool:
        return next(self.spans(text), None) is not None


@dataclass(frozen=True, slots=True)
class SearchTerm:
    """A word or a phrase. If it is exact, it does not find longer words."""

    text: str
    exact: bool = False
    excluded: bool = False

    @property
    def typed(self) -> str:
        """The term as it is typed."""
        return "-" * self.excluded + (f'"{self.text}"' if self.exact else self.text)

    @property
    def words(self) -> str:
        """The text whose tokens in the index stand for the term. Chinese and kana are indexed as pairs of
        neighbours.
        """
        return CJK.sub(_pairs, self.text.replace("\0", " "))

    @property
    def pattern(self) -> TermPattern:
        """The pattern that finds the term in a recorded text."""
        words = _WORD.findall(self.text)
        return TermPattern(self._expression(words), self._expression([word.casefold() for word in words]))

    def _expression(self, words: Sequence[str]) -> str:
        first, *others = map(re.escape, words)
        # Looking back only after the first word is three times as fast as at every character of a text.
        start = first if CJK.match(words[0]) else rf"{first}(?<![^\W_]{first})"
        after = r"[^\W_]{0,60}" if self.is_prefix(words[-1]) else r"(?![^\W_])"
        if CJK.match(words[-1][-1]):
            after = ""
        return r"[\W_]+".join([start, *others]) + after

    @property
    def marks(self) -> dict[str, Any]:
        """The same as JSON values for a script, whose patterns differ: the words, which consist of letters and digits
        only; whether longer words match; and whether words end where letters and digits end.
        """
        words = _WORD.findall(self.text)
        return {"words": words, "prefix": self.is_prefix(words[-1]), "bounded": not CJK.search(self.text)}

    def is_prefix(self, last: str) -> bool:
        """Whether the term also finds longer words in place of its last one."""
        if CJK.fullmatch(last):
            return len(last) == 1
        return not self.exact and len(last) >= PREFIX_LENGTH


def _pairs(run: re.Match[str]) -> str:
    text = run[0]
    return f" {' '.join(text[at : at + 2] for at in range(max(1, len(text) - 1)))} "


class Vocabulary(Protocol):
    """The words of the index."""

    def tokens_of(self, text: str) -> Sequence[str]:
        """The tokens of a text in order, as the index has them."""

    def words_from(self, token: str) -> Sequence[str]:
        """The words that begin with a token; none of them if they are many."""


class IndexQuery(NamedTuple):
    """The query to the index, which knows the words of a passage, but not their order."""

    expression: str
    """An FTS5 expression; empty if the query names no word to find."""
    compared: tuple[TermPattern, ...]
    """Terms of several words, which the text of a passage must contain as well."""
    refused: tuple[TermPattern, ...]
    """Terms that it must not contain."""


@dataclass(frozen=True, slots=True)
class SearchQuery:
    """The terms of a query, and the filters that are written in it."""

    terms: tuple[SearchTerm, ...] = ()
    filters: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, text: str) -> SearchQuery:
        terms, filters = [], []
        for minus, name, quoted, plain in _PART.findall(well_formed(text)[:MAX_LENGTH]):
            value, known = quoted or plain, _ALSO.get(name, name)
            if known in FILTERS and value and not minus:
                filters.append((known, value))
                continue
            words = f"{name}:{value}" if name else value
            if _WORD.search(words):
                terms.append(SearchTerm(words, exact=bool(quoted), excluded=bool(minus)))
        return cls(tuple(terms[:MAX_TERMS]), tuple(filters))

    @property
    def finds(self) -> bool:
        """Whether it has a term that is not excluded."""
        return any(not term.excluded for term in self.terms)

    @property
    def words(self) -> str:
        """The terms as they are typed, without the filters."""
        return " ".join(term.typed for term in self.terms)

    @property
    def patterns(self) -> list[TermPattern]:
        """The patterns to mark in a text, one for each term."""
        return [term.pattern for term in self.terms if not term.excluded]

    def for_index(self, vocabulary: Vocabulary) -> IndexQuery:
        """The query to the index, whose tokenizer divides texts into tokens; nothing typed is read as the index's
        syntax."""
        wanted, unwanted, compared, refused = [], [], [], []
        for term in self.terms:
            tokens = vocabulary.tokens_of(term.words)
            found = [_quoted(token) for token in tokens]
            if tokens and term.is_prefix(tokens[-1]):
                found[-1] = _beginning(tokens[-1], vocabulary)
            if not term.excluded:
                wanted += found
                compared += [term.pattern] * (len(tokens) > 1)
            elif len(tokens) > 1:
                refused.append(term.pattern)
            else:
                unwanted += found
        expression = " AND ".join(wanted)
        if expression and unwanted:
            expression = f"({expression}) NOT ({' OR '.join(unwanted)})"
        return IndexQuery(expression, tuple(compared), tuple(refused))


def _beginning(token: str, vocabulary: Vocabulary) -> str:
    """The expression for all words that begin with a token. If they are few, they are listed, which is five times as
    fast."""
    words = vocabulary.words_from(token)
    return f"({' OR '.join(map(_quoted, words))})" if words else f"{_quoted(token)} *"


def _quoted(token: str) -> str:
    return '"' + token.replace('"', '""') + '"'


def day_of(text: str, *, end: bool = False) -> datetime | None:
    """The first moment of a year, a month or a day, as in 2026, 2026-01 and 2026-01-31; with `end` the first moment
    after it. In UTC; None if it is none of these."""
    found = _DATE.fullmatch(text.strip())
    if found is None:
        return None
    year, month, day = (int(part) if part else None for part in found.groups())
    try:
        first = date(year or 0, month or 1, day or 1)
        if not end:
            after = first
        elif day is not None:
            after = first + timedelta(days=1)
        elif month is not None:
            after = (first + timedelta(days=31)).replace(day=1)
        else:
            after = date(first.year + 1, 1, 1)
    except (ValueError, OverflowError):
        return None
    return datetime(after.year, after.month, after.day, tzinfo=UTC)


# ---- excerpts --------------------------------------------------------------------------------------------

LENGTH: Final = 180
BEFORE: Final = 60
"""The number of characters shown before the first mark."""
MARKS_SEEN: Final = 200
"""The maximum number of marks of each term that are compared to find the best place."""


class SnippetPart(NamedTuple):
    """A piece of text; marked if it matches."""

    text: str
    marked: bool = False


class _Match(NamedTuple):
    start: int
    end: int
    term: int


def snippet(text: str, patterns: Sequence[TermPattern], length: int = LENGTH) -> list[SnippetPart]:
    """The `length` characters with the most different terms, on one line, and the terms in them marked.

    Without any of the terms, the beginning of the text.
    """
    marks = sorted(
        _Match(start, end, term)
        for term, pattern in enumerate(patterns)
        for start, end in islice(pattern.spans(text), MARKS_SEEN)
    )
    best = _best(marks, length - BEFORE)
    start = _word_start(text, max(0, marks[best].start - BEFORE)) if marks else 0
    end = max(start + length, marks[best].end if marks else 0)
    parts = [SnippetPart("…")] if start else []
    written = start
    for mark in marks[best:]:
        if mark.end > end:
            break
        if mark.start >= written:
            parts += [SnippetPart(text[written : mark.start]), SnippetPart(text[mark.start : mark.end], True)]
            written = mark.end
    parts.append(SnippetPart(text[written:end] + ("…" if end < len(text) else "")))
    # White space is collapsed, also at the ends of a part, which may be between two words.
    return [SnippetPart(re.sub(r"\s+", " ", part.text), part.marked) for part in parts if part.text]


def _best(marks: Sequence[_Match], length: int) -> int:
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


def _word_start(text: str, position: int) -> int:
    """The start of the next word after a position that is inside one, if it is near."""
    if position == 0:
        return 0
    found = re.compile(r"\s").search(text, position, position + BEFORE // 2)
    return found.end() if found is not None else position
