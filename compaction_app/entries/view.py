"""An entry on a page: a view of each of its blocks, with notes and pictures.

The text is the recorded one, unless an edit has replaced it and the page shows what the model sees. It is cut; a link
leads to the whole text."""
# WAS compaction_app/entries/text: """A text as a page shows it: rendered or as recorded; in full, or its beginning with a link to the rest.
#
# user, assistant, summary ─▶ Markdown
# call                     ─▶ a diff, or its arguments with one value on each line
# output                   ─▶ a terminal's colours, JSON with one value on each line, a program that was read
# anything else            ─▶ as recorded
# """
# WAS compaction_app/entries/stretches: """Stretches of a branch in words: the beginning of the first message, or a description of the event."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final

from compaction_app.core.summary_loss import is_summary
from compaction_app.models import written_by_redline
from compaction_app.rendering.code import (
    DiffLine,
    TextChange,
    coloured,
    counts,
    diff_markup,
    diff_of,
    diff_of_patch,
    highlighted,
    highlighted_file,
    is_patch,
    language_of,
    pretty_json,
    without_styles,
)
from compaction_app.rendering.markdown import RenderedTexts, rendered_markdown
from compaction_app.rendering.markup import NO_MARKUP, Markup, sanitized, spans
from compaction_app.rendering.pictures import Picture, pictures_in
from sessions_app.agents.base import Agent
from sessions_app.agents.pure.format import Reader
from sessions_app.disk.files import SessionReader
from sessions_app.document.document import indexed_texts
from sessions_app.models import Session
from sessions_app.sessionlog.context import Message
from sessions_app.sessionlog.entries import (
    NO_TEXTS,
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
)
from sessions_app.sessionlog.jsjson import well_formed
from sessions_app.sessionlog.text import is_noise, plural, printable_lines, title_of
from sessions_app.sessionlog.tree import SessionTree
from sessions_app.sessionlog.tree_rows import RowKind, Stretch
from sessions_app.storage.session_loader import reparse_entry

from .branches import BranchState
from .words import ARGUMENTS_READ, NAME_CHARACTERS, PATHS, author_of, call_parts, call_words, joined_in_short, path_read

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
_EDITS_ARGUMENT: Final = "edits"
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
    edits = values.get(_EDITS_ARGUMENT)
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


_SUMMARIES: Final = frozenset({Role.BRANCH_SUMMARY, Role.COMPACTION_SUMMARY})


@dataclass(frozen=True, slots=True)
class EntryNote:
    """A remark on an entry, and the entry to which it links."""

    words: str
    entry_id: str = ""
    icon: str = ""
    """`pair` for the other half of a pair, `broken` for a fault."""
    quoted: str = ""
    """Words from the session."""
    tail: str = ""
    session: Session | None = None
    """Another session to which it links."""


def name_of(entry: Entry) -> str:
    """The name of an entry other than a message."""
    return _NAMES.get(entry.kind, entry.type)[:NAME_CHARACTERS]


def meaning_of(entry: Entry, reader: Reader, tree: SessionTree) -> EntryNote:
    """The meaning of an entry other than a message, and whether this reader ignores it."""
    note = _meaning(entry, tree)
    return replace(note, tail=", ignored by this reading") if reader.ignores(entry) else note


