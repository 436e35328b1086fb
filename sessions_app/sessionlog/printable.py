"""PURE: texts without characters that a terminal or a page could act on: these are shown as escapes."""

from __future__ import annotations

import re
from typing import Final

_BETWEEN_BREAKS: Final = re.compile(r"[^\n\t]+")
_ACTING: Final = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff]"
)
"""Control characters, those that change the direction, and halves of characters."""


def printable(text: object) -> str:
    """The text, with characters that a terminal could act on replaced by escapes such as \\x1b or \\u202e."""
    shown = str(text)
    return shown if shown.isprintable() else "".join(map(_escape, shown))


def one_line(text: str | None, width: int) -> str:
    """The beginning of a text on one line, with white space collapsed; empty for None.

    It is cut to `width` characters before control characters are escaped, which makes each of them longer.
    """
    text = (text or "").strip()
    beginning = text[: 4 * width]  # a text may be millions of characters long
    shortened = " ".join(beginning.split())
    is_whole = len(beginning) == len(text) and len(shortened) <= width
    return printable(shortened if is_whole else shortened[: width - 1] + "…")


def printable_lines(text: str) -> str:
    """The same for a text of several lines: line breaks and tabs stay."""
    return _BETWEEN_BREAKS.sub(lambda found: printable(found[0]), text)


def editable(text: str) -> str:
    """A text for a field in which it is edited, and kept as it is then: what acts is an escape. Joiners, which some
    languages need, stay."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n")
    return _ACTING.sub(lambda found: _escape(found[0]), lines)


def plural(number: int, noun: str) -> str:
    """A number with its noun, in the plural unless it is one: `1 entry`, `1,204 entries`."""
    if number == 1:
        return f"1 {noun}"
    if noun.endswith("y") and noun[-2] not in "aeiou":
        noun = f"{noun[:-1]}ie"
    return f"{number:,} {noun}{'es' if noun.endswith(('ch', 'sh', 's', 'x')) else 's'}"


def _escape(character: str) -> str:
    if character.isprintable():
        return character
    code = ord(character)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
