"""Drawings of a tree's rows: their lanes, and the symbols on them. Each row is drawn separately."""

from dataclasses import dataclass
from typing import Final

from sessions_app.sessionlog.tree_rows import FoldedRows, RowKind, TreeRow

HEIGHT: Final = 32
MIDDLE: Final = HEIGHT // 2
FIRST: Final = 12
"""The position of the first lane, in the units of the drawing."""
WIDE: Final = 24
NARROW: Final = 14
"""The distance between lanes: WIDE for up to two lanes, NARROW for more."""
LANES: Final = 6
"""The number of lanes that are drawn. Deeper branches are drawn in the last one."""


@dataclass(frozen=True, slots=True)
class LaneDrawing:
    """The lines of a row, as paths, and the centre of the symbol on them."""

    width: int
    x: int
    active: str
    """The lines of the branch that the agent continues."""
    other: str
    shape: str
    """`turn`, `rest`, `compaction`, `summary`, `end`, `leaf` or `fold`."""


class Lanes:
    """The drawings of a tree whose branches are at most `depth` lanes from the first."""

    def __init__(self, depth: int) -> None:
        self._last = min(depth, LANES - 1)
        self._step = WIDE if self._last < 2 else NARROW
        self.width = FIRST + self._step * self._last + FIRST

    def row(self, row: TreeRow) -> LaneDrawing:
        """The drawing of one row, with the lanes that pass it."""
        active, other = self._passing(row)
        x = self._x(row.lane)
        if row.is_start and row.lane:
            left = self._x(row.lane - 1)
            other += f"M{left} 0C{left} 12 {x} 4 {x} {MIDDLE}"
        elif not row.is_start:
            above = f"M{x} 0V{MIDDLE}"
            active, other = (active + above, other) if row.is_active else (active, other + above)
        if not row.is_end:
            below = f"M{x} {MIDDLE}V{HEIGHT}"
            goes_on = row.is_active and not row.is_leaf
            active, other = (active + below, other) if goes_on else (active, other + below)
        return LaneDrawing(self.width, x, active, other, _shape(row))

    def fold(self, fold: FoldedRows) -> LaneDrawing:
        """The drawing of folded rows: a continuous line."""
        row = fold.first
        active, other = self._passing(row)
        x = self._x(row.lane)
        line = f"M{x} 0V{HEIGHT}"
        active, other = (active + line, other) if row.is_active else (active, other + line)
        return LaneDrawing(self.width, x, active, other, "fold")

    def dot(self, row: TreeRow) -> LaneDrawing:
        """The drawing of a row in a list of rows that are not consecutive: only its symbol."""
        return LaneDrawing(self.width, self._x(row.lane), "", "", _shape(row))

    def _passing(self, row: TreeRow) -> tuple[str, str]:
        lines = [f"M{self._x(lane)} 0V{HEIGHT}" for lane in range(min(row.lane, self._last + 1))]
        active = lines.pop(0) if lines and row.beside_active else ""
        return active, "".join(lines)

    def _x(self, lane: int) -> int:
        return FIRST + self._step * min(lane, self._last)


def _shape(row: TreeRow) -> str:
    if row.is_leaf:
        return "leaf"
    if row.stretch.kind in (RowKind.COMPACTION, RowKind.SUMMARY):
        return row.stretch.kind.value
    return "end" if row.is_end else row.stretch.kind.value