_EDITS: Final = {
    "removes": "leaves out",
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
            number = _plural(len(kept), "entry", "entries") or "nothing"
            return EntryNote(f"{number} of what is above {'remain' if len(kept) > 1 else 'remains'}")
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
            return EntryNote("a compaction was taken back: the agent continues from here")
        case None:
            return EntryNote("not part of the model's context")


def summary_notes(agent: Agent, entry: Entry, tree: SessionTree, reader: SessionReader) -> list[EntryNote]:
    """Where the branch was left that a summary is of, the number of files in its lists, and who wrote it."""
    form = agent.format.summary_format
    if form is None or entry.role not in _SUMMARIES:
        return []
    found = form.recorded_summary(reader.read_at(entry.offset, entry.length))
    if found is None:
        return []
    notes = [_about("summarises what was left at", found.from_id, tree)] if found.from_id else []
    if found.files is not None:
        read = _plural(len(found.files.read), "file read", "files read")
        modified = _plural(len(found.files.modified), "file modified", "files modified")
        notes += [EntryNote(words) for words in (read, modified) if words]
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
    parts = [
        _plural(len(deletion.targets) - blocks, "entry", "entries"),
        _plural(blocks, "block", "blocks"),
    ]
    note = " and ".join(filter(None, parts)) or "nothing"
    reduction = f", {deletion.percent:.1f}% of the tokens" if deletion.percent is not None else ""
    return f"{note} of what is above deleted{reduction}"


def _plural(number: int, one: str, many: str) -> str:
    return f"{number:,} {one if number == 1 else many}" if number else ""


def _word(value: str | None) -> str:
    return well_formed(value[:NAME_CHARACTERS]) if value is not None else ""


BLOCKS: Final = 60
"""The maximum number of blocks shown for one entry."""
PAIRED: Final = 4
"""The maximum number of results linked for one call."""
NO_RESULT: Final = "no result: the provider may refuse this"
FILLED: Final = "no result: the agent answers the call itself"
NOT_SENT: Final = "not sent: the agent leaves out a message that failed"
NO_CALL: Final = "no call: the provider may refuse this"
MENTIONED: Final = timedelta(seconds=1)
BETWEEN: Final = frozenset({"note", "time"})
"""The kinds of items that no bracket crosses."""
_RESTARTS: Final = frozenset({EntryKind.SUMMARY, EntryKind.BOUNDARY})
"""The entries from which a context is rebuilt without what precedes them and is not kept."""


@dataclass(frozen=True, slots=True)
class EntryView:
    """One block, or one entry without blocks, as the page shows it."""

    kind: str
    """`user`, `text`, `thinking`, `call`, `out`; `note` for entries that are not messages; `damage`; `time` for a line
    between entries that says how much time passed, in `who`."""
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
    pictures: Sequence[EntryPicture] = ()
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
    tie: str = ""
    """The part of the bracket from a call to its results: `first`, `mid`, `last`, `through`, `none`."""


@dataclass(frozen=True, slots=True)
class _EntryInView:
    """One entry in one view of the page."""

    state: BranchState
    entry: Entry
    view: str
    message: Message | None
    """The message that the model sees, if any."""
    seen: frozenset[int]
    """The blocks that the model sees, by index."""
    project: str
    subagents: Mapping[str, Session]
    languages: Mapping[str, str]
    as_recorded: bool


def source_of(state: BranchState, entry: Entry, view: str) -> Entry:
    """The entry whose line contains the text of an entry in a view of the page."""
    message = state.kept.get(entry.id)
    return message.source if message is not None and view == "sees" else entry


def items_of(
    state: BranchState,
    entry: Entry,
    texts: Texts,
    view: str,
    *,
    remarks: Sequence[EntryNote],
    project: str,
    subagents: Mapping[str, Session],
    languages: Mapping[str, str],
    as_recorded: bool,
) -> Iterator[EntryView]:
    """The items of an entry. `texts` are those of `source_of`, `remarks` are additional remarks.

    `project` is the session's directory; paths in calls are shown relative to it. `subagents` are the sessions that
    calls started, by `Entry.subagent`; `languages` are those of the files that calls read, by call id.
    """
    message = state.kept.get(entry.id)
    if not entry.is_message:
        yield _note(state, entry, texts, message, list(remarks), as_recorded)
        return
    seen = frozenset(block.index for block in message.blocks or ()) if message is not None else frozenset()
    look = _EntryInView(state, entry, view, message, seen, project, subagents, languages, as_recorded)
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
    if not blocks:
        source, _ = source_of_text(entry, None, texts.whole or "", project, languages)
        tokens = message.tokens if message is not None and view == "sees" else entry.tokens
        standing = "" if look.message is not None and not _is_replaced(look) else _lost(look)
        yield _with_struck(
            replace(
                first,
                shown=beginning(source, as_recorded=as_recorded),
                tokens=tokens,
                standing=standing,
                took=_took(look),
                answers=entry.result_for or "",
            )
        )
        return
    for number, block in enumerate(blocks[:BLOCKS]):
        base = first if number == 0 else EntryView("", "", entry.id, first=False)
        item = _block(look, block, texts.block(block.index), base)
        is_last = number == min(len(blocks), BLOCKS) - 1
        if is_last and len(blocks) > BLOCKS:
            item.remarks.append(EntryNote(f"{len(blocks) - BLOCKS:,} more blocks are not shown here"))
        yield replace(item, took=_took(look), answers=entry.result_for or "") if is_last else item


def _blocks(look: _EntryInView) -> tuple[Block, ...]:
    recorded = look.entry.blocks or ()
    if look.message is None or look.view == "all" or _is_replaced(look):
        return recorded
    if look.view == "sees":
        return look.message.blocks or ()
    return tuple(block for block in recorded if block.index not in look.seen)


def _block(look: _EntryInView, block: Block, text: str, base: EntryView) -> EntryView:
    kind = kind_of(look.entry, block)
    marks, remarks = list(base.marks), list(base.remarks)
    is_seen = look.message is not None and not _is_replaced(look) and block.index in look.seen
    standing = "" if is_seen else _lost(look)
    if standing == "struck" and look.message is not None:
        marks.append(EntryNote("removed by", look.state.removals[look.entry.id].compaction_id))
    source, call = source_of_text(look.entry, block, text, look.project, look.languages)
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
            shown=beginning(source, as_recorded=look.as_recorded),
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


def _is_replaced(look: _EntryInView) -> bool:
    """Whether the page shows a text that an edit has replaced."""
    return look.message is not None and look.message.edit is not None and look.view != "sees"


def _lost(look: _EntryInView) -> str:
    """The style of text that the model does not see: deleted by a compaction, or omitted for another reason."""
    honoured = EntryKind.DELETION in look.state.reading.reader.honours
    return "struck" if honoured and look.entry.id in look.state.removals else "faint"


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
        return [EntryNote("removed by", removal.compaction_id) if removal else EntryNote("not seen by the model")]
    newest = next(
        (one for one in reversed(state.branch) if one.kind in _RESTARTS and not reader.ignores(one)),
        None,
    )
    if newest is not None and entry.number < newest.number:
        return [EntryNote("left out by", newest.id)]
    edit = state.edits.get(entry.id)
    return [EntryNote("left out by", edit.id) if edit is not None else EntryNote("not seen by the model")]


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
    if block.index in look.seen and not seen and not _is_replaced(look):
        return [_without_result(state, look.entry)]
    return [EntryNote("result in", one.id, "pair") for one in (seen if look.view == "sees" else results)[:PAIRED]]


def _started(look: _EntryInView, call_id: str) -> Iterator[EntryNote]:
    """Links to the sessions of the subagents that a call started."""
    ids = dict.fromkeys(result.subagent for result in look.state.answers.get(call_id, ()))
    for subagent in ids:
        if subagent in look.subagents:
            yield EntryNote("started the subagent", session=look.subagents[subagent])


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
    state: BranchState,
    entry: Entry,
    texts: Texts,
    message: Message | None,
    remarks: list[EntryNote],
    as_recorded: bool,
) -> EntryView:
    """An entry other than a message: a line across the page, with the summary of a compaction below it."""
    text = (texts.whole or "") if entry.kind is EntryKind.SUMMARY else ""
    return EntryView(
        "note",
        name_of(entry),
        entry.id,
        shown=beginning(TextSource("text", text), as_recorded=as_recorded) if text else NO_TEXT,
        tokens=message.tokens if message is not None else 0,
        at=entry.moment,
        marks=[meaning_of(entry, state.reading.reader, state.tree), *_label(state, entry)],
        remarks=remarks,
        standing="" if entry.rebuilds else "quiet",
        is_summary=is_summary(entry) and not state.reading.reader.ignores(entry),
    )


