"""The transcript of a run as a token map, with the deletions struck through."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate

from compaction_app.core.review_fold import Review
from compaction_app.core.token_map import KINDS, Piece, TokenMap, draw, pieces_of
from compaction_app.core.transcript import Transcript
from sessions_app.sessionlog.context import apportion
from sessions_app.sessionlog.entries import Target

_APPROVED, _OPEN, _STAYS = "user", "text", "custom"
"""The strike is drawn on the same grid, with kinds for the fate of a piece."""


@dataclass(frozen=True, slots=True)
class StruckShare:
    """The deleted share of one kind."""

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
    before: list[int]
    """The amount drawn on the map before each entry, by its position, and then the total."""


def struck_map(transcript: Transcript, review: Review, total: int | None = None) -> StruckMap:
    """The map of a transcript under a review. `total` is the deleted amount in another measure; None for the plan's."""
    pieces: list[Piece] = []
    strikes: list[Piece] = []
    kinds: dict[str, tuple[int, int]] = {}
    drawn = dict.fromkeys((entry.entry_id for entry in transcript.entries), 0)
    for piece, target in pieces_of(transcript, review.would_go):
        whole = Target(target.entry_id)
        fate = _STAYS
        if target in review.goes or whole in review.goes:
            fate = _APPROVED
        elif target in review.would_go or whole in review.would_go:
            fate = _OPEN
        pieces.append(piece)
        drawn[target.entry_id] += piece.tokens
        strikes.append(Piece(fate, piece.tokens))
        before, gone = kinds.get(piece.kind, (0, 0))
        kinds[piece.kind] = (before + piece.tokens, gone + (piece.tokens if fate != _STAYS else 0))
    paths = dict(draw(strikes).paths)
    found = [kind for kind in KINDS if kinds.get(kind, (0, 0))[1]]
    struck = [kinds[kind][1] for kind in found]
    tokens = sum(struck) if total is None else total
    return StruckMap(
        ground=draw(pieces),
        approved=paths.get(_APPROVED, ""),
        undecided=paths.get(_OPEN, ""),
        shares=[
            StruckShare(kind, KINDS[kind], part, round(100 * kinds[kind][1] / max(1, kinds[kind][0]), 1))
            for kind, part in zip(found, apportion(tokens, struck), strict=True)
        ],
        tokens=tokens,
        before=list(accumulate(drawn.values(), initial=0)),
    )
