"""An entry on a page: a view of each of its blocks, with notes and pictures.

The text is the recorded one, unless an edit has replaced it and the page shows what the model sees. It is cut; a link
leads to the whole text."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final

from compaction_app.core.summary_loss import is_summary
from compaction_app.rendering.pictures import Picture, pictures_in
from sessions_app.agents.base import Agent
from sessions_app.agents.pure.contexts import Reader
from sessions_app.models import Session
from sessions_app.sessionlog.context import Message
from sessions_app.sessionlog.controls import (
    BoundaryControl,
    DeletionControl,
    EditControl,
    LabelControl,
    ModelControl,
    NameControl,
    SummaryControl,
    ThinkingLevelControl,
)
from sessions_app.sessionlog.entries import Block, BlockType, Entry, EntryKind, Role, Texts
from sessions_app.sessionlog.jsjson import well_formed
from sessions_app.sessionlog.moments import moment_of
from sessions_app.sessionlog.printable import plural
from sessions_app.sessionlog.protection import Protection
from sessions_app.sessionlog.tree import SessionTree
from sessions_app.storage.files import SessionReader
from sessions_app.storage.session_loader import reparse_entry

from .branches import BranchState
from .text import NO_TEXT, ShownText, TextSource, beginning, kind_of, source_of_text
from .words import NAME_CHARACTERS, author_of

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
        at=moment_of(entry.timestamp),
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
    called = moment_of(owner.timestamp) if owner is not None else None
    answered = moment_of(look.entry.timestamp)
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
        at=moment_of(entry.timestamp),
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
