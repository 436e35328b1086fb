"""PURE: changes of files as diffs, line by line. A sign begins each line: colour alone carries no information.

A call that edits a file names its old and its new text but not their position, so that a diff has no line numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from html import escape
from typing import Final, NamedTuple

from sessions_app.sessionlog.printable import printable_lines

COMPARED_LINES: Final = 400
"""Longer texts are not compared line by line: the old one is removed and the new one added, except for common lines at
the beginning and the end."""
AROUND: Final = 3
"""Unchanged lines that are shown on each side of a change."""
GAP: Final = "⋯"
_Operation = tuple[str, int, int, int, int]
"""As in `difflib`: the operation, and the lines of both texts that it concerns."""
_CLASSES: Final = {"+": "diff__added", "-": "diff__removed", " ": "diff__line", "@": "diff__gap"}


class TextChange(NamedTuple):
    """A part of a file, before and after."""

    old: str
    new: str


class DiffLine(NamedTuple):
    """A line of a diff: `+`, `-`, a blank for an unchanged line, or `@` for the gap between two places."""

    sign: str
    text: str


def diff_of(changes: Iterable[TextChange]) -> Iterator[DiffLine]:
    """The lines of a diff of several places of a file."""
    for number, change in enumerate(changes):
        if number:
            yield DiffLine("@", GAP)
        yield from _lines(_lines_of(change.old), _lines_of(change.new))


def diff_of_patch(lines: Iterable[str]) -> Iterator[DiffLine]:
    """The lines of a patch whose lines already have their signs; a line without one is a heading."""
    for line in lines:
        if line[:1] in ("+", "-", " "):
            yield DiffLine(line[0], line[1:])
        else:
            yield DiffLine("@" if line else " ", line)


def counts(lines: Iterable[DiffLine]) -> tuple[int, int]:
    """The number of lines that a diff adds and removes."""
    signs = [line.sign for line in lines]
    return signs.count("+"), signs.count("-")


def diff_markup(lines: Iterable[DiffLine]) -> str:
    """A diff as HTML, which has to be sanitized."""
    return "".join(map(_markup, lines))


def _markup(line: DiffLine) -> str:
    sign = "" if line.sign == "@" else line.sign
    return f'<span class="{_CLASSES[line.sign]}">{sign}{escape(printable_lines(line.text))}\n</span>'


def _lines_of(text: str) -> list[str]:
    return text.removesuffix("\n").split("\n") if text else []


def _lines(old: Sequence[str], new: Sequence[str]) -> Iterator[DiffLine]:
    for number, group in enumerate(_groups(old, new)):
        if number:
            yield DiffLine("@", GAP)
        for tag, old_start, old_end, new_start, new_end in group:
            if tag == "equal":
                yield from (DiffLine(" ", line) for line in old[old_start:old_end])
                continue
            yield from (DiffLine("-", line) for line in old[old_start:old_end])
            yield from (DiffLine("+", line) for line in new[new_start:new_end])


def _groups(old: Sequence[str], new: Sequence[str]) -> Iterable[Sequence[_Operation]]:
    """The operations that turn the old text into the new one, those of one place together."""
    if len(old) + len(new) <= COMPARED_LINES:
        return SequenceMatcher(None, old, new, autojunk=False).get_grouped_opcodes(AROUND)
    first = _common(old, new)
    last = _common(old[first:][::-1], new[first:][::-1])
    ends = len(old) - last, len(new) - last
    shown = min(AROUND, first), min(AROUND, last)
    return [
        [
            ("equal", first - shown[0], first, first - shown[0], first),
            ("replace", first, ends[0], first, ends[1]),
            ("equal", ends[0], ends[0] + shown[1], ends[1], ends[1] + shown[1]),
        ]
    ]


def _common(one: Sequence[str], other: Sequence[str]) -> int:
    """The number of lines that two texts have in common at their beginning."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (left, right) in pairs if left != right), min(len(one), len(other)))
