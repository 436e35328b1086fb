"""Which entries and blocks a branch's `context_compaction` entries hide.

All deletions on a branch add up. Then replay safety: providers reject a latest assistant message whose
thinking was tampered with, so deletions that would do that are not applied, and the results that answer its
calls come back with them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from .entries import Entry


@dataclass(frozen=True, slots=True)
class Filters:
    """Hidden entries, and hidden blocks by entry: indexes into the recorded content array."""

    entries: frozenset[str] = frozenset()
    blocks: Mapping[str, frozenset[int]] = field(default_factory=dict)


class RecordedTarget(NamedTuple):
    """One deletion as a `context_compaction` entry holds it; a whole entry where `block_index` is None."""

    entry_id: str
    block_index: int | None


def recorded_targets(compaction: Entry) -> Iterator[RecordedTarget]:
    """The deletions that a `context_compaction` entry holds. What is no deletion is passed over."""
    targets = (compaction.control or {}).get("deletedTargets")
    for target in targets if isinstance(targets, list) else ():
        if not isinstance(target, dict) or not isinstance(entry_id := target.get("entryId"), str):
            continue
        index = target.get("blockIndex")
        if target.get("kind") == "entry":
            yield RecordedTarget(entry_id, None)
        elif target.get("kind") == "content_block" and isinstance(index, int) and not isinstance(index, bool):
            yield RecordedTarget(entry_id, index)


def recorded_filters(branch: Sequence[Entry]) -> Filters:
    """Every deletion on the branch, as recorded."""
    return _collect(target for compaction in _compactions(branch) for target in recorded_targets(compaction))


def effective_filters(branch: Sequence[Entry]) -> Filters:
    """The deletions that are applied: as recorded, but for what replay safety takes back."""
    compactions = [list(recorded_targets(entry)) for entry in _compactions(branch)]
    recorded = _collect(target for targets in compactions for target in targets)
    latest = _latest_assistant(branch, recorded.entries)
    if latest is None or not latest.bears_thinking or latest.id not in recorded.blocks:
        return recorded
    calls = set(latest.call_ids())
    answers = {entry.id for entry in branch if entry.result_for is not None and entry.result_for in calls}
    kept: list[RecordedTarget] = []
    for targets in compactions:
        names_latest = any(_is_block_of(target, latest) for target in targets)
        for target in targets:
            if _is_block_of(target, latest):
                continue
            if target.entry_id in answers and (names_latest or target.block_index is None):
                continue
            kept.append(target)
    return _collect(kept)


def _is_block_of(target: RecordedTarget, entry: Entry) -> bool:
    return target.block_index is not None and target.entry_id == entry.id


def _compactions(branch: Sequence[Entry]) -> Iterator[Entry]:
    return (entry for entry in branch if entry.type == "context_compaction")


def _latest_assistant(branch: Sequence[Entry], deleted: frozenset[str]) -> Entry | None:
    for entry in reversed(branch):
        if entry.type == "message" and entry.role == "assistant" and entry.id not in deleted:
            return entry
    return None


def _collect(targets: Iterable[RecordedTarget]) -> Filters:
    entries = set()
    blocks: dict[str, set[int]] = {}
    for target in targets:
        if target.block_index is None:
            entries.add(target.entry_id)
        else:
            blocks.setdefault(target.entry_id, set()).add(target.block_index)
    return Filters(frozenset(entries), {entry_id: frozenset(indexes) for entry_id, indexes in blocks.items()})
