"""The entries and blocks that a branch's `context_compaction` entries hide.

All deletions on a branch add up. Then replay safety applies: providers reject a latest assistant message whose thinking
was changed, so deletions that would change it are not applied, and the results of its calls are restored with them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from sessions_app.sessionlog.controls import DeletionControl
from sessions_app.sessionlog.entries import Entry, Role
from sessions_app.sessionlog.targets import Target


@dataclass(frozen=True, slots=True)
class Filters:
    """Hidden entries, and hidden blocks by entry: indexes into the recorded content array."""

    entries: frozenset[str] = frozenset()
    blocks: Mapping[str, frozenset[int]] = field(default_factory=dict)

    def targets(self) -> Iterator[Target]:
        """What is named: the entries, then the blocks."""
        yield from map(Target, sorted(self.entries))
        for entry_id, indexes in self.blocks.items():
            yield from (Target(entry_id, index) for index in sorted(indexes))

    def names(self, target: Target) -> bool:
        if target.block_index is None:
            return target.entry_id in self.entries
        return target.block_index in self.blocks.get(target.entry_id, ())

    def hides(self, target: Target) -> bool:
        """Whether a target is named, or its entry is."""
        return self.names(target) or target.entry_id in self.entries


def recorded_filters(branch: Sequence[Entry]) -> Filters:
    """All deletions on the branch, as recorded."""
    return _collect(target for targets in _deletions(branch) for target in targets)


def effective_filters(branch: Sequence[Entry]) -> Filters:
    """The effective deletions: as recorded, except those that replay safety reverts."""
    recorded = recorded_filters(branch)
    latest = _latest_assistant(branch, recorded.entries)
    if latest is None or not latest.bears_thinking or latest.id not in recorded.blocks:
        return recorded
    calls = set(latest.call_ids())
    answers = {entry.id for entry in branch if entry.result_for is not None and entry.result_for in calls}
    kept: list[Target] = []
    for targets in _deletions(branch):
        names_latest = any(_is_block_of(target, latest) for target in targets)
        for target in targets:
            if _is_block_of(target, latest):
                continue
            if target.entry_id in answers and (names_latest or target.block_index is None):
                continue
            kept.append(target)
    return _collect(kept)


def _is_block_of(target: Target, entry: Entry) -> bool:
    return target.block_index is not None and target.entry_id == entry.id


def _deletions(branch: Sequence[Entry]) -> Iterator[Sequence[Target]]:
    """The targets of each `context_compaction` on the branch."""
    for entry in branch:
        if isinstance(entry.control, DeletionControl):
            yield entry.control.targets


def _latest_assistant(branch: Sequence[Entry], deleted: frozenset[str]) -> Entry | None:
    for entry in reversed(branch):
        if entry.is_message and entry.role == Role.ASSISTANT and entry.id not in deleted:
            return entry
    return None


def _collect(targets: Iterable[Target]) -> Filters:
    entries = set()
    blocks: dict[str, set[int]] = {}
    for target in targets:
        if target.block_index is None:
            entries.add(target.entry_id)
        else:
            blocks.setdefault(target.entry_id, set()).add(target.block_index)
    return Filters(frozenset(entries), {entry_id: frozenset(indexes) for entry_id, indexes in blocks.items()})
