"""A text as a page shows it: rendered, or as it was recorded; in full, or its beginning with a link to the rest.

user, assistant, summary ─▶ Markdown
call                     ─▶ a diff, or its arguments with one value on each line
output                   ─▶ a terminal's colours, JSON with one value on each line, a program that was read
anything else            ─▶ as it was recorded
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from compaction_app.rendering.ansi import coloured, without_styles
from compaction_app.rendering.code import highlighted, highlighted_file, is_patch, pretty_json
from compaction_app.rendering.diffs import DiffLine, counts, diff_markup
from compaction_app.rendering.markdown import rendered_markdown
from compaction_app.rendering.markup import NO_MARKUP, Markup, sanitized, spans
from compaction_app.rendering.memory import RenderedTexts
from sessions_app.sessionlog.printable import printable_lines

PROSE: Final = frozenset({"user", "text"})
"""The kinds of texts that are Markdown: see `EntryItem`."""
PROSE_LINES: Final = 30
PROSE_CHARACTERS: Final = 2_400
OUTPUT_LINES: Final = 8
OUTPUT_CHARACTERS: Final = 900
DIFF_LINES: Final = 12
CALL_CHARACTERS: Final = 160
"""Arguments that are not longer are shown in full beside the name of their tool."""
_rendered: Final = RenderedTexts()


@dataclass(frozen=True, slots=True)
class ShownText:
    """A text, or its beginning."""

    text: str
    """As recorded, but for the sequences that colour an output and the space before the first line."""
    more: str = ""
    """The label of the link to the rest; empty if this is all of it."""
    style: str = ""
    """How it can be rendered: `rich` for Markdown, `code`, `ansi`, `diff`; empty if it is only shown as recorded."""
    markup: Markup = NO_MARKUP
    """The rendered text; empty if it is shown as recorded."""
    changed: tuple[int, int] | None = None
    """The lines that a call adds and removes."""
    is_longer: bool = False
    """Whether this is all of a text of which a page of many entries shows the beginning."""

    @property
    def part(self) -> str:
        """The part that the address of this text names."""
        return "" if self.is_longer else BEGINNING


BEGINNING: Final = "beginning"
NO_TEXT: Final = ShownText("")


@dataclass(frozen=True, slots=True)
class TextSource:
    """A recorded text, and what tells how it can be rendered."""

    kind: str
    """As in `EntryItem`."""
    text: str
    """Of a call: its arguments."""
    changes: Sequence[DiffLine] = ()
    """Of a call: the lines that it changes in files."""
    language: str = ""
    """Of an output: the language of the file that was read."""


@dataclass(frozen=True, slots=True)
class _Limits:
    """How much of each kind of text is shown."""

    prose: tuple[int, int]
    output: tuple[int, int]
    diff: int


_BEGINNING: Final = _Limits((PROSE_LINES, PROSE_CHARACTERS), (OUTPUT_LINES, OUTPUT_CHARACTERS), DIFF_LINES)
_ALL: Final = 2**63
_WHOLE: Final = _Limits((_ALL, _ALL), (_ALL, _ALL), _ALL)


def beginning(source: TextSource, *, as_recorded: bool = False) -> ShownText:
    """As much of a text as a page of many entries shows."""
    shown = _shown(source, _BEGINNING)
    if not as_recorded:
        return shown
    text, more = clamp(source.text, *_BEGINNING.output)
    return ShownText(text, more, shown.style)


def whole(source: TextSource, *, as_recorded: bool = False) -> ShownText:
    """All of a text."""
    is_longer = bool(beginning(source, as_recorded=as_recorded).more)
    shown = _shown(source, _WHOLE)
    if as_recorded:
        return ShownText(source.text, style=shown.style, is_longer=is_longer)
    return replace(shown, is_longer=is_longer)


def clamp(text: str, most_lines: int = 5, most_characters: int = 900) -> tuple[str, str]:
    """The beginning of a text, and the label of the link to the rest; empty if nothing was cut."""
    lines = text.count("\n") + 1
    if lines <= most_lines and len(text) <= most_characters:
        return text, ""
    cut = "\n".join(text[:most_characters].split("\n")[:most_lines])
    if lines > most_lines:
        return cut, f"Show all {lines:,} lines"
    return cut, f"Show all {len(text):,} characters"


def _shown(source: TextSource, limits: _Limits) -> ShownText:
    if source.kind in PROSE:
        return _prose(source.text.lstrip("\n"), limits)
    if source.kind == "call":
        return _call(source, limits)
    if source.kind == "out":
        return _output(source, limits)
    return ShownText(*clamp(source.text.lstrip("\n"), *limits.output))


def _prose(text: str, limits: _Limits) -> ShownText:
    """Markdown; of a long text whole paragraphs, if that is more than half of what may be shown."""
    cut, more = clamp(text, *limits.prose)
    if more:
        end = cut.rfind("\n\n")
        cut = cut[:end] if end * 2 > len(cut) else cut
    markup = _rendered.get("rich", cut, lambda: rendered_markdown(printable_lines(cut)))
    return ShownText(cut, more, "rich", markup) if markup else ShownText(cut, more)


def _call(source: TextSource, limits: _Limits) -> ShownText:
    lines = source.changes
    if lines:
        more = f"Show all {len(lines):,} lines" if len(lines) > limits.diff else ""
        markup = sanitized(diff_markup(lines[: limits.diff]))
        return ShownText("", more, "diff", markup, counts(lines))
    if limits is _BEGINNING:
        return ShownText("", "Show arguments" if len(source.text) > CALL_CHARACTERS else "")
    return _json(source.text, limits) or ShownText(source.text)


def _output(source: TextSource, limits: _Limits) -> ShownText:
    cut, more = clamp(source.text, *limits.output)
    markup = _rendered.get("ansi", cut, lambda: coloured(cut))
    if markup:
        return ShownText(without_styles(cut), more, "ansi", markup)
    if source.language in ("", "json") and (shown := _json(source.text, limits)):
        return shown
    printable = printable_lines(cut)
    language = source.language or ("diff" if is_patch(cut) else "")
    markup = _rendered.get(language, cut, lambda: highlighted_file(printable, language))
    return ShownText(cut, more, "code", markup) if markup else ShownText(cut, more)


def _json(text: str, limits: _Limits) -> ShownText | None:
    """A text that is JSON; None if it is not."""
    pretty = pretty_json(text)
    if pretty is None:
        return None
    cut, more = clamp(printable_lines(pretty), *limits.output)
    markup = _rendered.get("json", cut, lambda: highlighted(cut, "json") or spans([("", cut)]))
    return ShownText(cut, more, "code", markup or NO_MARKUP)
