"""Two branches of a session side by side: what both have, and what only one of them has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .entries import Role
from .tree import NO_PARENT
from .tree_rows import Stretch, TreeRows, stretches_of


@dataclass(frozen=True, slots=True)
class BranchComparison:
    """Two branches: what both have, and what only one of them has. Positions of entries, in order."""

    common: Sequence[int]
    only: tuple[Sequence[Stretch], Sequence[Stretch]]
    turns_before: int
    """The turns that both have."""

    @property
    def ancestor(self) -> int:
        """The last entry that both have; NO_PARENT if there is none."""
        return self.common[-1] if self.common else NO_PARENT


def compare(rows: TreeRows, one: str, other: str) -> BranchComparison:
    """The branches that end with two entries. Raises BadInput `unknown_entry`."""
    paths = rows.path(one), rows.path(other)
    shared = 0
    for here, there in zip(*paths, strict=False):
        if here != there:
            break
        shared += 1
    common = paths[0][:shared]
    entries = rows.tree.entries
    sides = [list(stretches_of(entries, path[shared:])) if len(path) > shared else [] for path in paths]
    turns = sum(entries[position].role == Role.USER for position in common)
    return BranchComparison(common, (sides[0], sides[1]), turns)
