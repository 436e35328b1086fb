"""The tree of a session's entries, and its branches.

A branch is the path from an entry to its root; the leaf is the last entry in the file, from which the agent continues.
Real files are damaged, so: of entries with the same id the last one counts; an entry whose parent is missing is a root;
a cycle is cut above its first line, which becomes a root. All faults are reported, and every branch is finite.

A session of 50,000 entries is one long line with a few branches. Its outline (`runs`) shows its forks, labels and
compactions, and the agent's position.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from .entries import Entry, LabelControl, NameControl
from .errors import BadInput
from .session import DAMAGE_KEPT, Damage, DamageKind

NO_PARENT = -1


class SessionTree:
    """Entries by position in `entries`; `parents[i]` is the position of entry i's parent, or NO_PARENT."""

    def __init__(self, entries: Sequence[Entry], damage_kept: int = DAMAGE_KEPT) -> None:
        self._damage_kept = damage_kept
        self.damage: list[Damage] = []
        """The first faults of the tree, at most `damage_kept`."""
        self.damaged = 0
        """The total number of faults."""
        self._position: dict[str, int] = {}
        for position, entry in enumerate(entries):
            earlier = self._position.get(entry.id)
            if earlier is not None:
                self._report(DamageKind.DUPLICATE_ID, entries[earlier], f"entry {entry.id} appears again later")
            self._position[entry.id] = position
        self.entries = entries
        self.parents = [self._parent_of(entry) for entry in entries]
        self._cut_cycles()

    @property
    def leaf(self) -> Entry:
        """The last entry of the conversation in the file. Raises BadInput `no_entries` if there is none."""
        last = next((entry for entry in reversed(self.entries) if not entry.is_off_branch), None)
        if last is None:
            raise no_entries()
        return last

    def __contains__(self, entry_id: str) -> bool:
        return entry_id in self._position

    def entry(self, entry_id: str) -> Entry:
        """The entry with this id. Raises BadInput `unknown_entry`."""
        return self.entries[self.position(entry_id)]

    def position(self, entry_id: str) -> int:
        """The index of the entry with this id in `entries`. Raises BadInput `unknown_entry`."""
        position = self._position.get(entry_id)
        if position is None:
            raise unknown_entry(entry_id)
        return position

    def branch(self, leaf_id: str) -> list[Entry]:
        """The path from the root to this entry, root first. Raises BadInput `unknown_entry`."""
        path = []
        position = self.position(leaf_id)
        while position != NO_PARENT:
            path.append(self.entries[position])
            position = self.parents[position]
        path.reverse()
        return path

    def descends(self, entry_id: str, ancestor_id: str) -> bool:
        """Whether `ancestor_id` is on the branch of `entry_id`."""
        sought = self.position(ancestor_id)
        position = self.position(entry_id)
        while position != NO_PARENT and position != sought:
            position = self.parents[position]
        return position == sought

    @cached_property
    def children(self) -> dict[int, list[int]]:
        """Positions of the children of each entry that has any, in file order; the roots under NO_PARENT."""
        children: dict[int, list[int]] = {}
        for position, parent in enumerate(self.parents):
            entry = self.entries[position]
            if self._position[entry.id] == position and not entry.is_off_branch:
                children.setdefault(parent, []).append(position)
        return children

    def _parent_of(self, entry: Entry) -> int:
        if entry.parent_id is None:
            return NO_PARENT
        parent = self._position.get(entry.parent_id, NO_PARENT)
        if parent == NO_PARENT:
            self._report(DamageKind.MISSING_PARENT, entry, f"entry {entry.id} has a parent that does not exist")
        return parent

    def _cut_cycles(self) -> None:
        reaches_root = bytearray(len(self.parents))
        for start, parent in enumerate(self.parents):
            if parent < start:
                # Every cycle has an entry whose parent comes later, so this walk can be skipped.
                continue
            walk: dict[int, None] = {}
            position = start
            while position != NO_PARENT and not reaches_root[position]:
                if position in walk:
                    self._cut(walk, position)
                    break
                walk[position] = None
                position = self.parents[position]
            for position in walk:
                reaches_root[position] = 1

    def _cut(self, walk: dict[int, None], met_again: int) -> None:
        path = list(walk)
        first = min(path[path.index(met_again) :])
        self.parents[first] = NO_PARENT
        entry = self.entries[first]
        self._report(DamageKind.CYCLE, entry, f"entry {entry.id} is its own ancestor")

    def _report(self, kind: DamageKind, entry: Entry, detail: str) -> None:
        self.damaged += 1
        if len(self.damage) < self._damage_kept:
            self.damage.append(Damage(kind, entry.number, entry.offset, entry.length, detail))


def no_entries() -> BadInput:
    """The error for a session without a leaf."""
    return BadInput("no_entries", "The session has no entries yet, so there is nothing to read.")


def unknown_entry(entry_id: str) -> BadInput:
    """The error for an id that the session does not have."""
    return BadInput(
        "unknown_entry", f"The session has no entry {entry_id}. `redline tree` shows the ids of its branches."
    )


@dataclass(frozen=True, slots=True)
class OutlineRun:
    """Consecutive entries without a fork; `depth` counts the forks above."""

    entries: tuple[Entry, ...]
    depth: int
    is_last: bool
    """Whether no other branch of the same fork follows."""
    above: tuple[bool, ...]
    """For each fork above, whether another of its branches follows."""
    has_leaf: bool

    @property
    def first(self) -> Entry:
        return self.entries[0]

    @property
    def last(self) -> Entry:
        return self.entries[-1]

    @property
    def tokens(self) -> int:
        return sum(entry.tokens for entry in self.entries if entry.is_message)


def runs(tree: SessionTree) -> Iterator[OutlineRun]:
    """The runs of a tree in drawing order: each fork's branches in file order, one after the other."""
    roots = tree.children.get(NO_PARENT, [])
    pending: list[tuple[int, int, bool, tuple[bool, ...]]] = [
        (root, int(len(roots) > 1), root == roots[-1], ()) for root in reversed(roots)
    ]
    """Where runs begin, the next one last: its position, depth, whether it is the last one, and what is above."""
    leaf = tree.position(tree.leaf.id) if roots else NO_PARENT
    while pending:
        position, depth, is_last, above = pending.pop()
        positions = [position]
        while len(following := tree.children.get(positions[-1], [])) == 1:
            positions.append(following[0])
        entries = tuple(tree.entries[position] for position in positions)
        yield OutlineRun(entries, depth, is_last, above, has_leaf=leaf in positions)
        above = (*above, not is_last) if depth else ()
        pending += [(child, depth + 1, child == following[-1], above) for child in reversed(following)]


def labels(tree: SessionTree) -> Mapping[str, str]:
    """The label of each entry that has one; a later label replaces an earlier one, an empty one removes it."""
    found: dict[str, str] = {}
    for entry in tree.entries:
        if isinstance(entry.control, LabelControl) and entry.control.target_id is not None:
            found.pop(entry.control.target_id, None)
            if entry.control.text.strip():
                found[entry.control.target_id] = entry.control.text
    return found


def session_name(entries: Sequence[Entry]) -> str:
    """The latest name of a session, given its entries in file order; empty if it has none."""
    named = (entry.control.name for entry in reversed(entries) if isinstance(entry.control, NameControl))
    return next(named, None) or ""
