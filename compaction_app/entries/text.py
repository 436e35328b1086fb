"""A text as a page shows it: rendered or as recorded; in full, or its beginning with a link to the rest.

user, assistant, summary ─▶ Markdown
call                     ─▶ a diff, or its arguments with one value on each line
output                   ─▶ a terminal's colours, JSON with one value on each line, a program that was read
anything else            ─▶ as recorded
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from compaction_app.rendering.ansi import coloured, without_styles
from compaction_app.rendering.code import highlighted, highlighted_file, is_patch, language_of, pretty_json
from compaction_app.rendering.diffs import DiffLine, TextChange, counts, diff_markup, diff_of, diff_of_patch
from compaction_app.rendering.markdown import rendered_markdown
from compaction_app.rendering.markup import NO_MARKUP, Markup, sanitized, spans
from compaction_app.rendering.memory import RenderedTexts
from sessions_app.sessionlog.entries import Block, BlockType, Entry, Role, Texts
from sessions_app.sessionlog.printable import printable_lines

from .branches import BranchState
from .words import ARGUMENTS_READ, NAME_CHARACTERS, PATHS, call_parts, call_words, path_read

PROSE: Final = frozenset({"user", "text"})
"""The kinds of texts that are Markdown: see `EntryView`."""
PROSE_LINES: Final = 30
PROSE_CHARACTERS: Final = 2_400
OUTPUT_LINES: Final = 8
OUTPUT_CHARACTERS: Final = 900
DIFF_LINES: Final = 12
CALL_CHARACTERS: Final = 160
"""Arguments up to this length are shown in full beside the name of their tool."""
_rendered: Final = RenderedTexts()


@dataclass(frozen=True, slots=True)
class ShownText:
    """A text, or its beginning."""

    text: str
    """The recorded text, without the sequences that colour an output and the space before the first line."""
    more: str = ""
    """The label of the link to the rest; empty if the text is complete."""
    style: str = ""
    """How it can be rendered: `rich` for Markdown, `code`, `ansi`, `diff`; empty if only the recorded text can be
    shown."""
    markup: Markup = NO_MARKUP
    """The rendered text; empty if it is shown as recorded."""
    changed: tuple[int, int] | None = None
    """The lines that a call adds and removes."""
    is_longer: bool = False
    """Whether the text is complete and a page of many entries shows only its beginning."""

    @property
    def part(self) -> str:
        """The part that the address of this text names."""
        return "" if self.is_longer else BEGINNING


BEGINNING: Final = "beginning"
NO_TEXT: Final = ShownText("")


@dataclass(frozen=True, slots=True)
class TextSource:
    """A recorded text, and the facts that decide how it can be rendered."""

    kind: str
    """As in `EntryView`."""
    text: str
    """For a call: its arguments."""
    changes: Sequence[DiffLine] = ()
    """For a call: the lines that it changes in files."""
    language: str = ""
    """For an output: the language of the file that was read."""


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
    """The beginning of a text, as a page of many entries shows it."""
    shown = _shown(source, _BEGINNING)
    if not as_recorded:
        return shown
    text, more = clamp(source.text, *_BEGINNING.output)
    return ShownText(text, more, shown.style)


def whole(source: TextSource, *, as_recorded: bool = False) -> ShownText:
    """The whole text."""
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
    """Markdown; for a long text only whole paragraphs, if they fill more than half of the limit."""
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


_OLD: Final = ("old_string", "oldString", "oldText", "old_text")
_NEW: Final = ("new_string", "newString", "newText", "new_text", "new_source")
_EDITS: Final = "edits"
_CONTENT: Final = "content"
_WRITES: Final = frozenset({"write"})
_PATCH: Final = re.compile(r"^\*\*\* Begin Patch\n(.*?)(?:^\*\*\* End Patch|\Z)", re.DOTALL | re.MULTILINE)


def changes_of(tool: str, arguments: str) -> list[DiffLine]:
    """The lines that a call of a tool changes, given its arguments as recorded; empty if it changes none."""
    if len(arguments) > ARGUMENTS_READ:
        return []
    try:
        values = json.loads(arguments)
    except (ValueError, RecursionError):
        # Codex records a patch as plain text.
        return _patched([arguments])
    if not isinstance(values, Mapping):
        return []
    changes = list(_changes(tool, values)) if not PATHS.isdisjoint(values) else []
    return list(diff_of(changes)) if changes else _patched(_texts(values))


def _changes(tool: str, values: Mapping[str, Any]) -> Iterator[TextChange]:
    edits = values.get(_EDITS)
    for edit in edits if isinstance(edits, list) else [values]:
        if not isinstance(edit, Mapping):
            continue
        old = _first(edit, _OLD)
        new = _first(edit, _NEW)
        if old is not None or new is not None:
            yield TextChange(old or "", new or "")
    content = values.get(_CONTENT)
    if tool.lower() in _WRITES and isinstance(content, str):
        yield TextChange("", content)


def _first(values: Mapping[str, Any], names: Sequence[str]) -> str | None:
    found = (values.get(name) for name in names)
    return next((value for value in found if isinstance(value, str)), None)


def _texts(values: Mapping[str, Any]) -> Iterator[str]:
    """The texts among the arguments, and in a command that is given as a list of words."""
    for value in values.values():
        yield from (one for one in (value if isinstance(value, list) else [value]) if isinstance(one, str))


def _patched(texts: Sequence[str] | Iterator[str]) -> list[DiffLine]:
    patches = (found[1] for text in texts for found in _PATCH.finditer(text))
    return [line for patch in patches for line in diff_of_patch(patch.removesuffix("\n").split("\n"))]


def calls_of(state: BranchState, entries: Iterable[Entry]) -> list[Entry]:
    """The entries with the calls that results among these answer."""
    ids = (entry.result_for for entry in entries if entry.result_for is not None and not entry.failed)
    return [makers[-1] for call_id in ids if (makers := state.makers.get(call_id))]


def languages_of(calls: Iterable[Entry], texts: Mapping[str, Texts]) -> dict[str, str]:
    """The language of the file that each call reads, by call id, given the texts of their entries."""
    found = {}
    for entry in calls:
        for block in entry.blocks or ():
            if block.call_id is not None:
                parts = call_parts(texts[entry.id].block(block.index), block.call_id)
                found[block.call_id] = language_of(path_read(*parts))
    return found


def kind_of(entry: Entry, block: Block | None) -> str:
    """The kind of a text: `user`, `text`, `thinking`, `call`, or `out` for the output of a program."""
    if entry.role == Role.ASSISTANT and block is not None:
        if block.is_thinking:
            return "thinking"
        return "call" if block.type == BlockType.TOOL_CALL else "text"
    if entry.role in (Role.ASSISTANT, Role.BRANCH_SUMMARY, Role.COMPACTION_SUMMARY):
        return "text"
    return "user" if entry.role == Role.USER else "out"


def source_of_text(
    entry: Entry, block: Block | None, text: str, project: str, languages: Mapping[str, str]
) -> tuple[TextSource, tuple[str, str] | None]:
    """A text with the facts that decide how it is rendered; for a call, also its tool and its arguments in short."""
    if block is None or block.type != BlockType.TOOL_CALL:
        # A subagent's report is written by a model.
        kind = "text" if entry.subagent and not entry.failed else kind_of(entry, block)
        return TextSource(kind, text, language=languages.get(entry.result_for or "", "")), None
    tool, arguments = call_parts(text, block.call_id or "")
    changes = changes_of(tool, arguments)
    words = call_words(text, block.call_id or "", project, only_file=bool(changes))
    return TextSource("call", arguments, changes), (tool[:NAME_CHARACTERS], words[1])
