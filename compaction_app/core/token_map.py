"""PURE: the context drawn like a page of text: blocks in order, their width by tokens, wrapped at the line's end.

The map is a grid of cells, LINES by CELLS; each cell has the kind of the block that fills most of it. So a session of a
thousand entries and one of fifty thousand make drawings of about the same size, and areas are accurate to within a
cell.
"""

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from sessions_app.sessionlog.entries import Block, BlockType, Role, Target
from sessions_app.sessionlog.tool_names import TOOL_KINDS

from .transcript import Transcript

LINES: Final = 60
CELLS: Final = 120
CELL: Final = 3
"""The width of a cell, in units of the drawing; a line is LINE high, with a GAP below it."""
LINE, GAP = 7, 3

KINDS: Final = {
    "user": "You",
    "text": "Assistant text",
    "thinking": "Thinking",
    "call": "Tool calls",
    "read": "Results: read",
    "bash": "Results: bash",
    "edit": "Results: edit",
    "write": "Results: write",
    "other": "Results: other",
    "custom": "Added context",
}
_OF_ASSISTANT: Final = {
    BlockType.THINKING: "thinking",
    BlockType.REDACTED_THINKING: "thinking",
    BlockType.TOOL_CALL: "call",
}
_OF_OTHERS: Final = {Role.USER: "user", Role.COMMAND: "bash"}


class Piece(NamedTuple):
    """One block on the map: its kind, its tokens, and whether it is protected."""

    kind: str
    tokens: int
    protected: bool = False


def kind_of_piece(role: str, tool_name: str, block_type: str = "") -> str:
    """The kind (one of KINDS) of an entry or of one of its blocks."""
    if role == Role.TOOL_RESULT:
        return TOOL_KINDS.get(tool_name.lower(), "other")
    if role == Role.ASSISTANT:
        return _OF_ASSISTANT.get(block_type, "text")
    return _OF_OTHERS.get(role, "custom")


def pieces_of(transcript: Transcript, struck: Container[Target]) -> Iterator[tuple[Piece, Target]]:
    """The blocks of a transcript, and the entries that have none; `struck` is the deletion.

    The remaining part of an entry is estimated as a whole: its struck parts share the rest of its estimate.
    """
    for entry in transcript.entries:
        whole = Target(entry.entry_id)
        if not entry.blocks:
            kind = kind_of_piece(entry.role, entry.tool_name)
            yield Piece(kind, entry.tokens, entry.is_protected), whole
            continue
        targets = [Target(entry.entry_id, block.index) for block in entry.blocks]
        alone = [whole not in struck and target in struck for target in targets]
        gone = [block for block, is_alone in zip(entry.blocks, alone, strict=True) if is_alone]
        rest = [block for block, is_alone in zip(entry.blocks, alone, strict=True) if not is_alone]
        left = entry.tokens_without({block.index for block in gone})
        shares = block_shares(entry.tokens - left, gone) | block_shares(left, rest)
        for target, block in zip(targets, entry.blocks, strict=True):
            kind = kind_of_piece(entry.role, entry.tool_name, block.type)
            yield Piece(kind, shares[block.index], entry.is_protected), target


def block_shares(total: int, blocks: Sequence[Block]) -> dict[int, int]:
    """Integer shares of a total by block index, in proportion to the blocks' lengths; equal if all are empty."""
    weights = [block.units for block in blocks]
    if not any(weights):
        weights = [1] * len(blocks)
    return {block.index: part for block, part in zip(blocks, shares_of(total, weights), strict=True)}


def shares_of(total: int, weights: Sequence[int]) -> Iterator[int]:
    """Integer shares of a total in proportion to weights; their sum is the total, unless all weights are 0."""
    before, whole = 0, max(1, sum(weights))
    for weight in weights:
        yield total * (before + weight) // whole - total * before // whole
        before += weight


