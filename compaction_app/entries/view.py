"""An entry in words, the same on every page: its author, its text or the beginning of it, and notes about it.

    author_of, call_words, EntryWords   a line for an entry, a tool call in short
    beginning, whole                    a text as shown: rendered or as recorded, with a link to the rest
    EntriesInView.items                 the items of an entry on its session's page, with notes and pictures

How a text is rendered depends on its kind:

    user, assistant, thinking, summary ─▶ Markdown
    call                     ─▶ a diff, or its arguments with one value on each line
    output                   ─▶ a terminal's colours, JSON with one value on each line, a program that was read
    anything else            ─▶ as recorded

The text is the recorded one, unless an edit has replaced it and the page shows what the model sees.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any, Final, NamedTuple, Protocol

from compaction_app.core.summary_loss import is_summary
from compaction_app.rendering import code
from compaction_app.rendering.markdown import RenderedTexts, rendered_markdown
from compaction_app.rendering.markup import NO_MARKUP, Markup, sanitized, spans
from compaction_app.rendering.pictures import Picture, pictures_in
from sessions_app.agents.base import Agent
from sessions_app.agents.pure.formats import Reader
from sessions_app.disk.files import SessionReader
from sessions_app.document.document import indexed_texts
from sessions_app.models import Session
from sessions_app.sessionlog import tool_names
from sessions_app.sessionlog.context import Message
from sessions_app.sessionlog.entries import (
    THINKING_TYPES,
    Block,
    BlockType,
    BoundaryControl,
    DeletionControl,
    EditControl,
    Entry,
    EntryKind,
    LabelControl,
    ModelControl,
    NameControl,
    Protection,
    Role,
    SummaryControl,
    Texts,
    ThinkingLevelControl,
    call_parts,
)
from sessions_app.sessionlog.jsjson import well_formed
from sessions_app.sessionlog.text import COMMAND_OUTPUT, INTERRUPTED, command_words, plural, printable_lines
from sessions_app.sessionlog.tree import SessionTree
from sessions_app.storage.session_loader import reparse_entry

from .branches import BranchState

NAME_CHARACTERS: Final = 120
"""The maximum length of a recorded name, a label or a model, in characters."""
_AUTHORS: Final = {
    Role.USER: "you",
    Role.COMMAND: "your bash",
    Role.CUSTOM: "added context",
    Role.INJECTED: "added context",
    Role.BRANCH_SUMMARY: "branch summary",
    Role.COMPACTION_SUMMARY: "summary",
}


def author_of(role: str, tool_name: str = "", block_type: str = "", otherwise: str = "") -> str:
    """The author of an entry, or of one of its blocks; `otherwise` if it has no role."""
    if role == Role.TOOL_RESULT:
        return (tool_name or "result")[:NAME_CHARACTERS]
    if role == Role.ASSISTANT and block_type in THINKING_TYPES:
        return "thinking"
    if role == Role.ASSISTANT and block_type == BlockType.TOOL_CALL:
        return "call"
    return _AUTHORS.get(role, role or otherwise)[:NAME_CHARACTERS]


# ---- tool calls in short --------------------------------------------------------------------------------

ARGUMENT_CHARACTERS: Final = 240
ARGUMENTS_READ: Final = 200_000
"""The maximum length of arguments that are parsed, in characters."""
_PRINTED: Final = re.compile(
    r"(?:cat(?: -n)?|nl -ba|(?:head|tail)(?: -n)?(?: -?\d+)?|sed -n ['\"]?\d+(?:,\d+)?p['\"]?)"
    r" ['\"]?([\w@%+=:,./~-]+)['\"]?"
)
"""A command that prints a file, or a part of it."""


def call_words(text: str, call_id: str, project: str = "") -> tuple[str, str]:
    """A call block's text in short: the tool, and its arguments.

    Paths below `project`, the session's directory, are shown relative to it.
    """
    name, arguments = call_parts(text, call_id)
    return name, arguments_in_short(arguments, project)


def arguments_in_short(arguments: str, project: str, *, only_file: bool = False) -> str:
    """The arguments of a call, or only the file among them."""
    values = {} if only_file else _object_of(arguments)
    words = _file_in(arguments) if only_file else " ".join(filter(None, _values(values))) if values else arguments
    words = words[:ARGUMENT_CHARACTERS]
    return words.replace(f"{project.rstrip('/')}/", "") if project.strip("/") else words


def call_path(text: str, call_id: str, project: str = "") -> str:
    """The file that a call block names, relative to `project`; empty if it names none."""
    path = _file_in(call_parts(text, call_id)[1])[:ARGUMENT_CHARACTERS]
    return path.removeprefix(f"{project.rstrip('/')}/") if project.strip("/") else path


def path_read(tool: str, arguments: str) -> str:
    """The file that a call reads, by a tool or by a command that prints it; empty if there is none."""
    if tool.lower() in tool_names.READING_TOOLS:
        return _file_in(arguments)
    values = _object_of(arguments)
    commands = (values[name] for name in tool_names.COMMAND_ARGUMENTS if name in values)
    words = (command[-1] if isinstance(command, list) and command else command for command in commands)
    found = (_PRINTED.fullmatch(command.strip()) for command in words if isinstance(command, str))
    return next((one[1] for one in found if one), "")


def joined_in_short(texts: Texts, blocks: tuple[Block, ...] | None) -> str:
    """The text of an entry with only these blocks, like `Texts.joined`, but with its tool calls in short."""
    if blocks is None or texts.whole is not None:
        return texts.joined(blocks)
    return "\n".join(
        (
            " ".join(call_words(texts.block(block.index), block.call_id or ""))
            if block.type == BlockType.TOOL_CALL
            else texts.block(block.index)
        )
        for block in blocks
    )


def beginning_of(text: str, length: int) -> str:
    """The first `length` characters of a text, with a mark if there are more."""
    return text if len(text) <= length else f"{text[:length]}…"


def _file_in(arguments: str) -> str:
    values = _object_of(arguments)
    return next((value for name in sorted(tool_names.PATH_ARGUMENTS) if isinstance(value := values.get(name), str)), "")


def _object_of(arguments: str) -> Mapping[str, object]:
    """The arguments by name; empty if they are not an object, or too long to parse."""
    if len(arguments) > ARGUMENTS_READ:
        return {}
    try:
        values = json.loads(arguments)
    except (ValueError, RecursionError):
        return {}
    return values if isinstance(values, dict) else {}


def _values(values: Mapping[str, object]) -> Iterable[str]:
    """The file, or the first argument, without its name, a range of lines as :from–to, the others by name."""
    offset, limit = values.get("offset"), values.get("limit")
    has_path = not tool_names.PATH_ARGUMENTS.isdisjoint(values)
    named = sorted(values.items(), key=lambda item: item[0] not in tool_names.PATH_ARGUMENTS)
    for number, (name, value) in enumerate(named):
        if name in ("offset", "limit") and isinstance(value, int) and has_path:
            continue
        words = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        yield words[:ARGUMENT_CHARACTERS] if number == 0 else f"{name}: {words[:80]}"
    if has_path and isinstance(offset, int):
        yield f":{offset}–{offset + limit}" if isinstance(limit, int) else f":{offset}–"
    elif has_path and isinstance(limit, int):
        yield f":1–{limit}"


# ---- an entry in a line --------------------------------------------------------------------------------------

ENTRY_PREVIEW_CHARS: Final = 160
"""The maximum length of an entry's preview, in characters."""


