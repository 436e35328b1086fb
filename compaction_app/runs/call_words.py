"""What a call of a planner proposed, in words: the reason of most of it, and the names of the largest texts."""

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath
from typing import Any, Final

from compaction_app.core.groups import reason_title
from compaction_app.core.loop import Origin
from compaction_app.core.transcript import Transcript, TranscriptEntry
from compaction_app.entries.view import call_path, call_words
from sessions_app.sessionlog.entries import Block, BlockType, Target
from sessions_app.sessionlog.text import one_line, spoken

NAMES_SHOWN: Final = 3
LOOKED_AT: Final = 60
"""The number of the largest texts whose names are counted."""
NAME_CHARACTERS: Final = 40
BEGINNING: Final = 400


def proposed_words(
    transcript: Transcript, origins: Mapping[Target, Origin], added: Iterable[Target], project: str
) -> dict[str, Any]:
    """The number of proposals among new targets, the title of the reason of most of their tokens, and the names of the
    largest; nothing if nothing was proposed. Paths are relative to `project`."""
    chosen = {target: origins[target] for target in added if target in origins and not origins[target].by_repair}
    if not chosen:
        return {}
    sizes = {target: _tokens(transcript, target) for target in chosen}
    reasons: Counter[str] = Counter()
    for target, origin in chosen.items():
        reasons[reason_title(origin.reason)] += sizes[target]
    largest = sorted(chosen, key=lambda target: -sizes[target])[:LOOKED_AT]
    names = Counter(_name(transcript, target, project) for target in largest)
    shown = [f"{name} ×{times}" if times > 1 else name for name, times in names.most_common() if name]
    more = max(0, len(names) - NAMES_SHOWN)
    return {
        "proposed": len(chosen),
        "rule": max(reasons, key=lambda title: reasons[title]),
        "largest": shown[:NAMES_SHOWN] + ([f"{more} more"] if more else []),
    }


def _tokens(transcript: Transcript, target: Target) -> int:
    entry, block = _source(transcript, target)
    if entry is None:
        return 0
    return entry.tokens if target.block_index is None or block is None else block.tokens


def _source(transcript: Transcript, target: Target) -> tuple[TranscriptEntry | None, Block | None]:
    """The entry of a target, and its block."""
    entry = transcript.entry(target.entry_id)
    slot = entry.slot(target.block_index) if entry is not None and target.block_index is not None else None
    return entry, entry.blocks[slot] if entry is not None and slot is not None else None


def _name(transcript: Transcript, target: Target, project: str) -> str:
    """The file of a call or of its result, otherwise the call, otherwise the first words of a text."""
    entry, block = _source(transcript, target)
    if entry is None:
        return ""
    pair = transcript.pairs.answered_by(entry)
    if pair is not None and pair.blocks:
        entry = transcript.entries[pair.owner.position]
        block = entry.blocks[pair.blocks[0].slot]
    elif block is None:
        block = next((one for one in entry.blocks if one.type == BlockType.TOOL_CALL), None)
    if block is None or block.type != BlockType.TOOL_CALL:
        text = transcript.text(entry) if block is None else transcript.block_text(entry, block)
        words = one_line(spoken(text[:BEGINNING], entry.role), NAME_CHARACTERS)
        return f"“{words}”" if words else ""
    text = transcript.block_text(entry, block)
    path = call_path(text, block.call_id or "", project)
    if path:
        return one_line(PurePosixPath(path).name or path, NAME_CHARACTERS)
    return one_line(" ".join(call_words(text, block.call_id or "", project)), NAME_CHARACTERS)
