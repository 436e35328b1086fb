"""The words for a proposal in tables: what it is, in one line, and its reason without what is particular about it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from compaction_app.core.references import references
from compaction_app.core.review_fold import ReviewItem
from compaction_app.core.transcript import Transcript
from compaction_app.core.transcript_entries import TranscriptEntry
from compaction_app.display.authors import author_of
from compaction_app.display.tool_call_text import ARGUMENT_CHARACTERS, call_words
from compaction_app.models import Proposal, Run
from compaction_app.planning.snapshots import read_snapshot_texts, snapshot_of
from sessions_app.sessionlog.entries import Block, BlockType, Texts
from sessions_app.sessionlog.noise import without_images
from sessions_app.sessionlog.targets import Target

BEGINNING: Final = 1_000
"""Characters of a text of which its line is made."""
BY_HAND: Final = "Added by hand"
BY_PAIR: Final = "Goes along with another deletion"
KEPT: Final = "Kept, not proposed"
NO_REASON: Final = "Without a reason"
_WORD: Final = re.compile(r"[^\s,;()]+")
_NUMBER: Final = re.compile(r"\d[\d,.]*")


@dataclass(frozen=True, slots=True)
class UnitLine:
    """A proposal in one line: the tool that was called, or who says it, and with what, or what."""

    tool: str
    words: str


UNKNOWN: Final = UnitLine("unknown", "")


def unit_lines(run: Run, transcript: Transcript, items: Iterable[ReviewItem]) -> dict[Target, UnitLine]:
    """The lines of proposals by target. Raises what reading the session raises."""
    sources = {item.target: _source(transcript, item) for item in items if item.position >= 0}
    entries = {entry.position: entry for entry, _ in sources.values()}
    session = run.session
    texts = read_snapshot_texts(session.real_path(), snapshot_of(run).prepared, entries.values())
    return {target: _line(*source, texts, session.cwd) for target, source in sources.items()}


def _source(transcript: Transcript, item: ReviewItem) -> tuple[TranscriptEntry, Block | None]:
    """The entry, or the block of one, that says best what is deleted: of a result, its call."""
    entry = transcript.entries[item.position]
    if item.target.block_index is not None:
        slot = entry.slot(item.target.block_index)
        return entry, entry.blocks[slot] if slot is not None else None
    call = transcript.pairs.answered_by(entry)
    if call is not None and call.blocks:
        owner = transcript.entries[call.owner.position]
        return owner, owner.blocks[call.blocks[0].slot]
    calls = [block for block in entry.blocks if block.type == BlockType.TOOL_CALL]
    return entry, calls[0] if len(calls) == 1 else None


def _line(entry: TranscriptEntry, block: Block | None, texts: Mapping[str, Texts], project: str) -> UnitLine:
    found = texts[entry.entry_id]
    if block is not None and block.type == BlockType.TOOL_CALL:
        return UnitLine(*call_words(found.block(block.index), block.call_id or "", project))
    text = found.joined(entry.blocks) if block is None else found.block(block.index)
    words = " ".join(without_images(text[:BEGINNING]).split())[:ARGUMENT_CHARACTERS]
    return UnitLine(author_of(entry.role, entry.tool_name, block.type if block is not None else ""), words)


def reason_group(item: ReviewItem) -> str:
    """The reason of a proposal without its names, paths and numbers: the same for all that have the same one."""
    if item.origin is None:
        return KEPT
    if item.added or item.source == Proposal.Source.HUMAN:
        return BY_HAND
    reason = " ".join(item.origin.reason.split()).rstrip(".")
    if not reason:
        return BY_PAIR if item.source == Proposal.Source.REPAIR else NO_REASON
    words = _WORD.sub(lambda found: "…" if references(found[0]) else found[0], reason)
    words = _NUMBER.sub("…", words)
    return words[:1].upper() + words[1:]
