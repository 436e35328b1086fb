"""PURE: the permitted content of rendered texts. Everything that pages declare safe has passed `sanitized`.

    text ──printable──▶ markdown, code, ansi, diffs ──▶ HTML ──sanitized──▶ Markup

Elements, attributes, classes and schemes that are not listed here are removed, whatever a renderer made of a hostile
text: nothing is loaded, nothing acts, and no style of the page's own can be borrowed.
"""

from collections.abc import Iterable
from html import escape
from itertools import groupby
from typing import Final

import nh3

from sessions_app.sessionlog.text import printable_lines


class Markup(str):
    """HTML that has passed `sanitized`, its only constructor."""

    __slots__ = ()


NO_MARKUP: Final = Markup()

CODE_CLASSES: Final = frozenset({"code__word", "code__string", "code__name", "code__note"})
ANSI_CLASSES: Final = frozenset(
    {"ansi__green", "ansi__yellow", "ansi__red", "ansi__blue", "ansi__violet", "ansi__cyan"}
    | {"ansi__strong", "ansi__faint", "ansi__slanted", "ansi__underlined"}
)
DIFF_CLASSES: Final = frozenset({"diff__added", "diff__removed", "diff__gap", "diff__line"})
CLASSES: Final = {
    "a": frozenset({"breakable"}),
    "div": frozenset({"rich__table"}),
    "pre": frozenset({"code"}),
    "span": CODE_CLASSES | ANSI_CLASSES | DIFF_CLASSES | {"rich__target"},
}
"""The classes of rendered texts, by element."""
_TEXT_TAGS: Final = frozenset(
    "p br hr blockquote ol ul li h3 h4 h5 h6 strong em code table thead tbody tr th td".split()
)
_LABELLED: Final = frozenset({"tabindex", "role", "aria-label"})
SCHEMES: Final = frozenset({"http", "https", "mailto"})
_CLEANER: Final = nh3.Cleaner(
    tags=set(_TEXT_TAGS | CLASSES.keys()),
    attributes={"a": {"href"}, "ol": {"start"}, "pre": set(_LABELLED), "div": set(_LABELLED)},
    allowed_classes={tag: set(names) for tag, names in CLASSES.items()},
    url_schemes=set(SCHEMES),
    url_relative="deny",
    link_rel="noopener noreferrer nofollow",
)


def sanitized(html: str) -> Markup:
    """The HTML reduced to the permitted content of rendered texts.

    Entities for control and direction characters become visible escapes.
    """
    return Markup(printable_lines(_CLEANER.clean(html)))


def spans(pieces: Iterable[tuple[str, str]]) -> str:
    """Texts with the classes of their spans as HTML; neighbours of the same classes share a span."""
    found = []
    for classes, group in groupby(pieces, key=lambda piece: piece[0]):
        text = escape("".join(text for _, text in group))
        found.append(f'<span class="{classes}">{text}</span>' if classes else text)
    return "".join(found)


def label(words: str) -> str:
    """The attributes of an element that scrolls separately, so that the keyboard can scroll it."""
    return f'tabindex="0" role="group" aria-label="{escape(words)}"'
