"""PURE: an exported branch, as Markdown and as a page.

Markdown: texts of people and models stay Markdown if nothing in them could act, or affect another section, when they
are shown; everything else is in a fence. The page is self-contained: it fetches nothing and runs nothing, and its
policy forbids both.
"""

from base64 import b64encode
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from typing import Any, Final, NamedTuple

from markdown_it import MarkdownIt
from markdown_it.token import Token

from sessions_app.sessionlog.entries import Block, BlockType, Entry, Role, Texts, call_parts
from sessions_app.sessionlog.handoff import fenced
from sessions_app.sessionlog.text import plural, printable, printable_lines

from .code import without_styles
from .markdown import rendered_markdown
from .markup import sanitized
from .pictures import Picture

PROSE: frozenset[str] = frozenset({Role.USER, Role.ASSISTANT, Role.BRANCH_SUMMARY, Role.COMPACTION_SUMMARY})


class ExportHead(NamedTuple):
    """The head of an exported file: the title of its session, and facts about it."""

    title: str
    facts: Sequence[str]


class SpokenText(NamedTuple):
    """One text of an entry: prose, thinking, a call with its tool, or anything else."""

    kind: str
    """`prose`, `thinking`, `call` or `output`."""
    text: str
    tool: str = ""


class SpokenEntry(NamedTuple):
    """One entry of a branch, with its exported texts and pictures."""

    entry: Entry
    recorded: Texts
    blocks: Sequence[Block]
    pictures: Sequence[Picture] = ()

    @property
    def heading(self) -> str:
        """The author of the entry, and its time."""
        who = self.entry.tool_name if self.entry.role == Role.TOOL_RESULT else self.entry.role
        at = self.entry.moment
        when = f", {at:%Y-%m-%d %H:%M:%S} UTC" if at is not None else ""
        return f"{who or self.entry.type}{when}"

    def texts(self) -> Iterator[SpokenText]:
        """Its texts in their order, without empty ones and images."""
        if self.recorded.whole is not None and self.recorded.whole.strip():
            yield SpokenText(self._kind(None), self.recorded.whole)
        for block in self.blocks:
            text = self.recorded.blocks[block.index] if block.index < len(self.recorded.blocks) else ""
            if block.type == BlockType.IMAGE or not text.strip():
                continue
            if block.type == BlockType.TOOL_CALL:
                tool, arguments = call_parts(text, block.call_id or "")
                yield SpokenText("call", arguments, tool)
            else:
                yield SpokenText(self._kind(block), text)

    def _kind(self, block: Block | None) -> str:
        if block is not None and block.is_thinking:
            return "thinking"
        return "prose" if self.entry.role in PROSE or not self.entry.role else "output"


LIMIT: Final = 50_000
"""The maximum length of a text that is not put in a fence, in characters."""
_COMMON: Final = MarkdownIt("commonmark")
# Every target is a link here: another program may follow targets that this one would not.
_COMMON.validateLink = bool  # type: ignore[method-assign,assignment]
_ACTING: Final = frozenset({"html_block", "html_inline", "image"})
_END: Final = "# the end"


def markdown_pieces(head: ExportHead, entries: Iterable[SpokenEntry]) -> Iterator[str]:
    """The file in pieces, one for each entry."""
    yield f"# {_markdown_words(head.title)}\n\n{_markdown_words(' · '.join(head.facts))}\n"
    for spoken in entries:
        texts = [_markdown_text(one) for one in spoken.texts()]
        pictures = [f"*picture, {one.width} × {one.height}*" for one in spoken.pictures]
        if texts or pictures:
            yield "\n\n".join([f"\n## {_markdown_words(spoken.heading)}", *texts, *pictures]) + "\n"


def _markdown_text(spoken: SpokenText) -> str:
    text = printable_lines(spoken.text)
    if spoken.kind == "call":
        return f"Call of {_markdown_words(spoken.tool)}:\n\n{fenced(text)}"
    if spoken.kind == "thinking":
        return f"Thinking:\n\n{fenced(text)}"
    return text if spoken.kind == "prose" and is_harmless(text) else fenced(text)


