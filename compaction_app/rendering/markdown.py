"""PURE: texts of people and models, as Markdown. HTML tags in them are shown as text; nothing is loaded.

Links lead to the web or to a mail address, and show their target; any other target is plain text. The same applies to
images, which would be loaded. Headings begin at the level below the page's own. `RenderedTexts` caches rendered texts
in memory, by a hash of their sources; the oldest ones are dropped first.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from hashlib import blake2b
from html import escape
from typing import Any, Final
from urllib.parse import urlsplit

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token

from .code import highlighted
from .markup import SCHEMES, Markup, label, sanitized

LIMIT: Final = 50_000
"""The maximum length of a rendered text, in characters: longer texts stay plain."""
CELLS: Final = 20_000
"""The maximum number of table cells of a rendered text: each line below a table's head is filled up to its width."""
NESTED: Final = 20
"""The maximum nesting of quotes and lists."""
TARGET_CHARACTERS: Final = 80
FIRST_HEADING: Final = 3
LAST_HEADING: Final = 6


def rendered_markdown(text: str) -> str | None:
    """A printable text as HTML, which has to be sanitized; None if it is too long, or its tables may be too large."""
    lines = text.split("\n") if len(text) <= LIMIT else []
    if not lines or len(lines) * max(line.count("|") for line in lines) > CELLS:
        return None
    return str(_MARKDOWN.render(text))


class _Renderer(RendererHTML):
    """HTML with the project's elements and classes."""

    def link_open(self, tokens: Sequence[Token], at: int, *_: Any) -> str:
        href = _address(tokens[at])
        return f'<a class="breakable" href="{escape(href)}">' if _is_link(href) else ""

    def link_close(self, tokens: Sequence[Token], at: int, *_: Any) -> str:
        opened = next(place for place in range(at - 1, -1, -1) if _opens(tokens[place], tokens[at]))
        href = _address(tokens[opened])
        shown = "".join(token.content for token in tokens[opened + 1 : at])
        end = "</a>" if _is_link(href) else ""
        return f"{end}{_target(href)}" if shown not in (href, href.removeprefix("mailto:")) else end

    def image(self, tokens: Sequence[Token], at: int, *_: Any) -> str:
        source = str(tokens[at].attrs.get("src", ""))
        words = escape(tokens[at].content or "image")
        if _is_link(source):
            return f'<a class="breakable" href="{escape(source)}">{words}</a>{_target(source)}'
        return f"{words}{_target(source)}"

    def fence(self, tokens: Sequence[Token], at: int, *_: Any) -> str:
        language = (tokens[at].info.split() or [""])[0]
        return _code(tokens[at].content, language)

    def code_block(self, tokens: Sequence[Token], at: int, *_: Any) -> str:
        return _code(tokens[at].content, "")

    def table_open(self, *_: Any) -> str:
        return f'<div class="rich__table" {label("Table")}><table>'

    def table_close(self, *_: Any) -> str:
        return "</table></div>"


def _code(content: str, language: str) -> str:
    text = content.rstrip("\n")
    words = f"Code, {language[:40]}" if language else "Code"
    return f'<pre class="code" {label(words)}><code>{highlighted(text, language) or escape(text)}</code></pre>'


def _address(token: Token) -> str:
    return str(token.attrs.get("href", ""))


def _opens(token: Token, closing: Token) -> bool:
    return token.type == "link_open" and token.level == closing.level


def _is_link(address: str) -> bool:
    try:
        return urlsplit(address).scheme in SCHEMES
    except ValueError:
        return False


def _target(address: str) -> str:
    """The target of a link, shown after its text."""
    cut = address if len(address) <= TARGET_CHARACTERS else f"{address[:TARGET_CHARACTERS]}…"
    return f' <span class="rich__target">({escape(cut)})</span>' if cut else ""


def _numbered_headings(state: Any) -> None:
    """Give each heading the level below that of its parent, beginning with FIRST_HEADING."""
    above: list[int] = []
    for token in state.tokens:
        if token.type not in ("heading_open", "heading_close"):
            continue
        level = int(token.tag[1:])
        if token.type == "heading_open":
            while above and above[-1] >= level:
                above.pop()
            above.append(level)
        token.tag = f"h{min(FIRST_HEADING - 1 + len(above), LAST_HEADING)}"


def _new_markdown() -> MarkdownIt:
    options = {"html": False, "breaks": True, "linkify": False, "maxNesting": NESTED}
    parser = MarkdownIt("commonmark", options, renderer_cls=_Renderer).enable("table")
    parser.core.ruler.push("numbered_headings", _numbered_headings)
    return parser


_MARKDOWN: Final = _new_markdown()


KEPT_CHARACTERS: Final = 16_000_000
ENTRY_CHARACTERS: Final = 200
"""The overhead of a cached result, counted in characters."""


class RenderedTexts:
    """Cached results of renderers, up to a number of characters."""

    def __init__(self, limit: int = KEPT_CHARACTERS) -> None:
        self._limit = limit
        self._size = 0
        self._kept: OrderedDict[bytes, Markup | None] = OrderedDict()
        self._keeping = threading.Lock()

    def get(self, style: str, text: str, render: Callable[[], str | None]) -> Markup | None:
        """The sanitized result of `render`; `style` identifies the renderer and its settings."""
        key = blake2b(f"{style}\0{text}".encode("utf-8", "surrogatepass"), digest_size=16).digest()
        with self._keeping:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        html = render()
        made = sanitized(html) if html is not None else None
        with self._keeping:
            if key not in self._kept:
                self._kept[key] = made
                self._size += _weight(made)
            while self._size > self._limit:
                self._size -= _weight(self._kept.popitem(last=False)[1])
        return made


def _weight(markup: Markup | None) -> int:
    return ENTRY_CHARACTERS + len(markup or "")
