"""A session's tree as rows: one for each turn, with its lane in a drawing of the branches.

    lane 0  1  2
         o          the first turn
         |\\
         | o        another branch from there, with all that belongs to it
         | |\\
         | | o      a branch of that one
         | o
         o          the branch that the agent continues stays in lane 0

A branch continues in its lane. What else leaves it after a row is drawn below this row, one lane to the right, before
the branch continues: so each lane to the left of a row's passes it. Of several branches, the one with the agent's leaf
continues; elsewhere the one that was written to last.

What an agent took back, and keeps in the file, is a branch that ends there. Two branches are compared by their rows.
"""

from array import array
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import takewhile
from typing import Final, NamedTuple

from .entries import BoundaryControl, Entry, Role
from .tree import NO_PARENT, SessionTree

UNFOLDED: Final = 100
"""The number of rows of a fold that are shown when it is opened."""
NO_ROW: Final = 0xFFFF_FFFF


class RowKind(StrEnum):
    """The kind of a row, by its first entry."""

    TURN = "turn"
    """A message of the user."""
    REST = "rest"
    """The entries after a fork or a compaction within a turn."""
    COMPACTION = "compaction"
    SUMMARY = "summary"
    """The summary of another branch."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Consecutive entries of a branch, beginning with an entry of its kind."""

    kind: RowKind
    start: int
    """The position of its first relevant entry; entries before that which are not messages also belong to it."""
    positions: Sequence[int]
    turns: int
    """The number of the user's messages in it: 1 or 0."""
    tokens: int
    """The estimate of its messages, as recorded."""


@dataclass(frozen=True, slots=True)
class TreeRow:
    """A stretch of a branch, and its place in the drawing."""

    stretch: Stretch
    turn: int
    """The number of the turn on its branch, from 1; 0 before the first."""
    lane: int
    is_start: bool
    """Whether its lane begins here, branching from the lane to the left; in lane 0, from nothing."""
    is_end: bool
    """Whether its lane ends here."""
    follows_fork: bool
    """Whether it is the first row after a fork."""
    forks: int
    """How many other branches leave after it."""
    is_active: bool
    """Whether the branch that the agent continues contains it."""
    is_leaf: bool
    """Whether the agent continues from its last entry."""
    beside_active: bool
    """Whether the branch that the agent continues passes it on the left."""
    tokens_above: int
    """The tokens of all rows above it."""

    @property
    def turns(self) -> int:
        return self.stretch.turns

    @property
    def tokens(self) -> int:
        return self.stretch.tokens

    @property
    def entries(self) -> int:
        return len(self.stretch.positions)


@dataclass(frozen=True, slots=True)
class FoldedRows:
    """Rows in the middle of a branch that are shown as one. None of them has a fork or a label."""

    rows: Sequence[TreeRow]

    @property
    def first(self) -> TreeRow:
        return self.rows[0]

    @property
    def last(self) -> TreeRow:
        return self.rows[-1]

    @property
    def tokens_above(self) -> int:
        return self.first.tokens_above

    @property
    def turns(self) -> int:
        return sum(row.turns for row in self.rows)

    @property
    def tokens(self) -> int:
        return sum(row.tokens for row in self.rows)

    @property
    def entries(self) -> int:
        return sum(row.entries for row in self.rows)


class Below(NamedTuple):
    """The numbers of branches and entries below an entry."""

    branches: int
    entries: int


class _Run(NamedTuple):
    """The beginning of a run of entries without a fork, before it is drawn."""

    position: int
    lane: int
    turn: int
    is_start: bool
    is_active: bool
    """Whether it begins on the branch that the agent continues."""
    beside_active: bool


