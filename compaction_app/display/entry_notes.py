"""What is said of entries: short marks beside them, and what an entry says that is no message itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeGuard

from sessions_app.sessionlog.context import REBUILDING_TYPES
from sessions_app.sessionlog.entries import Entry
from sessions_app.sessionlog.filters import recorded_targets
from sessions_app.sessionlog.jsjson import well_formed
from sessions_app.sessionlog.readers import Reader
from sessions_app.sessionlog.tree import SessionTree

WORDS: Final = 120
"""Characters of a label, a name or a model that are shown."""


@dataclass(frozen=True, slots=True)
class EntryNote:
    """Something that is said of an entry, and the entry that it points to."""

    words: str
    entry_id: str = ""
    icon: str = ""
    """`pair` for what is paired with it, `broken` for what is wrong with it."""
    quoted: str = ""
    """Words out of the session."""
    tail: str = ""


def name_of(entry: Entry) -> str:
    """What an entry that is no message is called."""
    return _NAMES.get(entry.type, entry.type)[:WORDS]


def is_ignored(entry: Entry, reader: Reader) -> bool:
    """Whether an entry would leave something out in another reading, and leaves nothing out in this one."""
    honoured = reader.honours_context_compaction == (entry.type == "context_compaction")
    return entry.type in REBUILDING_TYPES and not honoured


def said_by(entry: Entry, reader: Reader, tree: SessionTree) -> EntryNote:
    """What an entry that is no message says, and whether this reading listens."""
    said = _said(entry, tree)
    return replace(said, tail=", ignored by this reading") if is_ignored(entry, reader) else said


_NAMES: Final = {
    "context_compaction": "compaction",
    "context_edit": "edit",
    "model_change": "model",
    "session_info": "name",
    "thinking_level_change": "thinking level",
}


def _said(entry: Entry, tree: SessionTree) -> EntryNote:
    """What an entry that is no message says."""
    control = entry.control or {}
    if entry.type == "context_compaction":
        return EntryNote(_deleted(entry))
    if entry.type == "compaction":
        return EntryNote("what is above was summarised")
    if entry.type == "context_edit":
        verb = "leaves out" if control.get("replacement") is None else "replaces the content of"
        return _about(verb, control.get("targetId"), tree)
    if entry.type == "model_change":
        named = " ".join(filter(None, (_word(control.get("provider")), _word(control.get("modelId")))))
        return EntryNote("from here on", quoted=named or "not named")
    if entry.type == "thinking_level_change":
        return EntryNote("from here on", quoted=_word(control.get("thinkingLevel")) or "not named")
    if entry.type == "session_info":
        return EntryNote("the session is called", quoted=_word(control.get("name")) or "nothing")
    if entry.type == "label":
        words = _word(control.get("label"))
        return replace(
            _about("set at" if words else "taken from", control.get("targetId"), tree), quoted=words
        )
    return EntryNote("no part of the model's context")


def _about(words: str, target: object, tree: SessionTree) -> EntryNote:
    """What is said of another entry, which the session need not have."""
    if isinstance(target, str) and target in tree:
        return EntryNote(words, target)
    return EntryNote(f"{words} an entry that is not there")


def _deleted(compaction: Entry) -> str:
    targets = list(recorded_targets(compaction))
    blocks = sum(target.block_index is not None for target in targets)
    parts = [_plural(len(targets) - blocks, "entry", "entries"), _plural(blocks, "block", "blocks")]
    stats = (compaction.control or {}).get("stats")
    percent = stats.get("percentReduction") if isinstance(stats, Mapping) else None
    said = " and ".join(filter(None, parts)) or "nothing"
    reduction = f", {percent:.1f}% of the tokens" if _is_percent(percent) else ""
    return f"{said} of what is above deleted{reduction}"


def _is_percent(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 100


def _plural(number: int, one: str, many: str) -> str:
    return f"{number:,} {one if number == 1 else many}" if number else ""


def _word(value: object) -> str:
    return well_formed(value[:WORDS]) if isinstance(value, str) else ""
