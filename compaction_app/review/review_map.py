"""The transcript of a run as a token map, with the strike of what goes drawn over it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from compaction_app.core.review_fold import Review
from compaction_app.core.token_map import KINDS, Piece, TokenMap, draw
from compaction_app.core.transcript import Transcript
from compaction_app.core.transcript_entries import WHOLE, TranscriptEntry
from sessions_app.sessionlog.entries import BlockType, Role
from sessions_app.sessionlog.targets import Target

_RESULTS: Final = frozenset({"read", "bash", "edit", "write"})
_APPROVED, _OPEN, _STAYS = "user", "text", "custom"
"""The strike is drawn by the same grid, under kinds that stand for what becomes of a piece."""


@dataclass(frozen=True, slots=True)
class StruckShare:
    """How much of one kind goes."""

    kind: str
    name: str
    tokens: int
    percent: float


@dataclass(frozen=True, slots=True)
class StruckMap:
    """The map, the strikes over it as paths, and the same in numbers."""

    ground: TokenMap
    approved: str
    undecided: str
    shares: list[StruckShare]
    tokens: int


def struck_map(transcript: Transcript, review: Review) -> StruckMap:
    """The map of a transcript under a review."""
    pieces: list[Piece] = []
    strikes: list[Piece] = []
    kinds: dict[str, tuple[int, int]] = {}
    for kind, tokens, protected, target in _laid(transcript):
        whole = Target(target.entry_id)
        fate = _STAYS
        if target in review.goes or whole in review.goes:
            fate = _APPROVED
        elif target in review.would_go or whole in review.would_go:
            fate = _OPEN
        pieces.append(Piece(kind, tokens, protected))
        strikes.append(Piece(fate, tokens))
        before, struck = kinds.get(kind, (0, 0))
        kinds[kind] = (before + tokens, struck + (tokens if fate != _STAYS else 0))
    paths = dict(draw(strikes).paths)
    return StruckMap(
        ground=draw(pieces),
        approved=paths.get(_APPROVED, ""),
        undecided=paths.get(_OPEN, ""),
        shares=[
            StruckShare(kind, name, kinds[kind][1], round(100 * kinds[kind][1] / max(1, kinds[kind][0]), 1))
            for kind, name in KINDS.items()
            if kind in kinds and kinds[kind][1]
        ],
        tokens=sum(struck for _, struck in kinds.values()),
    )


def _laid(transcript: Transcript) -> Iterator[tuple[str, int, bool, Target]]:
    for entry in transcript.entries:
        if not entry.blocks:
            yield _kind(entry, WHOLE), entry.tokens, entry.is_protected, Target(entry.entry_id)
        for slot, block in enumerate(entry.blocks):
            target = Target(entry.entry_id, block.index)
            yield _kind(entry, slot), block.tokens, entry.is_protected, target


def _kind(entry: TranscriptEntry, slot: int) -> str:
    if entry.role == Role.USER:
        return "user"
    if entry.role == Role.TOOL_RESULT:
        return entry.tool_name if entry.tool_name in _RESULTS else "other"
    if entry.role == Role.COMMAND:
        return "bash"
    if entry.role != Role.ASSISTANT:
        return "custom"
    block = entry.blocks[slot] if slot != WHOLE else None
    if block is None:
        return "text"
    return "thinking" if block.is_thinking else "call" if block.type == BlockType.TOOL_CALL else "text"