class EntryWords(NamedTuple):
    """One line for an entry, or for some of its blocks."""

    entry_id: str
    author: str
    words: str
    """The beginning of its text."""
    tokens: int

    @classmethod
    def of_message(cls, message: Message, texts: Texts, length: int = ENTRY_PREVIEW_CHARS) -> EntryWords:
        """An entry's message in the context; `texts` are those of `message.source`."""
        entry, blocks = message.entry, message.blocks or ()
        block_type = blocks[0].type if len(blocks) == 1 else ""
        is_instruction = message.role == Role.SYSTEM and entry.kind is EntryKind.SUMMARY
        text = message.text(texts) if is_instruction else joined_in_short(texts, message.blocks)
        author = author_of(message.role, entry.tool_name, block_type)
        return cls(entry.id, author, beginning_of(text, length), message.tokens)

    @classmethod
    def of_entry(cls, entry: Entry, texts: Texts, length: int = ENTRY_PREVIEW_CHARS) -> EntryWords:
        """An entry as recorded."""
        author = author_of(entry.role, entry.tool_name) if entry.is_message else entry.type
        return cls(entry.id, author, beginning_of(joined_in_short(texts, entry.blocks), length), entry.tokens)


# ---- a text as shown ------------------------------------------------------------------------------------

PROSE: Final = frozenset({"user", "text"})
"""The kinds of texts that are Markdown, of which much is shown: see `EntryView`."""
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
    """Whether this is the whole of a text of which a page of many entries shows only the beginning."""

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
    """The kind of the text, as in `EntryView`."""
    text: str
    """The text; for a call, its arguments."""
    changes: Sequence[code.DiffLine] = ()
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
    """The whole text, unrendered if `as_recorded`."""
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
        return _prose(source.text.lstrip("\n"), limits.prose)
    if source.kind == "thinking":
        return _prose(source.text.lstrip("\n"), limits.output)
    if source.kind == "call":
        return _call(source, limits)
    if source.kind == "out":
        return _output(source, limits)
    return ShownText(*clamp(source.text.lstrip("\n"), *limits.output))


def _prose(text: str, limits: tuple[int, int]) -> ShownText:
    """Markdown of these lines and characters; for a long text only whole paragraphs, if they fill more than half of
    the limit."""
    cut, more = clamp(text, *limits)
    if more:
        end = cut.rfind("\n\n")
        cut = cut[:end] if end * 2 > len(cut) else cut
    markup = _rendered.get("rich", cut, lambda: rendered_markdown(printable_lines(cut)))
    return ShownText(cut, more, "rich", markup) if markup else ShownText(cut, more)


