"""PURE: a branch as a self-contained page, which fetches nothing and runs nothing: its policy forbids both."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Iterator
from html import escape
from typing import Final

from compaction_app.rendering.ansi import without_styles
from compaction_app.rendering.markdown import rendered_markdown
from compaction_app.rendering.markup import sanitized
from compaction_app.rendering.pictures import Picture
from sessions_app.sessionlog.printable import plural, printable, printable_lines

from .spoken_entry import ExportHead, SpokenEntry, SpokenText

POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
OPEN_LINES: Final = 20
"""A longer output is folded."""
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
    title = _words(head.title)
    yield (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n<h1>{title}</h1>\n"
        f'<p class="facts">{_words(" · ".join(head.facts))}</p>\n'
    )
    for spoken in entries:
        parts = [*map(_text, spoken.texts()), *map(_picture, spoken.pictures)]
        if parts:
            kind = ' class="user"' if spoken.entry.role == "user" else ""
            name = f"<h2>{_words(spoken.heading)} <small>{_words(spoken.entry.id)}</small></h2>"
            yield "\n".join([f"<article{kind}>", name, *parts, "</article>\n"])
    yield "</main>\n</body>\n</html>\n"


def _text(spoken: SpokenText) -> str:
    text = printable_lines(spoken.text)
    if spoken.kind == "thinking":
        return f'<pre class="thinking">{escape(text)}</pre>'
    if spoken.kind == "call":
        return f'<p class="tool">call of <b>{_words(spoken.tool)}</b></p>\n<pre>{escape(text)}</pre>'
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


def _words(text: str) -> str:
    return escape(printable(" ".join(text.split())))
