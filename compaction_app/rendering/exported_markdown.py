"""PURE: a branch as Markdown.

Texts of people and models stay Markdown if nothing in them could act, or affect another section, when they are shown;
everything else is in a fence.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from markdown_it import MarkdownIt
from markdown_it.token import Token

from sessions_app.sessionlog.handoff import fenced
from sessions_app.sessionlog.printable import printable, printable_lines

from .spoken_entry import ExportHead, SpokenEntry, SpokenText

LIMIT: Final = 50_000
"""Longer texts are in a fence, in characters."""
_COMMON: Final = MarkdownIt("commonmark")
# Every target is a link here: another program may follow targets that this one would not.
_COMMON.validateLink = bool  # type: ignore[method-assign,assignment]
_ACTING: Final = frozenset({"html_block", "html_inline", "image"})
_END: Final = "# the end"


def markdown_pieces(head: ExportHead, entries: Iterable[SpokenEntry]) -> Iterator[str]:
    """The file in pieces, one for each entry."""
    yield f"# {_words(head.title)}\n\n{_words(' · '.join(head.facts))}\n"
    for spoken in entries:
        texts = [_text(one) for one in spoken.texts()]
        pictures = [f"*picture, {one.width} × {one.height}*" for one in spoken.pictures]
        if texts or pictures:
            yield "\n\n".join([f"\n## {_words(spoken.heading)}", *texts, *pictures]) + "\n"


def _text(spoken: SpokenText) -> str:
    text = printable_lines(spoken.text)
    if spoken.kind == "call":
        return f"Call of {_words(spoken.tool)}:\n\n{fenced(text)}"
    if spoken.kind == "thinking":
        return f"Thinking:\n\n{fenced(text)}"
    return text if spoken.kind == "prose" and is_harmless(text) else fenced(text)


def is_harmless(text: str) -> bool:
    """Whether a text is Markdown that loads nothing, runs nothing, and ends where it ends."""
    if len(text) > LIMIT:
        return False
    names: dict[str, Any] = {}
    tokens = _COMMON.parse(f"{text}\n\n{_END}", names)
    last = tokens[-2].content if len(tokens) > 2 and tokens[-3].type == "heading_open" and not tokens[-3].level else ""
    return last == _END.lstrip("# ") and not names.get("references") and all(map(_is_calm, _with_children(tokens)))


def _with_children(tokens: Sequence[Token]) -> Iterator[Token]:
    for token in tokens:
        yield token
        yield from token.children or ()


def _is_calm(token: Token) -> bool:
    if token.type == "link_open":
        return str(token.attrs.get("href", "")).lower().startswith(("https://", "http://", "mailto:"))
    return token.type not in _ACTING


def _words(text: str) -> str:
    """A text on one line without Markdown syntax."""
    line = printable(" ".join(text.split()))
    return "".join(f"\\{one}" if one in "\\`*_{}[]<>#!|&~" else one for one in line)