def _call(source: TextSource, limits: _Limits) -> ShownText:
    lines = source.changes
    if lines:
        more = f"Show all {len(lines):,} lines" if len(lines) > limits.diff else ""
        markup = sanitized(code.diff_markup(lines[: limits.diff]))
        return ShownText("", more, "diff", markup, code.counts(lines))
    if limits is _BEGINNING:
        return ShownText("", "Show arguments" if len(source.text) > CALL_CHARACTERS else "")
    return _json(source.text, limits) or ShownText(source.text)


def _output(source: TextSource, limits: _Limits) -> ShownText:
    cut, more = clamp(source.text, *limits.output)
    markup = _rendered.get("ansi", cut, lambda: code.coloured(cut))
    if markup:
        return ShownText(code.without_styles(cut), more, "ansi", markup)
    if source.language in ("", "json") and (shown := _json(source.text, limits)):
        return shown
    printable = printable_lines(cut)
    language = source.language or ("diff" if code.is_patch(cut) else "")
    markup = _rendered.get(language, cut, lambda: code.highlighted_file(printable, language))
    return ShownText(cut, more, "code", markup) if markup else ShownText(cut, more)


def _json(text: str, limits: _Limits) -> ShownText | None:
    """A text that is JSON; None if it is not."""
    pretty = code.pretty_json(text)
    if pretty is None:
        return None
    cut, more = clamp(printable_lines(pretty), *limits.output)
    markup = _rendered.get("json", cut, lambda: code.highlighted(cut, "json") or spans([("", cut)]))
    return ShownText(cut, more, "code", markup or NO_MARKUP)


# ---- the lines that a call changes ----------------------------------------------------------------------

_PATCH: Final = re.compile(r"^\*\*\* Begin Patch\n(.*?)(?:^\*\*\* End Patch|\Z)", re.DOTALL | re.MULTILINE)


def changes_of(tool: str, arguments: str) -> list[code.DiffLine]:
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
    changes = list(_changes(tool, values)) if not tool_names.PATH_ARGUMENTS.isdisjoint(values) else []
    return list(code.diff_of(changes)) if changes else _patched(_texts(values))


def _changes(tool: str, values: Mapping[str, Any]) -> Iterator[code.TextChange]:
    edits = values.get(tool_names.EDITS_ARGUMENT)
    for edit in edits if isinstance(edits, list) else [values]:
        if not isinstance(edit, Mapping):
            continue
        old = _first(edit, tool_names.OLD_TEXT_ARGUMENTS)
        new = _first(edit, tool_names.NEW_TEXT_ARGUMENTS)
        if old is not None or new is not None:
            yield code.TextChange(old or "", new or "")
    content = values.get(tool_names.CONTENT_ARGUMENT)
    if tool.lower() in tool_names.WRITING_TOOLS and isinstance(content, str):
        yield code.TextChange("", content)


def _first(values: Mapping[str, Any], names: Sequence[str]) -> str | None:
    found = (values.get(name) for name in names)
    return next((value for value in found if isinstance(value, str)), None)


def _texts(values: Mapping[str, Any]) -> Iterator[str]:
    """The texts among the arguments, and in a command that is given as a list of words."""
    for value in values.values():
        yield from (one for one in (value if isinstance(value, list) else [value]) if isinstance(one, str))


def _patched(texts: Sequence[str] | Iterator[str]) -> list[code.DiffLine]:
    patches = (found[1] for text in texts for found in _PATCH.finditer(text))
    return [line for patch in patches for line in code.diff_of_patch(patch.removesuffix("\n").split("\n"))]


def calls_of(state: BranchState, entries: Iterable[Entry]) -> list[Entry]:
    """The entries that make the calls answered by the results among these."""
    ids = (entry.result_for for entry in entries if entry.result_for is not None and not entry.failed)
    return [makers[-1] for call_id in ids if (makers := state.makers.get(call_id))]


def languages_of(calls: Iterable[Entry], texts: Mapping[str, Texts]) -> dict[str, str]:
    """The language of the file that each call reads, by call id, given the texts of their entries."""
    found = {}
    for entry in calls:
        for block in entry.blocks or ():
            if block.call_id is not None:
                parts = call_parts(texts[entry.id].block(block.index), block.call_id)
                found[block.call_id] = code.language_of(path_read(*parts))
    return found


class Spoken(Protocol):
    """An entry, of a session or of a transcript."""

    @property
    def role(self) -> str: ...


def kind_of(entry: Spoken, block: Block | None) -> str:
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
    return source_of_call(text, block.call_id or "", project)


