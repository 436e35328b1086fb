"""The timeline of a branch: the changes of its context other than growth, and its size after each entry.

branch ─reader─▶ points: a compaction, a summary, the edits of one write
            └──▶ sizes: the estimated tokens of the context after each entry
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from .context import ActiveContext, Message
from .entries import BoundaryControl, Entry, EntryKind, Role

_UNSPOKEN: Final = frozenset({Role.INJECTED, Role.SYSTEM})


class ContextReader(Protocol):
    """The methods of an agent's reader that are used here."""

    def ignores(self, entry: Entry) -> bool: ...

    def rebuild(self, branch: Sequence[Entry]) -> ActiveContext: ...


@dataclass(frozen=True, slots=True)
class TimelinePoint:
    """One change of the context, made by one entry or by the edits of one write. Sizes in estimated tokens."""

    first: Entry
    last: Entry
    """The last entry of the change: the context after it is that of the branch up to here."""
    before_id: str
    """The context before the change is that of the branch up to this entry, without a compaction's own question and
    answer; empty if there was none."""
    entries: int
    tokens_before: int
    tokens_after: int
    removed: tuple[Message, ...]
    """The messages, in their earlier form, that are no longer in the context, or lost part of their content."""
    returned: int
    """The number of messages that are new in the context, without the entries of the change."""
    added: tuple[Message, ...] = ()
    """The messages that replace the removed ones, such as a summary; without those that are in every context."""

    @property
    def kind(self) -> EntryKind:
        return self.first.kind

    @property
    def edits(self) -> int:
        """The number of edits that it consists of: 0 for any other change."""
        return self.entries if self.kind is EntryKind.EDIT else 0

    @property
    def tokens_removed(self) -> int:
        return self.tokens_before - self.tokens_after


@dataclass(frozen=True, slots=True)
class ContextChange:
    """A point with the contexts before and after it."""

    point: TimelinePoint
    before: ActiveContext
    after: ActiveContext

    @property
    def kept(self) -> tuple[Message, ...]:
        """The messages after the change that it did not add, without those that the agent adds to every context."""
        added = {(message.entry.id, message.role) for message in self.point.added}
        return tuple(
            message
            for message in self.after.messages
            if (message.entry.id, message.role) not in added and message.role not in _UNSPOKEN
        )


@dataclass(frozen=True, slots=True)
class Timeline:
    """The points of a branch, and one size for each of its entries."""

    points: tuple[TimelinePoint, ...]
    sizes: tuple[int, ...]


def timeline_of(branch: Sequence[Entry], reader: ContextReader) -> Timeline:
    """The timeline of a branch, given root first. Rebuilds the context twice for each point."""
    points: list[TimelinePoint] = []
    sizes: list[int] = []
    size = 0
    for start, end, change in _steps(branch, reader):
        if change is not None:
            points += [change.point] if _has_effect(change.point) else []
            sizes += [size] * (end - start - 1)
            size = change.point.tokens_after
            sizes.append(size)
            continue
        for grown in branch[start:end]:
            size += grown.tokens if grown.is_message and not grown.empty else 0
            sizes.append(size)
    return Timeline(tuple(points), tuple(sizes))


def changes_of(branch: Sequence[Entry], reader: ContextReader) -> Iterator[ContextChange]:
    """The changes of a branch, given root first, that have an effect, in order. Rebuilds the context twice for each."""
    changes = (change for _, _, change in _steps(branch, reader) if change is not None)
    return (change for change in changes if _has_effect(change.point))


def change_at(branch: Sequence[Entry], entry_id: str, reader: ContextReader) -> ContextChange | None:
    """The change of a branch, given root first, to which an entry belongs; None if there is none."""
    place = next((place for place, entry in enumerate(branch) if entry.id == entry_id), None)
    if place is None:
        return None
    _, _, change = next(_steps(branch, reader, _step_start(branch, place)))
    return change


def _step_start(branch: Sequence[Entry], place: int) -> int:
    """The start of the step of `_steps` that contains an entry."""
    if branch[place].role == Role.COMPACTION_SUMMARY:
        before = range(place - 1, -1, -1)
        ended = next((at for at in before if branch[at].kind in (EntryKind.BOUNDARY, EntryKind.MESSAGE)), place)
        place = ended if branch[ended].kind is EntryKind.BOUNDARY else place
    while place and _are_one_write(branch[place - 1], branch[place]):
        place -= 1
    return place


def _steps(
    branch: Sequence[Entry], reader: ContextReader, start: int = 0
) -> Iterator[tuple[int, int, ContextChange | None]]:
    """The positions of the branch, one by one, with everything that one write recorded as one step; and its change of
    the context, if it may be one."""
    while start < len(branch):
        entry = branch[start]
        end = start + 1
        while end < len(branch) and _are_one_write(branch[end - 1], branch[end]):
            end += 1
        if entry.kind is EntryKind.BOUNDARY:
            # Its summary may follow, perhaps after entries that no model sees.
            following = next((place for place in range(end, len(branch)) if branch[place].is_message), start)
            end = following + 1 if branch[following].role == Role.COMPACTION_SUMMARY else end
        may_change = entry.kind is EntryKind.UNDO or (entry.rebuilds and not reader.ignores(entry))
        yield start, end, _change(branch, start, end, reader) if may_change else None
        start = end


def _are_one_write(entry: Entry, later: Entry) -> bool:
    """Whether two entries in sequence were written together: on one line, or as edits of the same second, the precision
    of the times on the page."""
    if entry.number == later.number:
        return True
    seconds = len("YYYY-MM-DDThh:mm:ss")
    return entry.kind is later.kind is EntryKind.EDIT and entry.timestamp[:seconds] == later.timestamp[:seconds]


def _has_effect(point: TimelinePoint) -> bool:
    """False for an edit that changes no message, such as the edit at the end of a fork, which names no entry."""
    is_same = point.tokens_before == point.tokens_after and not point.removed and not point.returned
    return point.kind is not EntryKind.EDIT or not is_same


def _change(branch: Sequence[Entry], start: int, end: int, reader: ContextReader) -> ContextChange:
    # A change begins to be recorded at its own question or answer, if it has one.
    control = branch[start].control
    began_id = control.began_id if isinstance(control, BoundaryControl) else None
    began = next((place for place in range(start) if branch[place].id == began_id), start)
    before, after = reader.rebuild(branch[:began]), reader.rebuild(branch[:end])
    left = {(message.entry.id, message.role): message for message in after.messages}
    here = {(message.entry.id, message.role) for message in before.messages}
    own = {entry.id for entry in branch[start:end]}
    point = TimelinePoint(
        first=branch[start],
        last=branch[end - 1],
        before_id=branch[began - 1].id if began else "",
        entries=end - start,
        tokens_before=before.estimate,
        tokens_after=after.estimate,
        removed=tuple(
            message
            for message in before.messages
            for now in [left.get((message.entry.id, message.role))]
            if now is None or (now.blocks != message.blocks and now.tokens < message.tokens)
        ),
        returned=sum(key not in here and key[0] not in own for key in left),
        added=tuple(message for message in after.messages if message.entry.id in own and message.role not in _UNSPOKEN),
    )
    return ContextChange(point, before, after)
