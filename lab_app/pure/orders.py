"""PURE: simple orders of deletion, with which planners are compared.

Each deletes entry by entry through the airlock, with the objects of the same tool calls, until the share is reached.
Entries that the airlock refuses are kept.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from compaction_app.core.stats import tokens_to_go
from compaction_app.core.store import DeletionStore
from compaction_app.core.transcript import Object, Transcript, TranscriptEntry
from sessions_app.sessionlog.entries import Role, Target, request_of

Order = Callable[[Transcript, float], tuple[Target, ...]]
"""The targets of a transcript that an order deletes, given the share of its tokens to delete."""

RESULTS_KEPT: Final = 3
"""The newest tool results, which `old_results` deletes last."""


def oldest(transcript: Transcript, share: float) -> tuple[Target, ...]:
    """The oldest entries first."""
    return _deleted(transcript, share, transcript.entries)


def largest(transcript: Transcript, share: float) -> tuple[Target, ...]:
    """The largest entries first."""
    return _deleted(transcript, share, sorted(transcript.entries, key=_size))


def old_results(transcript: Transcript, share: float) -> tuple[Target, ...]:
    """Tool results except the newest three, the oldest first; then everything else, the oldest first."""
    results = _results(transcript)
    return _deleted(transcript, share, [*results[:-RESULTS_KEPT], *transcript.entries])


def largest_results(transcript: Transcript, share: float) -> tuple[Target, ...]:
    """Tool results except the newest three, the largest first; then everything else, the oldest first."""
    results = _results(transcript)
    return _deleted(transcript, share, [*sorted(results[:-RESULTS_KEPT], key=_size), *transcript.entries])


ORDERS: Final[Mapping[str, Order]] = {
    "oldest": oldest,
    "largest": largest,
    "old_results": old_results,
    "largest_results": largest_results,
}


def _results(transcript: Transcript) -> Sequence[TranscriptEntry]:
    return [entry for entry in transcript.entries if entry.role == Role.TOOL_RESULT]


def _size(entry: TranscriptEntry) -> tuple[int, int]:
    return -entry.tokens, entry.position


def delete_entries(transcript: Transcript, entries: Iterable[TranscriptEntry]) -> tuple[Target, ...]:
    """The targets if these entries are deleted, with the objects of the same calls, where permitted."""
    store = DeletionStore(transcript)
    _delete(store, [Target(entry.entry_id) for entry in entries if not entry.is_protected])
    return store.targets


def _deleted(transcript: Transcript, share: float, entries: Iterable[TranscriptEntry]) -> tuple[Target, ...]:
    """Delete entries in this order, as if one by one: no batch can reach the share before its last entry."""
    transcript = transcript.with_ratio(1 - share)
    store = DeletionStore(transcript)
    waiting = deque(entry for entry in entries if not entry.is_protected)
    while waiting and not store.target_met:
        room = tokens_to_go(store.stats, transcript.parameters.compression_ratio)
        batch: dict[str, None] = {}
        while waiting and room > 0:
            entry = waiting.popleft()
            if Object(entry.position) not in store:
                batch[entry.entry_id] = None
                room -= _most(transcript, entry)
        _delete(store, [Target(entry_id) for entry_id in batch])
    return store.targets


def _delete(store: DeletionStore, targets: Sequence[Target]) -> None:
    """Delete those of these targets that may be deleted: a refused request is repeated in halves."""
    if targets and store.delete(request_of(targets)) is not None and len(targets) > 1:
        middle = len(targets) // 2
        _delete(store, targets[:middle])
        _delete(store, targets[middle:])


def _most(transcript: Transcript, entry: TranscriptEntry) -> int:
    """The tokens of an entry and of everything that may be deleted with it."""
    joined = {entry.position, *entry.companions}
    for call in transcript.pairs.touched_by[entry.position]:
        joined.update(found.position for found in call.objects)
    return sum(transcript.entries[position].tokens for position in joined)