def source_of_call(text: str, call_id: str, project: str) -> tuple[TextSource, tuple[str, str]]:
    """The text of a call block with the facts that decide how it is rendered; its tool, and its arguments in short."""
    tool, arguments = call_parts(text, call_id)
    changes = changes_of(tool, arguments)
    words = arguments_in_short(arguments, project, only_file=bool(changes))
    return TextSource("call", arguments, changes), (tool[:NAME_CHARACTERS], words)


# ---- notes ----------------------------------------------------------------------------------------------

_SUMMARIES: Final = frozenset({Role.BRANCH_SUMMARY, Role.COMPACTION_SUMMARY})


@dataclass(frozen=True, slots=True)
class EntryNote:
    """A remark on an entry, and the entry to which it links."""

    words: str
    entry_id: str = ""
    icon: str = ""
    """`pair` for the other half of a pair, `broken` for a fault."""
    quoted: str = ""
    """Words quoted from the session."""
    tail: str = ""
    session: Session | None = None
    """Another session to which it links."""


def name_of(entry: Entry) -> str:
    """The name of an entry other than a message."""
    return _NAMES.get(entry.kind, entry.type)[:NAME_CHARACTERS]


def meaning_of(entry: Entry, reader: Reader, tree: SessionTree) -> EntryNote:
    """The meaning of an entry other than a message, and whether this reader ignores it."""
    note = _meaning(entry, tree)
    return replace(note, tail=", ignored as this session is opened") if reader.ignores(entry) else note


_EDITS: Final = {
    "removes": "deletes",
    "replaces": "replaces the content of",
    "undefined": "has no replacement for the content of",
}
_NAMES: Final = {
    EntryKind.DELETION: "compaction",
    EntryKind.BOUNDARY: "compaction",
    EntryKind.EDIT: "edit",
    EntryKind.UNDO: "undo",
    EntryKind.MODEL: "model",
    EntryKind.NAME: "name",
    EntryKind.THINKING_LEVEL: "thinking level",
}


def _meaning(entry: Entry, tree: SessionTree) -> EntryNote:
    """The meaning of an entry other than a message."""
    match entry.control:
        case DeletionControl() as deletion:
            return EntryNote(_deleted(deletion))
        case SummaryControl():
            return EntryNote("what is above was summarised")
        case BoundaryControl(kept=kept):
            number = plural(len(kept), "entry") if kept else "nothing"
            return EntryNote(f"{number} of what is above {'are' if len(kept) > 1 else 'is'} kept")
        case EditControl(target_id=target, effect=effect):
            return _about(_EDITS[effect], target, tree)
        case ModelControl(provider=provider, model=model):
            named = " ".join(filter(None, (_word(provider), _word(model))))
            return EntryNote("from here on", quoted=named or "not named")
        case ThinkingLevelControl(level=level):
            return EntryNote("from here on", quoted=_word(level) or "not named")
        case NameControl(name=name):
            return EntryNote("the session is called", quoted=_word(name) or "nothing")
        case LabelControl(target_id=target, text=text):
            return replace(_about("set at" if text else "taken from", target, tree), quoted=_word(text))
        case None if entry.kind is EntryKind.UNDO:
            return EntryNote("a compaction was undone: the agent continues from here")
        case None:
            return EntryNote("not part of the model's context")


def summary_notes(agent: Agent, entry: Entry, tree: SessionTree, reader: SessionReader) -> list[EntryNote]:
    """Notes on a summary: the entry at which the summarised branch was left, the numbers of files in its lists, and
    whether an extension wrote it.
    """
    if entry.role not in _SUMMARIES:
        return []
    found = agent.format.recorded_summary(reader.read_at(entry.offset, entry.length))
    if found is None:
        return []
    notes = [_about("summarises what was left at", found.from_id, tree)] if found.from_id else []
    if found.files is not None:
        files = (len(found.files.read), "read"), (len(found.files.modified), "modified")
        notes += [EntryNote(f"{plural(number, 'file')} {done}") for number, done in files if number]
    if found.from_hook:
        notes.append(EntryNote("written by an extension"))
    return notes


def _about(words: str, target: str | None, tree: SessionTree) -> EntryNote:
    """A note on another entry, which may not exist."""
    if target is not None and target in tree:
        return EntryNote(words, target)
    return EntryNote(f"{words} an entry that is not there")


def _deleted(deletion: DeletionControl) -> str:
    blocks = sum(target.block_index is not None for target in deletion.targets)
    counted = (len(deletion.targets) - blocks, "entry"), (blocks, "block")
    note = " and ".join(plural(number, noun) for number, noun in counted if number) or "nothing"
    reduction = f", {deletion.percent:.1f}% of the tokens" if deletion.percent is not None else ""
    return f"{note} of what is above deleted{reduction}"


def _word(value: str | None) -> str:
    return well_formed(value[:NAME_CHARACTERS]) if value is not None else ""


# ---- items ----------------------------------------------------------------------------------------------

