"""PURE: titles of sessions and turns: how a message begins, as plain words on one line."""

from __future__ import annotations

import re
from typing import Final

from .jsjson import well_formed
from .noise import is_noise, spoken

TITLE_LENGTH: Final = 200
_READ: Final = 4
"""So many times the length of a title are read: marks and spaces take the rest."""
_FENCE: Final = re.compile(r"^[ \t]{0,3}(?:`{3,}|~{3,})[^`\n]*$", re.MULTILINE)
_LINE_MARK: Final = re.compile(r"^[ \t]{0,3}(?:#{1,6}[ \t]+|>[ \t]?|[-*+][ \t]+(?:\[[ xX]\][ \t]+)?)", re.MULTILINE)
_CODE: Final = re.compile(r"(?<!`)(`{1,3})(?!`) ?([^\n]{1,400}?) ?(?<!`)\1(?!`)")
_LINK: Final = re.compile(r"!?\[([^\[\]\n]{1,400})\]\([^()\s]{0,1000}\)")
_STRONG: Final = re.compile(r"(?<![\w*])\*{1,3}(?![\s*])([^*\n]{1,400}?)(?<!\s)\*{1,3}(?![\w*])")


def title_of(text: str, length: int = TITLE_LENGTH) -> str:
    """The beginning of what the user wrote, on one line of at most `length` characters, without the marks of Markdown.
    Underscores stay, because names have them."""
    words = spoken(text)[: _READ * length]
    for pattern, plain in ((_FENCE, ""), (_LINE_MARK, ""), (_CODE, r"\2"), (_LINK, r"\1"), (_STRONG, r"\1")):
        words = pattern.sub(plain, words)
    return well_formed(" ".join(words.split())[:length]).replace("\0", "")


def title_of_prompt(text: str) -> str:
    """The title of what a user said first; empty if it is noise."""
    return "" if is_noise(text) else title_of(text)
