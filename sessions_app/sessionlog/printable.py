"""PURE: texts without characters that a terminal or a page could act on: these are shown as escapes."""

from __future__ import annotations

import re
from typing import Final

_BETWEEN_BREAKS: Final = re.compile(r"[^\n\t]+")


def printable(text: object) -> str:
    """The text, with characters that a terminal could act on replaced by escapes such as \\x1b or \\u202e."""
    shown = str(text)
    return shown if shown.isprintable() else "".join(map(_escape, shown))


def printable_lines(text: str) -> str:
    """The same for a text of several lines: line breaks and tabs stay."""
    return _BETWEEN_BREAKS.sub(lambda found: printable(found[0]), text)


def _escape(character: str) -> str:
    if character.isprintable():
        return character
    code = ord(character)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