BLOCKS: Final = 60
"""The maximum number of blocks shown for one entry."""
PAIRED: Final = 4
"""The maximum number of results linked for one call."""
NO_RESULT: Final = "no result: the provider may refuse this"
FILLED: Final = "no result: the agent answers the call itself"
NOT_SENT: Final = "not sent: the agent skips a message that failed"
NO_CALL: Final = "no call: the provider may refuse this"
MENTIONED: Final = timedelta(seconds=1)
BETWEEN: Final = frozenset({"note", "time"})
"""The kinds of items that no bracket crosses."""
_RESTARTS: Final = frozenset({EntryKind.SUMMARY, EntryKind.BOUNDARY})
"""The kinds of entries that replace the context before them, except the part that they keep."""


@dataclass(frozen=True, slots=True)
class EntryView:
    """One block, or one entry without blocks, as the page shows it."""

    kind: str
    """`user`, `text`, `thinking`, `call`, `out`; `note` for entries that are not messages; `damage`; `time` for a line
    between entries that states in `who` how much time passed; `commands` for messages of the user that only have
    commands of the agent, which `who` describes."""
    who: str
    entry_id: str = ""
    block: int | None = None
    first: bool = True
    """Whether it is the first shown item of its entry."""
    shown: ShownText = NO_TEXT
    tokens: int = 0
    at: datetime | None = None
    """When the entry was written."""
    day: datetime | None = None
    """For a `time`: the day that begins here."""
    took: timedelta | None = None
    """For a result that took a second or longer: the time since its call."""
    protection: Protection | None = None
    marks: list[EntryNote] = field(default_factory=list)
    """Short notes, for the margin."""
    remarks: list[EntryNote] = field(default_factory=list)
    """Sentences, shown below the text."""
    call: tuple[str, str] | None = None
    """A tool's name and its arguments."""
    pictures: Sequence[dict[str, Any]] = ()
    standing: str = ""
    """`struck` if a compaction deleted it, `faint` if the model does not see it for another reason; for a note: `quiet`
    if it does not change the context."""
    struck: str = ""
    """The text again, if it is struck: for a call, its name and its arguments."""
    makes: str = ""
    """The call id of a call block whose entry owns the call."""
    answers: str = ""
    """The call id that a result's last block answers."""
    is_summary: bool = False
    """Whether a page shows what it lost."""
    folded: Sequence[EntryView] = ()
    """For `commands`: the items of these messages."""
    tie: str = ""
    """The part of the bracket from a call to its results: `first`, `mid`, `last`, `through`, `none`."""

    @property
    def folded_ids(self) -> list[str]:
        """The entries of the folded items."""
        return [item.entry_id for item in self.folded if item.first]


@dataclass(frozen=True, slots=True)
class EntriesInView:
    """Entries in one view of their branch, with the texts and sessions that their items need."""

    session: Session
    state: BranchState
    view: str
    as_recorded: bool
    subagents: Mapping[str, Session]
    """The sessions that calls started, by `Entry.subagent`."""
    texts: Mapping[str, Texts]
    """The texts by the id of the entry whose line contains them: see `_source`."""
    languages: Mapping[str, str]
    """The languages of the files that calls read, by call id."""

    def text_of(self, entry: Entry) -> str:
        """The text of an entry in this view."""
        source = _source(self.state, entry, self.view)
        return self.texts[source.id].joined(source.blocks)

    @classmethod
    def of(
        cls,
        session: Session,
        state: BranchState,
        view: str,
        entries: Sequence[Entry],
        subagents: Mapping[str, Session],
        *,
        as_recorded: bool,
    ) -> EntriesInView:
        """Read the texts of these entries. Raises Conflict if the file was rewritten."""
        calls = calls_of(state, entries)
        texts = indexed_texts(session, [*(_source(state, entry, view) for entry in entries), *calls])
        return cls(session, state, view, as_recorded, subagents, texts, languages_of(calls, texts))

    def items(self, entry: Entry, remarks: Iterable[EntryNote] = ()) -> Iterator[EntryView]:
        """The items of an entry, with additional remarks."""
        message = self.state.kept.get(entry.id)
        texts = self.texts[_source(self.state, entry, self.view).id]
        if not entry.is_message:
            yield _note(self, entry, texts, message, remarks)
            return
        seen = frozenset(block.index for block in message.blocks or ()) if message is not None else frozenset()
        yield from _message_items(_EntryInView(self, self.state, entry, message, seen), texts, remarks)


def _source(state: BranchState, entry: Entry, view: str) -> Entry:
    """The entry whose line contains the text of an entry in a view of the page."""
    message = state.kept.get(entry.id)
    return message.source if message is not None and view == "sees" else entry