@dataclass(frozen=True, slots=True)
class Share:
    """The share of one kind in the context."""

    kind: str
    name: str
    tokens: int
    percent: float


@dataclass(frozen=True, slots=True)
class TokenMap:
    """The paths of the drawing by kind, the underlines of protected blocks, and the same in numbers."""

    width: int
    height: int
    paths: list[tuple[str, str]]
    underlines: str
    shares: list[Share]
    tokens: int
    tokens_a_line: int

    def tokens_at(self, x: int, y: int) -> int:
        """The number of tokens before the middle of the cell at a point; outside of the map, of the nearest cell."""
        line, cell = y // (LINE + GAP), x // CELL
        cells = min(max(line, 0), LINES - 1) * CELLS + min(max(cell, 0), CELLS - 1)
        return (2 * cells + 1) * self.tokens // (2 * LINES * CELLS)

    def frame(self, before: int, tokens: int) -> tuple[int, int]:
        """Top and height of the lines that `tokens` tokens occupy after `before` others."""
        if not self.tokens:
            return 0, 0
        last = max(before, before + tokens - 1)
        top, bottom = (min(LINES - 1, place * LINES // self.tokens) for place in (before, last))
        return top * (LINE + GAP), (bottom - top) * (LINE + GAP) + LINE


def draw(pieces: Iterable[tuple[str, int, bool]], scale: int = 0) -> TokenMap:
    """The map of pieces in their order. A branch has many of them, so they are plain tuples.

    `scale` is the number of tokens of the whole drawing, if the pieces have fewer: then they fill its beginning, and
    the drawing is as high as they need.
    """
    laid = list(pieces)
    sums: dict[str, int] = {}
    for kind, tokens, _ in laid:
        sums[kind] = sums.get(kind, 0) + tokens
    total = sum(sums.values())
    whole = max(total, scale)
    lines = -(-total * LINES // whole) if scale and whole else LINES
    kinds, protected = _cells(laid, whole)
    paths = {kind: "".join(_bars([one == kind for one in kinds])) for kind in KINDS if kind in sums}
    return TokenMap(
        width=CELLS * CELL,
        height=max(1, lines) * (LINE + GAP) - GAP,
        paths=[(kind, path) for kind, path in paths.items() if path],
        underlines="".join(_bars(protected, top=LINE, height=1)),
        shares=[
            Share(kind, name, sums[kind], round(100 * sums[kind] / total, 1) if total else 0.0)
            for kind, name in KINDS.items()
            if kind in sums
        ],
        tokens=total,
        tokens_a_line=-(-whole // LINES),
    )


def _cells(laid: list[tuple[str, int, bool]], total: int) -> tuple[list[str], list[bool]]:
    """Kind and protection of each cell: those of the piece at its middle."""
    count = LINES * CELLS
    kinds, protected = [""] * count, [False] * count
    if not total:
        return kinds, protected
    cell, before = 0, 0
    for kind, tokens, is_protected in laid:
        before += tokens
        while cell < count and (cell + 0.5) * total < before * count:
            kinds[cell], protected[cell] = kind, is_protected
            cell += 1
    return kinds, protected


def _bars(flags: list[bool], top: int = 0, height: int = LINE) -> Iterable[str]:
    """A bar of this height for each stretch of true cells, so far below the top of its line."""
    for start, length in _stretches(flags):
        x, y = start % CELLS * CELL, start // CELLS * (LINE + GAP) + top
        yield f"M{x} {y}h{length * CELL}v{height}h-{length * CELL}z"


def _stretches(flags: list[bool]) -> Iterable[tuple[int, int]]:
    """Start and length of each stretch of true cells; a stretch ends with its line."""
    for line in range(0, len(flags), CELLS):
        start = None
        for cell in range(line, line + CELLS):
            if flags[cell] and start is None:
                start = cell
            elif not flags[cell] and start is not None:
                yield start, cell - start
                start = None
        if start is not None:
            yield start, line + CELLS - start
