"""Notes on entries: short remarks beside them, and the meaning of entries that are not messages."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from sessions_app.agents.base import Agent
from sessions_app.agents.pure.contexts import Reader
from sessions_app.models import Session
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
from sessions_app.sessionlog.entries import Entry, EntryKind, Role
from sessions_app.sessionlog.jsjson import well_formed
from sessions_app.sessionlog.tree import SessionTree
from sessions_app.storage.files import SessionReader

_SUMMARIES: Final = frozenset({Role.BRANCH_SUMMARY, Role.COMPACTION_SUMMARY})
WORDS: Final = 120
"""Characters of a label, a name or a model that are shown."""


@dataclass(frozen=True, slots=True)
class EntryNote:
    """A remark on an entry, and the entry that it links to."""

    words: str
    entry_id: str = ""
    icon: str = ""
    """`pair` for what it is paired with, `broken` for a fault."""
    quoted: str = ""
    """Words from the session."""
    tail: str = ""
    session: Session | None = None
    """Another session that it links to."""


def name_of(entry: Entry) -> str:
    """The name of an entry that is not a message."""
    return _NAMES.get(entry.kind, entry.type)[:WORDS]


def meaning_of(entry: Entry, reader: Reader, tree: SessionTree) -> EntryNote:
    """The meaning of an entry that is not a message, and whether this reader ignores it."""
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
    """The meaning of an entry that is not a message."""
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
    form = agent.summary_format
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
    return well_formed(value[:WORDS]) if value is not None else ""