class _EntryInView(NamedTuple):
    """One message in one view of the page."""

    page: EntriesInView
    state: BranchState
    entry: Entry
    message: Message | None
    """The message that the model sees, if any."""
    seen: frozenset[int]
    """The blocks that the model sees, by index."""

    @property
    def view(self) -> str:
        return self.page.view

    @property
    def is_replaced(self) -> bool:
        """Whether the page shows a text that an edit has replaced."""
        return self.message is not None and self.message.edit is not None and self.view != "sees"

    def standing(self, is_seen: bool) -> str:
        """The style of text that the model does not see: deleted by a compaction, or omitted for another reason."""
        if is_seen and self.message is not None and not self.is_replaced:
            return ""
        is_honoured = EntryKind.DELETION in self.state.reading.reader.honours
        return "struck" if is_honoured and self.entry.id in self.state.removals else "faint"

    def pictures(self, block: Block | None, shown: ShownText) -> Sequence[dict[str, Any]]:
        """The pictures shown with a text, unless an edit has replaced the recorded content."""
        if self.page.as_recorded or (self.view == "sees" and self.entry.id in self.state.edits):
            return ()
        return shown_pictures(self.page.session, self.entry, block, shown.text)


def _message_items(look: _EntryInView, texts: Texts, remarks: Iterable[EntryNote]) -> Iterator[EntryView]:
    state, entry, message = look.state, look.entry, look.message
    blocks = _blocks(look)
    first = EntryView(
        kind_of(entry, None),
        _author(entry),
        entry.id,
        at=entry.moment,
        protection=state.protections.get(entry.id),
        marks=[*_kind_of_context(entry), *_standing_marks(look), *_label(state, entry)],
        remarks=[*remarks, *_answer(look)],
        is_summary=is_summary(entry),
    )
    took, answers = _took(look), entry.result_for or ""
    if not blocks:
        source, _ = source_of_text(entry, None, texts.whole or "", look.page.session.cwd, look.page.languages)
        shown = beginning(source, as_recorded=look.page.as_recorded)
        tokens = message.tokens if message is not None and look.view == "sees" else entry.tokens
        item = replace(first, shown=shown, tokens=tokens, standing=look.standing(True), took=took, answers=answers)
        yield _with_struck(replace(item, pictures=look.pictures(None, shown)))
        return
    last = min(len(blocks), BLOCKS) - 1
    for number, block in enumerate(blocks[:BLOCKS]):
        base = first if number == 0 else EntryView("", "", entry.id, first=False)
        item = _block(look, block, texts.block(block.index), base)
        if number == last and len(blocks) > BLOCKS:
            item.remarks.append(EntryNote(f"{len(blocks) - BLOCKS:,} more blocks are not shown here"))
        yield replace(item, took=took, answers=answers) if number == last else item


def _blocks(look: _EntryInView) -> tuple[Block, ...]:
    recorded = look.entry.blocks or ()
    if look.message is None or look.view == "all" or look.is_replaced:
        return recorded
    if look.view == "sees":
        return look.message.blocks or ()
    return tuple(block for block in recorded if block.index not in look.seen)


def _block(look: _EntryInView, block: Block, text: str, base: EntryView) -> EntryView:
    kind = kind_of(look.entry, block)
    marks, remarks = list(base.marks), list(base.remarks)
    standing = look.standing(block.index in look.seen)
    if standing == "struck" and look.message is not None:
        marks.append(EntryNote("deleted by", look.state.removals[look.entry.id].compaction_id))
    source, call = source_of_text(look.entry, block, text, look.page.session.cwd, look.page.languages)
    shown = beginning(source, as_recorded=look.page.as_recorded)
    owner = None
    if block.call_id is not None:
        owner = _owner(look.state, block.call_id, look.view)
        remarks += [*_results(look, block, owner), *_started(look, block.call_id)]
    return _with_struck(
        replace(
            base,
            kind=kind,
            who=_author(look.entry, block),
            block=block.index,
            shown=shown,
            pictures=look.pictures(block, shown),
            tokens=block.tokens,
            marks=marks,
            remarks=remarks,
            call=call,
            standing=standing,
            makes=block.call_id or "" if owner is look.entry else "",
        )
    )


def _with_struck(item: EntryView) -> EntryView:
    if item.standing != "struck":
        return item
    return replace(item, struck=" ".join(item.call) if item.call is not None else item.shown.text)


# ---- whether the model sees it ---------------------------------------------------------------------------


def _standing_marks(look: _EntryInView) -> list[EntryNote]:
    state, entry, message = look.state, look.entry, look.message
    reader = state.reading.reader
    if message is not None:
        marks = [] if message.sent else [EntryNote("recorded, not sent")]
        if message.as_text:
            marks.append(EntryNote("sent as text"))
        if message.edit is not None:
            marks.append(EntryNote("replaced by", message.edit.id))
        return marks
    if EntryKind.DELETION in reader.honours:
        removal = state.removals.get(entry.id)
        return [EntryNote("deleted by", removal.compaction_id) if removal else EntryNote("not seen by the model")]
    newest = next(
        (one for one in reversed(state.branch) if one.kind in _RESTARTS and not reader.ignores(one)),
        None,
    )
    if newest is not None and entry.number < newest.number:
        return [EntryNote("not seen since", newest.id)]
    edit = state.edits.get(entry.id)
    return [EntryNote("not seen since", edit.id) if edit is not None else EntryNote("not seen by the model")]