def is_harmless(text: str) -> bool:
    """Whether a text is Markdown that loads nothing, runs nothing, and cannot affect the text after it."""
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


def _markdown_words(text: str) -> str:
    """A text on one line without Markdown syntax."""
    line = printable(" ".join(text.split()))
    return "".join(f"\\{one}" if one in "\\`*_{}[]<>#!|&~" else one for one in line)


POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
OPEN_LINES: Final = 20
"""The maximum number of lines of an output that is not folded."""
STYLE: Final = """
:root { color-scheme: light dark; --ink: light-dark(#1e1c19, #ece8e0); --soft: light-dark(#6a645b, #9a9387);
  --rule: light-dark(#e4e0d6, #2e2b27); --sunk: light-dark(#f3f1ea, #1f1d1b); }
body { max-width: 46rem; margin: 2rem auto; padding: 0 1rem; font: 15px/1.5 system-ui, sans-serif; color: var(--ink);
  background: light-dark(#fbfaf6, #171614); overflow-wrap: anywhere; }
h1 { font: 600 1.6rem/1.25 Georgia, serif; margin: 0; }
h2 { font: 600 13px/1.4 system-ui, sans-serif; margin: 0 0 .4rem; }
h2 small, p.facts, summary, p.tool { font-size: 12px; font-weight: 400; color: var(--soft); }
article { border-top: 1px solid var(--rule); padding: .9rem 0; }
article.user .prose { font: 17px/1.55 Georgia, serif; }
pre { margin: .3rem 0; padding: .5rem .7rem; background: var(--sunk); font: 12px/1.5 ui-monospace, monospace;
  white-space: pre-wrap; }
pre.thinking { background: none; padding: 0; font: italic 14px/1.5 system-ui, sans-serif; color: var(--soft); }
p.tool { margin: .5rem 0 0; }
p.tool b { color: var(--ink); }
code { font: .9em ui-monospace, monospace; }
img { display: block; max-width: 100%; height: auto; margin: .5rem 0; }
table { border-collapse: collapse; }
td, th { padding: .2rem .8rem .2rem 0; text-align: left; vertical-align: top; border-bottom: 1px solid var(--rule); }
"""


def page_pieces(head: ExportHead, entries: Iterable[SpokenEntry]) -> Iterator[str]:
    """The page in pieces, one for each entry."""
    title = _html_words(head.title)
    yield (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n<h1>{title}</h1>\n"
        f'<p class="facts">{_html_words(" · ".join(head.facts))}</p>\n'
    )
    for spoken in entries:
        parts = [*map(_html_text, spoken.texts()), *map(_picture, spoken.pictures)]
        if parts:
            kind = ' class="user"' if spoken.entry.role == "user" else ""
            name = f"<h2>{_html_words(spoken.heading)} <small>{_html_words(spoken.entry.id)}</small></h2>"
            yield "\n".join([f"<article{kind}>", name, *parts, "</article>\n"])
    yield "</main>\n</body>\n</html>\n"


def _html_text(spoken: SpokenText) -> str:
    text = printable_lines(spoken.text)
    if spoken.kind == "thinking":
        return f'<pre class="thinking">{escape(text)}</pre>'
    if spoken.kind == "call":
        return f'<p class="tool">call of <b>{_html_words(spoken.tool)}</b></p>\n<pre>{escape(text)}</pre>'
    if spoken.kind == "prose":
        html = rendered_markdown(text)
        return f'<div class="prose">{sanitized(html)}</div>' if html is not None else f"<pre>{escape(text)}</pre>"
    text = printable_lines(without_styles(spoken.text))
    lines = text.count("\n") + 1
    drawn = f"<pre>{escape(text)}</pre>"
    if lines <= OPEN_LINES:
        return drawn
    return f"<details><summary>{plural(lines, 'line')}</summary>{drawn}</details>"


def _picture(picture: Picture) -> str:
    data = b64encode(picture.data).decode()
    return (
        f'<img src="data:{picture.media_type};base64,{data}" width="{picture.width}" height="{picture.height}" '
        'alt="A picture of the session">'
    )


def _html_words(text: str) -> str:
    return escape(printable(" ".join(text.split())))
