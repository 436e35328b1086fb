"""PURE: the colours and styles of a terminal's output, as classes.

Only sequences that set a style, or erase to the end of a line, are removed from the text: all others, which could make
a terminal hide or move text, are shown as escapes. Red is only for deletions, so an ANSI red is plum.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from sessions_app.sessionlog.printable import printable_lines

from .markup import spans

ESCAPE: Final = "\x1b"
_SEQUENCE: Final = re.compile(r"\x1b\[([0-9;:]{0,60})m|\x1b\[[0-2]?K|\x1b\(B")
_COLOURS: Final = ("", "red", "green", "yellow", "blue", "violet", "cyan", "")
"""The colours of the codes 30 to 37. Black and white are the text's own colour: a page has two themes."""
_STYLES: Final = {1: "strong", 2: "faint", 3: "slanted", 4: "underlined"}
_ENDS: Final = {22: ("strong", "faint"), 23: ("slanted",), 24: ("underlined",)}
_EXTENDED: Final = (38, 48, 58)
"""They take the following codes: 5 and a number, or 2 and three numbers."""


def coloured(text: str) -> str | None:
    """A recorded output as HTML, which has to be sanitized; None if it sets no style."""
    return spans(_pieces(text)) if ESCAPE in text and _SEQUENCE.search(text) else None


def without_styles(text: str) -> str:
    """The text alone, without the sequences that `coloured` removes."""
    return _SEQUENCE.sub("", text) if ESCAPE in text else text


def _pieces(text: str) -> Iterator[tuple[str, str]]:
    colour, styles, end = "", frozenset[str](), 0
    for found in _SEQUENCE.finditer(text):
        yield _classes(colour, styles), printable_lines(text[end : found.start()])
        end = found.end()
        if found[1] is not None:
            colour, styles = _styled(colour, styles, found[1])
    yield _classes(colour, styles), printable_lines(text[end:])


def _styled(colour: str, styles: frozenset[str], parameters: str) -> tuple[str, frozenset[str]]:
    """The colour and the styles after one sequence."""
    codes = iter([int(code or 0) for code in re.split("[;:]", parameters)])
    for code in codes:
        if code == 0:
            colour, styles = "", frozenset()
        elif code in _STYLES:
            styles |= {_STYLES[code]}
        elif code in _ENDS:
            styles -= set(_ENDS[code])
        elif 30 <= code <= 37 or 90 <= code <= 97:
            colour = _COLOURS[code % 10]
        elif code == 39:
            colour = ""
        elif code in _EXTENDED:
            extended = _extended(codes)
            colour = extended if code == 38 else colour
    return colour, styles


def _extended(codes: Iterable[int]) -> str:
    """The colour that the codes after one of _EXTENDED name: by name for the first sixteen, none for others."""
    rest = iter(codes)
    mode = next(rest, 0)
    if mode == 5:
        number = next(rest, 0)
        return _COLOURS[number % 8] if number < 16 else ""
    if mode == 2:
        for _ in range(3):
            next(rest, 0)
    return ""


def _classes(colour: str, styles: Iterable[str]) -> str:
    return " ".join(f"ansi__{name}" for name in (colour, *sorted(styles)) if name)