def _kind_of_context(entry: Entry) -> list[EntryNote]:
    """The kind of context that was added, such as "attachment:file", by the agent's name for it."""
    kind = entry.type.partition(":")[2] if entry.role == Role.CUSTOM else ""
    return [EntryNote(kind[:NAME_CHARACTERS])] if kind else []


def _label(state: BranchState, entry: Entry) -> list[EntryNote]:
    words = state.labels.get(entry.id)
    return [EntryNote("labelled", quoted=words[:NAME_CHARACTERS])] if words is not None else []


# ---- calls and results ----------------------------------------------------------------------------------


def _owner(state: BranchState, call_id: str, view: str) -> Entry | None:
    """The entry that owns a call id: the last one of those that make it, as in the agents."""
    makers = state.makers.get(call_id, [])
    if view != "sees":
        return makers[-1] if makers else None
    for maker in reversed(makers):
        message = state.kept.get(maker.id)
        if message is not None and any(block.call_id == call_id for block in message.blocks or ()):
            return maker
    return None


def _results(look: _EntryInView, block: Block, owner: Entry | None) -> list[EntryNote]:
    """Links to the results of a call, or a note that there are none."""
    state = look.state
    if owner is not None and owner is not look.entry:
        return [EntryNote("its call id is used again in", owner.id)]
    results = state.answers.get(block.call_id or "", [])
    seen = [result for result in results if result.id in state.kept]
    if block.index in look.seen and not seen and not look.is_replaced:
        return [_without_result(state, look.entry)]
    return [EntryNote("result in", one.id, "pair") for one in (seen if look.view == "sees" else results)[:PAIRED]]


def _started(look: _EntryInView, call_id: str) -> Iterator[EntryNote]:
    """Links to the sessions of the subagents that a call started."""
    ids = dict.fromkeys(result.subagent for result in look.state.answers.get(call_id, ()))
    for subagent in ids:
        if subagent in look.page.subagents:
            yield EntryNote("started the subagent", session=look.page.subagents[subagent])


def _without_result(state: BranchState, entry: Entry) -> EntryNote:
    """The consequence of a call without a result: see `sessionlog.sending`."""
    sending = state.context.sending
    if state.context.messages[-1].entry is entry:
        return EntryNote("no result yet")
    if entry.stop_reason in sending.unsent_stop_reasons:
        return EntryNote(NOT_SENT)
    return EntryNote(FILLED) if sending.fills_unanswered_calls else EntryNote(NO_RESULT, icon="broken")


def _took(look: _EntryInView) -> timedelta | None:
    """The time from the call to its result; None if the entry is not a result, the time was short, or the times are
    unknown."""
    owner = _owner(look.state, look.entry.result_for or "", "all")
    called = owner.moment if owner is not None else None
    answered = look.entry.moment
    took = answered - called if called is not None and answered is not None else timedelta()
    return took if took >= MENTIONED else None


def _answer(look: _EntryInView) -> list[EntryNote]:
    """A link to the call of a result, or a note that there is none."""
    call_id = look.entry.result_for
    if call_id is None:
        return []
    if look.message is not None and _owner(look.state, call_id, "sees") is None:
        return [EntryNote(NO_CALL, icon="broken")]
    owner = _owner(look.state, call_id, look.view)
    return [EntryNote("call in", owner.id, "pair")] if owner is not None else []


def tied(items: Sequence[EntryView]) -> list[EntryView]:
    """The items with brackets from each call to its results below it, without notes that the brackets make
    redundant."""
    results = {item.answers: place for place, item in enumerate(items) if item.answers}
    made = {item.makes: (place, item.entry_id) for place, item in enumerate(items) if item.makes}
    pairs = {call_id for call_id in results.keys() & made.keys() if made[call_id][0] < results[call_id]}
    here = {item.entry_id for item in items if item.answers in pairs} | {made[call_id][1] for call_id in pairs}
    open_calls: set[str] = set()
    tied_items = []
    for place, item in enumerate(items):
        tie = "none" if item.makes or item.answers else ""
        if item.makes in pairs:
            tie = "mid" if open_calls else "first"
            open_calls.add(item.makes)
        elif item.answers in open_calls:
            if results[item.answers] == place:
                open_calls.discard(item.answers)
            tie = "mid" if open_calls else "last"
        elif open_calls and item.kind not in BETWEEN:
            tie = "through"
        remarks = [one for one in item.remarks if one.icon != "pair" or one.entry_id not in here]
        tied_items.append(replace(item, tie=tie, remarks=remarks))
    return tied_items


# ---- kinds and texts -------------------------------------------------------------------------------------