def is_minor(state: BranchState, entry: Entry) -> bool:
    """Whether an entry is irrelevant to its branch: several of them in a row are shown as one line."""
    return entry.kind is EntryKind.OTHER and entry.control is None and entry.id not in state.labels


def minor_item(entries: Sequence[Entry]) -> EntryView:
    """The line for several minor entries in a row."""
    names = Counter(map(name_of, entries))
    words = ", ".join(name if number == 1 else f"{number} {name}" for name, number in names.items())
    note = EntryNote("not part of the model's context", quoted=words)
    return EntryView("note", f"{plural(len(entries), 'entry')}", entries[0].id, marks=[note], standing="quiet")


def _author(entry: Entry, block: Block | None = None) -> str:
    block_type = block.type if block is not None else ""
    return author_of(entry.role, entry.tool_name, block_type, otherwise=entry.type)


LINE_BYTES: Final = 32_000_000
"""Longer lines are not searched for pictures."""
_NAMED: Final = "image/"
"""The text with which agents mark a picture that belongs to a message."""


@dataclass(frozen=True, slots=True)
class EntryPicture:
    """One picture of an entry or a block, without its bytes."""

    entry_id: str
    block: int | None
    number: int
    digest: str
    """Of its bytes: a different picture has a different address."""
    width: int
    height: int
    size: int


