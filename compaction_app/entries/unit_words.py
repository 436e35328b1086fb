"""One unit of a transcript on one line: the call that it belongs to, or the beginning of its text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from compaction_app.core.transcript import Transcript
from compaction_app.core.transcript_entries import WHOLE, Object
from sessions_app.sessionlog.entries import BlockType, Texts
from sessions_app.sessionlog.noise import spoken
from sessions_app.sessionlog.targets import Target

from .words import call_words

BEGINNING: Final = 1_000
CHARACTERS: Final = 160


def named_object(transcript: Transcript, target: Target) -> Object | None:
    """The object that best describes what a target deletes: for a result, its call; None if it is not in the
    transcript."""
    entry = transcript.entry(target.entry_id)
    if entry is None:
        return None
    call = transcript.pairs.answered_by(entry) if target.block_index is None else None
    if call is not None and call.blocks:
        return call.blocks[0]
    slot = entry.slot(target.block_index) if target.block_index is not None else None
    if slot is None and len(entry.blocks) == 1:
        slot = 0
    return Object(entry.position, slot if slot is not None else WHOLE)


def unit_words(transcript: Transcript, found: Object, texts: Mapping[str, Texts], project: str) -> str:
    """An object on one line; paths below the project are relative to it."""
    entry = transcript.entries[found.position]
    known = texts[entry.entry_id]
    if found.slot == WHOLE:
        text = known.joined(entry.blocks)
    else:
        block = entry.blocks[found.slot]
        text = known.block(block.index)
        if block.type == BlockType.TOOL_CALL:
            return " ".join(call_words(text, block.call_id or "", project))[:CHARACTERS]
    return " ".join(spoken(text[:BEGINNING], entry.role).split())[:CHARACTERS]