class TreeRows:
    """The rows of a tree, in drawing order. Positions are indexes of the tree's entries."""

    def __init__(self, tree: SessionTree) -> None:
        self.tree = tree
        self.parents, self._children = _shape(tree)
        """Each entry's parent; of what follows something taken back, the entry before that."""
        self._leaf = tree.position(tree.leaf.id) if self._children else NO_PARENT
        self._active = frozenset(self._path(self._leaf))
        self._latest = self._latest_below()
        self.rows: list[TreeRow] = []
        self.tokens = 0
        """The estimate of all messages of the tree: the sum of its rows."""
        self._row_of = array("I", [NO_ROW]) * len(tree.entries)
        self._draw()

    @property
    def branches(self) -> int:
        """How many branches the tree has."""
        return sum(row.is_end for row in self.rows)

    @property
    def depth(self) -> int:
        """The number of the last lane."""
        return max((row.lane for row in self.rows), default=0)

    def row_of(self, entry_id: str) -> int:
        """The index of the row with an entry; 0 for one that no branch contains.

        Raises BadInput `unknown_entry`.
        """
        found = self._row_of[self.tree.position(entry_id)]
        return 0 if found == NO_ROW else found

    def path(self, entry_id: str) -> list[int]:
        """The positions of the entries from the root to this one. Raises BadInput `unknown_entry`."""
        return self._path(self.tree.position(entry_id))[::-1]

    def ends(self) -> Iterator[TreeRow]:
        """The last row of each branch."""
        return (row for row in self.rows if row.is_end)

    def below(self, position: int) -> Below:
        """The numbers of branches and entries that follow an entry."""
        entries, branches = -1, 0
        pending = [position]
        while pending:
            following = self._children.get(pending.pop(), ())
            entries += 1
            branches += not following
            pending.extend(following)
        return Below(branches if entries else 0, entries)

    def _path(self, position: int) -> list[int]:
        path = []
        while position != NO_PARENT:
            path.append(position)
            position = self.parents[position]
        return path

    def _latest_below(self) -> Sequence[int]:
        """For each entry, the last position in the file among it and its descendants."""
        latest = list(range(len(self.parents)))
        order = list(self._children.get(NO_PARENT, ()))
        for position in order:  # grows on the way: parents come before their children
            order.extend(self._children.get(position, ()))
        for position in reversed(order):
            parent = self.parents[position]
            if parent != NO_PARENT:
                latest[parent] = max(latest[parent], latest[position])
        return latest

    def _draw(self) -> None:
        roots = self._children.get(NO_PARENT, [])
        pending = [_Run(root, 0, 0, True, root in self._active, False) for root in reversed(roots)]
        while pending:
            run = pending.pop()
            positions = self._run_from(run.position)
            following = self._children.get(positions[-1], [])
            turn = self._draw_run(run, positions, len(following))
            if not following:
                continue
            continuing = max(following, key=lambda child: (child in self._active, self._latest[child]))
            is_active = continuing in self._active
            pending.append(_Run(continuing, run.lane, turn, False, is_active, run.beside_active))
            pending.extend(
                _Run(child, run.lane + 1, turn, True, False, is_active or run.beside_active)
                for child in reversed(following)
                if child != continuing
            )

    def _run_from(self, position: int) -> list[int]:
        """The positions from one to the next fork, the agent's leaf or the end."""
        positions = [position]
        while positions[-1] != self._leaf:
            following = self._children.get(positions[-1], ())
            if len(following) != 1:
                break
            positions.append(following[0])
        return positions

    def _draw_run(self, run: _Run, positions: Sequence[int], following: int) -> int:
        """Append the rows of a run; gives the number of turns up to its end."""
        turn = run.turn
        stretches = list(stretches_of(self.tree.entries, positions))
        for place, stretch in enumerate(stretches, 1):
            is_last = place == len(stretches)
            turn += stretch.turns
            for position in stretch.positions:
                self._row_of[position] = len(self.rows)
            self.rows.append(
                TreeRow(
                    stretch=stretch,
                    turn=turn,
                    lane=run.lane,
                    is_start=run.is_start and place == 1,
                    is_end=is_last and not following,
                    follows_fork=place == 1,
                    forks=max(0, following - 1) if is_last else 0,
                    is_active=run.is_active,
                    is_leaf=is_last and positions[-1] == self._leaf,
                    beside_active=run.beside_active,
                    tokens_above=self.tokens,
                )
            )
            self.tokens += stretch.tokens
        return turn


def stretches_of(entries: Sequence[Entry], positions: Sequence[int]) -> Iterator[Stretch]:
    """Divides part of a branch into stretches: turns, compactions, summaries, and the rest after these."""
    kind, start, begin = None, positions[0], 0
    for place, position in enumerate(positions):
        entry = entries[position]
        found = _kind_of(entry, entries[positions[place - 1]] if place else None, kind)
        if found is None:
            continue
        if kind is not None or any(entries[one].is_message for one in positions[begin:place]):
            yield _stretch(entries, kind or RowKind.REST, start, positions[begin:place])
            begin = place
        kind, start = found, position
    yield _stretch(entries, kind or RowKind.REST, start, positions[begin:])


