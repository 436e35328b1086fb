"""The shape of a session's tree: runs of entries between forks.

A session of 50,000 entries is one long line with a few branches. The outline shows where it forks, what is labelled,
where it was compacted, and where the agent is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from .controls import LabelControl, NameControl
from .entries import Entry
from .tree import NO_PARENT, SessionTree


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


@dataclass(slots=True)
class _Pending:
    position: int
    depth: int = 0
    is_last: bool = True
    above: tuple[bool, ...] = field(default=())


def runs(tree: SessionTree) -> Iterator[OutlineRun]:
    """The runs of a tree in drawing order: each fork's branches in file order, one after the other."""
    roots = tree.children.get(NO_PARENT, [])
    several = len(roots) > 1
    pending = [
        _Pending(position, depth=int(several), is_last=index == len(roots) - 1) for index, position in enumerate(roots)
    ][::-1]
    leaf = tree.position(tree.leaf.id) if roots else NO_PARENT
    while pending:
        at = pending.pop()
        positions = [at.position]
        while len(following := tree.children.get(positions[-1], [])) == 1:
            positions.append(following[0])
        entries = tuple(tree.entries[position] for position in positions)
        yield OutlineRun(entries, at.depth, at.is_last, at.above, has_leaf=leaf in positions)
        above = (*at.above, not at.is_last) if at.depth else ()
        for index, position in reversed(list(enumerate(following))):
            pending.append(_Pending(position, at.depth + 1, index == len(following) - 1, above))


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