def pictures_of(session: Session, entry: Entry, block: Block | None) -> list[Picture]:
    """The pictures of an entry, or of one block of it. Raises Conflict if the file was rewritten."""
    if not entry.is_message or entry.length > LINE_BYTES:
        return []
    agent = session.agent
    with agent.store.open(session.real_path()) as reader:
        reparse_entry(agent, reader, entry, session.version)
        line = reader.read_at(entry.offset, entry.length)
    message = Message(entry, entry.role, entry.blocks if block is None else (block,), 0)
    found = list(pictures_in(dict(agent.format.message_json(message, line, None))))
    if block is None or len(found) < 2:
        return found
    # A message that cannot be divided into its blocks.
    images = [one.index for one in entry.blocks or () if one.type == BlockType.IMAGE]
    place = images.index(block.index) if block.index in images else len(found)
    return found[place : place + 1]


def shown_pictures(session: Session, entry: Entry, block: Block | None, text: str) -> list[EntryPicture]:
    """The pictures that a page shows: those of an image block, or of an entry whose text names images."""
    if block.type != BlockType.IMAGE if block is not None else _NAMED not in text:
        return []
    return [
        EntryPicture(
            entry.id,
            block.index if block is not None else None,
            number,
            digest_of(picture),
            picture.width,
            picture.height,
            len(picture.data),
        )
        for number, picture in enumerate(pictures_of(session, entry, block))
    ]


def digest_of(picture: Picture) -> str:
    return hashlib.sha256(picture.data).hexdigest()[:16]


TITLE: Final = 160
"""Characters of a text that a row shows."""


@dataclass(frozen=True, slots=True)
class RowText:
    """The words of a stretch: a user's text, or a description by Redline."""

    words: str
    is_said: bool = False
    """Whether the user wrote them."""
    author: str = ""


TEXTLESS: Final = RowText("")


def texts_of_stretches(
    session: Session, state: BranchState, stretches: Iterable[Stretch], length: int = TITLE
) -> dict[int, RowText]:
    """The words of stretches, by the position at which each begins. Raises Conflict if the file was rewritten."""
    described = {stretch.start: (stretch.kind, _described(state, stretch)) for stretch in stretches}
    texts = indexed_texts(session, [entry for _, entry in described.values() if entry.has_text])
    agent = session.agent_label or "the agent"
    has_compactions = any(kind is RowKind.COMPACTION for kind, _ in described.values())
    own = written_by_redline(session) if has_compactions else frozenset()
    return {
        start: (
            _compaction(state, entry, "Redline" if entry.id in own else agent, texts.get(entry.id, NO_TEXTS))
            if kind is RowKind.COMPACTION
            else _message(state, kind, entry, texts.get(entry.id, NO_TEXTS), length)
        )
        for start, (kind, entry) in described.items()
    }


def _described(state: BranchState, stretch: Stretch) -> Entry:
    """The entry whose text represents a stretch: for the rest of a turn, its first message."""
    entries = state.tree.entries
    start = entries[stretch.start]
    if stretch.kind is not RowKind.REST:
        return start
    return next((entries[one] for one in stretch.positions if entries[one].is_message), start)


def _message(state: BranchState, kind: RowKind, entry: Entry, texts: Texts, length: int) -> RowText:
    text = joined_in_short(texts, entry.blocks)
    if kind is RowKind.TURN:
        words = _beginning(title_of(text, length + 1), length)
        return RowText(words, author="command") if is_noise(text) else RowText(words, is_said=True)
    if kind is RowKind.SUMMARY:
        return RowText(_beginning(text, length), author="branch summary")
    if entry.is_message:
        author = author_of(entry.role, entry.tool_name, otherwise=entry.type)
        return RowText(_beginning(text, length), author=author)
    if entry.control is None:
        return RowText(name_of(entry))
    note = meaning_of(entry, state.reading.reader, state.tree)
    return RowText(f"{note.words} {note.quoted}".strip(), author=name_of(entry))


def _compaction(state: BranchState, entry: Entry, by: str, texts: Texts) -> RowText:
    reader = state.reading.reader
    if isinstance(entry.control, BoundaryControl) and entry.control.turns is not None:
        turns = entry.control.turns
        return RowText(f"{plural(turns, 'turn')} taken back")
    note = meaning_of(entry, reader, state.tree)
    meaning = f"a summary of {plural(len(texts.whole), 'character')}" if texts.whole else note.words
    return RowText(f"Compaction by {by}: {meaning}{note.tail}")


def _beginning(text: str, length: int) -> str:
    words = " ".join(text[: 4 * length].split())
    return words if len(words) <= length and len(text) <= 4 * length else f"{words[:length]}…"