def _note(
    page: EntriesInView, entry: Entry, texts: Texts, message: Message | None, remarks: Iterable[EntryNote]
) -> EntryView:
    """An entry other than a message: a line across the page, with the summary of a compaction below it."""
    state = page.state
    text = (texts.whole or "") if entry.kind is EntryKind.SUMMARY else ""
    return EntryView(
        "note",
        name_of(entry),
        entry.id,
        shown=beginning(TextSource("text", text), as_recorded=page.as_recorded) if text else NO_TEXT,
        tokens=message.tokens if message is not None else 0,
        at=entry.moment,
        marks=[meaning_of(entry, state.reading.reader, state.tree), *_label(state, entry)],
        remarks=list(remarks),
        standing="" if entry.rebuilds else "quiet",
        is_summary=is_summary(entry) and not state.reading.reader.ignores(entry),
    )


def minor_run(state: BranchState, entries: Sequence[Entry], damaged: Container[int]) -> list[Entry]:
    """The minor entries with which these begin: a run of several is shown as one line.

    Damaged lines are shown before those at the places `damaged`.
    """
    run: list[Entry] = []
    for place, entry in enumerate(entries):
        is_minor = entry.kind is EntryKind.OTHER and entry.control is None and entry.id not in state.labels
        if not is_minor or (run and place in damaged):
            break
        run.append(entry)
    return run


def command_run(page: EntriesInView, entries: Sequence[Entry], damaged: Container[int]) -> list[Entry]:
    """The user's messages, with which these begin, that only have commands of the agent: they are shown as one line.

    Damaged lines are shown before those at the places `damaged`.
    """
    run: list[Entry] = []
    for place, entry in enumerate(entries):
        if entry.role != Role.USER or (run and place in damaged) or not command_words(page.text_of(entry)):
            break
        run.append(entry)
    return run


def command_item(page: EntriesInView, entries: Sequence[Entry], pause: str) -> EntryView:
    """The line for messages that only have commands of the agent, and how long it took until the next entry."""
    ran = dict.fromkeys(filter(None, (command_words(page.text_of(entry)) for entry in entries)))
    commands = [words for words in ran if words not in (INTERRUPTED, COMMAND_OUTPUT)]
    said = f"You ran {', '.join(commands)}" if commands else next(iter(ran))
    items = [item for entry in entries for item in page.items(entry)]
    return EntryView(
        "commands",
        f"{said} and came back {pause}" if pause else said,
        entries[0].id,
        tokens=sum(item.tokens for item in items),
        folded=items,
    )


def minor_item(entries: Sequence[Entry]) -> EntryView:
    """The line for several minor entries in a row."""
    names = Counter(map(name_of, entries))
    words = ", ".join(name if number == 1 else f"{number} {name}" for name, number in names.items())
    note = EntryNote("not part of the model's context", quoted=words)
    return EntryView("note", plural(len(entries), "entry"), entries[0].id, marks=[note], standing="quiet")


def _author(entry: Entry, block: Block | None = None) -> str:
    block_type = block.type if block is not None else ""
    return author_of(entry.role, entry.tool_name, block_type, otherwise=entry.type)


# ---- pictures -------------------------------------------------------------------------------------------

LINE_BYTES: Final = 32_000_000
"""The maximum length of a line that is searched for pictures, in bytes."""
PICTURE_MARK: Final = "image/"
"""The text with which agents mark a picture that belongs to a message."""


def pictures_of_message(agent: Agent, reader: SessionReader, message: Message) -> list[Picture]:
    """The pictures of a message in the context, or of an entry as recorded."""
    line = reader.read_at(message.entry.offset, message.entry.length)
    edit = reader.read_at(message.source.offset, message.source.length) if message.edit is not None else None
    return list(pictures_in(dict(agent.format.message_json(message, line, edit))))


def pictures_of(session: Session, entry: Entry, block: Block | None) -> list[Picture]:
    """The pictures of an entry, or of one block of it. Raises Conflict if the file was rewritten."""
    if not entry.is_message or entry.length > LINE_BYTES:
        return []
    agent = session.agent
    with agent.store.open(session.real_path()) as reader:
        reparse_entry(agent, reader, entry, session.version)
        message = Message(entry, entry.role, entry.blocks if block is None else (block,), 0)
        found = pictures_of_message(agent, reader, message)
    if block is None or len(found) < 2:
        return found
    # A message that cannot be divided into its blocks.
    images = [one.index for one in entry.blocks or () if one.type == BlockType.IMAGE]
    place = images.index(block.index) if block.index in images else len(found)
    return found[place : place + 1]


def shown_pictures(session: Session, entry: Entry, block: Block | None, text: str) -> list[dict[str, Any]]:
    """The pictures that a page shows, without their bytes: those of an image block, or of an entry whose text names
    images. Their addresses contain the digest of the bytes, because browsers keep what they lead to."""
    if block.type != BlockType.IMAGE if block is not None else PICTURE_MARK not in text:
        return []
    return [
        {
            "entry_id": entry.id,
            "block": block.index if block is not None else None,
            "number": number,
            "digest": sha256(picture.data).hexdigest()[:16],
            "width": picture.width,
            "height": picture.height,
            "size": len(picture.data),
        }
        for number, picture in enumerate(pictures_of(session, entry, block))
    ]