def _kind_of(entry: Entry, before: Entry | None, current: RowKind | None) -> RowKind | None:
    """The kind of the stretch that an entry begins; None if it belongs to the one before."""
    if entry.is_compaction:
        return RowKind.COMPACTION
    if entry.role == Role.BRANCH_SUMMARY:
        return RowKind.SUMMARY
    is_parted = current in (RowKind.COMPACTION, RowKind.SUMMARY)
    if is_parted and before is not None and entry.number == before.number:
        return None
    if entry.role == Role.USER:
        return RowKind.TURN
    if is_parted and entry.is_message and entry.role != Role.COMPACTION_SUMMARY:
        return RowKind.REST
    return None


def _stretch(entries: Sequence[Entry], kind: RowKind, start: int, positions: Sequence[int]) -> Stretch:
    tokens = sum([entries[one].tokens for one in positions if entries[one].is_message])
    return Stretch(kind, start, positions, int(kind is RowKind.TURN), tokens)


def _shape(tree: SessionTree) -> tuple[Sequence[int], Mapping[int, Sequence[int]]]:
    """The parents and the children of a tree in which reverted entries are a separate branch."""
    moved = dict(_taken_back(tree))
    if not moved:
        return tree.parents, tree.children
    parents = list(tree.parents)
    children = {parent: list(found) for parent, found in tree.children.items()}
    for position, before in moved.items():
        children[parents[position]].remove(position)
        children.setdefault(before, []).append(position)
        parents[position] = before
    return parents, {parent: sorted(found) for parent, found in children.items() if found}


def _taken_back(tree: SessionTree) -> Iterator[tuple[int, int]]:
    """The boundaries that revert turns, and the last entry that each of them leaves."""
    for position, entry in enumerate(tree.entries):
        control = entry.control
        if not isinstance(control, BoundaryControl) or control.turns is None or not control.kept:
            continue
        if control.kept[-1] not in tree or position not in tree.children.get(tree.parents[position], ()):
            continue
        before = tree.position(control.kept[-1])
        if before < position:
            yield position, before


# ---- folds -------------------------------------------------------------------------------------------------


def folded(rows: Sequence[TreeRow], kept: Collection[int], opened: Collection[int]) -> list[TreeRow | FoldedRows]:
    """The rows with folds: two or more consecutive plain rows that are neither kept nor opened are shown as one.

    `kept`: indexes of rows. `opened`: indexes at which a fold was opened, which shows the next UNFOLDED rows.
    """
    shown: list[TreeRow | FoldedRows] = []
    unfolded = {index for start in opened for index in range(start, start + UNFOLDED)}
    begin = 0
    for index in range(len(rows) + 1):
        if index < len(rows) and index not in kept and index not in unfolded and _is_plain(rows, index):
            continue
        shown.extend([FoldedRows(rows[begin:index])] if index - begin > 1 else rows[begin:index])
        shown.extend(rows[index : index + 1])
        begin = index + 1
    return shown


def _is_plain(rows: Sequence[TreeRow], index: int) -> bool:
    """Whether a row is in the middle of a run, and nothing but a turn or its rest."""
    row = rows[index]
    if row.follows_fork or row.forks or row.is_end or row.is_leaf:
        return False
    if row.stretch.kind not in (RowKind.TURN, RowKind.REST):
        return False
    return rows[index - 1].stretch.kind in (RowKind.TURN, RowKind.REST)


@dataclass(frozen=True, slots=True)
class BranchComparison:
    """Two branches: their common part, and the part of each that the other lacks. Positions of entries, in order."""

    common: Sequence[int]
    only: tuple[Sequence[Stretch], Sequence[Stretch]]
    turns_before: int
    """The number of turns in the common part."""

    @property
    def ancestor(self) -> int:
        """The last common entry; NO_PARENT if there is none."""
        return self.common[-1] if self.common else NO_PARENT


def compare_branches(rows: TreeRows, one: str, other: str) -> BranchComparison:
    """The comparison of the branches that end with two entries. Raises BadInput `unknown_entry`."""
    paths = rows.path(one), rows.path(other)
    common = [one for one, _ in takewhile(lambda pair: pair[0] == pair[1], zip(*paths, strict=False))]
    entries, shared = rows.tree.entries, len(common)
    sides = [list(stretches_of(entries, path[shared:])) if len(path) > shared else [] for path in paths]
    turns = sum(entries[position].role == Role.USER for position in common)
    return BranchComparison(common, (sides[0], sides[1]), turns)
